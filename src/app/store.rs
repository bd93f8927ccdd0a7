//! Opens the store that the configuration names, or checks whether it could be opened.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::error::{AppError, line};
use super::opened::{Opened, embedded};
use super::slots;
use crate::base::clock::{Anchored, Clock, System};
use crate::base::io_reason::io_reason;
use crate::config::{self, Config, Location, Seal, SealKey, Secret};
use crate::runner::given_up;
use crate::runner::given_up_claims::known_clocks;
use crate::runner::learned::memory::{self as learned, LearnedTool};
use crate::store::absent::Absent;
use crate::store::embedded::{Embedded, FileState, seal_key};
use crate::store::kv::{Kind, Name};
use crate::store::memory::Memory;
use crate::store::redis::{
    Moved, Namespace, Redis, RedisOpenError, RedisOptions, RedisTls, Wait, move_namespace,
};
use crate::store::seal::{Sealer, fingerprint};
use crate::store::sealed::{Clear, Sealed};
use crate::store::{Store, StoreError};
use crate::tls;

/// Why the store is not open.
#[derive(Debug)]
pub(super) enum StoreOpenError {
    /// The store does not answer yet, or is not ready itself: it may open later.
    Away(AppError),
    /// The settings or the store must change first.
    Refused(AppError),
}

impl From<AppError> for StoreOpenError {
    fn from(error: AppError) -> Self {
        Self::Refused(error)
    }
}

impl From<RedisOpenError> for StoreOpenError {
    fn from(error: RedisOpenError) -> Self {
        if error.is_away() {
            Self::Away(line(error))
        } else {
            Self::Refused(line(error))
        }
    }
}

impl From<StoreError> for StoreOpenError {
    fn from(error: StoreError) -> Self {
        // A store that has just opened, and answers no more.
        if error.kind() == "away" {
            Self::Away(line(error))
        } else {
            Self::Refused(line(error))
        }
    }
}

/// Opens the store, and reads the key under which it knows callers. What goes into the store is sealed if the operator
/// asked for that.
pub(super) async fn open(
    config: &Config,
    services: &TaskTracker,
    stop: &CancellationToken,
) -> Result<(Opened, [u8; 32]), StoreOpenError> {
    let opened = open_clear(config, services, stop).await?;
    let opened = sealed(config, opened).await?;
    // Read after the seal is set up: with a seal, the key is derived from the seal key and is not stored in the clear.
    let key = opened.store.caller_key().await?;
    Ok((opened, key))
}

/// A store that is never there, and a key for callers that no other process knows: no task is made with it.
pub(super) fn absent(config: &Config) -> Result<(Opened, [u8; 32]), AppError> {
    let mut key = [0; 32];
    getrandom::fill(&mut key).map_err(|error| AppError(format!("no random bytes: {error}")))?;
    let opened = Opened {
        store: Arc::new(Absent),
        clock: Arc::new(System),
        shared_clock: None,
        exclusive: false,
        embedded: None,
        sealer: configured_sealer(config, ""),
    };
    Ok((opened, key))
}

async fn sealed(config: &Config, opened: Opened) -> Result<Opened, StoreOpenError> {
    if opened.exclusive && opened.embedded.is_none() {
        // What is in memory is nowhere else.
        return Ok(opened);
    }
    let (store, sealer) = (Arc::clone(&opened.store), opened.sealer.clone());
    let sealed = match (config.store.seal, sealer) {
        (seal @ (Seal::Mixed | Seal::Payloads), Some(sealer)) => {
            Sealed::sealing(store, sealer, clear(seal), opened.clock.now_ms()).await?
        }
        // With the seal off, what other replicas have sealed can still be read.
        (Seal::Off | Seal::Mixed | Seal::Payloads, sealer) => Sealed::reading(store, sealer),
    };
    Ok(Opened {
        store: Arc::new(sealed),
        ..opened
    })
}

fn clear(seal: Seal) -> Clear {
    match seal {
        Seal::Off | Seal::Mixed => Clear::Read,
        Seal::Payloads => Clear::Refused,
    }
}

