//! One request of a legacy client, carried to a modern server: leg by leg, with the client's answers
//! in between. It runs in a job of its own and outlives the connection that it came on.

use std::sync::Arc;
use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::super::TOOLS_PATIENCE;
use super::super::auth::is_somebody;
use super::super::cancels;
use super::super::claims;
use super::super::companion::Desk;
use super::super::dialect::{Edit, Sent};
use super::super::legacy::words::Request;
use super::super::reply::Rpc;
use super::super::tasks::Shared;
use super::companion::{self, Patience};
use super::session::Session;
use super::table::{Entered, Refused};
use super::words;
use crate::mcp::error::{Failure, Reason, RpcError, SideEffect, code};
use crate::mcp::result::{self, ResultType};
use crate::mcp::tasks_2025::Wish;
use crate::mcp::version::Era;
use crate::mcp::{input, params};
use crate::runner::pauses::Pauses;
use crate::runner::seat::{Answer, Reply};
use crate::runner::{Announce, Call};
use crate::task::policy::{Plan, Rule, plan};
use crate::task::state::Digest;
use crate::upstream::{ClientHeaders, Forwarded, Outgoing, Retry};

/// Messages that wait for the client, beside the answer.
const MESSAGES_MAX: usize = 64;

/// How long a client that does not read holds its call up; then it misses a message.
const SLOW_CLIENT: Duration = Duration::from_secs(5);

/// Times that a server may ask within one call. One that asks nothing may want to be called again as
/// long as the call may last.
const ROUNDS_MAX: usize = 16;

/// How often it is looked whether another replica ended the session.
const LOOK: Duration = Duration::from_secs(16);

/// What the client hears of its request.
#[derive(Debug)]
pub(in crate::downstream) enum Said {
    /// A notification, or a request of the server's.
    Message(String),
    /// The answer. Nothing follows.
    Answer(Rpc),
}

/// A request with everything that its legs need.
pub(super) struct Asked {
    pub(super) front: Shared,
    pub(super) session: Session,
    pub(super) id: Box<RawValue>,
    method: Arc<str>,
    pub(super) params: Arc<str>,
    arguments: Option<Box<RawValue>>,
    name: Option<Arc<str>>,
    param_headers: ClientHeaders,
    /// What the server hears of the headers.
    pub(super) from: Forwarded,
    progress_token: Option<Box<RawValue>>,
    pub(super) rule: Rule,
    listed: bool,
    /// Questions can be put where the answer goes.
    pub(super) streams: bool,
    /// What raincheck says in the answer beside the server.
    edit: Option<Edit>,
    /// When the call is given up, whatever it waits for.
    pub(super) deadline: Instant,
    /// When its client is given a ticket in place of the answer.
    pub(super) patience: Option<Patience>,
    /// The server calls the tool safe to repeat, and is believed.
    repeatable: bool,
}

impl Asked {
    pub(super) fn new(
        front: &Shared,
        headers: &HeaderMap,
        session: Session,
        request: &Request<'_>,
    ) -> Result<Self, RpcError> {
        let named = match &*request.method {
            "tools/call" | "prompts/get" => Some("name"),
            "resources/read" => Some("uri"),
            _ => None,
        };
        let name = match named {
            None => None,
            Some(key) => Some(request.params.get_str(key).ok_or_else(|| {
                RpcError::invalid_params(format!("Invalid params: {key} must be a string"))
            })?),
        };
        let is_call = request.method == "tools/call";
        let tool = name.as_deref().filter(|_| is_call).unwrap_or_default();
        let rule = front.rules.for_tool(tool).0.clone();
        let is_task = session.has_tasks() && Wish::is_in(&request.params);
        if is_call && !is_task && plan(&rule, false, false) == Plan::Refuse {
            // As 2025-11-25 says it of a tool that runs only as a task.
            return Err(RpcError::new(
                code::METHOD_NOT_FOUND,
                "This tool runs only as a task, which this client does not ask for",
            ));
        }
        let meta = request.params.get_object("_meta").unwrap_or_default();
        let longest = Duration::from_millis(rule.max_duration_ms);
        Ok(Self {
            id: request.id.to_owned(),
            method: request.method.as_ref().into(),
            params: words::params(&request.params, &session.entry).into(),
            arguments: request.params.get("arguments").map(ToOwned::to_owned),
            name: name.as_deref().map(Into::into),
            param_headers: [].into(),
            from: front.forwarded(headers),
            progress_token: meta.get("progressToken").map(ToOwned::to_owned),
            rule,
            listed: is_somebody(headers),
            streams: false,
            edit: None,
            deadline: Instant::now() + longest,
            patience: None,
            repeatable: false,
            front: Arc::clone(front),
            session,
        })
    }

