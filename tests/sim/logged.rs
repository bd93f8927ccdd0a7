//! Calls with a log of events: their clients are cut off and come back, to any replica, and a replica carries the
//! call on whose owner is lost.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use raincheck::runner::call_log::entry::{EntryKind, LogEntry};
use raincheck::runner::call_log::log::EventLog;
use raincheck::runner::call_log::recent::{Backlog, RecentEvents};
use raincheck::runner::call_log::standing::CallStanding;
use raincheck::runner::call_log::takeover::TakenOver;
use raincheck::runner::call_log::writer::LogWriter;
use raincheck::task::id::{Caller, Incarnation, TaskId};
use raincheck::task::log_terms::LogTerms;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::link::{End, Fate, Link};
use crate::replica::{DEADLINE, Replica};
use crate::server::raw;
use crate::world::World;

pub(crate) const CALLS: u64 = 4;
const STEPS: u64 = 9;
/// As in the product: a replica that was missed for so long is lost.
const LOST_AFTER: Duration = Duration::from_secs(4);
const LOOK: Duration = Duration::from_secs(1);
/// A client that is told so often that its call is not kept gives up.
const REFUSALS_MAX: u32 = 10;

/// What the logged calls of a world came to.
#[derive(Debug, Default)]
pub(crate) struct Logged {
    /// What runs on which replica, as its readers see it.
    running: Mutex<HashMap<(Incarnation, TaskId), watch::Receiver<RecentEvents>>>,
    pub(crate) told: Mutex<LogTally>,
}

#[derive(Debug, Default, Clone)]
pub(crate) struct LogTally {
    pub(crate) answered: u32,
    /// Calls whose clients heard an error of raincheck's.
    pub(crate) lost: u32,
    pub(crate) taken_over: u32,
    /// Calls of which the store knows nothing: their first replica died before it could tell.
    pub(crate) unknown: u32,
}

impl LogTally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.answered += other.answered;
        self.lost += other.lost;
        self.taken_over += other.taken_over;
        self.unknown += other.unknown;
    }
}

/// A call at the server, which keeps what it says.
#[derive(Debug)]
struct Tool {
    key: String,
    began: Instant,
    pause: Duration,
    resumable: bool,
}

enum Said {
    Message(String),
    EventId,
    Answer(String),
}

