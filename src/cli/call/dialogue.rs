//! One call at the server, from the request to its end: progress, questions, the server's task, Ctrl-C.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use serde_json::value::RawValue;
use tokio::time::{interval, timeout};

use super::ending::{Ending, id_of};
use super::interrupt::Interrupts;
use super::person::{Person, UnansweredQuestion};
use super::rest::{interrupted, read_whole, whole_of};
use super::screen::{Screen, TICK};
use super::server::task_request;
use crate::cli::table::cleaned;
use crate::mcp::error::{Failure, Reason, RpcError, SideEffect};
use crate::mcp::input::{Requests, requests_of};
use crate::mcp::json::{Object, Writer};
use crate::mcp::result::{ResultType, error_code, result_type};
use crate::mcp::version::Era;
use crate::upstream::wrapped::{DiscoverError, Upstream};
use crate::upstream::{Answer, Event, Exchange, Question, Retry, UpstreamError, UpstreamRequest};

/// The largest number of rounds in which a modern server asks and is called again.
const ROUNDS_MAX: usize = 64;

/// The time that the server has to receive a cancel.
const CANCELLING: Duration = Duration::from_secs(5);

/// The pause before the first poll of a task given by `--attach`. It is short, because a question may be open already.
const FIRST_LOOK_MS: u64 = 250;

/// A call, and who sees it and answers for it.
pub(super) struct Dialogue<'a> {
    pub(super) upstream: &'a Upstream,
    pub(super) era: Era,
    pub(super) person: Person,
    pub(super) screen: Screen,
    pub(super) interrupts: Interrupts,
}

/// The server's last response, or the end of the wait for one.
enum Last {
    Result(Box<RawValue>),
    Error(UpstreamError),
    Failed(Failure),
    /// A person pressed Ctrl-C.
    Interrupted,
    Unanswered(UnansweredQuestion),
}