    pub(super) fn edited(self, edit: Option<Edit>) -> Self {
        Self { edit, ..self }
    }

    /// Its client has a ticket of that desk when its patience is over.
    pub(super) fn with_tickets(mut self, desk: &Desk<'_>, headers: &HeaderMap) -> Self {
        let name = self.name.as_deref().unwrap_or_default();
        self.patience = Patience::of(&self.rule, desk, headers);
        self.repeatable = desk.known(name).repeatable && self.front.settings.trust_annotations;
        self
    }

    /// As a call that becomes a task.
    pub(super) async fn sent(mut self) -> Sent {
        self.param_headers = self.mirrored().await;
        let Call { era, outgoing, .. } = self.call(None);
        let outgoing = Outgoing {
            wants_progress: true,
            ..outgoing
        };
        Sent { era, outgoing }
    }

    /// As a call that others may join.
    pub(super) async fn joined(mut self, digest: Digest) -> Call {
        self.param_headers = self.mirrored().await;
        let mut call = self.call(None);
        call.digest = digest;
        call.outgoing.wants_progress = true;
        claims::hide_key(&mut call.outgoing);
        call
    }

    /// Begins it. What is said ends with the answer, or without one where the client cancels. Dropped
    /// before, the call runs on, as legacy calls do. `streams`: the client can hear more than the
    /// answer.
    pub(super) fn begin(mut self, streams: bool) -> Result<mpsc::Receiver<Said>, Rpc> {
        self.streams = streams;
        let front = Arc::clone(&self.front);
        let cancelled = CancellationToken::new();
        let running = Arc::clone(&front.facade.running);
        let key = self.session.key();
        let id = self.id.get();
        let entered = match running.enter(key, id, cancelled.clone()) {
            Ok(entered) => entered,
            Err(Refused::SameId) => {
                let error = RpcError::invalid_request("Invalid request: this id is in use");
                return Err(Rpc::error(id, &error));
            }
            Err(Refused::Full) => return Err(Rpc::busy(id)),
        };
        let (said, receiver) = mpsc::channel(MESSAGES_MAX + 1);
        front.passing.spawn(self.run(said, cancelled, entered));
        Ok(receiver)
    }

    async fn run(
        mut self,
        said: mpsc::Sender<Said>,
        cancelled: CancellationToken,
        _entered: Entered<CancellationToken>,
    ) {
        // So that no message takes its room. None where the client left at once.
        let answer = said.clone().try_reserve_owned().ok();
        self.param_headers = self.mirrored().await;
        let cancelled_elsewhere = cancels::told(&self.front, self.session.key(), &self.id);
        let session_ended = self.session_ended();
        let legs = Box::pin(self.legs(&said));
        // Whatever is dropped here is to the server as if its client had hung up.
        let ended = tokio::select! {
            biased;
            () = cancelled.cancelled() => None,
            () = cancelled_elsewhere => None,
            () = session_ended => None,
            ended = legs => Some(ended),
        };
        if let (Some(mut rpc), Some(answer)) = (ended, answer) {
            if let Some(edit) = &self.edit {
                rpc.json = edit.apply(rpc.json);
            }
            if &*self.method == "tools/list" {
                rpc.json = companion::listed(&self, rpc.json).await;
            }
            answer.send(Said::Answer(rpc.on_session()));
        }
    }

