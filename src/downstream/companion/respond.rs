//! Answers calls of the companion tools from the store, on any replica, for the caller whose ticket it is.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use hyper::{HeaderMap, Response};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::state::wait_max;
use super::tools::CompanionTools;
use super::{answers, listing};
use crate::downstream::body::Body;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::large_results;
use crate::downstream::outbound::patience;
use crate::downstream::outbound::response::Rpc;
use crate::downstream::outbound::stream::respond;
use crate::downstream::proxy::Proxy;
use crate::downstream::tasks::service::{CallerTasks, CancelOutcome, TaskError};
use crate::mcp::json::{Object, raw};
use crate::mcp::result;
use crate::mcp::version::Era;
use crate::runner::responder::CallAnswer;
use crate::store::ledger::Loaded;
use crate::task::id::TaskId;
use crate::task::large_results::{Part, ReadHint, shortened};
use crate::task::ranges::{Wanted, as_tool_result};
use crate::task::state::{Status, Task};
use crate::task::task_end::TaskEnd;
use crate::task::ticket::{self, CompanionNames, CompanionTool, Moment};
use crate::upstream::{Forwarded, UpstreamError};

const NO_SUCH_PART: ToolError = ToolError::Said(Cow::Borrowed("The result has no such block."));

/// Why a companion tool has no result. The text is the tool's result, because models read results.
enum ToolError {
    NoTicket,
    Task(TaskError),
    Said(Cow<'static, str>),
}

impl From<TaskError> for ToolError {
    fn from(error: TaskError) -> Self {
        Self::Task(error)
    }
}

impl From<Cow<'static, str>> for ToolError {
    fn from(text: Cow<'static, str>) -> Self {
        Self::Said(text)
    }
}

impl ToolError {
    fn text(&self) -> &str {
        match self {
            Self::NoTicket => {
                "The argument ticket is missing: the one that the call was answered with."
            }
            Self::Task(TaskError::Unknown) => {
                "There is no such ticket. It may have expired, or it is somebody else's."
            }
            Self::Task(TaskError::StoreUnavailable) => {
                "The task store does not answer; try again later."
            }
            Self::Task(TaskError::Unreadable) => "What is stored of the call cannot be read.",
            Self::Task(TaskError::Busy) => "Too many calls are under way; try again later.",
            Self::Said(text) => text,
        }
    }

    /// Returns `true` if a list of the client's calls could help.
    fn is_lost_ticket(&self) -> bool {
        matches!(self, Self::NoTicket | Self::Task(TaskError::Unknown))
    }
}

/// A call of a companion tool, and how it is answered.
pub(in crate::downstream) struct ToolRequest<'a> {
    pub(in crate::downstream) tool: CompanionTool,
    pub(in crate::downstream) id: &'a RawValue,
    pub(in crate::downstream) arguments: Option<&'a RawValue>,
    /// The client reads event streams with events of any size.
    pub(in crate::downstream) streams: bool,
    pub(in crate::downstream) headers: &'a HeaderMap,
    pub(in crate::downstream) words: fn(&str, CallAnswer) -> Rpc,
}

impl CompanionTools<'_> {
    /// Answers a call of a companion tool. If this is dropped before it resolves, what was committed stays.
    pub(in crate::downstream) async fn respond(&self, asked: ToolRequest<'_>) -> Response<Body> {
        let tool_call = ToolCall {
            proxy: Arc::clone(self.proxy),
            by: self.by.clone(),
            names: self.names.clone(),
            from: match asked.tool {
                CompanionTool::Answer => self.proxy.forwarded(self.by, asked.headers),
                CompanionTool::Status | CompanionTool::Result | CompanionTool::Cancel => {
                    Forwarded::default()
                }
            },
            wait_max: if asked.streams {
                wait_max(self.by)
            } else {
                wait_max(self.by).min(SILENT_WAIT_MAX)
            },
        };
        let (tool, words, id) = (asked.tool, asked.words, asked.id.to_owned());
        // Owned, because a long wait goes on in the body of the response, when the request is gone.
        let arguments = asked.arguments.map(ToOwned::to_owned);
        let answering = async move {
            let answer = tool_call.answer(tool, arguments.as_deref()).await;
            words(id.get(), answer)
        };
        // A client that waits long gets a stream with comments, so that nothing on the way takes the connection
        // for a dead one.
        let patience = asked.streams.then_some(patience::MODERN);
        respond(answering.boxed(), patience, None).await
    }
}