impl Dialogue<'_> {
    /// Calls the tool. With `detach`, a task is left alone once it is there.
    pub(super) async fn call(&mut self, mut request: UpstreamRequest, detach: bool) -> Ending {
        for _ in 0..ROUNDS_MAX {
            // Cloned, because a round of questions sends the same request again, with the answers.
            let mut exchange = self.upstream.begin(self.era, request.clone());
            let result = match self.hear(&mut exchange).await {
                Last::Result(result) => result,
                Last::Error(error) => return Ending::Error(error.error),
                Last::Failed(failure) => return Ending::Failed(failure.sentence().to_owned()),
                Last::Interrupted => return self.cancel(exchange).await,
                Last::Unanswered(why) => {
                    // Without the answer the server would work on for nobody.
                    self.cancel(exchange).await;
                    return Ending::Unanswered { why, task: None };
                }
            };
            // A result that is no object has no type, and is printed as it came.
            let kind = result_type(&result).unwrap_or(ResultType::Complete);
            match kind {
                ResultType::InputRequired => match self.round(&result).await {
                    Ok(retry) => request.retry = Some(Arc::new(retry)),
                    Err(ending) => return ending,
                },
                ResultType::Other if detach => return Ending::Detached(result),
                ResultType::Other => return self.follow(&request, result).await,
                ResultType::Complete => return Ending::Result(result),
            }
        }
        Ending::Failed("the server asks again and again".to_owned())
    }

    /// Goes on with a task that an earlier command left.
    pub(super) async fn attach(&mut self, id: &str, request: &UpstreamRequest) -> Ending {
        let state = match self.state_of(id).await {
            Ok(state) => state,
            Err(Ending::Error(error)) if is_unknown(&error) => return Ending::NoTask(error),
            Err(ending) => return ending,
        };
        if let Some(ending) = ended(id, &state) {
            return ending;
        }
        // `follow` begins with the result that made the task, which only the earlier command received.
        let mut created = Writer::object();
        created.str("resultType", "task").str("taskId", id);
        created.number("pollIntervalMs", FIRST_LOOK_MS);
        match RawValue::from_string(created.end()) {
            Ok(created) => self.follow(request, created).await,
            Err(_) => Ending::Failed("that is no task id".to_owned()),
        }
    }

    /// Follows the server's task to its end.
    async fn follow(&mut self, request: &UpstreamRequest, created: Box<RawValue>) -> Ending {
        let id = id_of(&created);
        let Some(mut exchange) = self.upstream.follow(&Arc::new(request.clone()), &created) else {
            return Ending::Failed("the server's answer was not a valid MCP message".to_owned());
        };
        self.screen.say(&format!(
            "task {}; Ctrl-C cancels it, --attach comes back to it",
            cleaned(&id)
        ));
        match self.hear(&mut exchange).await {
            Last::Result(result) => Ending::Result(result),
            Last::Error(error) => Ending::Error(error.error),
            // Not cancelled, because the task waits for its answer, which a later command can give (`--attach`).
            Last::Unanswered(why) => Ending::Unanswered {
                why,
                task: Some(id),
            },
            // The stream does not say how the task was lost, and the server may know it.
            Last::Failed(failure) => match self.state_of(&id).await {
                Ok(state) => ended(&id, &state)
                    .unwrap_or_else(|| Ending::Failed(failure.sentence().to_owned())),
                Err(ending) => ending,
            },
            Last::Interrupted => {
                self.screen
                    .say("cancelling; Ctrl-C again leaves the task alone");
                // The clone has seen the Ctrl-C that led here, so it resolves at the next one.
                let mut interrupts = self.interrupts.clone();
                tokio::select! {
                    () = exchange.control.cancel() => {}
                    () = interrupts.next() => return Ending::Interrupted("the task may run on".into()),
                }
                // The task may have ended before the cancel reached the server.
                match self.state_of(&id).await {
                    Ok(state) => match ended(&id, &state) {
                        Some(Ending::Cancelled(_)) => Ending::Interrupted("cancelled".into()),
                        Some(ending) => ending,
                        None => {
                            Ending::Interrupted("the server was told to cancel the task".into())
                        }
                    },
                    Err(_) => Ending::Interrupted("the task may run on".into()),
                }
            }
        }
    }

    /// The ending with the whole result, where the server gave an excerpt of it.
    pub(super) async fn whole(&mut self, ending: Ending) -> Ending {
        let Ending::Result(result) = &ending else {
            return ending;
        };
        let Some(whole) = whole_of(result).filter(|_| self.era == Era::Modern) else {
            return ending;
        };
        let read = tokio::select! {
            read = read_whole(self.upstream, whole) => read,
            () = self.interrupts.next() => return Ending::Interrupted(interrupted(whole).into()),
        };
        read.map_or_else(Ending::Failed, Ending::Result)
    }

    /// Receives the server's events until it has answered, and answers its questions.
    async fn hear(&mut self, exchange: &mut Exchange) -> Last {
        let mut seconds = interval(TICK);
        let mut asked = VecDeque::new();
        loop {
            // Questions are put one at a time, because a person answers in one terminal. The others stay in the queue.
            if let Some(question) = asked.pop_front() {
                if let Some(last) = self.put(&question, exchange, &mut asked).await {
                    return last;
                }
                continue;
            }
            let event = tokio::select! {
                event = exchange.events.next() => event,
                () = self.interrupts.next() => return Last::Interrupted,
                _ = seconds.tick() => {
                    self.screen.tick();
                    continue;
                }
            };
            match event {
                Some(Event::Progress(params)) => self.screen.progress(&params),
                Some(Event::Question(question)) => asked.push_back(question),
                Some(Event::Later(Some(_))) => self.screen.say("the server is busy; waiting"),
                other => {
                    if let Some(last) = last_of(other) {
                        self.screen.clear();
                        return last;
                    }
                }
            }
        }
    }

    /// Puts one question to the person. The call may end before there is an answer: then no answer is needed.
    async fn put(
        &mut self,
        question: &Question,
        exchange: &mut Exchange,
        asked: &mut VecDeque<Question>,
    ) -> Option<Last> {
        let answer = if &*question.method == "elicitation/create" {
            let none = RawValue::NULL.to_owned();
            let params = question.params.as_deref().unwrap_or(&none);
            tokio::select! {
                answer = self.person.answer(params, &self.screen) => match answer {
                    Ok(answer) => Answer::Result(answer.to_string().into()),
                    Err(why) => return Some(Last::Unanswered(why)),
                },
                last = answered(&mut exchange.events, asked) => return Some(last),
                () = self.interrupts.next() => return Some(Last::Interrupted),
            }
        } else {
            // This client has not said that it could be asked for that.
            Answer::Refused(RpcError::method_not_found().to_json().into())
        };
        let told = exchange.control.answer(&question.id, answer).await;
        // A lost answer does not end the call: its events show what becomes of it.
        if told.is_err() {
            self.screen.say("the answer did not reach the server");
        }
        None
    }

    /// Answers the questions that a modern server asks before it works on.
    async fn round(&mut self, result: &RawValue) -> Result<Retry, Ending> {
        let refused = || Ending::Failed("the server asks in a way that is not MCP's".to_owned());
        let Requests {
            requests,
            request_state,
        } = requests_of(result).map_err(|_| refused())?;
        let mut responses = Writer::object();
        for (key, request) in requests {
            let request = Object::parse(request.get()).map_err(|_| refused())?;
            let params = request.get("params").unwrap_or(RawValue::NULL);
            // This client has declared nothing else, and a modern server takes no error in place of an answer.
            if request.get_str("method").as_deref() != Some("elicitation/create") {
                let method = request.get_str("method").unwrap_or_default();
                return Err(Ending::Failed(format!("the server asks for {method}")));
            }
            // Between two rounds nothing runs at the server, so Ctrl-C has nothing to cancel there.
            let answer = tokio::select! {
                answer = self.person.answer(params, &self.screen) => answer,
                () = self.interrupts.next() => return Err(Ending::Interrupted("cancelled".into())),
            };
            let answer = answer.map_err(|why| Ending::Unanswered { why, task: None })?;
            responses.raw(&key, &answer.to_string());
        }
        Ok(Retry {
            input_responses: responses.end().into(),
            request_state: request_state.map(Arc::from),
        })
    }

    /// Cancels a call that is no task, by the signal of the server's era.
    async fn cancel(&self, exchange: Exchange) -> Ending {
        let cancelling = timeout(CANCELLING, exchange.control.cancel());
        let mut interrupts = self.interrupts.clone();
        // The command ends in any case, so a cancel that fails changes nothing.
        tokio::select! {
            _ = cancelling => {}
            () = interrupts.next() => {}
        }
        Ending::Interrupted("cancelled".into())
    }

    /// The result of `tasks/get`.
    async fn state_of(&self, id: &str) -> Result<Box<RawValue>, Ending> {
        let asked = self.upstream.ask(Era::Modern, task_request(id)).await;
        asked.map_err(|error| match error {
            DiscoverError::Refused(error) | DiscoverError::Unauthorized(error) => {
                Ending::Error(error.error)
            }
            DiscoverError::Failed(failure) => Ending::Failed(failure.sentence().to_owned()),
        })
    }
}

