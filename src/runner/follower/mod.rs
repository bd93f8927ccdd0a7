//! A client that waits for a call which has a record: it receives what the record contains. It made the call, or sent
//! the same call again, or came back with answers. The call may run on any replica.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::time::Instant;

use crate::base::clock::at;
use crate::mcp::error::{Failure, Reason, RpcError, SideEffect};
use crate::mcp::json::Writer;
use crate::mcp::version::Era;
use crate::runner::call::Announce;
use crate::runner::call_claim::CallClaim;
use crate::runner::client_share::ClientShare;
use crate::runner::presence::presence_pause;
use crate::runner::report::tool_of_task;
use crate::runner::responder::{CallAnswer, CallSubscriber};
use crate::runner::same_calls::RunningCall;
use crate::runner::state::Runner;
use crate::runner::waiting::{
    self, ANNOUNCE_AGAIN, CallState, CallView, Heard, Hears, WaitTerms, WaitingClient,
};
use crate::runner::watch::Watch;
use crate::store::ledger::{ApplyError, Loaded};
use crate::task::clocks::ClockName;
use crate::task::large_results::{ReadHint, shortened};
use crate::task::machine::TaskEvent;
use crate::task::progress::Progress;
use crate::task::task_end::TaskEnd;
use crate::task::ticket::CompanionTool;
use crate::task::view_2025;
use crate::upstream::{Forwarded, UpstreamError, UpstreamRequest};

mod given_up;

/// The request by which a client came to the record.
#[derive(Debug)]
pub(super) enum FollowReason {
    /// The client made the call. It also receives a fact that no record keeps: the server refused its credentials.
    Call(oneshot::Receiver<UpstreamError>),
    /// It sent the same call again.
    SameCall(FollowingClient),
    /// It collects a call that its client gave up before.
    GivenUp {
        claim: CallClaim,
        /// The clock that the client has for calls of the tool.
        clock: Option<ClockName>,
        client: Option<FollowingClient>,
        running: Option<RunningCall>,
    },
    /// It came back with answers, in a request of which the server gets this part.
    Retry(Forwarded),
}

/// A client that follows a call by another request than the one that made it.
#[derive(Debug, Clone)]
pub(super) struct FollowingClient {
    /// Its capabilities, if it did not make the call. The server knows those of the client that made it.
    declared: Option<Arc<str>>,
    /// The part of its request that the server gets, should this replica have to go on with the call.
    shown: Forwarded,
}

impl FollowingClient {
    /// The client of this request, which is the same call.
    pub(super) fn of(outgoing: &UpstreamRequest) -> Self {
        Self {
            declared: Some(Arc::clone(&outgoing.capabilities)),
            shown: outgoing.forwarded(),
        }
    }
}

/// Follows a record for one client.
struct CallFollower {
    runner: Arc<Runner>,
    loaded: Loaded,
    /// The watch began before the record was read, so that no change is missed.
    watch: Watch,
    /// The time at which the client is notified of a task.
    announce_at: Option<Instant>,
    /// The server refused the client's credentials; `None`: the client did not make the call, or the call went on.
    unauthorized: Option<oneshot::Receiver<UpstreamError>>,
    /// The capabilities of a client that did not make the call.
    declared: Option<Arc<str>>,
    /// The part of the client's request that the server gets, should this replica have to go on with the call.
    shown: Forwarded,
    /// The progress that the client received last.
    told: Option<Progress>,
    /// The keys of the questions that the client was asked.
    asked: BTreeSet<Box<str>>,
    /// When to record next that a client waits.
    mark_present_at: Option<Instant>,
    /// The time at which the client is notified that its call still runs.
    answer_at: Option<Instant>,
    /// Of a client that collected the call.
    given_up: Option<GivenUpCall>,
    /// The client's share in a call that it collected.
    shared: ClientShare,
}

/// The claim of a call that was given up, and the clock of its client.
type GivenUpCall = (CallClaim, Option<ClockName>);