/// The longest wait without a byte of an answer.
const SILENT_WAIT_MAX: Duration = Duration::from_secs(30);

/// The call of a companion tool by one caller.
struct ToolCall {
    proxy: Arc<Proxy>,
    by: Requester,
    names: CompanionNames,
    /// For the next leg of a call whose question is answered.
    from: Forwarded,
    wait_max: Duration,
}

impl ToolCall {
    async fn answer(&self, tool: CompanionTool, arguments: Option<&RawValue>) -> CallAnswer {
        let arguments = arguments.and_then(|raw| Object::parse(raw.get()).ok());
        let answered = Box::pin(self.take(tool, &arguments.unwrap_or_default())).await;
        let text = match answered {
            Ok(answer) => return answer,
            // Without such a list the model would only be refused a second time.
            Err(refused) if refused.is_lost_ticket() && self.by.list_key.is_some() => {
                let status = self.names.of(CompanionTool::Status);
                let text = refused.text();
                let text = format!("{text} Call {status} without a ticket: it lists your calls.");
                ticket::refusal(self.by.era, &text)
            }
            Err(refused) => ticket::refusal(self.by.era, refused.text()),
        };
        CallAnswer::result(text)
    }

    async fn take(
        &self,
        tool: CompanionTool,
        arguments: &Object<'_>,
    ) -> Result<CallAnswer, ToolError> {
        let ticket = arguments.get_str("ticket").unwrap_or_default();
        // As models copy it.
        let ticket = ticket.trim_matches(|letter: char| letter.is_whitespace() || letter == '"');
        // Some models name every argument, and leave empty what they do not have, or say so.
        if matches!(ticket, "" | "null" | "None") {
            return match tool {
                CompanionTool::Status => self.list().await,
                CompanionTool::Result | CompanionTool::Cancel | CompanionTool::Answer => {
                    Err(ToolError::NoTicket)
                }
            };
        }
        let id = TaskId::parse(ticket).ok_or(TaskError::Unknown)?;
        let task = match tool {
            CompanionTool::Status => self.wait(id, arguments).await?.task,
            CompanionTool::Result => {
                let found = self.wait(id, arguments).await?;
                if found.task.is_ended() {
                    return self.result(&found.task, arguments).await;
                }
                found.task
            }
            CompanionTool::Cancel => self.cancel(id).await?,
            CompanionTool::Answer => self.pass_answer(id, arguments).await?,
        };
        let at = Moment {
            now_ms: self.proxy.runner.ledger().now_ms(),
            // Each answer names another round: some clients stop a model that receives the same answer twice.
            round: round_of(arguments).saturating_add(1),
            with_messages: tool == CompanionTool::Status,
        };
        Ok(CallAnswer::result(ticket::status(
            &self.names,
            self.by.era,
            &task,
            at,
        )))
    }

    /// The calls of the client, for a model that lost a ticket.
    async fn list(&self) -> Result<CallAnswer, ToolError> {
        let list = listing::list(&self.proxy, &self.by, &self.names).await?;
        list.map(CallAnswer::result)
            .ok_or_else(|| ToolError::Said(listing::NOT_TOLD_APART.into()))
    }

