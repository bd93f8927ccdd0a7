//! Calls of our tools: answered from the store, for the caller whose ticket it is, on any replica.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::{Desk, WAIT_MAX, answers};
use crate::mcp::json::{Object, raw};
use crate::mcp::result;
use crate::mcp::version::Era;
use crate::runner::AnswerError;
use crate::runner::seat::Answer;
use crate::store::StoreError;
use crate::store::ledger::{Loaded, NotApplied};
use crate::task::id::TaskId;
use crate::task::machine::Event;
use crate::task::state::{Outcome, Payload, Status, Task};
use crate::task::ticket::{self, Tool};
use crate::upstream::UpstreamError;

/// A store that takes longer than any of its commands may is away.
const STORE_IS_AWAY: Duration = Duration::from_millis(600);

const NO_TICKET: Refused = Refused::Said(Cow::Borrowed(
    "The argument ticket is missing: the one that the call was answered with.",
));

/// Why a tool of ours was called in vain: said in its result, because models read results.
enum Refused {
    /// Unknown, expired, unannounced and foreign tickets are one and the same.
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

impl Desk<'_> {
    /// The answer to a call of that tool. Dropped before it resolves, what was committed stays.
    pub(in super::super) async fn answer(
        &self,
        tool: Tool,
        arguments: Option<&RawValue>,
    ) -> Answer {
        let arguments = arguments.and_then(|raw| Object::parse(raw.get()).ok());
        let answered = Box::pin(self.take(tool, &arguments.unwrap_or_default())).await;
        let text = match answered {
            Ok(answer) => return answer,
            Err(refused) => ticket::refusal(self.who.face, refused.text()),
        };
        answer_of(text)
    }

    async fn take(&self, tool: Tool, arguments: &Object<'_>) -> Result<Answer, Refused> {
        let ticket = arguments.get_str("ticket").ok_or(NO_TICKET)?;
        let id = TaskId::parse(ticket.trim()).ok_or(Refused::Unknown)?;
        match tool {
            Tool::Status => {
                let found = self.wait(id, arguments).await?;
                Ok(self.status(&found.task))
            }
            Tool::Result => {
                let found = self.wait(id, arguments).await?;
                match &found.task.outcome {
                    Some(outcome) => self.result(&found.task, outcome).await,
                    None => Ok(self.status(&found.task)),
                }
            }
            Tool::Cancel => self.cancel(id).await,
            Tool::Answer => self.pass_answer(id, arguments).await,
        }
    }

    fn status(&self, task: &Task) -> Answer {
        answer_of(ticket::status(&self.names, self.who.face, task))
    }

    async fn find(&self, id: TaskId) -> Result<Loaded, Refused> {
        let found = self.front.find_by_id(id, &self.who.caller).await?;
        found.ok_or(Refused::Unknown)
    }

    /// The task as soon as there is something to tell: it has ended or asks, the wait is over, or
    /// raincheck is about to end.
    async fn wait(&self, id: TaskId, arguments: &Object<'_>) -> Result<Loaded, Refused> {
        let until = Instant::now() + wait_of(arguments).min(self.companion.wait_max);
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
        let fit = match (self.who.face, upstream.known_era()) {
            (Era::Legacy, _) => result::for_legacy(result.get()).and_then(raw),
            (Era::Modern, Some(Era::Legacy)) => {
                let known = upstream.last_discovered();
                let info = known
                    .as_ref()
                    .and_then(|known| known.server_info.as_deref());
                result::from_legacy("tools/call", result.clone(), info)
            }
            (Era::Modern, Some(Era::Modern) | None) => Ok(result.clone()),
        };
        Ok(Answer::Result(fit.unwrap_or(result)))
    }

    /// While the store is away, a call that is carried here is stopped all the same.
    async fn cancel(&self, id: TaskId) -> Result<Answer, Refused> {
        let committing = self.commit_cancel(id);
        tokio::pin!(committing);
        tokio::select! {
            cancelled = &mut committing => {
                // It may refuse at once.
                if let Err(Refused::Store) = &cancelled {
                    self.front.runner.stop(id, &self.who.caller);
                }
                return cancelled;
            }
            () = tokio::time::sleep(STORE_IS_AWAY) => {}
        }
        self.front.runner.stop(id, &self.who.caller);
        committing.await
    }

    async fn commit_cancel(&self, id: TaskId) -> Result<Answer, Refused> {
        let found = self.find(id).await?;
        let cancel = Event::Cancel { reason: None };
        match self.front.runner.ledger().apply(&found, cancel).await {
            Ok((now, _)) => Ok(self.status(&now.task)),
            // What has ended stays so.
            Err(NotApplied::Rejected(_, stands)) => Ok(self.status(&stands.task)),
            Err(NotApplied::Gone) => Err(Refused::Unknown),
            Err(NotApplied::Store(error)) => Err(error.into()),
        }
    }

    async fn pass_answer(&self, id: TaskId, arguments: &Object<'_>) -> Result<Answer, Refused> {
        let found = self.find(id).await?;
        let (key, answer) = answers::of(&found.task, arguments)?;
        let answers = BTreeMap::from([(key, answer)]);
        let credentials = self.who.credentials.clone();
        match self.front.runner.answer(found, answers, credentials).await {
            Ok(()) => Ok(self.status(&self.find(id).await?.task)),
            Err(AnswerError::Busy) => Err(Refused::Said(
                "Too many calls are under way; try again later.".into(),
            )),
            Err(AnswerError::Gone) => Err(Refused::Unknown),
            Err(AnswerError::Store(error)) => Err(error.into()),
        }
    }
}

/// As long as may be where nothing is said.
fn wait_of(arguments: &Object<'_>) -> Duration {
    let seconds = arguments.get("wait_seconds");
    let seconds = seconds.and_then(|raw| raw.get().parse::<f64>().ok());
    let seconds = seconds.map(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)));
    seconds.map_or(WAIT_MAX, |wait| wait.unwrap_or(WAIT_MAX))
}

fn answer_of(text: String) -> Answer {
    raw(text).map_or(Answer::StoreUnavailable, Answer::Result)
}