async fn open_clear(
    config: &Config,
    services: &TaskTracker,
    stop: &CancellationToken,
) -> Result<Opened, StoreOpenError> {
    let system: Arc<dyn Clock> = Arc::new(System);
    match &config.store.location {
        Location::Memory => Ok(in_memory(system)),
        Location::Embedded(path) => {
            let store = Embedded::open(path, Arc::clone(&system)).map_err(line)?;
            // Only the process that has the store file open may make the key beside it.
            let key = seal_key(path).map_err(|error| {
                let why = io_reason(&error);
                AppError(format!("the seal key beside {}: {why}", path.display()))
            })?;
            let sealer = configured_sealer(config, "");
            let sealer = sealer.unwrap_or_else(|| Sealer::new("", &key, &[]));
            Ok(embedded(store, sealer, system))
        }
        Location::Slots(path) => {
            let sealer = configured_sealer(config, "");
            let sealer = |key: &_| sealer.unwrap_or_else(|| Sealer::new("", key, &[]));
            Ok(slots::open(path, &system, sealer).unwrap_or_else(|| in_memory(system)))
        }
        Location::Redis { url, namespace } => {
            let options = options(config, url, namespace)?;
            let sealed_for = options.namespace.to_string();
            let store = Redis::open(&options, services, stop).await?;
            // A beat without an incarnation takes no lease. It only returns the time of Redis.
            let now_ms = store.beat(None, config.replica.lease).await?.now_ms;
            let clock = Arc::new(Anchored::at(now_ms));
            Ok(Opened {
                store: Arc::new(store),
                clock: Arc::clone(&clock) as Arc<dyn Clock>,
                shared_clock: Some(clock),
                exclusive: false,
                embedded: None,
                sealer: configured_sealer(config, &sealed_for),
            })
        }
    }
}

/// The sealer of the configured keys, if there are any.
fn configured_sealer(config: &Config, namespace: &str) -> Option<Sealer> {
    let key = config.store.seal_key.as_ref()?;
    let previous = config.store.seal_key_previous.as_ref();
    let earlier: Vec<_> = previous.map(SealKey::expose).into_iter().collect();
    Some(Sealer::new(namespace, key.expose(), &earlier))
}

fn in_memory(clock: Arc<dyn Clock>) -> Opened {
    Opened {
        store: Arc::new(Memory::new(Arc::clone(&clock))),
        clock,
        shared_clock: None,
        exclusive: true,
        embedded: None,
        sealer: None,
    }
}

/// The time that the check of a store may take.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// The result of the check of a store.
#[derive(Debug, Clone)]
pub struct StoreFound {
    pub file: FileState,
    pub others: OtherReplicas,
    /// The durations of calls that the replicas learned, if they can be read.
    pub learned: Vec<LearnedTool>,
    /// The tools whose calls a client is known to give up, and after how long.
    pub clocks: Vec<(String, Duration)>,
}

/// The seal key of the replicas that run, against the key of this configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherReplicas {
    /// No replica runs, or none has a key.
    Keyless,
    Same,
    Different,
}

/// Checks whether `open` would succeed, without opening the store. The check takes nothing and leaves nothing behind,
/// because another process may use the store.
pub async fn check(config: &Config) -> Result<StoreFound, AppError> {
    let alone = |file| StoreFound {
        file,
        others: OtherReplicas::Keyless,
        learned: Vec::new(),
        clocks: Vec::new(),
    };
    let checking = async {
        match &config.store.location {
            // Memory always works, and `raincheck stdio` finds a free file or uses memory.
            Location::Memory | Location::Slots(_) => Ok(alone(FileState::Free)),
            Location::Embedded(path) => {
                let path = path.clone();
                // A disk that hangs would block this thread, and the timeout below could not end that.
                let looking = tokio::task::spawn_blocking(move || Embedded::file_state(&path));
                let found = looking.await.map_err(line)?.map_err(line);
                found.map(alone)
            }
            Location::Redis { url, namespace } => {
                let options = options(config, url, namespace)?;
                let mut names = vec![given_up::mark()];
                names.extend(learned::names());
                let seal_key = [Name::of(Kind::SealKey, &[])];
                let wanted = [&seal_key[..], &names].concat();
                let found = Redis::dry_run(&options, &wanted).await.map_err(line)?;
                let mut found = found.into_iter();
                // The values come in the order of their names, and the seal key is the first of them.
                let theirs = found.next().flatten();
                let sealer = configured_sealer(config, &options.namespace.to_string());
                let clear = clear(config.store.seal);
                let mut values = names
                    .iter()
                    .zip(found)
                    .map(|(name, value)| Sealed::opened(sealer.as_ref(), clear, name, value?));
                let mark = values.next().flatten().unwrap_or_default();
                Ok(StoreFound {
                    file: FileState::Free,
                    others: others(config, theirs.as_deref()),
                    learned: learned::described(values.flatten()),
                    clocks: known_clocks(&mark, System.now_ms()),
                })
            }
        }
    };
    let looked = tokio::time::timeout(CHECK_TIMEOUT, checking).await;
    looked.unwrap_or_else(|_elapsed| Err(no_answer()))
}

