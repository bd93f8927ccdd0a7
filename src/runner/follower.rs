//! A client that waits for a call which has a record. It made the call, or sent the same call again, or came
//! back with answers. The call may run on any replica.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::time::Instant;

use super::call::Announce;
use super::presence::presence_pause;
use super::report::{self, fate_of, tool_of_task};
use super::request_state::input_required;
use super::responder::{self, CallAnswer, CallSubscriber, Responder};
use super::state::Runner;
use super::terms::FollowTerms;
use super::watch::Watch;
use crate::mcp::envelope;
use crate::mcp::error::{Failure, Reason, RpcError, SideEffect};
use crate::mcp::json::Writer;
use crate::mcp::result;
use crate::mcp::version::Era;
use crate::store::ledger::{Loaded, NotApplied};
use crate::task::machine::TaskEvent;
use crate::task::policy::InputWhen;
use crate::task::state::{OnDisconnect, Outcome, Payload, Progress};
use crate::task::view_2025;
use crate::telemetry::calls::Fate;
use crate::upstream::UpstreamError;

/// The pause before a record that could not be read is read again.
const RELOAD: Duration = Duration::from_secs(1);

/// Follows a record for one client.
struct CallFollower {
    runner: Arc<Runner>,
    loaded: Loaded,
    /// The watch began before the record was read, so that no change is missed.
    watch: Watch,
    terms: FollowTerms,
    announce_at: Option<Instant>,
    /// The progress that the client heard last.
    told: Option<Progress>,
    /// The keys of the questions that the client was asked.
    asked: BTreeSet<Box<str>>,
    /// When to record next that a client waits.
    mark_present_at: Option<Instant>,
    /// What the client got in place of the plain answer.
    fate: Option<Fate>,
}

impl Runner {
    /// Spawns the job that follows the record for one client.
    pub(super) fn follow(
        self: &Arc<Self>,
        loaded: Loaded,
        watch: Watch,
        terms: FollowTerms,
    ) -> CallSubscriber {
        let (responder, client) = responder::pair();
        let now = Instant::now();
        let made_the_call = terms.unauthorized.is_some();
        let mut follower = CallFollower {
            runner: Arc::clone(self),
            watch,
            announce_at: terms.announce.as_ref().map(|(after, _)| now + *after),
            terms,
            told: None,
            asked: BTreeSet::new(),
            // While the client that made the call is connected, no replica looks for its presence.
            mark_present_at: presence_pause(&loaded.task)
                .map(|pause| if made_the_call { now + pause } else { now }),
            fate: (!made_the_call).then_some(Fate::Joined),
            loaded,
        };
        let halt = self.halt.clone();
        self.calls.spawn(async move {
            let answer = tokio::select! {
                biased;
                () = halt.cancelled() => {
                    // Another replica may still run the call.
                    Some(CallAnswer::Failed(Failure::new(Reason::Shutdown, SideEffect::Unknown)))
                }
                () = responder.gone() => None,
                answer = follower.answer(&responder) => Some(answer),
            };
            if let Some(answer) = answer {
                follower.report(&answer, now);
                responder.answer(answer);
                if halt.is_cancelled() || responder.settled().await {
                    return;
                }
            }
            follower.leave().await;
        });
        client
    }
}

impl CallFollower {
    /// Waits for the call's end, for its next question, or until the client may hear of its task.
    async fn answer(&mut self, client: &Responder) -> CallAnswer {
        let mut reload_at = None;
        loop {
            if let Some(answer) = self.so_far().await {
                return answer;
            }
            self.relay(client).await;
            self.ask(client).await;
            tokio::select! {
                biased;
                error = unauthorized(&mut self.terms.unauthorized) => return CallAnswer::Error(error),
                _ = self.watch.changed() => {}
                () = at(reload_at) => {}
                () = at(self.announce_at) => continue,
                () = at(self.mark_present_at) => {
                    let pause = self.runner.mark_present(&self.loaded.task).await;
                    self.mark_present_at = pause.map(|pause| Instant::now() + pause);
                    continue;
                }
            }
            reload_at = None;
            match self.runner.ledger.load(self.loaded.task.id).await {
                Ok(Some(loaded)) => self.loaded = loaded,
                Ok(None) => return CallAnswer::Failed(self.loaded.task.failure(Reason::StoreLost)),
                Err(_) if self.is_due() => return self.store_unavailable(),
                Err(_) => reload_at = Some(Instant::now() + RELOAD),
            }
        }
    }

