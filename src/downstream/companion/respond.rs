//! Calls of our tools: answered from the store, for the caller whose ticket it is, on any replica.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::stream::{self, StreamExt as _};
use hyper::{HeaderMap, Response};
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout};

use super::super::body::Body;
use super::super::inbound::requester::Requester;
use super::super::keep_alive::keep_alive;
use super::super::patience;
use super::super::proxy::Shared;
use super::super::reply::{self, Rpc};
use super::answers;
use super::desk::Desk;
use crate::mcp::error::SideEffect;
use crate::mcp::json::{Object, raw};
use crate::mcp::version::Era;
use crate::mcp::{result, sse};
use crate::runner::AnswerError;
use crate::runner::seat::Answer;
use crate::store::StoreError;
use crate::store::ledger::{Loaded, NotApplied};
use crate::task::id::TaskId;
use crate::task::machine::Event;
use crate::task::state::{Outcome, Payload, Status, Task};
use crate::task::ticket::{self, Moment, Names, Tool};
use crate::upstream::{Forwarded, UpstreamError};

/// A store that takes longer than any of its commands may is away.
const STORE_IS_AWAY: Duration = Duration::from_millis(600);

const NO_TICKET: Refused = Refused::Said(Cow::Borrowed(
    "The argument ticket is missing: the one that the call was answered with.",
));

/// Why a tool of ours was called in vain: said in its result, because models read results.
enum Refused {
    /// The caller gets the same error for an unknown, expired, unannounced or foreign ticket.
    Unknown,
    Said(Cow<'static, str>),
    Store,
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        tracing::warn!(%error, "a ticket met a store that does not answer");
        Self::Store
    }
}

impl From<Cow<'static, str>> for Refused {
    fn from(text: Cow<'static, str>) -> Self {
        Self::Said(text)
    }
}

impl Refused {
    fn text(&self) -> &str {
        match self {
            Self::Unknown => {
                "There is no such ticket. It may have expired, or it is somebody else's."
            }
            Self::Said(text) => text,
            Self::Store => "The task store does not answer; try again later.",
        }
    }
}

/// A call of one of our tools, and how it is answered.
pub(in super::super) struct Asked<'a> {
    pub(in super::super) tool: Tool,
    pub(in super::super) id: &'a RawValue,
    pub(in super::super) arguments: Option<&'a RawValue>,
    /// The client reads event streams, whatever they carry.
    pub(in super::super) streams: bool,
    pub(in super::super) headers: &'a HeaderMap,
    pub(in super::super) words: fn(&str, Answer) -> Rpc,
}

impl Desk<'_> {
    /// Answers with one JSON body where the answer comes soon, else with a stream: nothing on the way
    /// to a client that waits long must take the connection for a dead one. Dropped before it
    /// resolves, what was committed stays.
    pub(in super::super) async fn respond(&self, asked: Asked<'_>) -> Response<Body> {
        let clerk = Clerk {
            front: Shared::clone(self.front),
            by: self.by.clone(),
            names: self.names.clone(),
            from: match asked.tool {
                Tool::Answer => self.front.forwarded(self.by, asked.headers),
                Tool::Status | Tool::Result | Tool::Cancel => Forwarded::default(),
            },
            wait_max: if asked.streams {
                self.companion.wait_max
            } else {
                self.companion.wait_max.min(SILENT_WAIT_MAX)
            },
        };
        let (tool, words, id) = (asked.tool, asked.words, asked.id.to_owned());
        let arguments = asked.arguments.map(ToOwned::to_owned);
        let answering = async move {
            let answer = clerk.answer(tool, arguments.as_deref()).await;
            words(id.get(), answer)
        };
        let mut answering = answering.boxed();
        if !asked.streams {
            return answering.await.into_response();
        }
        if let Ok(rpc) = timeout(patience::MODERN, &mut answering).await {
            return rpc.into_response();
        }
        let events = stream::unfold((Some(answering), keep_alive()), |state| async {
            let (answering, mut beat) = state;
            let mut answering = answering?;
            tokio::select! {
                rpc = &mut answering => Some((sse::event(&rpc.json), (None, beat))),
                _ = beat.tick() => Some((sse::COMMENT, (Some(answering), beat))),
            }
        });
        reply::event_stream(Body::Events(events.boxed()))
    }
}

/// The longest wait without a byte of an answer.
const SILENT_WAIT_MAX: Duration = Duration::from_secs(30);

/// Answers for one caller.
struct Clerk {
    front: Shared,
    by: Requester,
    names: Names,
    /// For the next leg of a call whose question is answered.
    from: Forwarded,
    wait_max: Duration,
}

impl Clerk {
    async fn answer(&self, tool: Tool, arguments: Option<&RawValue>) -> Answer {
        let arguments = arguments.and_then(|raw| Object::parse(raw.get()).ok());
        let answered = Box::pin(self.take(tool, &arguments.unwrap_or_default())).await;
        let text = match answered {
            Ok(answer) => return answer,
            Err(refused) => ticket::refusal(self.by.era, refused.text()),
        };
        answer_of(text)
    }

