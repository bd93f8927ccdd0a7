//! The wrapped server, scripted, as one replica reaches it.
//!
//! A call names its script in its arguments. The server counts how often each call had its effect.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream;
use raincheck::mcp::error::{Failure, Reason, SideEffect};
use raincheck::mcp::version::Era;
use raincheck::runner::server::WrappedServer;
use raincheck::upstream::{
    Answer, Control, Event, Exchange, Forwarded, Keep, Question, Seat, Seating, UpstreamRequest,
};
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::link::{End, Fate, Link};

/// What the server does with one call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Script {
    pub(crate) runs_for: Duration,
    /// After half of its time the call asks its client, and waits.
    pub(crate) asks: bool,
    pub(crate) resumable: bool,
}

/// What the server knows, the same for every replica.
#[derive(Debug, Default)]
pub(crate) struct Server {
    calls: Mutex<HashMap<String, Call>>,
}

#[derive(Debug)]
struct Call {
    script: Script,
    /// How often it had its effect.
    effects: u32,
    runs: Vec<Arc<Run>>,
}

/// One run of a call.
#[derive(Debug)]
struct Run {
    key: String,
    number: usize,
    script: Script,
    began: Instant,
    answered: watch::Sender<bool>,
    cancelled: watch::Sender<bool>,
}

impl Server {
    pub(crate) fn enter(&self, key: &str, script: Script) {
        let call = Call {
            script,
            effects: 0,
            runs: Vec::new(),
        };
        self.calls.lock().unwrap().insert(key.to_owned(), call);
    }

    pub(crate) fn effects(&self, key: &str) -> u32 {
        self.calls.lock().unwrap()[key].effects
    }

    /// Resolves when the server was told to end the last run of this call, which began before.
    pub(crate) async fn is_cancelled(&self, key: &str) {
        let run = Arc::clone(self.calls.lock().unwrap()[key].runs.last().unwrap());
        let _ = run.cancelled.subscribe().wait_for(|is| *is).await;
    }

    fn run(&self, key: &str) -> Arc<Run> {
        let mut calls = self.calls.lock().unwrap();
        let call = calls.get_mut(key).unwrap();
        call.effects += 1;
        let run = Arc::new(Run {
            key: key.to_owned(),
            number: call.runs.len(),
            script: call.script,
            began: Instant::now(),
            answered: watch::Sender::new(false),
            cancelled: watch::Sender::new(false),
        });
        call.runs.push(Arc::clone(&run));
        run
    }

    fn resumed(&self, point: &str) -> Option<Arc<Run>> {
        let (key, number) = point.split_once('#')?;
        let calls = self.calls.lock().unwrap();
        let run = calls.get(key)?.runs.get(number.parse::<usize>().ok()?)?;
        Some(Arc::clone(run))
    }
}

/// The server as one replica reaches it.
#[derive(Debug)]
pub(crate) struct LinkedServer {
    pub(crate) server: Arc<Server>,
    pub(crate) link: Arc<Link>,
    pub(crate) era: Era,
}

/// The way back of one exchange.
struct Way {
    link: Arc<Link>,
    run: watch::Receiver<Option<Arc<Run>>>,
}

/// How far an exchange has come.
enum Stage {
    Unsent(String),
    JobStarted(Arc<Run>),
    Begun(Arc<Run>),
    Asked(Arc<Run>),
    Answered(Arc<Run>),
    Over,
}

impl LinkedServer {
    fn exchange(&self, first: Stage) -> Exchange {
        let begun = match &first {
            Stage::Begun(run) => Some(Arc::clone(run)),
            Stage::Unsent(_)
            | Stage::JobStarted(_)
            | Stage::Asked(_)
            | Stage::Answered(_)
            | Stage::Over => None,
        };
        let (begins, run) = watch::channel(begun);
        let (server, link) = (Arc::clone(&self.server), Arc::clone(&self.link));
        let state = (first, begins, server, link);
        let events = stream::unfold(state, |(stage, begins, server, link)| async move {
            let (event, next) = step(stage, &begins, &server, &link).await?;
            Some((event, (next, begins, server, link)))
        });
        Exchange {
            events: events.boxed(),
            control: Arc::new(Way {
                link: Arc::clone(&self.link),
                run,
            }),
        }
    }
}

