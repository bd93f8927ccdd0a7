//! Held: a legacy client that is cut five times during a call gets its one answer, and the tool ran once; also with the
//! replica that carries it killed in between, where the server keeps its events.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::future::{join_all, join3};
use serde_json::json;

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
    let found = join3(
        part(asked, "cut", Flavour::Plain, false),
        part(asked, "kept", Flavour::Resumable, true),
        part(asked, "carried", Flavour::Late, true),
    )
    .await;
    report.join(found.0);
    report.join(found.1);
    report.join(found.2);
}

/// `dies`: whoever took the calls is killed when they are half over.
async fn part(mut asked: Asked, name: &str, flavour: Flavour, dies: bool) -> Report {
    let mut report = Report::default();
    let took = Duration::from_millis(asked.of(CALL_MS, CALL_MS_MIN).into());
    let deadline = Instant::now() + took + TAKEN_OVER;
    let plan = Plan::of(flavour).lasting(took * 2 + TAKEN_OVER, took * 2);
    let mut rig = plan.start().await;
    rig.settle().await;
    let places = [rig.replicas[A].address(), rig.replicas[B].address()];
    let n = asked.of(20, 5);
    let calls = (0..n).map(|n| {
        let token = format!("held-{name}-{n}");
        let seed = Seed::of(asked.seed.between(0, u64::MAX));
        tokio::spawn(call(places, token, took, seed, deadline))
    });
    let calls: Vec<_> = calls.collect();
    if dies {
        tokio::time::sleep(took / 2).await;
        rig.replicas[A].kill();
    }
    let mut answered = 0;
    for (n, called) in join_all(calls).await.into_iter().enumerate() {
        let token = format!("held-{name}-{n}");
        match called.expect("a client") {
            Ok(cuts) => {
                answered += 1;
                report.count(&format!("{name}_cuts"), cuts);
            }
            Err(why) => report.zero(&format!("{name}_wrong"), vec![format!("{token}: {why}")]),
        }
        judge(&rig, &token, name, &mut report);
    }
    report.zero(&format!("{name}_wrong"), Vec::new());
    report.at_least(&format!("{name}_answered"), answered, n.into());
    rig.inspect(&mut report);
    report
}

fn judge(rig: &Rig, token: &str, name: &str, report: &mut Report) {
    let entry = rig.book.of(token);
    let ran_once = entry.runs == 1 && entry.finished == 1 && entry.cancelled.is_none();
    let wrong = (!ran_once).then(|| format!("{token}: {entry:?}"));
    report.zero(&format!("{name}_runs_wrong"), wrong.into_iter().collect());
}

/// One client, to its answer: how often it was cut.
async fn call(
    places: [SocketAddr; 2],
    token: String,
    took: Duration,
    mut seed: Seed,
    deadline: Instant,
) -> Result<u32, String> {
    let session = Session::open(places[A]).await?;
    let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let arguments = json!({"token": token, "ms": ms, "steps": 20});
    let began = Instant::now();
    let mut client = Client {
        session,
        places,
        last: None,
        answers: Vec::new(),
    };
    let mut stream = Some(client.session.call(places[A], "work", arguments).await?);
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
    Ok(CUTS)
}

struct Client {
    session: Session,
    places: [SocketAddr; 2],
    /// The last event that it saw.
    last: Option<String>,
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

    /// `None`: nobody is there. A replica that knows nothing of the call is a lost call.
    async fn back(&mut self) -> Result<Option<Stream>, String> {
        let Some(last) = &self.last else {
            return Err("cut before the first event".to_owned());
        };
        self.places.reverse();
        match self.session.back(self.places[0], last).await {
            Ok(stream) => Ok(Some(stream)),
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