    async fn take(&self, tool: Tool, arguments: &Object<'_>) -> Result<Answer, Refused> {
        let ticket = arguments.get_str("ticket").ok_or(NO_TICKET)?;
        let id = TaskId::parse(ticket.trim()).ok_or(Refused::Unknown)?;
        let task = match tool {
            Tool::Status => self.wait(id, arguments).await?.task,
            Tool::Result => {
                let found = self.wait(id, arguments).await?;
                if let Some(outcome) = &found.task.outcome {
                    return self.result(&found.task, outcome).await;
                }
                found.task
            }
            Tool::Cancel => self.cancel(id).await?,
            Tool::Answer => self.pass_answer(id, arguments).await?,
        };
        let at = Moment {
            now_ms: self.front.runner.ledger().now_ms(),
            round: round_of(arguments).saturating_add(1),
        };
        Ok(answer_of(ticket::status(
            &self.names,
            self.by.era,
            &task,
            at,
        )))
    }

    async fn find(&self, id: TaskId) -> Result<Loaded, Refused> {
        let found = self.front.find_by_id(id, &self.by.caller).await?;
        found.ok_or(Refused::Unknown)
    }

    /// The task as soon as there is something to tell: it has ended or asks, the wait is over, or
    /// raincheck is about to end.
    async fn wait(&self, id: TaskId, arguments: &Object<'_>) -> Result<Loaded, Refused> {
        let asked_for = wait_of(arguments).unwrap_or(self.wait_max);
        let until = Instant::now() + asked_for.min(self.wait_max);
        // Watched before it is read: no change is missed.
        let watch = self.front.runner.watches().watch(vec![id]);
        let mut found = self.find(id).await?;
        while found.task.status() == Status::Working {
            tokio::select! {
                _ = watch.changed() => found = self.find(id).await?,
                () = tokio::time::sleep_until(until) => break,
                () = self.front.closing.cancelled() => break,
            }
        }
        Ok(found)
    }

    /// What the tool gave, as if it had been waited for.
    async fn result(&self, task: &Task, outcome: &Outcome) -> Result<Answer, Refused> {
        let result = match outcome {
            Outcome::Completed(Payload::Inline(result)) => result.clone(),
            Outcome::Completed(Payload::Kept { .. }) => {
                let kept = self.front.runner.ledger().load_kept(task).await?;
                let text = kept.and_then(|bytes| String::from_utf8(bytes.to_vec()).ok());
                let kept = text.and_then(|text| raw(text).ok());
                kept.ok_or(Refused::Store)?
            }
            Outcome::Failed(error) => {
                return Ok(Answer::Error(UpstreamError {
                    error: error.clone(),
                    status: 200,
                    www_authenticate: None,
                }));
            }
            Outcome::Cancelled => return Err(Refused::Said("The call was cancelled.".into())),
        };
        let upstream = &self.front.upstream;
        let fit = match (self.by.era, upstream.known_era()) {
            (Era::Legacy, _) => result::for_legacy(result.get()).and_then(raw),
            (Era::Modern, Some(Era::Legacy)) => {
                let known = upstream.last_discovered(*self.by.caller.as_bytes());
                let info = known
                    .as_ref()
                    .and_then(|known| known.server_info.as_deref());
                result::from_legacy("tools/call", result.clone(), info)
            }
            (Era::Modern, Some(Era::Modern) | None) => Ok(result.clone()),
        };
        Ok(Answer::Result(fit.unwrap_or(result)))
    }

    /// A call that this replica carries is stopped also while the store is away.
    async fn cancel(&self, id: TaskId) -> Result<Task, Refused> {
        let committing = self.commit_cancel(id);
        tokio::pin!(committing);
        tokio::select! {
            cancelled = &mut committing => {
                // It may refuse at once.
                if let Err(Refused::Store) = &cancelled {
                    self.front.runner.stop(id, &self.by.caller);
                }
                return cancelled;
            }
            () = tokio::time::sleep(STORE_IS_AWAY) => {}
        }
        self.front.runner.stop(id, &self.by.caller);
        committing.await
    }

    async fn commit_cancel(&self, id: TaskId) -> Result<Task, Refused> {
        let found = self.find(id).await?;
        let cancel = Event::Cancel { reason: None };
        match self.front.runner.ledger().apply(&found, cancel).await {
            Ok((now, _)) => Ok(now.task),
            // What has ended stays so.
            Err(NotApplied::Rejected(_, stands)) => Ok(stands.task),
            Err(NotApplied::Gone) => Err(Refused::Unknown),
            Err(NotApplied::Store(error)) => Err(error.into()),
        }
    }

    async fn pass_answer(&self, id: TaskId, arguments: &Object<'_>) -> Result<Task, Refused> {
        let found = self.find(id).await?;
        let (key, answer) = answers::of(&found.task, arguments)?;
        let answers = BTreeMap::from([(key, answer)]);
        let from = self.from.clone();
        match self.front.runner.answer(found, answers, from).await {
            Ok(()) => Ok(self.find(id).await?.task),
            Err(AnswerError::Busy) => Err(Refused::Said(
                "Too many calls are under way; try again later.".into(),
            )),
            Err(AnswerError::Gone) => Err(Refused::Unknown),
            Err(AnswerError::Store(error)) => Err(error.into()),
        }
    }
}

/// `None`: as long as may be.
fn wait_of(arguments: &Object<'_>) -> Option<Duration> {
    let seconds = arguments.get("wait_seconds")?.get().parse::<f64>().ok()?;
    Duration::try_from_secs_f64(seconds.max(0.0)).ok()
}

/// Models may write any number.
fn round_of(arguments: &Object<'_>) -> u64 {
    let round = arguments.get("round");
    round.and_then(|raw| raw.get().parse().ok()).unwrap_or(1)
}

fn answer_of(text: String) -> Answer {
    raw(text).map_or(
        Answer::StoreUnavailable(SideEffect::Unknown),
        Answer::Result,
    )
}