async fn step(
    stage: Stage,
    begins: &watch::Sender<Option<Arc<Run>>>,
    server: &Server,
    link: &Link,
) -> Option<(Event, Stage)> {
    match stage {
        Stage::Unsent(key) => {
            match link.way(End::Server).await {
                Fate::Through => {}
                Fate::Lost => return Some((failed(SideEffect::None), Stage::Over)),
                Fate::AnswerLost => {
                    let _ = server.run(&key);
                    return Some((failed(SideEffect::Unknown), Stage::Over));
                }
            }
            let run = server.run(&key);
            begins.send_replace(Some(Arc::clone(&run)));
            Some(if run.is_job() {
                (Event::Job(run.key.as_str().into()), Stage::JobStarted(run))
            } else if run.script.resumable {
                (Event::Resumable(Keep::Soon), Stage::Begun(run))
            } else {
                (Event::Sent, Stage::Begun(run))
            })
        }
        Stage::JobStarted(run) => Some((Event::Resumable(Keep::AtOnce), Stage::Begun(run))),
        Stage::Begun(run) if run.script.asks => {
            run.until(run.script.runs_for / 2).await;
            link.alive().await;
            let question = Question {
                id: "7".into(),
                method: "elicitation/create".into(),
                params: Some(raw(
                    r#"{"message":"?","requestedSchema":{"type":"object","properties":{}}}"#,
                )),
            };
            Some((Event::Question(question), Stage::Asked(run)))
        }
        Stage::Begun(run) => {
            run.until(run.script.runs_for / 2).await;
            link.alive().await;
            let params = raw(r#"{"progressToken":1,"progress":0.5}"#);
            Some((Event::Progress(params), Stage::Answered(run)))
        }
        Stage::Asked(run) => {
            let mut answered = run.answered.subscribe();
            let _ = answered.wait_for(|answered| *answered).await;
            Some(end(run, link).await)
        }
        Stage::Answered(run) => Some(end(run, link).await),
        Stage::Over => None,
    }
}

/// Waits for the end of the run.
async fn end(run: Arc<Run>, link: &Link) -> (Event, Stage) {
    run.until(run.script.runs_for).await;
    let event = match link.way(End::Server).await {
        Fate::Through if *run.cancelled.borrow() => failed(SideEffect::Unknown),
        Fate::Through => Event::Result(raw(&format!(
            r#"{{"content":[{{"type":"text","text":"{}"}}]}}"#,
            run.key
        ))),
        Fate::Lost | Fate::AnswerLost => failed(SideEffect::Unknown),
    };
    (event, Stage::Over)
}

impl Run {
    /// Half of the calls that can be resumed are jobs.
    fn is_job(&self) -> bool {
        self.script.resumable && self.script.runs_for.as_millis().is_multiple_of(2)
    }

    async fn until(&self, after: Duration) {
        let mut cancelled = self.cancelled.subscribe();
        tokio::select! {
            () = tokio::time::sleep_until(self.began + after) => {}
            _ = cancelled.wait_for(|cancelled| *cancelled) => {}
        }
    }
}

fn failed(effect: SideEffect) -> Event {
    Event::Failed(Failure::new(Reason::UpstreamReset, effect))
}

pub(crate) fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap()
}

#[async_trait]
impl WrappedServer for LinkedServer {
    fn seat(&self, _: Option<Era>, _: &UpstreamRequest) -> Seating {
        Seating::Now(Seat::anywhere(self.era))
    }

    fn begin(&self, _: Seat, outgoing: Arc<UpstreamRequest>) -> Exchange {
        let params: serde_json::Value = serde_json::from_str(&outgoing.params).unwrap();
        let key = params["arguments"]["key"].as_str().unwrap();
        self.exchange(Stage::Unsent(key.to_owned()))
    }

    fn follow(&self, _: &Arc<UpstreamRequest>, _: &RawValue) -> Option<Exchange> {
        None
    }

    fn adopt(&self, _: [u8; 16], resume_point: &str, _: Forwarded) -> Option<Exchange> {
        let run = self.server.resumed(resume_point)?;
        Some(self.exchange(Stage::Begun(run)))
    }

    fn known_era(&self) -> Option<Era> {
        Some(self.era)
    }

    async fn ask_era(&self) {}

    fn server_info(&self, _: [u8; 16]) -> Option<Box<RawValue>> {
        None
    }

    fn start_allowance(&self) -> Duration {
        Duration::ZERO
    }
}

#[async_trait]
impl Control for Way {
    async fn answer(&self, _: &str, _: Answer) -> Result<(), Failure> {
        let lost = |effect| Failure::new(Reason::UpstreamReset, effect);
        if self.link.way(End::Server).await == Fate::Lost {
            return Err(lost(SideEffect::None));
        }
        let run = self.run.borrow().clone();
        if let Some(run) = run {
            run.answered.send_replace(true);
        }
        Ok(())
    }

    async fn cancel(&self) {
        let fate = self.link.way(End::Server).await;
        let run = self.run.borrow().clone();
        if let (Fate::Through | Fate::AnswerLost, Some(run)) = (fate, run) {
            run.cancelled.send_replace(true);
        }
    }

    fn resume_point(&self) -> Option<Box<str>> {
        let run = self.run.borrow().clone()?;
        run.script
            .resumable
            .then(|| format!("{}#{}", run.key, run.number).into())
    }
}
