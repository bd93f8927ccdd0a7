//! Held: a legacy client that is cut five times during a call gets its one answer, and the tool ran once; also with the
//! replica that carries it killed in between, where the server keeps its events.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::future::{join, join_all, join3};
use serde_json::json;
use tokio::task::JoinError;

use crate::rig::{A, B, Plan, Rig};
use crate::seed::Seed;
use crate::session::{CALL, Event, Session, Stream};
use crate::upstream::{Flavour, text_of};
use crate::{Asked, Report};

/// How long each call takes at full size, and at least.
const CALL_MS: u32 = 60_000;
const CALL_MS_MIN: u32 = 5_000;

const CUTS: u32 = 5;

/// How long a client that was cut waits before it comes back, or tries once more.
const RETRY: Duration = Duration::from_millis(300);

/// A successor is found when the owner's lease has ended and some more seconds are over.
const TAKEN_OVER: Duration = Duration::from_secs(25);

pub(super) async fn run(asked: Asked, report: &mut Report) {
    let part = |name, flavour, fate| Part {
        name,
        flavour,
        fate,
        earlier: None,
    };
    let found = join3(
        part("cut", Flavour::Plain, Fate::Stays).run(asked),
        part("kept", Flavour::Resumable, Fate::Dies).run(asked),
        part("carried", Flavour::Late, Fate::Dies).run(asked),
    )
    .await;
    report.join(found.0);
    report.join(found.1);
    report.join(found.2);
}

/// Replica A is of an earlier program, which knows nothing of this program's calls: it turns their clients away, and they
/// come back to B.
pub(super) async fn mixed(asked: Asked, earlier: &Path) -> Report {
    let part = |name, flavour, fate| Part {
        name,
        flavour,
        fate,
        earlier: Some(earlier),
    };
    let (mut report, kept) = join(
        part("mixed", Flavour::Plain, Fate::Stays).run(asked),
        part("mixed_kept", Flavour::Late, Fate::ComesBack).run(asked),
    )
    .await;
    report.join(kept);
    report
}

/// What happens to the replica that took the calls when they are half over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Stays,
    Dies,
    /// It is killed, and started again.
    ComesBack,
}

#[derive(Clone, Copy)]
struct Part<'a> {
    name: &'a str,
    flavour: Flavour,
    fate: Fate,
    /// The program of replica A, if it is another one.
    earlier: Option<&'a Path>,
}

impl Part<'_> {
    async fn run(self, mut asked: Asked) -> Report {
        let took = Duration::from_millis(asked.of(CALL_MS, CALL_MS_MIN).into());
        let deadline = Instant::now() + took + TAKEN_OVER;
        let plan = Plan::of(self.flavour).lasting(took * 2 + TAKEN_OVER, took * 2);
        let mut rig = plan.start().await;
        if let Some(earlier) = self.earlier {
            rig.replicas[A].set_program(earlier.to_owned());
            rig.replicas[A].restart().await;
        }
        rig.settle().await;
        let n = asked.of(20, 5);
        let calls = (0..n).map(|n| {
            let token = self.token(n);
            let seed = Seed::of(asked.seed.between(0, u64::MAX));
            let places = self.places(&rig, n);
            tokio::spawn(call(places, token, took, seed, deadline))
        });
        let calls: Vec<_> = calls.collect();
        if self.fate != Fate::Stays {
            tokio::time::sleep(took / 2).await;
            let taker = &mut rig.replicas[self.taker(0)];
            taker.kill();
            if self.fate == Fate::ComesBack {
                taker.restart().await;
            }
        }
        let called = join_all(calls).await;
        self.judge(rig, called, n)
    }

    fn token(self, n: u32) -> String {
        format!("held-{}-{n}", self.name)
    }

    /// The replica that takes this call: where both stay, each takes one half.
    fn taker(self, n: u32) -> usize {
        match (self.earlier, self.fate) {
            (Some(_), Fate::Stays) if n.is_multiple_of(2) => B,
            (Some(_), Fate::Dies | Fate::ComesBack) => B,
            (Some(_) | None, _) => A,
        }
    }

    fn places(self, rig: &Rig, n: u32) -> Places {
        let taker = self.taker(n);
        let [taken_at, other] = [taker, 1 - taker].map(|place| rig.replicas[place].address());
        Places {
            all: [taken_at, other],
            turns_away: (self.earlier.is_some() && taker == B).then_some(other),
        }
    }

    fn judge(self, mut rig: Rig, called: Vec<Called>, n: u32) -> Report {
        let name = self.name;
        let mut report = Report::default();
        let mut answered = 0;
        for (n, called) in (0..).zip(called) {
            let token = self.token(n);
            match called.expect("a client") {
                Ok(turned_away) => {
                    answered += 1;
                    report.count(&format!("{name}_cuts"), CUTS);
                    report.count(&format!("{name}_turned_away"), turned_away);
                }
                Err(why) => report.zero(&format!("{name}_wrong"), vec![format!("{token}: {why}")]),
            }
            judge_runs(&rig, &token, name, &mut report);
        }
        report.zero(&format!("{name}_wrong"), Vec::new());
        report.at_least(&format!("{name}_answered"), answered, n.into());
        rig.inspect(&mut report);
        report
    }
}