    /// `Mcp-Param-*`, which a legacy client knows nothing of.
    async fn mirrored(&self) -> ClientHeaders {
        let Some(name) = self.name.as_deref().filter(|_| self.is_call()) else {
            return [].into();
        };
        let listing = self.front.upstream.tools(
            *self.session.caller.as_bytes(),
            self.from.credentials.clone(),
            self.capabilities(),
        );
        // Without the list the server may refuse the call, and says why.
        let Ok(Ok(tools)) = tokio::time::timeout(TOOLS_PATIENCE, listing).await else {
            return [].into();
        };
        let Some(tool) = tools.get(name) else {
            return [].into();
        };
        params::mirrored(tool, self.arguments.as_deref())
            .filter_map(|(name, value)| {
                let name = HeaderName::try_from(name).ok()?;
                Some((name, HeaderValue::try_from(value).ok()?))
            })
            .collect()
    }

    fn is_call(&self) -> bool {
        &*self.method == "tools/call"
    }

    fn capabilities(&self) -> Arc<str> {
        self.session.entry.capabilities.get().into()
    }

    /// From the first leg to the answer.
    async fn legs(&self, said: &mpsc::Sender<Said>) -> Rpc {
        let id = self.id.get();
        let invalid = || Failure::new(Reason::UpstreamInvalid, SideEffect::Unknown);
        let mut retry = None;
        let mut rounds = 0;
        let mut pauses = Pauses::default();
        loop {
            let result = match self.leg(said, retry.take()).await {
                Ok(result) => result,
                Err(rpc) => return rpc,
            };
            match result::result_type(&result) {
                Ok(ResultType::InputRequired) if self.may_be_asked() => {}
                Ok(ResultType::Complete) => {
                    return words::result(&self.method, &result).map_or_else(
                        |_| Rpc::failure(id, invalid()),
                        |result| Rpc::result(id, &result),
                    );
                }
                Ok(ResultType::InputRequired | ResultType::Other) | Err(_) => {
                    return Rpc::failure(id, invalid());
                }
            }
            let Ok(asked) = input::requests_of(&result) else {
                return Rpc::failure(id, invalid());
            };
            let answered = if asked.requests.is_empty() {
                self.pause(pauses.longer()).await.map(|()| "{}".to_owned())
            } else if rounds < ROUNDS_MAX {
                rounds += 1;
                Box::pin(self.ask(said, &result, &asked.requests)).await
            } else {
                return Rpc::failure(id, invalid());
            };
            match answered {
                Ok(answers) => {
                    retry = Some(Retry {
                        input_responses: answers.into(),
                        request_state: asked.request_state.map(Into::into),
                    });
                }
                Err(instead) => return instead,
            }
        }
    }

    /// The server works on the call and wants to be called again. The pause ends with its client's
    /// patience: the next leg makes a ticket of the call.
    async fn pause(&self, pause: Duration) -> Result<(), Rpc> {
        let now = Instant::now();
        let patience = self.patience.as_ref().map(|patience| patience.until);
        let until = patience
            .filter(|until| *until > now)
            .map_or(now + pause, |until| until.min(now + pause));
        let reason = tokio::select! {
            biased;
            () = self.front.runner.halt().cancelled() => Reason::Shutdown,
            () = tokio::time::sleep_until(self.deadline) => Reason::Deadline,
            () = tokio::time::sleep_until(until) => return Ok(()),
        };
        let failure = Failure::new(reason, SideEffect::Unknown);
        Err(Rpc::failure(self.id.get(), failure))
    }

    /// Only these may be answered with a question (2026-07-28, Multi Round-Trip Requests).
    fn may_be_asked(&self) -> bool {
        self.is_call() || matches!(&*self.method, "prompts/get" | "resources/read")
    }