    /// The answer that the record allows now; `None`: the client continues to wait.
    async fn so_far(&mut self) -> Option<CallAnswer> {
        // The server's own error arrives before the record ends, and says more than the record.
        if let Some(waiting) = &mut self.terms.unauthorized {
            match waiting.try_recv() {
                Ok(error) => return Some(CallAnswer::Error(error)),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Closed) => self.terms.unauthorized = None,
            }
        }
        let announce = self.terms.announce.as_ref().map(|(_, announce)| announce);
        if matches!(announce, Some(Announce::Task)) && self.loaded.task.announced {
            return Some(self.task(&Announce::Task));
        }
        if let Some(outcome) = &self.loaded.task.outcome {
            return Some(self.end(outcome).await);
        }
        let announce = self.terms.announce.as_ref().map(|(_, announce)| announce);
        let asks = self.terms.client_era == Era::Modern
            && self.loaded.task.open_questions().next().is_some();
        if asks && self.terms.input == InputWhen::BeforeTask {
            return Some(answer_of(input_required(&self.loaded.task)));
        }
        let is_time = self.announce_at.is_some_and(|at| at <= Instant::now());
        match announce.filter(|_| asks || is_time).cloned() {
            Some(announce) => self.announce(&announce).await,
            None => None,
        }
    }

    async fn announce(&mut self, announce: &Announce) -> Option<CallAnswer> {
        match self
            .runner
            .ledger
            .apply(&self.loaded, TaskEvent::Announced)
            .await
        {
            Ok((loaded, _)) => self.loaded = loaded,
            // Another client was told of the task, or the task has just ended.
            Err(NotApplied::Rejected(_, latest)) => {
                self.loaded = *latest;
                if let Some(outcome) = &self.loaded.task.outcome
                    && !self.loaded.task.announced
                {
                    return Some(self.end(outcome).await);
                }
            }
            Err(NotApplied::Gone) => {
                return Some(CallAnswer::Failed(
                    self.loaded.task.failure(Reason::StoreLost),
                ));
            }
            // The call runs already: the client waits on this connection until the store is back.
            Err(NotApplied::Store(_)) => {
                self.announce_at = Some(Instant::now() + RELOAD);
                return None;
            }
        }
        Some(self.task(announce))
    }

    /// Tells operators what the client got, once.
    fn report(&self, answer: &CallAnswer, began: Instant) {
        let tool = tool_of_task(&self.loaded.task);
        match self.fate {
            Some(fate) => report::became(tool, fate),
            None => report::answered(tool, answer, began),
        }
    }

    fn task(&mut self, announce: &Announce) -> CallAnswer {
        self.fate.get_or_insert_with(|| fate_of(announce));
        let now_ms = self.runner.ledger.now_ms();
        answer_of(announce.text(&self.loaded.task, now_ms))
    }

    async fn end(&self, outcome: &Outcome) -> CallAnswer {
        let task = &self.loaded.task;
        match outcome {
            Outcome::Completed(Payload::Inline(result)) => self.fit(result.clone()),
            Outcome::Completed(Payload::Kept { .. }) => {
                let kept = self.runner.ledger.load_kept(task).await.ok().flatten();
                let text = kept.and_then(|bytes| String::from_utf8(bytes.to_vec()).ok());
                text.and_then(|text| RawValue::from_string(text).ok())
                    .map_or_else(|| self.store_unavailable(), |result| self.fit(result))
            }
            Outcome::Failed(error) => CallAnswer::Error(stored_error(error.clone())),
            Outcome::Cancelled => CallAnswer::Error(stored_error(
                RpcError::internal("The call was cancelled").to_raw(),
            )),
        }
    }

    fn store_unavailable(&self) -> CallAnswer {
        let effect = self.loaded.task.failure(Reason::StoreLost).effect;
        CallAnswer::StoreUnavailable(effect)
    }

    /// The result as the client would have had it without a record.
    fn fit(&self, result: Box<RawValue>) -> CallAnswer {
        if self.terms.client_era == Era::Legacy {
            return result::for_legacy(result.get()).map_or(CallAnswer::Result(result), answer_of);
        }
        let upstream = &self.runner.upstream;
        let info = upstream
            .server_info(*self.loaded.task.caller.as_bytes())
            .filter(|_| upstream.known_era() == Some(Era::Legacy));
        match info {
            Some(info) => result::with_server_info(result.get(), &info)
                .map_or(CallAnswer::Result(result), answer_of),
            None => CallAnswer::Result(result),
        }
    }

    /// Tells the client of the call's progress, under the client's own token.
    async fn relay(&mut self, client: &Responder) {
        let task = &self.loaded.task;
        let Some(token) = &self.terms.progress_token else {
            return;
        };
        if task.progress == self.told {
            return;
        }
        self.told.clone_from(&task.progress);
        let Some(progress) = &task.progress else {
            return;
        };
        let mut params = Writer::object();
        params.raw("progressToken", token.get());
        params.number("progress", progress.progress);
        if let Some(total) = progress.total {
            params.number("total", total);
        }
        if let Some(message) = &task.status_message {
            params.str("message", message);
        }
        let progress = envelope::notification("notifications/progress", &params.end());
        client.tell(progress, self.announce_at).await;
    }

    /// Asks a legacy client the call's open questions, under JSON-RPC ids by which any replica accepts the
    /// answer.
    async fn ask(&mut self, client: &Responder) {
        if self.terms.client_era == Era::Modern {
            return;
        }
        let task = &self.loaded.task;
        let open = view_2025::questions_of_call(task, self.terms.declared.as_deref());
        let open = open.filter(|(key, _)| !self.asked.contains(*key));
        let open: Vec<(Box<str>, String)> = open.map(|(key, text)| (key.into(), text)).collect();
        for (key, question) in open {
            self.asked.insert(key);
            client.ask(question, self.deadline()).await;
        }
    }

    /// The client went away before it had its answer.
    async fn leave(&self) {
        match self.loaded.task.on_disconnect {
            OnDisconnect::Cancel => {
                let _ = self.runner.cancel_for_disconnect(&self.loaded).await;
            }
            OnDisconnect::KeepFor(window_ms) => {
                let window = Duration::from_millis(window_ms);
                self.runner.cancel_if_abandoned(self.loaded.task.id, window);
            }
            OnDisconnect::Keep => {}
        }
    }

    fn is_due(&self) -> bool {
        self.deadline() <= Instant::now()
    }

    fn deadline(&self) -> Instant {
        let now_ms = self.runner.ledger.now_ms();
        let left = self.loaded.task.deadline_ms.saturating_sub(now_ms);
        Instant::now() + Duration::from_millis(left)
    }
}

fn answer_of(json: String) -> CallAnswer {
    RawValue::from_string(json).map_or(
        CallAnswer::StoreUnavailable(SideEffect::Unknown),
        CallAnswer::Result,
    )
}

fn stored_error(error: Box<RawValue>) -> UpstreamError {
    UpstreamError {
        error,
        status: 200,
        www_authenticate: None,
    }
}

async fn unauthorized(receiver: &mut Option<oneshot::Receiver<UpstreamError>>) -> UpstreamError {
    if let Some(waiting) = receiver {
        match waiting.await {
            Ok(error) => return error,
            Err(_ended) => *receiver = None,
        }
    }
    std::future::pending().await
}

async fn at(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}
