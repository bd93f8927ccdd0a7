//! The stage: one Redis, two replicas A and B, and one server for both or one for each.

use std::collections::HashSet;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::book::Book;
use super::client::Client;
use super::report::Report;
use super::upstream::{Flavour, Upstream};
use crate::ports::ReservedPort;

mod door;
pub(crate) mod follow;
pub(crate) mod memory_limit;
pub(crate) mod process;
pub(crate) mod redis;
pub(crate) mod replica;
pub(crate) mod solo;
pub(crate) mod stdio;
pub(crate) mod wire;

use door::Door;
use redis::Redis;
use replica::Replica;

pub(crate) const LEASE: Duration = Duration::from_secs(3);
/// What recovery may take beyond the lease.
pub(crate) const SLACK: Duration = Duration::from_secs(3);
pub(crate) const MAX_DURATION: Duration = Duration::from_secs(8);

/// Whether the program hands calls over: the settings that say how are not known before it does.
const HANDS_OVER: bool = true;

/// An operators' listener at any port. Only replicas that have one keep a history.
const OPERATORS: &str = "listen = \"127.0.0.1:0\"";

pub(crate) const A: usize = 0;
pub(crate) const B: usize = 1;

/// How a stage is set.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    flavour: Flavour,
    /// A server for each replica; else one for both.
    paired: bool,
    max_duration: Duration,
    retention: Duration,
    /// Further sections of the configuration.
    sections: String,
}

impl Plan {
    pub(crate) fn of(flavour: Flavour) -> Self {
        Self {
            flavour,
            paired: false,
            max_duration: MAX_DURATION,
            retention: Duration::from_secs(32),
            sections: String::new(),
        }
    }

    pub(crate) fn paired(mut self) -> Self {
        self.paired = true;
        self
    }

    pub(crate) fn lasting(mut self, max_duration: Duration, retention: Duration) -> Self {
        self.max_duration = max_duration;
        self.retention = retention;
        self
    }

    pub(crate) fn section(mut self, text: &str) -> Self {
        self.sections.push_str(text);
        self
    }

    /// With a history of the tasks that have ended.
    pub(crate) fn remembering(self) -> Self {
        self.section(&format!("[admin]\n{OPERATORS}\n"))
    }

    fn config(&self, store: &str, id: &str) -> String {
        let (shared, seal, rerun) = if HANDS_OVER {
            (
                format!("shared = {}", !self.paired),
                format!("seal_key = \"{}\"", "5e".repeat(32)),
                "on_owner_lost = \"rerun\"",
            )
        } else {
            (String::new(), String::new(), "")
        };
        let (era, sections) = (self.flavour.era(), &self.sections);
        let (max, retention) = (self.max_duration.as_millis(), self.retention.as_millis());
        format!(
            "[upstream]\nera = \"{era}\"\nsessions_max = 4096\n{shared}\n\
             [store]\nurl = \"{store}\"\nnamespace = \"bars\"\n{seal}\n\
             [replica]\nid = \"{id}\"\nlease = \"3s\"\n\
             [tasks]\nmode = \"always\"\npoll_interval = \"100ms\"\n\
             max_duration = \"{max}ms\"\nretention = \"{retention}ms\"\n\
             {sections}\n\
             [[tools]]\nname = \"read\"\n{rerun}\n\
             [[tools]]\nname = \"plain\"\nmode = \"never\"\n"
        )
    }

    pub(crate) async fn start(self) -> Rig {
        let folder = Folder::new();
        let book = Book::default();
        let store = Redis::start(&folder.0).await;
        let mut upstreams = vec![Upstream::start(self.flavour, book.clone()).await];
        if self.paired {
            upstreams.push(Upstream::start(self.flavour, book.clone()).await);
        }
        let door = if self.paired {
            Some(Door::open().await)
        } else {
            None
        };
        let url = door.as_ref().map_or_else(|| upstreams[0].url(), Door::url);
        let mut replicas = Vec::new();
        for id in ["a", "b"] {
            let config = self.config(&store.url(), id);
            let replica = Replica::start(folder.0.join(id), &config, &url).await;
            replicas.push(replica);
        }
        let clients = replicas.iter().map(Replica::client).collect();
        let rig = Rig {
            replicas,
            clients,
            redis: store,
            upstreams,
            book,
            door,
            folder,
        };
        rig.pair_up();
        rig
    }
}