    fn tasks(&self) -> CallerTasks<'_> {
        self.proxy.tasks_for(&self.by)
    }

    /// Waits until there is something to report: the task has ended or asks a question, the wait is over, or
    /// raincheck is about to end.
    async fn wait(&self, id: TaskId, arguments: &Object<'_>) -> Result<Loaded, ToolError> {
        let asked_for = wait_of(arguments).unwrap_or(self.wait_max);
        let until = Instant::now() + asked_for.min(self.wait_max);
        // Watched before it is read, so that no change is missed.
        let watch = self.proxy.runner.watches().watch(vec![id]);
        let mut found = self.tasks().get(id).await?;
        while found.task.status() == Status::Working {
            tokio::select! {
                _ = watch.changed() => found = self.tasks().get(id).await?,
                () = tokio::time::sleep_until(until) => break,
                // A drain answers the wait with the present state, so that the connection can end.
                () = self.proxy.closing.cancelled() => break,
            }
        }
        Ok(found)
    }

    /// The result of the tool, as if the client had waited for it.
    async fn result(&self, task: &Task, arguments: &Object<'_>) -> Result<CallAnswer, ToolError> {
        // Until the answer is made.
        let _turn = large_results::turn(task).await?;
        let kept = self.proxy.runner.ledger().load_kept(task).await;
        let kept = kept.map_err(TaskError::from)?;
        let result = match TaskEnd::of(task, kept.as_deref()) {
            Some(TaskEnd::Completed(result)) => result.to_raw().ok_or(TaskError::Unreadable)?,
            Some(TaskEnd::Failed(error)) => {
                let error = UpstreamError::in_message(error.to_owned());
                return Ok(CallAnswer::Error(error));
            }
            Some(TaskEnd::Cancelled) => {
                return Err(ToolError::Said("The call was cancelled.".into()));
            }
            None => return Err(TaskError::Unreadable.into()),
        };
        let tool = self.names.of(CompanionTool::Result);
        let rule = self.by.rules.for_tool(&task.name).0;
        let inline_bytes = rule.result_inline.for_companion_tools();
        let excerpt = || shortened(result.get(), inline_bytes, task.id, ReadHint::Tool(&tool));
        let wanted =
            wanted(arguments).filter(|wanted| !wanted.is_all(result.get()) || excerpt().is_some());
        if let Some(wanted) = wanted {
            let read = as_tool_result(&wanted, result.get(), (task.id, &tool), self.by.era);
            return read.map(CallAnswer::result).ok_or(NO_SUCH_PART);
        }
        let result = excerpt().and_then(|text| raw(text).ok()).unwrap_or(result);
        let upstream = &self.proxy.upstream;
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
        Ok(CallAnswer::result(fit.unwrap_or(result)))
    }

    async fn cancel(&self, id: TaskId) -> Result<Task, ToolError> {
        let (CancelOutcome::Cancelled(task) | CancelOutcome::HadEnded(task)) =
            self.tasks().cancel(id).await?;
        Ok(task)
    }

    async fn pass_answer(&self, id: TaskId, arguments: &Object<'_>) -> Result<Task, ToolError> {
        let found = self.tasks().get(id).await?;
        let (key, answer) = answers::of(&found.task, arguments)?;
        let answers = BTreeMap::from([(key, answer)]);
        let from = self.from.clone();
        self.tasks().answer(found, answers, from).await?;
        // Read again, because the answer may have ended the task or begun its next leg.
        Ok(self.tasks().get(id).await?.task)
    }
}

/// Returns the time that the call is to wait. `None`: as long as it may.
fn wait_of(arguments: &Object<'_>) -> Option<Duration> {
    let seconds = number::<f64>(arguments, "wait_seconds")?;
    Duration::try_from_secs_f64(seconds.max(0.0)).ok()
}

/// Returns the part of the result that the call asks for. `None`: the result as the tool gave it.
fn wanted<'a>(arguments: &Object<'a>) -> Option<Wanted<'a>> {
    let block = number(arguments, "block");
    let part = match (block, arguments.get_str("as").as_deref()) {
        (Some(place), _) => Part::Block(place),
        (None, Some("json")) => Part::Json,
        (None, Some(_) | None) => Part::Text,
    };
    let grep = arguments.get_str("grep").filter(|word| !word.is_empty());
    let (offset, limit) = (number(arguments, "offset"), number(arguments, "limit"));
    if part == Part::Text && grep.is_none() && offset.is_none() && limit.is_none() {
        return None;
    }
    Some(Wanted {
        part,
        offset: offset.unwrap_or(0),
        limit,
        grep,
    })
}

/// The round that the call names. Models may write any number.
fn round_of(arguments: &Object<'_>) -> u64 {
    number(arguments, "round").unwrap_or(1)
}

/// Returns an argument that is a number. Models write numbers as texts, too.
fn number<T: FromStr>(arguments: &Object<'_>, key: &str) -> Option<T> {
    let number = arguments.get(key)?.get().trim_matches('"');
    number.parse().ok()
}
