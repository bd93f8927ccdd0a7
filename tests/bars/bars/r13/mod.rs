//! R13: whatever a server does wrong, its task ends in the state that the table lists, by its deadline, and the call was
//! sent no more often than the table says; nothing of the server's text or address is told; the program serves on.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt as _};
use serde_json::Value;

use self::apart::apart;
use crate::book::{Book, Entry};
use crate::client::{Client, Heard};
use crate::faulty::Faulty;
use crate::faulty::script::CANARY;
use crate::faulty::table::{self, End, Fault, RESULT_BYTES_MAX, Want};
use crate::rig::follow::Seen;
use crate::rig::solo::Solo;
use crate::seed::Seed;
use crate::upstream::text_of;
use crate::{Asked, Report};

mod apart;

const AT_ONCE: usize = 24;

/// What an end may come later than the deadline, on a busy machine.
const SLACK: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(100);

/// The words of an error about a redirect.
const NOT_FOLLOWED: &str = "which is not followed";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Era {
    Legacy,
    Modern,
}

impl Era {
    const BOTH: [Self; 2] = [Self::Legacy, Self::Modern];

    fn word(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
        }
    }

    fn want(self, fault: &Fault) -> Option<Want> {
        match self {
            Self::Legacy => fault.legacy,
            Self::Modern => fault.modern,
        }
    }
}

pub(super) async fn run(asked: Asked, report: &mut Report) {
    let trap = Trap::set();
    let table = table::all();
    let names: BTreeSet<_> = table.iter().map(|fault| fault.name).collect();
    assert_eq!(names.len(), table.len(), "two faults of one name");
    report.at_least("faults", names.len(), 52);
    for era in Era::BOTH {
        together(&table, era, &trap, asked, report).await;
    }
    apart(&trap, report).await;
    report.zero("redirects_followed", trap.caught());
}

/// Every fault of the table, many at once, before one replica.
async fn together(table: &[Fault], era: Era, trap: &Trap, mut asked: Asked, report: &mut Report) {
    let book = Book::default();
    let server = Faulty::start(book.clone(), trap.address).await;
    let mut stage = Stage::start(era, &server.url(), book).await;
    let mut trials = Vec::new();
    for round in 0..asked.of(5, 1) {
        for fault in table {
            if let Some(want) = era.want(fault) {
                trials.push(Trial {
                    fault: fault.name,
                    tool: fault.tool,
                    token: format!("{}.{}.{round}", fault.name, era.word()),
                    want,
                });
            }
        }
    }
    shuffle(&mut trials, &mut asked.seed);
    let part: Vec<Report> = stream::iter(trials)
        .map(|trial| stage.tried(trial))
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    for part in part {
        report.join(part);
    }
    let address = server.address();
    stage.inspect(report, &address.port().to_string());
}

fn shuffle(trials: &mut [Trial], seed: &mut Seed) {
    for place in (1..trials.len()).rev() {
        let other = seed.between(0, u64::try_from(place + 1).unwrap_or(1));
        trials.swap(place, usize::try_from(other).unwrap_or(0));
    }
}

/// One call to a server that does one thing wrong.
struct Trial {
    fault: &'static str,
    tool: &'static str,
    token: String,
    want: Want,
}

impl Trial {
    fn max_duration(&self) -> Duration {
        match self.tool {
            "brief" => BRIEF,
            _ => LONG,
        }
    }
}

const BRIEF: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(20);

/// One replica in front of a server, and what it told.
struct Stage {
    solo: Solo,
    era: Era,
    book: Book,
}

impl Stage {
    async fn start(era: Era, url: &str, book: Book) -> Self {
        let config = format!(
            "[upstream]\nera = \"{}\"\nsessions_max = 4096\nconnect_timeout = \"2s\"\n\
             [telemetry]\nlog = \"info,raincheck=debug\"\n\
             [tasks]\nmode = \"always\"\npoll_interval = \"100ms\"\nmax_duration = \"{}s\"\n\
             result_bytes_max = \"{RESULT_BYTES_MAX}\"\n\
             [[tools]]\nname = \"brief\"\nmax_duration = \"{}s\"\n\
             [[tools]]\nname = \"read\"\non_owner_lost = \"rerun\"\n\
             [[tools]]\nname = \"plain\"\nmode = \"never\"\n",
            era.word(),
            LONG.as_secs(),
            BRIEF.as_secs(),
        );
        Self {
            solo: Solo::start(&config, Some(url)).await,
            era,
            book,
        }
    }

    fn client(&self) -> &Client {
        &self.solo.client
    }

    async fn tried(&self, trial: Trial) -> Report {
        reported(&trial, self.trial(&trial).await)
    }

    /// Makes the call, and holds everything that it came to against the table.
    async fn trial(&self, trial: &Trial) -> Result<(), String> {
        let arguments = serde_json::json!({"fault": trial.fault, "token": trial.token});
        let began = Instant::now();
        let heard = self.client().call(trial.tool, arguments).await;
        let id = heard
            .task()
            .ok_or_else(|| format!("not announced: {heard:?}"))?;
        let told = self.told(&id, began + trial.max_duration() + SLACK).await;
        self.judge(trial, &told).await?;
        self.serves(&trial.token).await
    }