impl Runner {
    /// Spawns the job that follows the record for one client.
    pub(super) fn follow(
        self: &Arc<Self>,
        loaded: Loaded,
        watch: Watch,
        terms: WaitTerms,
        came_by: FollowReason,
    ) -> CallSubscriber {
        let (client, subscriber) = match came_by {
            FollowReason::Call(_) => WaitingClient::of_call(terms),
            FollowReason::SameCall(_) | FollowReason::GivenUp { .. } | FollowReason::Retry(_) => {
                WaitingClient::joined(terms)
            }
        };
        self.follow_for(client, loaded, watch, came_by);
        subscriber
    }

    /// The same for the client of a call that got this record while the client waited, so that the same call can join it.
    pub(super) fn follow_shared(
        self: &Arc<Self>,
        loaded: Loaded,
        client: WaitingClient,
        claim: CallClaim,
    ) {
        let watch = self.watches.watch(vec![loaded.task.id]);
        // The record may have changed before its watch began.
        watch.mark(loaded.task.id);
        let shared = FollowReason::GivenUp {
            claim,
            clock: None,
            client: None,
            running: None,
        };
        self.follow_for(client, loaded, watch, shared);
    }

    fn follow_for(
        self: &Arc<Self>,
        client: WaitingClient,
        loaded: Loaded,
        watch: Watch,
        came_by: FollowReason,
    ) {
        let now = Instant::now();
        let pause = presence_pause(&loaded.task);
        let (mut given_up, mut running) = (None, None);
        let (unauthorized, another) = match came_by {
            FollowReason::Call(unauthorized) => (Some(unauthorized), None),
            FollowReason::SameCall(client) => (None, Some(client)),
            FollowReason::GivenUp {
                claim,
                clock,
                client,
                running: of_client,
            } => {
                (given_up, running) = (Some((claim, clock)), of_client);
                (None, client)
            }
            FollowReason::Retry(shown) => {
                let declared = None;
                (None, Some(FollowingClient { declared, shown }))
            }
        };
        let (declared, shown) = match another {
            Some(client) => (client.declared, client.shown),
            None => (None, Forwarded::default()),
        };
        // While the client that made the call is connected, no replica looks for its presence.
        let mark_present_at = if unauthorized.is_some() {
            pause.map(|pause| now + pause)
        } else {
            pause.map(|_| now)
        };
        let has_had_it = given_up.is_some() && client.made_the_call();
        let follower = CallFollower {
            runner: Arc::clone(self),
            watch,
            announce_at: client.announce_at(),
            unauthorized,
            declared,
            shown,
            // The client of a call that is shared has had the progress so far.
            told: loaded.task.progress.clone().filter(|_| has_had_it),
            asked: BTreeSet::new(),
            mark_present_at,
            answer_at: client.terms.answer_at,
            given_up,
            shared: ClientShare::of(&self.given_up.clients, loaded.task.id),
            loaded,
        };
        let following = async move {
            follower.run(client).await;
            // The same call of the client waits until it is known what becomes of this one.
            drop(running);
        };
        self.calls.spawn(following);
    }
}

impl CallFollower {
    /// Waits with the client until it has an answer, or leaves.
    async fn run(mut self, client: WaitingClient) {
        let halt = self.runner.halt.clone();
        let mut is_shutdown = false;
        let heard = tokio::select! {
            biased;
            () = halt.cancelled() => {
                is_shutdown = true;
                // Another replica may still run the call.
                let failure = Failure::new(Reason::Shutdown, SideEffect::Unknown);
                Some(CallAnswer::Failed(failure).into())
            }
            () = client.responder.gone() => None,
            heard = self.hear(&client) => Some(heard),
        };
        let (mut is_answered, mut is_kept) = (false, false);
        if let Some(heard) = heard {
            is_kept = heard.is_still_running();
            client.answer(tool_of_task(&self.loaded.task), heard);
            is_answered = halt.is_cancelled() || client.responder.settled().await;
        }
        match self.given_up {
            // The same call may have collected it by now.
            _ if is_kept => {}
            // The answer that this replica ends is none that the client wanted.
            Some(given_up) if is_shutdown || !is_answered => self.left(given_up, &client).await,
            // A client whose clock ended without a sign reads no answer, and makes the same call again.
            Some((claim, _)) if self.keeps_result(&claim) => self.leave_claim(&claim).await,
            None if !is_answered => drop(self.runner.client_left(&self.loaded).await),
            Some(_) | None => {}
        }
    }

