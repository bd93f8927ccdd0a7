//! Calls that were parked with a question before any client heard of a task, and the retry that
//! comes back with the answers, on whichever replica.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Runner;
use super::seat::Answer;
use super::watch::Watch;
use crate::mcp::error::{Failure, Reason, RpcError, SideEffect};
use crate::mcp::input;
use crate::mcp::json::Writer;
use crate::store::ledger::{Loaded, NotApplied};
use crate::task::id::{Caller, TaskId};
use crate::task::machine::{Event, repeats};
use crate::task::state::{Digest, Outcome, Task};
use crate::task::ticket::Ticket;
use crate::task::view;
use crate::upstream::UpstreamError;

/// `InputRequiredResult` of a parked call: its open questions, and the state to come back with.
pub(super) fn input_required(task: &Task) -> String {
    let mut out = Writer::with_capacity(512);
    out.str("resultType", "input_required");
    out.raw(
        "inputRequests",
        view::input_requests(task).as_deref().unwrap_or("{}"),
    );
    out.str("requestState", &state_of(task));
    out.end()
}

/// The call's id, a handle like any task's: random, bound to its caller and its request; and how
/// much was asked so far, so that each round has a state of its own.
fn state_of(task: &Task) -> String {
    format!("{}.{}", task.id, task.questions.len())
}

/// The parked call that a request state names.
pub fn read_state(state: &str) -> Option<TaskId> {
    let (id, asked) = state.split_once('.')?;
    asked.parse::<u16>().ok()?;
    TaskId::parse(id)
}

/// A retry that came with a state of ours.
#[derive(Debug)]
pub struct Comeback {
    pub id: TaskId,
    pub caller: Caller,
    pub digest: Digest,
    pub answers: BTreeMap<Box<str>, Box<RawValue>>,
    pub heard_by: HeardBy,
}

/// How the client of a retry hears what its call comes to.
#[derive(Debug)]
pub enum HeardBy {
    /// It is a task from here on.
    Task,
    /// On this connection.
    Waiting,
    /// On this connection for so long, and then by a ticket.
    Ticket(Duration, Ticket),
}

/// What a retry leads to.
#[derive(Debug)]
pub enum Rejoined {
    Answer(Answer),
    /// The client waits on this connection for what the call comes to.
    Follow(Box<Follower>),
    Refused(RpcError),
    StoreUnavailable,
}

impl Runner {
    /// Commits the answers of a retry. The same answers again are the same retry.
    pub async fn rejoin(self: &Arc<Self>, comeback: Comeback) -> Rejoined {
        // Watched before it is read: no change is missed.
        let watch = self.watches.watch(vec![comeback.id]);
        let loaded = match self.ledger.load(comeback.id).await {
            Ok(Some(loaded)) => loaded,
            Ok(None) => return Rejoined::Refused(unknown_state()),
            Err(_) => return Rejoined::StoreUnavailable,
        };
        let task = &loaded.task;
        let is_its_own = task.belongs_to(&comeback.caller) && task.digest == Some(comeback.digest);
        if !is_its_own || !repeats(task, &comeback.answers) {
            return Rejoined::Refused(unknown_state());
        }
        let misshapen = task.open_questions().any(|(question, request)| {
            let answer = comeback.answers.get(&question.key);
            answer.is_some_and(|answer| !input::answers(request, answer))
        });
        if misshapen {
            return Rejoined::Refused(RpcError::invalid_params(
                "Invalid params: an input response does not have the shape that was asked for",
            ));
        }
        let answered = Event::Answered {
            answers: comeback.answers,
            by: self.incarnation.clone(),
            // A legacy call is open while it asks.
            waits: false,
        };
        let loaded = match self.advance(loaded, answered).await {
            Ok(loaded) => loaded,
            Err(refused) => return refused,
        };
        let ticket = match comeback.heard_by {
            HeardBy::Task => return self.announce(loaded).await,
            HeardBy::Waiting => None,
            HeardBy::Ticket(patience, ticket) => Some((Instant::now() + patience, ticket)),
        };
        Rejoined::Follow(Box::new(Follower {
            runner: Arc::clone(self),
            loaded,
            watch,
            ticket,
        }))
    }

    async fn announce(&self, loaded: Loaded) -> Rejoined {
        match self.advance(loaded, Event::Announced).await {
            Ok(loaded) => {
                let json = view::create_result(&loaded.task, self.ledger.now_ms());
                RawValue::from_string(json).map_or(Rejoined::StoreUnavailable, |result| {
                    Rejoined::Answer(Answer::Result(result))
                })
            }
            Err(refused) => refused,
        }
    }