    /// A call of no fault goes through, and has an answer of its own.
    async fn serves(&self, token: &str) -> Result<(), String> {
        let token = format!("{token}.after");
        let arguments = serde_json::json!({"token": token});
        let heard = self.client().call("plain", arguments).await;
        match &heard {
            Heard::Result(result) if result["content"][0]["text"] == text_of(&token, &[]) => Ok(()),
            Heard::Result(_) | Heard::Error { .. } | Heard::Broken(_) => {
                Err(format!("a good call afterwards was answered {heard:?}"))
            }
        }
    }

    /// Polls until the end or the deadline.
    async fn told(&self, id: &str, deadline: Instant) -> Told {
        let mut told = Told::default();
        while told.seen.end.is_none() && Instant::now() < deadline {
            let heard = self.client().get(id).await;
            if let Heard::Result(state) = &heard
                && let Some(words) = state["statusMessage"].as_str()
            {
                told.words.insert(words.to_owned());
            }
            told.seen.take(&heard);
            let _ = writeln!(told.all, "{heard:?}");
            tokio::time::sleep(POLL).await;
        }
        told
    }

    async fn judge(&self, trial: &Trial, told: &Told) -> Result<(), String> {
        let want = &trial.want;
        let Some((end, _)) = &told.seen.end else {
            return Err(format!("not at its end by its deadline: {:?}", told.seen));
        };
        if !is_wanted(want.end, &trial.token, end) {
            return Err(format!("must end {:?}, ended {end}", want.end));
        }
        let odd = told.seen.wrong.iter().chain(&told.seen.lost);
        if let Some(odd) = odd.into_iter().next() {
            return Err(odd.clone());
        }
        // Where a redirect leads is said, so that it can be mended.
        let has_address = told.all.contains("127.0.0.1") && !told.all.contains(NOT_FOLLOWED);
        if told.all.contains(CANARY) || has_address {
            return Err(format!("tells of the server: {}", told.all));
        }
        if let Some(words) = want.says
            && !told.words.iter().any(|said| said.contains(words))
        {
            return Err(format!("must say {words:?}, says {:?}", told.words));
        }
        self.judge_entry(trial).await
    }

    /// What the server saw, as soon as it can know.
    async fn judge_entry(&self, trial: &Trial) -> Result<(), String> {
        let (want, era) = (trial.want, self.era);
        let is_told = |entry: &Entry| match era {
            Era::Legacy => entry.cancelled.is_some(),
            Era::Modern => entry.hung_up.is_some(),
        };
        if want.cancelled && !self.book.until(&trial.token, SLACK, is_told).await {
            return Err("the server was not told that nobody waits".to_owned());
        }
        let entry = self.book.of(&trial.token);
        let counts = (entry.runs, entry.fetched, entry.spoiled);
        if counts != (want.sent, want.fetched, 0) || entry.answers != want.answers {
            return Err(format!("wanted {want:?}, the server knows {entry:?}"));
        }
        Ok(())
    }

    fn inspect(&mut self, report: &mut Report, port: &str) {
        let log = self.solo.replica.log();
        let address = format!(":{port}");
        let tells = |line: &&str| line.contains(CANARY) || line.contains(&address);
        // The operator's own words at the start, and the targets of redirects.
        let own = [" starting ", " serving ", NOT_FOLLOWED];
        let lines = log
            .lines()
            .filter(|line| !own.iter().any(|word| line.contains(word)));
        let leaks = lines.filter(tells).map(str::to_owned).collect();
        report.zero("leaks_in_the_log", leaks);
        self.solo.inspect(report);
    }
}

fn reported(trial: &Trial, found: Result<(), String>) -> Report {
    let mut report = Report::default();
    report.count("trials", 1_u32);
    let wrong = found.err().map(|why| format!("{}: {why}", trial.token));
    report.zero("wrong", wrong.into_iter().collect());
    report
}

/// What a client was told of one task.
#[derive(Default)]
struct Told {
    seen: Seen,
    /// Every status message.
    words: BTreeSet<String>,
    /// Every answer.
    all: String,
}

fn is_wanted(want: End, token: &str, end: &Value) -> bool {
    match want {
        End::Completed => {
            let text = &end["result"]["content"][0]["text"];
            end["status"] == "completed" && *text == text_of(token, &[])
        }
        End::Failed(reason, effect) => {
            let data = &end["error"]["data"];
            end["status"] == "failed"
                && end["error"]["code"] == -32603
                && data["io.raincheck/reason"] == reason
                && data["io.raincheck/effect"] == effect
        }
        End::Refused(code) => end["status"] == "failed" && end["error"]["code"] == code,
    }
}

/// Where redirects lead. Nobody may come.
struct Trap {
    address: std::net::SocketAddr,
    listener: std::net::TcpListener,
}

impl Trap {
    fn set() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        let address = listener.local_addr().expect("the port that was bound");
        Self { address, listener }
    }

    fn caught(&self) -> Vec<String> {
        let come = std::iter::from_fn(|| self.listener.accept().ok());
        come.map(|(_, from)| format!("{from} came")).collect()
    }
}