    /// Waits for the end of the call, for its next question, or until the client may be notified of its task.
    async fn hear(&mut self, client: &WaitingClient) -> Heard {
        loop {
            self.take_up().await;
            if let Some(heard) = self.so_far(client).await {
                return heard;
            }
            self.relay(client).await;
            self.ask(client).await;
            tokio::select! {
                biased;
                error = unauthorized(&mut self.unauthorized) => {
                    return CallAnswer::Error(error).into();
                }
                _ = self.watch.changed() => {}
                () = client.responder.note().sent_again() => {
                    self.on_sent_again(client).await;
                    continue;
                }
                // The record is unchanged, so the store need not be asked.
                () = at(self.announce_at) => continue,
                () = at(self.answer_at) => {
                    self.answer_at = None;
                    if self.is_left_for_now().await {
                        return waiting::still_running(&self.loaded.task);
                    }
                    continue;
                }
                () = at(self.mark_present_at) => {
                    let pause = self.runner.mark_present(&self.loaded.task).await;
                    self.mark_present_at = pause.map(|pause| Instant::now() + pause);
                    continue;
                }
            }
            match self.runner.ledger.load(self.loaded.task.id).await {
                Ok(Some(loaded)) => self.loaded = loaded,
                Ok(None) => return self.store_lost(),
                // Before its deadline the call may still be answered, so the client waits until the store is back.
                Err(_) if self.is_due() => return self.store_unavailable().into(),
                Err(_) => self.watch.mark_again(self.loaded.task.id),
            }
        }
    }

    /// Carries a call on that waits for its client, if this client shows credentials.
    async fn take_up(&mut self) {
        if !self.loaded.task.waits_for_client() {
            return;
        }
        let taking_up = self.runner.take_up(self.loaded.clone(), self.shown.clone());
        self.loaded = Box::pin(taking_up).await;
        if self.shown.credentials.is_some() {
            self.watch.mark_again(self.loaded.task.id);
        }
    }