/// The result of moving a store to the server of these settings.
#[derive(Debug)]
pub enum StoreMoved {
    /// The store remembers no server.
    Nameless,
    Unused,
    Already,
    Done {
        from: String,
    },
    Alive {
        from: String,
        replicas: Vec<String>,
    },
}

/// Lets the namespace in Redis serve the server of these settings.
pub async fn move_store(config: &Config, by_force: bool) -> Result<StoreMoved, AppError> {
    let Location::Redis { url, namespace } = &config.store.location else {
        return Ok(StoreMoved::Nameless);
    };
    let options = options(config, url, namespace)?;
    let moving = move_namespace(&options, by_force);
    let moved = tokio::time::timeout(CHECK_TIMEOUT, moving).await;
    let moved = moved.map_err(|_elapsed| no_answer())?;
    Ok(match moved.map_err(line)? {
        Moved::Unused => StoreMoved::Unused,
        Moved::Already => StoreMoved::Already,
        Moved::Done { from } => StoreMoved::Done { from },
        Moved::Alive { from, replicas } => StoreMoved::Alive { from, replicas },
    })
}

fn no_answer() -> AppError {
    AppError(format!("no answer within {} s", CHECK_TIMEOUT.as_secs()))
}

fn others(config: &Config, theirs: Option<&[u8]>) -> OtherReplicas {
    let Some(theirs) = theirs else {
        return OtherReplicas::Keyless;
    };
    let store = &config.store;
    let ours = [&store.seal_key, &store.seal_key_previous];
    let ours = ours.into_iter().flatten();
    let mut ours = ours.map(|key| fingerprint(key.expose()));
    if ours.any(|key| key == theirs) {
        OtherReplicas::Same
    } else {
        OtherReplicas::Different
    }
}

fn options(config: &Config, url: &Secret, namespace: &str) -> Result<RedisOptions, AppError> {
    let namespace = Namespace::parse(namespace)
        .ok_or_else(|| AppError("store.namespace: use 1 to 64 of A-Z a-z 0-9 . _ -".into()))?;
    Ok(RedisOptions {
        allow_eviction: config.store.allow_eviction,
        serves: Some(config.upstream.server.service()),
        tls: certificates(&config.store.tls)?,
        wait: config.store.wait.is_on().then_some(Wait {
            replicas: config.store.wait.replicas,
            aof: config.store.wait.aof,
            timeout: config.store.wait.timeout,
        }),
        ..RedisOptions::new(url.expose(), namespace)
    })
}

/// Reads the TLS files for Redis.
fn certificates(files: &config::ClientTlsFiles) -> Result<RedisTls, AppError> {
    if *files != config::ClientTlsFiles::default() {
        // The library for Redis ignores what is no certificate, and says less of a wrong key.
        let identity = files.identity.as_ref();
        let checked = tls::client::client(tls::client::Files {
            roots: files.roots.clone(),
            identity: identity.map(|files| (files.certificate.clone(), files.key.clone())),
            http2: false,
        });
        checked.map_err(|error| AppError(format!("store.tls: {error}")))?;
    }
    let read = |setting: &str, path: &std::path::Path| {
        std::fs::read(path).map_err(|error| {
            let (path, why) = (path.display(), io_reason(&error));
            AppError(format!("store.tls.{setting}: {path} cannot be read: {why}"))
        })
    };
    let roots = files.roots.as_deref().map(|path| read("roots", path));
    let identity = files.identity.as_ref().map(|files| {
        let certificate = read("certificate", &files.certificate)?;
        Ok((certificate, read("key", &files.key)?))
    });
    Ok(RedisTls {
        roots: roots.transpose()?,
        identity: identity.transpose()?,
    })
}