    /// Follows for a client that holds its connection open; a client that goes away before the
    /// answer cancels the call (streamable-http, Cancellation).
    pub fn follow(self: &Arc<Self>, mut follower: Follower, mut client: oneshot::Sender<Answer>) {
        let halt = self.halt.clone();
        self.calls.spawn(async move {
            tokio::select! {
                answer = follower.answer() => {
                    let _ = client.send(answer);
                }
                () = client.closed() => follower.leave().await,
                () = halt.cancelled() => {}
            }
        });
    }

    async fn advance(&self, loaded: Loaded, event: Event) -> Result<Loaded, Rejoined> {
        match self.ledger.apply(&loaded, event).await {
            Ok((loaded, _)) => Ok(loaded),
            Err(NotApplied::Rejected(_, stands)) => Ok(*stands),
            Err(NotApplied::Gone) => Err(Rejoined::Refused(unknown_state())),
            Err(NotApplied::Store(_)) => Err(Rejoined::StoreUnavailable),
        }
    }
}

fn unknown_state() -> RpcError {
    RpcError::invalid_params("Invalid params: the request state is unknown or does not fit")
}

/// Follows a parked call for a client that waits, whichever replica carries it.
#[derive(Debug)]
pub struct Follower {
    runner: Arc<Runner>,
    loaded: Loaded,
    watch: Watch,
    /// When the client is sent away, and with what.
    ticket: Option<(Instant, Ticket)>,
}

impl Follower {
    /// Waits for the call's end, its next question, or the end of the client's patience.
    async fn answer(&mut self) -> Answer {
        loop {
            let task = &self.loaded.task;
            if let Some(outcome) = &task.outcome {
                return self.end(outcome).await;
            }
            if task.open_questions().next().is_some() {
                return RawValue::from_string(input_required(task))
                    .map_or(Answer::StoreUnavailable, Answer::Result);
            }
            tokio::select! {
                _ = self.watch.changed() => {}
                () = patience(self.ticket.as_ref()) => {
                    if let Some((_, ticket)) = self.ticket.take() {
                        return self.leave_with(&ticket).await;
                    }
                }
            }
            let id = self.loaded.task.id;
            match self.runner.ledger.load(id).await {
                Ok(Some(loaded)) => self.loaded = loaded,
                Ok(None) => {
                    return Answer::Failed(self.loaded.task.failure(Reason::StoreLost));
                }
                Err(_) => return Answer::StoreUnavailable,
            }
        }
    }

    /// From here on it is a task. Should it have ended meanwhile, the ticket says that.
    async fn leave_with(&self, ticket: &Ticket) -> Answer {
        let announced = self.runner.advance(self.loaded.clone(), Event::Announced);
        match announced.await {
            Ok(loaded) if loaded.task.announced => {
                RawValue::from_string(ticket.issued(&loaded.task))
                    .map_or(Answer::StoreUnavailable, Answer::Result)
            }
            Ok(loaded) => match &loaded.task.outcome {
                Some(outcome) => self.end(outcome).await,
                None => Answer::StoreUnavailable,
            },
            Err(_) => Answer::StoreUnavailable,
        }
    }

    async fn end(&self, outcome: &Outcome) -> Answer {
        let task = &self.loaded.task;
        match outcome {
            Outcome::Completed(crate::task::state::Payload::Inline(result)) => {
                Answer::Result(result.clone())
            }
            Outcome::Completed(crate::task::state::Payload::Kept { .. }) => {
                let kept = self.runner.ledger.load_kept(task).await.ok().flatten();
                let text = kept.and_then(|bytes| String::from_utf8(bytes.to_vec()).ok());
                text.and_then(|text| RawValue::from_string(text).ok())
                    .map_or(Answer::StoreUnavailable, Answer::Result)
            }
            Outcome::Failed(error) => Answer::Error(UpstreamError {
                error: error.clone(),
                status: 200,
                www_authenticate: None,
            }),
            Outcome::Cancelled => Answer::Failed(Failure::new(
                Reason::CancelledByDisconnect,
                SideEffect::Unknown,
            )),
        }
    }

    /// The client that waited went away: nobody hears of this call any more.
    async fn leave(&self) {
        let event = Event::Cancel {
            reason: Some(Reason::CancelledByDisconnect),
        };
        let _ = self.runner.ledger.apply(&self.loaded, event).await;
    }
}

async fn patience(ticket: Option<&(Instant, Ticket)>) {
    match ticket {
        Some((end, _)) => tokio::time::sleep_until(*end).await,
        None => std::future::pending().await,
    }
}