fn judge_runs(rig: &Rig, token: &str, name: &str, report: &mut Report) {
    let entry = rig.book.of(token);
    let ran_once = entry.runs == 1 && entry.finished == 1 && entry.cancelled.is_none();
    let wrong = (!ran_once).then(|| format!("{token}: {entry:?}"));
    report.zero(&format!("{name}_runs_wrong"), wrong.into_iter().collect());
}

/// The replicas, by their addresses: first the one that takes the call, then the other.
#[derive(Clone, Copy)]
struct Places {
    all: [SocketAddr; 2],
    /// The replica that knows nothing of the call, and says so.
    turns_away: Option<SocketAddr>,
}

/// How often a client was turned away before it had its answer, or what went wrong.
type Called = Result<Result<u32, String>, JoinError>;

/// One client, to its answer: how often it was turned away.
async fn call(
    places: Places,
    token: String,
    took: Duration,
    mut seed: Seed,
    deadline: Instant,
) -> Result<u32, String> {
    let session = Session::open(places.all[0]).await?;
    let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let arguments = json!({"token": token, "ms": ms, "steps": 20});
    let began = Instant::now();
    let mut client = Client {
        session,
        places,
        last: None,
        turned_away: 0,
        answers: Vec::new(),
    };
    let calling = client.session.call(places.all[0], "work", arguments);
    let mut stream = Some(calling.await?);
    // Five times while the server works, each in a sixth of that time of its own.
    let sixth = ms / 6;
    for cut in 0..CUTS {
        let slack = sixth / 2;
        let at = u64::from(cut) * sixth + seed.between(slack, sixth);
        let until = began + Duration::from_millis(at);
        client.read(&mut stream, until.min(deadline)).await?;
        stream = None;
        tokio::time::sleep(RETRY).await;
    }
    while client.answers.is_empty() && Instant::now() < deadline {
        client.read(&mut stream, deadline).await?;
    }
    let [answer] = &client.answers[..] else {
        return Err(format!("not one answer: {:?}", client.answers));
    };
    if answer["result"]["content"][0]["text"] != text_of(&token, &[]) {
        return Err(format!("another answer: {answer}"));
    }
    Ok(client.turned_away)
}

struct Client {
    session: Session,
    places: Places,
    /// The last event that it saw.
    last: Option<String>,
    turned_away: u32,
    answers: Vec<serde_json::Value>,
}

impl Client {
    /// Reads until then, or to the answer; comes back, to either replica, whenever it was cut.
    async fn read(&mut self, stream: &mut Option<Stream>, until: Instant) -> Result<(), String> {
        let until = tokio::time::Instant::from_std(until);
        while self.answers.is_empty() && tokio::time::Instant::now() < until {
            let Some(reading) = stream else {
                *stream = self.back().await?;
                if stream.is_none() {
                    tokio::time::sleep(RETRY).await;
                }
                continue;
            };
            match tokio::time::timeout_at(until, reading.next()).await {
                Ok(Some(event)) => self.take(event),
                Ok(None) => *stream = None,
                Err(_elapsed) => return Ok(()),
            }
        }
        Ok(())
    }

    /// `None`: no replica is there, or it is the one that turns the client away. Any other replica that knows nothing
    /// of the call has lost the call.
    async fn back(&mut self) -> Result<Option<Stream>, String> {
        let Some(last) = &self.last else {
            return Err("cut before the first event".to_owned());
        };
        self.places.all.reverse();
        let place = self.places.all[0];
        match self.session.back(place, last).await {
            Ok(stream) => Ok(Some(stream)),
            Err(why) if why.starts_with("HTTP 400") && self.places.turns_away == Some(place) => {
                self.turned_away += 1;
                Ok(None)
            }
            Err(why) if why.starts_with("HTTP 4") => Err(why),
            Err(_) => Ok(None),
        }
    }

    fn take(&mut self, event: Event) {
        if event.id.is_some() {
            self.last = event.id;
        }
        if event.message["id"] == CALL && event.message["method"].is_null() {
            self.answers.push(event.message);
        }
    }
}
