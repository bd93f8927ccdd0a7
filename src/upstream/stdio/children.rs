//! The children that translated and modern callers share: one for each caller with one set of
//! capabilities, started when it is needed and ended when it is not.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use super::channel::{Channel, Said};
use super::child::Nursery;
use super::exchange::ask;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::json::{Object, Writer, string};
use crate::mcp::tools::Tools;
use crate::mcp::version::{Era, LEGACY_NEWEST};
use crate::upstream::cache::Cache;
use crate::upstream::sessions::NoSession;
use crate::upstream::wrapped::Discovered;
use crate::upstream::{Outgoing, UpstreamError, translate};

/// An unused child is ended after this.
pub(super) const IDLE: Duration = Duration::from_mins(5);

/// How long a server's handshake may take: `npx -y` may have to fetch it first.
pub(super) const START_PATIENCE: Duration = Duration::from_mins(1);

/// Whose child.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    caller: [u8; 16],
    /// What is declared to a legacy server in its handshake, as JSON. A modern one hears it with
    /// each request, and is one child whatever its callers can do.
    capabilities: Option<Arc<str>>,
}

impl Key {
    pub(super) fn of(era: Era, outgoing: &Outgoing) -> Self {
        Self::new(era, outgoing.caller, &outgoing.capabilities)
    }

    /// The capabilities are a modern client's, as it declares them.
    pub(super) fn new(era: Era, caller: [u8; 16], capabilities: &str) -> Self {
        let capabilities = || translate::legacy_capabilities(capabilities).into();
        Self {
            caller,
            capabilities: (era == Era::Legacy).then(capabilities),
        }
    }
}

type Slot = Arc<OnceCell<Arc<Channel>>>;

#[derive(Debug)]
pub(super) struct Children {
    pub(super) nursery: Arc<Nursery>,
    by_key: Mutex<HashMap<Key, Slot>>,
    /// Processes of all kinds; each holds one until nothing is left of it.
    permits: Arc<Semaphore>,
    processes_max: u32,
    /// For a process to end, where all are in use.
    wait: Duration,
    pub(super) tools: Arc<Cache<Tools>>,
}

const UNREACHABLE: Failure = Failure {
    reason: Reason::UpstreamUnreachable,
    effect: SideEffect::None,
};

impl Children {
    pub(super) fn new(nursery: Arc<Nursery>, children_max: usize, wait: Duration) -> Self {
        Self {
            nursery,
            by_key: Mutex::default(),
            permits: Arc::new(Semaphore::new(children_max)),
            processes_max: u32::try_from(children_max).unwrap_or(u32::MAX),
            wait,
            tools: Arc::default(),
        }
    }

    fn by_key(&self) -> MutexGuard<'_, HashMap<Key, Slot>> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The child of that key, started by one of all who want it. It may have ended by the time it
    /// is used. Dropped before it resolves, the start goes on: the next may have it.
    pub(super) async fn get(self: &Arc<Self>, key: &Key) -> Result<Arc<Channel>, NoSession> {
        let slot = {
            let mut by_key = self.by_key();
            let gone = |slot: &Slot| slot.get().is_some_and(|channel| !channel.is_open());
            if by_key.get(key).is_some_and(gone) {
                by_key.remove(key);
            }
            Arc::clone(by_key.entry(key.clone()).or_default())
        };
        if let Some(channel) = slot.get() {
            return Ok(Arc::clone(channel));
        }
        let (this, key, own) = (Arc::clone(self), key.clone(), Arc::clone(&slot));
        let opening = self.nursery.services.spawn(async move {
            let opened = own.get_or_try_init(|| Box::pin(this.open(&key))).await;
            if opened.is_err() {
                this.forget(&key, &own);
            }
            opened.cloned()
        });
        opening.await.map_err(|_| NoSession::Failed(UNREACHABLE))?
    }

    /// A child of that caller that runs already, whatever was declared to it.
    pub(super) fn any_of(&self, caller: [u8; 16]) -> Option<Arc<Channel>> {
        let by_key = self.by_key();
        let mut own = by_key.iter().filter(|(key, _)| key.caller == caller);
        own.find_map(|(_, slot)| slot.get().filter(|channel| channel.is_open()).cloned())
    }