    /// Returns the answer that the record allows for the client now. `None`: the client continues to wait.
    async fn so_far(&mut self, client: &WaitingClient) -> Option<Heard> {
        // The server's own error arrives before the record ends, and says more than the record.
        if let Some(waiting) = &mut self.unauthorized {
            match waiting.try_recv() {
                Ok(error) => return Some(CallAnswer::Error(error).into()),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Closed) => self.unauthorized = None,
            }
        }
        match client.hears(self.view(client)) {
            Hears::Nothing => None,
            Hears::Question => Some(waiting::question(&self.loaded.task)),
            Hears::Answer => self.ended(client).await,
            Hears::Task if self.loaded.task.announced => Some(self.task(client)),
            Hears::Task => self.announce(client).await,
        }
    }

    fn view(&self, client: &WaitingClient) -> CallView {
        let task = &self.loaded.task;
        // A legacy client is asked while it waits.
        let asks = client.terms.era == Era::Modern && task.open_questions().next().is_some();
        let state = if task.is_ended() {
            CallState::Ended
        } else if asks {
            CallState::Asks
        } else {
            CallState::Runs
        };
        CallView {
            state,
            is_announced: task.announced,
            is_time: self.announce_at.is_some_and(|at| at <= Instant::now()),
        }
    }

    async fn announce(&mut self, client: &WaitingClient) -> Option<Heard> {
        match self
            .runner
            .ledger
            .apply(&self.loaded, TaskEvent::Announced)
            .await
        {
            Ok((loaded, _)) => self.loaded = loaded,
            // Another client was told of the task, or the task has just ended.
            Err(ApplyError::Rejected(_, latest)) => {
                self.loaded = *latest;
                if !self.loaded.task.announced
                    && let Some(heard) = self.ended(client).await
                {
                    return Some(heard);
                }
            }
            Err(ApplyError::Gone) => return Some(self.store_lost()),
            Err(ApplyError::Store(_)) => {
                self.announce_at = Some(Instant::now() + ANNOUNCE_AGAIN);
                return None;
            }
        }
        Some(self.task(client))
    }

    fn task(&self, client: &WaitingClient) -> Heard {
        client.task(&self.loaded.task, &self.runner)
    }

    /// Returns the answer with the outcome of the call. `None`: the call goes on.
    async fn ended(&self, client: &WaitingClient) -> Option<Heard> {
        let task = &self.loaded.task;
        task.outcome.as_ref()?;
        // A result that cannot be read now ends the wait as a store that is away does.
        let kept = self.runner.ledger.load_kept(task).await.ok().flatten();
        let answer = TaskEnd::of(task, kept.as_deref()).and_then(|end| self.end(client, &end));
        Some(answer.unwrap_or_else(|| self.store_unavailable()).into())
    }

    /// `None`: the result cannot be read.
    fn end(&self, client: &WaitingClient, end: &TaskEnd<'_>) -> Option<CallAnswer> {
        let error = match end {
            TaskEnd::Completed(result) => {
                let result = result.to_raw()?;
                let result = self.excerpt(client, &result).unwrap_or(result);
                let task = &self.loaded.task;
                return Some(self.runner.fit_kept(task, client.terms.era, result));
            }
            TaskEnd::Failed(error) => (*error).to_owned(),
            TaskEnd::Cancelled => RpcError::internal("The call was cancelled").to_raw(),
        };
        Some(CallAnswer::Error(UpstreamError::in_message(error)))
    }

    /// The excerpt in place of the result. `None`: the client gets the whole result.
    fn excerpt(&self, client: &WaitingClient, result: &RawValue) -> Option<Box<RawValue>> {
        let task = &self.loaded.task;
        // A call that no client can name leaves no way to its result.
        if &*task.method != "tools/call" || !task.is_wanted() {
            return None;
        }
        let rules = self.runner.rules();
        let inline_bytes = rules.for_tool(&task.name).0.result_inline.for_clients();
        let tool = match &client.terms.announce {
            Announce::Ticket(ticket) if task.announced => {
                Some(ticket.names.of(CompanionTool::Result))
            }
            // No tool of ours finds a task of which no client heard.
            Announce::Ticket(_) => return None,
            Announce::Task => None,
        };
        let way = match &tool {
            Some(tool) => ReadHint::ToolLater(tool),
            None => ReadHint::Resource {
                knows_links: client.terms.era == Era::Modern,
            },
        };
        let excerpt = shortened(result.get(), inline_bytes, task.id, way)?;
        RawValue::from_string(excerpt).ok()
    }

    fn store_unavailable(&self) -> CallAnswer {
        let effect = self.loaded.task.failure(Reason::StoreLost).effect;
        CallAnswer::StoreUnavailable(effect)
    }

    fn store_lost(&self) -> Heard {
        CallAnswer::Failed(self.loaded.task.failure(Reason::StoreLost)).into()
    }

    /// Sends the call's progress to the client.
    async fn relay(&mut self, client: &WaitingClient) {
        let task = &self.loaded.task;
        // Progress must grow from one notification to the next (MCP, progress), so a new message alone is not sent.
        if task.progress == self.told {
            return;
        }
        self.told.clone_from(&task.progress);
        let Some(progress) = &task.progress else {
            return;
        };
        let mut params = Writer::object();
        params.number("progress", progress.progress);
        if let Some(total) = progress.total {
            params.number("total", total);
        }
        if let Some(message) = &task.status_message {
            params.str("message", message);
        }
        client.tell_progress(&params.end(), self.announce_at).await;
    }

    /// Asks a legacy client the call's open questions, under JSON-RPC ids by which any replica accepts the
    /// answer.
    async fn ask(&mut self, client: &WaitingClient) {
        if client.terms.era == Era::Modern {
            return;
        }
        let task = &self.loaded.task;
        let open = view_2025::questions_of_call(task, self.declared.as_deref());
        let open = open.filter(|(key, _)| !self.asked.contains(*key));
        let open: Vec<(Box<str>, String)> = open.map(|(key, text)| (key.into(), text)).collect();
        for (key, question) in open {
            self.asked.insert(key);
            client.responder.ask(question, self.deadline()).await;
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

async fn unauthorized(receiver: &mut Option<oneshot::Receiver<UpstreamError>>) -> UpstreamError {
    if let Some(waiting) = receiver {
        match waiting.await {
            Ok(error) => return error,
            // A closed channel resolves at once, and would wake the loop without end.
            Err(_ended) => *receiver = None,
        }
    }
    std::future::pending().await
}