/// Returns `true` if the error is that of an unknown task.
fn is_unknown(error: &RawValue) -> bool {
    error_code(error) == Some(RpcError::unknown_task().code)
}

/// Returns the end of a task, from its state; `None`: it has not ended.
fn ended(id: &str, state: &RawValue) -> Option<Ending> {
    let state = Object::parse(state.get()).ok()?;
    let member = |key| state.get(key).map(ToOwned::to_owned);
    match state.get_str("status").as_deref() {
        Some("completed") => member("result").map(Ending::Result),
        Some("failed") => member("error").map(Ending::Error),
        Some("cancelled") => Some(Ending::Cancelled(id.to_owned())),
        _ => None,
    }
}

/// The event as the end of the exchange, if it is its end.
fn last_of(event: Option<Event>) -> Option<Last> {
    match event {
        Some(Event::Result(result)) => Some(Last::Result(result)),
        Some(Event::Error(error)) => Some(Last::Error(error)),
        Some(Event::Failed(failure)) => Some(Last::Failed(failure)),
        None => Some(Last::Failed(Failure::new(
            Reason::UpstreamReset,
            SideEffect::Unknown,
        ))),
        Some(
            Event::Sent
            | Event::Progress(_)
            | Event::Log(_)
            | Event::Question(_)
            | Event::Job(_)
            | Event::Resumable(_)
            | Event::CredentialsRefused
            | Event::Later(_),
        ) => None,
    }
}

/// Waits until the server has answered, and keeps what it asks meanwhile.
async fn answered(events: &mut BoxStream<'static, Event>, asked: &mut VecDeque<Question>) -> Last {
    loop {
        match events.next().await {
            Some(Event::Question(question)) => asked.push_back(question),
            other => {
                if let Some(last) = last_of(other) {
                    return last;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unknown_task_is_one() {
        for (code, expected) in [(-32602, true), (-32603, false), (-32001, false)] {
            let error = format!("{{\"code\":{code},\"message\":\"\"}}");
            let error = RawValue::from_string(error).unwrap();
            assert_eq!(is_unknown(&error), expected, "{code}");
        }
    }
}