    /// One request to the server: its result, or what the client is answered instead.
    async fn leg(
        &self,
        said: &mpsc::Sender<Said>,
        retry: Option<Retry>,
    ) -> Result<Box<RawValue>, Rpc> {
        let id = self.id.get();
        // A leg before this one may have done something.
        let is_first = retry.is_none();
        let effect_of = |leg| if is_first { leg } else { SideEffect::Unknown };
        let begun = self.front.runner.call(self.call(retry));
        let mut client = begun.map_err(|refused| {
            if is_first {
                return Rpc::not_begun(id, refused.reason());
            }
            Rpc::failure(id, Failure::new(refused.reason(), SideEffect::Unknown))
        })?;
        let mut is_slow = false;
        loop {
            match client.next().await {
                Some(Reply::Relay(notification)) => {
                    tell(said, notification, &mut is_slow).await;
                }
                Some(Reply::Answer(answer)) => {
                    client.into_guard().announce();
                    return match answer {
                        Answer::Result(result) => Ok(result),
                        Answer::Error(mut error) => {
                            error.error = words::error(&self.method, error.error);
                            Err(Rpc::error_as_it_is(id, error))
                        }
                        Answer::Failed(Failure { reason, effect }) => {
                            Err(Rpc::failure(id, Failure::new(reason, effect_of(effect))))
                        }
                        Answer::StoreUnavailable(effect) => {
                            Err(Rpc::store_lost(id, effect_of(effect)))
                        }
                    };
                }
                None => return Err(Rpc::abandoned(id)),
            }
        }
    }

    pub(super) fn call(&self, retry: Option<Retry>) -> Call {
        let log_level = words::log_level(&self.session.entry);
        let (params, retry) = match (&self.patience, retry) {
            // What may become a record is stored as it is here, the answers so far in it.
            (Some(_), Some(retry)) => (words::retried(&self.params, &retry).into(), None),
            (_, retry) => (Arc::clone(&self.params), retry),
        };
        let (plan, announce) = match &self.patience {
            Some(patience) => (patience.plan(), patience.announce.clone()),
            None => (Plan::Held, Announce::Task),
        };
        let left = self.deadline.saturating_duration_since(Instant::now());
        let outgoing = Outgoing {
            caller: *self.session.caller.as_bytes(),
            credentials: self.from.credentials.clone(),
            method: Arc::clone(&self.method),
            params,
            capabilities: self.capabilities(),
            name: self.name.clone(),
            param_headers: Arc::clone(&self.param_headers),
            headers: Arc::clone(&self.from.headers),
            wants_progress: self.progress_token.is_some() || self.patience.is_some(),
            log_level: Some(log_level.into()),
            retry,
            native_task: false,
            pin: None,
            answer_patience: self.rule.input_timeout_ms.map(Duration::from_millis),
        };
        Call {
            caller: self.session.caller,
            era: Era::Modern,
            face: Era::Legacy,
            outgoing,
            rule: Rule {
                max_duration_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
                ..self.rule.clone()
            },
            plan,
            progress_token: self.progress_token.clone(),
            announce,
            // Never parked: it becomes a ticket instead.
            digest: Digest::of(&[]),
            repeatable: self.repeatable,
            listed: self.listed,
            session: None,
        }
    }

    /// Resolves when the session was ended, here or at another replica.
    async fn session_ended(&self) {
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        look.tick().await;
        loop {
            look.tick().await;
            // A store that is away is asked again.
            if matches!(self.session.reload(&self.front).await, Ok(None)) {
                return;
            }
        }
    }
}

/// The client waits no more for its request of this id. `false`: it does not run here.
pub(super) fn cancel(front: &Shared, session: &Session, id: &RawValue) -> bool {
    let running = front.facade.running.take(session.key(), id.get());
    running.map(|running| running.cancel()).is_some()
}

/// A client that is gone, or does not read, misses what is said.
pub(super) async fn say(said: &mpsc::Sender<Said>, message: String) -> bool {
    let saying = said.send(Said::Message(message));
    matches!(tokio::time::timeout(SLOW_CLIENT, saying).await, Ok(Ok(())))
}

/// A notification. The call waits for a slow client once, and then the client misses those for which it
/// has no room.
pub(in crate::downstream) async fn tell(
    said: &mpsc::Sender<Said>,
    notification: String,
    is_slow: &mut bool,
) {
    let patience = if *is_slow {
        Duration::ZERO
    } else {
        SLOW_CLIENT
    };
    let telling = said.send(Said::Message(notification));
    // Of a client that went away it is decided elsewhere what becomes of its call.
    *is_slow = tokio::time::timeout(patience, telling).await.is_err();
}