/// A stage that is set. Everything on it ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Rig {
    pub(crate) replicas: Vec<Replica>,
    pub(crate) clients: Vec<Client>,
    pub(crate) redis: Redis,
    pub(crate) upstreams: Vec<Upstream>,
    pub(crate) book: Book,
    door: Option<Door>,
    folder: Folder,
}

impl Rig {
    /// Leads each replica of a pair to its own server. Once more after a restart.
    pub(crate) fn pair_up(&self) {
        let Some(door) = &self.door else { return };
        for (replica, upstream) in self.replicas.iter().zip(&self.upstreams) {
            if let Some(pid) = replica.pid() {
                door.lead(pid, upstream.address());
            }
        }
    }

    /// A replica in front of the first server that no store outage can reach, to compare with.
    pub(crate) async fn control(&self, flavour: Flavour) -> Replica {
        let config = format!(
            "[upstream]\nera = \"{}\"\nsessions_max = 4096\n\
             [store]\nurl = \"memory:\"\n[tasks]\nmode = \"never\"\n",
            flavour.era()
        );
        let folder = self.folder.0.join("control");
        Replica::start(folder, &config, &self.upstreams[0].url()).await
    }

    /// The ids of the tasks in the history, as an operator gets them from a replica that starts now.
    pub(crate) async fn history(&self) -> HashSet<String> {
        let port = ReservedPort::new();
        let operators = port.address().to_string();
        let config = std::fs::read_to_string(self.folder.0.join("a/raincheck.toml"));
        let config = config.expect("the configuration of a replica");
        let config = config.replace("id = \"a\"", "id = \"late\"");
        let config = config.replace(OPERATORS, &format!("listen = \"{operators}\""));
        let folder = self.folder.0.join("late");
        let _late = Replica::start(folder, &config, &self.upstreams[0].url()).await;
        let mut export = Command::new(replica::program());
        export.args(["tasks", "export", "--admin", &operators]);
        let exported = export.output().expect("the built program");
        assert!(exported.status.success(), "{exported:?}");
        let exported = String::from_utf8_lossy(&exported.stdout);
        let ended = exported.lines().map(|line| {
            let ended: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
            ended["id"].as_str().expect("an id").to_owned()
        });
        ended.collect()
    }

    /// Waits until every replica has been in contact with the store for long enough to judge a lease.
    pub(crate) async fn settle(&self) {
        tokio::time::sleep(LEASE + Duration::from_millis(1500)).await;
    }

    /// What no replica may have done, whatever happened around it.
    pub(crate) fn inspect(&mut self, report: &mut Report) {
        let mut panics = Vec::new();
        let mut died = Vec::new();
        for (place, replica) in self.replicas.iter_mut().enumerate() {
            let log = replica.log();
            panics.extend(
                log.lines()
                    .filter(|line| line.contains("panicked"))
                    .map(str::to_owned),
            );
            if replica.died() {
                let last = log.lines().last().unwrap_or("nothing").to_owned();
                died.push(format!("replica {place} said last: {last}"));
            }
        }
        report.zero("panics", panics);
        report.zero("replicas_died", died);
    }
}

/// A folder that is gone at the end, unless `KEEP_LOGS` is set.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let random = uuid::Uuid::new_v4().simple().to_string();
        // Short: a socket's path has room for about a hundred bytes.
        let memory = PathBuf::from("/dev/shm");
        let base = if memory.is_dir() {
            memory
        } else {
            std::env::temp_dir()
        };
        let path = base.join(format!("rcb-{}", &random[..12]));
        std::fs::create_dir(&path).expect("a folder for the bar");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::env::var_os("KEEP_LOGS").is_none() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}