impl Tool {
    /// What the server says as number `number`, over this link. Cancel safe.
    async fn says(&self, number: u64, link: &Link) -> Said {
        let at = self.pause * u32::try_from(number).unwrap();
        sleep_until(self.began + at).await;
        while link.way(End::Server).await != Fate::Through {
            if !self.resumable {
                return Said::Answer(error("upstream_reset"));
            }
            sleep(Duration::from_millis(500)).await;
        }
        link.alive().await;
        match number {
            number if number > STEPS => Said::Answer(self.answer()),
            number if number.is_multiple_of(3) => Said::EventId,
            number => Said::Message(format!(r#"{{"progress":{number},"of":"{}"}}"#, self.key)),
        }
    }

    fn answer(&self) -> String {
        format!(r#"{{"result":"{}"}}"#, self.key)
    }
}

fn error(reason: &str) -> String {
    format!(r#"{{"error":"{reason}"}}"#)
}

/// A client, and what it has of its call.
struct Client {
    call: TaskId,
    tool: Arc<Tool>,
    last: u64,
    entries: BTreeMap<u64, String>,
    refusals: u32,
}

/// How a call ended for its client.
enum Ended {
    Answered(String),
    Lost,
    Unknown,
}

fn log_at(replica: &Replica, call: TaskId) -> EventLog {
    EventLog::of(&replica.runner, caller(), "session", call)
}

fn caller() -> Caller {
    Caller::from_bytes([1; 16])
}

/// Carries a call to its end, or until it is another replica's, or this process dies.
async fn carry(replica: Replica, tool: Arc<Tool>, mut writer: LogWriter, mut next: u64) {
    let link = &replica.link;
    writer.begin().await;
    loop {
        if writer.is_lost() {
            return;
        }
        let said = tokio::select! {
            said = tool.says(next, link) => said,
            () = writer.changed() => {
                writer.look().await;
                continue;
            }
            () = sleep(LOOK) => {
                writer.write_down().await;
                continue;
            }
            () = replica.runner.halt().cancelled() => {
                if !writer.leave().await {
                    writer.end(EntryKind::Answer, error("shutdown")).await;
                }
                return;
            }
        };
        let event_id = tool.resumable.then(|| next.to_string());
        next += 1;
        match (said, event_id) {
            (Said::Message(json), event_id) => {
                writer
                    .say(EntryKind::Message, json, event_id.as_deref())
                    .await;
            }
            (Said::EventId, Some(event_id)) => writer.resumes_at(&event_id).await,
            (Said::EventId, None) => {}
            (Said::Answer(json), _) => {
                writer.end(EntryKind::Answer, json).await;
                break;
            }
        }
    }
    while !writer.is_written_down() {
        sleep(LOOK).await;
        writer.write_again().await;
    }
}

impl World {
    /// Makes a call with a log, and comes back to it until it has ended.
    pub(crate) async fn logged_client(&self, number: u64) {
        let tool = Arc::new(Tool {
            key: format!("logged-{number}"),
            began: Instant::now(),
            pause: self.all.dice.millis(100, 2_500),
            resumable: self.all.dice.percent(75),
        });
        let replica = self.replica();
        let mut client = Client {
            call: TaskId::random(),
            tool: Arc::clone(&tool),
            last: 0,
            entries: BTreeMap::new(),
            refusals: 0,
        };
        self.all.watch_log(&log_at(&self.observer, client.call));
        let mut shown = self.begin_logged(&replica, &client);
        // A client that was told no event cannot come back.
        let primed = shown.wait_for(|recent| recent.is_begun);
        if timeout(Duration::from_secs(30), primed).await.is_err() || replica.link.is_dead() {
            return;
        }
        let mut replica = replica;
        let ended = loop {
            // Connections break.
            let patience = self.all.dice.millis(500, 15_000);
            let reading = timeout(patience, self.read_logged(&replica, &mut client));
            if let Ok(Some(ended)) = reading.await {
                break ended;
            }
            sleep(self.all.dice.millis(100, 1_000)).await;
            replica = self.replica();
        };
        let mut told = self.logged.told.lock().unwrap();
        match ended {
            Ended::Answered(json) if json == tool.answer() => told.answered += 1,
            Ended::Answered(json) => {
                told.lost += 1;
                if !json.starts_with(r#"{"error":"#) {
                    self.all
                        .book
                        .wrong(format!("{}: answered {json}", tool.key));
                }
            }
            Ended::Lost => told.lost += 1,
            Ended::Unknown => told.unknown += 1,
        }
    }

    fn begin_logged(&self, replica: &Replica, client: &Client) -> watch::Receiver<RecentEvents> {
        let log = log_at(replica, client.call);
        let (recent, shown) = watch::channel(RecentEvents::default());
        let began_ms = log.now_ms();
        let terms = LogTerms {
            session: log.session(),
            id: raw("7"),
            began_ms,
            ends_ms: began_ms + u64::try_from(DEADLINE.as_millis()).unwrap(),
            retention_ms: 600_000,
            bytes_max: 1 << 20,
            heartbeat: None,
            point: None,
        };
        let writer = LogWriter::new(log, "t", terms, recent);
        self.carry_logged(replica, client, writer, 1, shown.clone());
        shown
    }

    fn carry_logged(
        &self,
        replica: &Replica,
        client: &Client,
        writer: LogWriter,
        next: u64,
        shown: watch::Receiver<RecentEvents>,
    ) {
        let key = (replica.runner.incarnation().clone(), client.call);
        self.logged.running.lock().unwrap().insert(key, shown);
        let job = carry(replica.clone(), Arc::clone(&client.tool), writer, next);
        replica.runner.spawn_tracked(job);
    }

    fn local(&self, replica: &Replica, call: TaskId) -> Option<watch::Receiver<RecentEvents>> {
        let key = (replica.runner.incarnation().clone(), call);
        let mut running = self.logged.running.lock().unwrap();
        // A job that has ended shows nothing more.
        running.retain(|_, shown| shown.has_changed().is_ok());
        running.get(&key).cloned()
    }

    /// One connection of the client. `None`: it was cut, and the client comes back.
    async fn read_logged(&self, replica: &Replica, client: &mut Client) -> Option<Ended> {
        let log = log_at(replica, client.call);
        let mut missed = None;
        loop {
            if let Some(ended) = self.look(replica, client, &log, &mut missed).await? {
                return Some(ended);
            }
            sleep(LOOK).await;
        }
    }

    /// `None`: the connection ends. `Some(None)`: nothing new.
    async fn look(
        &self,
        replica: &Replica,
        client: &mut Client,
        log: &EventLog,
        missed: &mut Option<Instant>,
    ) -> Option<Option<Ended>> {
        if replica.link.is_dead() {
            return None;
        }
        if let Some(shown) = self.local(replica, client.call) {
            let backlog = shown.borrow().behind(client.last);
            if let Backlog::All(entries) = backlog {
                return Some(self.take(client, entries));
            }
        }
        let entries = log.behind(client.last).await.ok()?;
        if !entries.is_empty() {
            *missed = None;
            return Some(self.take(client, entries));
        }
        let Some(stands) = log.standing().await.ok()? else {
            client.refusals += 1;
            return (client.refusals > REFUSALS_MAX).then_some(Some(Ended::Unknown));
        };
        let runner = &replica.runner;
        let lives = |owner: &Incarnation| owner != runner.incarnation() && !runner.misses(owner);
        if !stands.is_over && stands.owner.as_ref().is_some_and(lives) {
            *missed = None;
            return Some(None);
        }
        let since = *missed.get_or_insert(Instant::now());
        if !stands.is_over && stands.owner.is_some() && since.elapsed() < LOST_AFTER {
            return Some(None);
        }
        // The owner may have written the last entries between the two reads.
        let entries = log.behind(client.last).await.ok()?;
        if !entries.is_empty() {
            return Some(self.take(client, entries));
        }
        if stands.is_over {
            return stands.error.map(|_| Some(Ended::Lost));
        }
        *missed = None;
        self.take_over(replica, client, log, stands).await;
        Some(None)
    }

    async fn take_over(
        &self,
        replica: &Replica,
        client: &Client,
        log: &EventLog,
        stands: CallStanding,
    ) {
        let (recent, shown) = watch::channel(RecentEvents::default());
        let taking = log.clone().take_over(stands, client.last, recent);
        let Ok(Some(TakenOver {
            mut writer,
            event_id,
        })) = taking.await
        else {
            return;
        };
        let Some(event_id) = event_id else {
            writer.end(EntryKind::Answer, error("owner_lost")).await;
            return;
        };
        self.logged.told.lock().unwrap().taken_over += 1;
        let next = event_id.parse::<u64>().unwrap() + 1;
        self.carry_logged(replica, client, writer, next, shown);
    }

    /// What the client hears. An event is the same, whoever tells of it.
    fn take(&self, client: &mut Client, entries: Vec<(u64, LogEntry)>) -> Option<Ended> {
        for (number, entry) in entries {
            client.last = number;
            if entry.kind() == EntryKind::Answer {
                return Some(Ended::Answered(entry.json().to_owned()));
            }
            let known = client.entries.insert(number, entry.json().to_owned());
            if known.is_some_and(|known| known != entry.json()) {
                let key = &client.tool.key;
                self.all
                    .book
                    .wrong(format!("{key}: event {number} changed"));
            }
            let expected = (1..=STEPS).filter(|step| !step.is_multiple_of(3));
            let is_in_order = expected
                .zip(1..)
                .any(|(step, nth)| nth == number && entry.json().contains(&format!(":{step},")));
            if !is_in_order {
                let wrong = format!("{}: {} as event {number}", client.tool.key, entry.json());
                self.all.book.wrong(wrong);
            }
        }
        None
    }
}