    fn forget(&self, key: &Key, slot: &Slot) {
        let mut by_key = self.by_key();
        let is_it = |kept: &Slot| Arc::ptr_eq(kept, slot) && kept.get().is_none();
        if by_key.get(key).is_some_and(is_it) {
            by_key.remove(key);
        }
    }

    async fn open(&self, key: &Key) -> Result<Arc<Channel>, NoSession> {
        let permit = self.permit().await?;
        let capabilities = key.capabilities.clone();
        let declared = capabilities.clone().unwrap_or_else(|| "{}".into());
        let tools = Arc::clone(&self.tools);
        let start = self
            .nursery
            .start(permit, |mouth| Channel::new(mouth, declared, tools));
        let channel = start.await?;
        if let Some(capabilities) = capabilities {
            let shaken = timeout(START_PATIENCE, handshake(&channel, &capabilities)).await;
            let shaken = shaken.unwrap_or(Err(NoSession::Failed(UNREACHABLE)));
            if let Err(why) = shaken {
                channel.close();
                return Err(why);
            }
        }
        Ok(channel)
    }

    /// The right to one more process. Where all are in use, the one that was unused for longest
    /// makes room.
    pub(super) async fn permit(&self) -> Result<OwnedSemaphorePermit, Failure> {
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            return Ok(permit);
        }
        self.close_unused_longest();
        let waiting = Arc::clone(&self.permits).acquire_owned();
        let waited = timeout(self.wait, waiting).await;
        waited.ok().and_then(Result::ok).ok_or(UNREACHABLE)
    }

    fn close_unused_longest(&self) {
        let by_key = self.by_key();
        let channels = by_key.values().filter_map(|slot| slot.get());
        let unused = channels
            .filter(|channel| channel.is_open())
            .filter_map(|channel| channel.unused_since().map(|since| (since, channel)));
        if let Some((_, channel)) = unused.min_by_key(|(since, _)| *since) {
            channel.close();
        }
    }

    /// Ends what nobody has used for so long, and forgets what has ended.
    pub(super) fn close_unused(&self, idle: Duration) {
        let now = Instant::now();
        self.by_key().retain(|_, slot| {
            let Some(channel) = slot.get() else {
                return true;
            };
            let unused = channel.unused_since();
            if unused.is_some_and(|since| now.saturating_duration_since(since) >= idle) {
                channel.close();
            }
            channel.is_open()
        });
    }

    /// Ends all, and waits until nothing is left of any process, for a bounded time.
    pub(super) async fn stop(&self, patience: Duration) {
        self.nursery.stop.cancel();
        let all = self.permits.acquire_many(self.processes_max);
        let _ = timeout(patience, all).await;
        // Whoever waits for a process gets none.
        self.permits.close();
    }
}

/// A legacy server is told who we are, and says who it is.
async fn handshake(channel: &Arc<Channel>, capabilities: &str) -> Result<(), NoSession> {
    let mut params = Writer::object();
    params
        .str("protocolVersion", LEGACY_NEWEST)
        .raw("capabilities", capabilities)
        .raw("clientInfo", &translate::client_info());
    let invalid = || NoSession::Failed(Failure::new(Reason::UpstreamInvalid, SideEffect::None));
    let result = match ask(channel, "initialize", &params.end()).await {
        Said::Result(result) => result,
        Said::Error(error) => {
            return Err(NoSession::Error(UpstreamError {
                error,
                status: 200,
                www_authenticate: None,
            }));
        }
        Said::Failed(_) => return Err(NoSession::Failed(UNREACHABLE)),
        Said::Progress(_) | Said::Log(_) | Said::Notice(_) | Said::Question(_) => {
            return Err(invalid());
        }
    };
    let object = Object::parse(result.get()).map_err(|_| invalid())?;
    object
        .get("protocolVersion")
        .and_then(string)
        .ok_or_else(invalid)?;
    let member = |key| object.get(key).map(ToOwned::to_owned);
    let described = Discovered {
        capabilities: member("capabilities").ok_or_else(invalid)?,
        server_info: member("serverInfo"),
        instructions: member("instructions"),
        supported_versions: None,
    };
    // The first and only one.
    let _ = channel.described.set(Arc::new(described));
    let ready = translate::notification("notifications/initialized", "{}");
    channel.tell(ready).await;
    Ok(())
}
