//! Calls whose client gave up: they run on for a while, and the same call collects them.
//!
//! A client's clock often ends before a slow tool does, and then its program or its model makes the same call again. The
//! first call gets a record and a claim that names it; the next same call takes the claim and follows the record, on any
//! replica. So the tool runs once.
//!
//! While no client gave up, a call costs one comparison here. A value in the store, which every replica watches, says
//! until when claims may stand.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout};
use tracing::{debug, info, warn};

use super::call::{CallClient, CallSpec, CallTerms};
use super::call_claim::{CallClaim, Sharing};
use super::carrier::Carrier;
use super::claim::ClaimError;
use super::follower::{FollowReason, FollowingClient};
use super::given_up_claims::ClaimInWriting;
use super::report::{self, tool_of};
use super::responder::CallSubscriber;
use super::state::Runner;
use super::waiting::{WaitTerms, WaitingClient};
use crate::mcp::error::says_not_run;
use crate::store::StoreError;
use crate::store::kv::{Kind, Name};
use crate::task::clocks::{ClockName, KNOWN_FOR, RungClock};
use crate::task::id::TaskId;
use crate::task::on_disconnect::OnDisconnect;
use crate::task::policy::{OnOwnerLost, Rule};
use crate::task::state::{Outcome, Task};
use crate::telemetry::calls::Fate;
use crate::upstream::{Exchange, UpstreamRequest};

/// A result can be collected for this long after the end of its call: an agent's next turn comes sooner.
const ENDED_MS: u64 = 60_000;

/// Upper bound of the time in which the store says if a call was given up.
const LOOK_PATIENCE: Duration = Duration::from_millis(300);

impl Runner {
    /// Returns `true` if a client may have given a call up, here or on another replica.
    pub fn may_have_given_up(&self) -> bool {
        self.given_up.may_stand(|| self.ledger.now_ms())
    }

    /// Returns the time at which a call that has just come is answered, shortly before its client's clock ends. `None`: the
    /// clock is not known. `name`: asked only if any clock is known.
    pub fn answer_at(&self, name: impl FnOnce() -> Option<ClockName>) -> Option<Instant> {
        let answer_after = self.given_up.answer_after(name, || self.ledger.now_ms())?;
        Some(Instant::now() + answer_after)
    }

    /// Begins to keep a call whose client's clock has just ended. A program makes the same call again within
    /// milliseconds: it waits from now on until the claim is written. `clock`: the clock, if it shows after how long the client
    /// gives up.
    pub(super) fn begin_to_keep(
        &self,
        claim: &CallClaim,
        tool: &str,
        clock: Option<RungClock>,
    ) -> ClaimInWriting {
        if let Some(clock) = clock {
            self.given_up.rang(clock, tool, self.ledger.now_ms());
        }
        self.given_up.begin(claim.name)
    }

    /// Returns `true` if the call that this claim names was given up, and can be collected. If the store does not answer at
    /// once, it cannot: other calls must not wait for that. `joins`: the call may be one that its client waits for.
    pub async fn was_given_up(&self, claim: &CallClaim, joins: bool) -> bool {
        if !*self.store_answers.borrow() {
            return false;
        }
        let looking = async {
            self.given_up.written(claim.name).await;
            self.kv.find(claim.name).await
        };
        let found = timeout(LOOK_PATIENCE, looking).await;
        let found = found.ok().and_then(Result::ok).flatten();
        found.is_some_and(|found| {
            let is_named = matches!(claim.read(&found), Ok(Some(_)));
            is_named && (joins || CallClaim::read_sharing(&found).is_none())
        })
    }

    /// Writes the claim by which the same call collects the call that has this record, or will have it. `on_disconnect`: of
    /// the record.
    pub(super) async fn write_claim(
        &self,
        claim: &CallClaim,
        id: TaskId,
        on_disconnect: OnDisconnect,
    ) -> Result<(), StoreError> {
        let OnDisconnect::KeepFor(window_ms) = on_disconnect else {
            return Ok(());
        };
        let lifetime = Duration::from_millis(window_ms);
        let written = async {
            self.kv.put(claim.name, claim.value(id), lifetime).await?;
            // The claim stands before the mark, so a replica that reads the mark finds the claim.
            self.mark_given_up(lifetime).await
        };
        let written = written.await;
        if written.is_err() {
            self.withdraw(claim).await;
        }
        written
    }

    /// Takes a claim back whose call cannot be collected.
    pub(super) async fn withdraw(&self, claim: &CallClaim) {
        // A claim that stays names no record, or a call that its own client waits for.
        if let Err(error) = self.kv.remove(claim.name).await {
            debug!(%error, "a claim of a call was not taken back");
        }
    }

    /// Lets a call with a record and a claim run on after its client's clock ended: for the window of the record, or until
    /// the same call comes again.
    pub(super) fn runs_on(self: &Arc<Self>, task: &Task) {
        report::became(Some(&task.name), Fate::GaveUp);
        info!(
            tool = &*task.name,
            "the client's clock ended; its call runs on for the same call to collect it"
        );
        self.cancel_if_abandoned(task.id, task.on_disconnect);
    }

    /// Keeps a call of this tool that passed until its client's clock ended. `exchange`: the rest of it.
    pub fn keep_passed(
        self: &Arc<Self>,
        client: CallClient,
        (claim, clock): (CallClaim, Option<RungClock>),
        tool: &str,
        exchange: Exchange,
    ) {
        let Ok(permit) = self.permit() else {
            // Without room no carrier can keep the call, so it ends like a call that its client cancelled.
            self.services
                .spawn(async move { exchange.control.cancel().await });
            return;
        };
        let call = self.passed(client, tool, None);
        let carrier = Carrier::for_passed(Arc::clone(self), call, None, exchange);
        let writing = self.begin_to_keep(&claim, tool, clock);
        self.spawn(carrier.task_id(), carrier.run_kept(claim, writing), permit);
    }

    /// Carries a call of this tool on that passed until its client, which waits, sent it again. `exchange`: the rest of it.
    /// `None`: there is no room for it, and `exchange` was not asked for.
    pub fn carry_passed(
        self: &Arc<Self>,
        (client, claim): (CallClient, CallClaim),
        tool: &str,
        progress_token: Option<&RawValue>,
        exchange: impl FnOnce() -> Exchange,
    ) -> Option<CallSubscriber> {
        let permit = self.permit().ok()?;
        let mut call = self.passed(client, tool, progress_token);
        call.terms.claim = Some(claim);
        let terms = WaitTerms::of(&call, self.upstream.start_allowance());
        let (client, subscriber) = WaitingClient::of_call(terms);
        let carrier = Carrier::for_passed(Arc::clone(self), call, Some(client), exchange());
        self.spawn(carrier.task_id(), carrier.run(), permit);
        Some(subscriber)
    }

    /// A call that passed: nothing of its request is known any more.
    fn passed(&self, client: CallClient, tool: &str, token: Option<&RawValue>) -> CallSpec {
        let rule = Rule {
            on_owner_lost: OnOwnerLost::Fail,
            ..Rule::clone(self.rules().for_tool(tool).0)
        };
        let terms = CallTerms {
            has_passed: true,
            ..CallTerms::held(None, &Arc::new(rule))
        };
        let outgoing = UpstreamRequest::new(*client.caller.as_bytes(), "tools/call", "{}")
            .described_by(Some(tool.into()), [].into());
        CallSpec::of(client, terms, outgoing, token)
    }

    /// Makes every replica look for claims for this time.
    async fn mark_given_up(&self, lifetime: Duration) -> Result<(), StoreError> {
        let needed_ms = self.ledger.now_ms().saturating_add(millis(lifetime));
        if self.given_up.is_marked(needed_ms) {
            return Ok(());
        }
        let written = self.write_mark(needed_ms).await;
        if written.is_err() {
            self.given_up.has_news();
        }
        written
    }

    async fn write_mark(&self, needed_ms: u64) -> Result<(), StoreError> {
        // What other replicas wrote meanwhile must not be lost with their value.
        if let Some(found) = self.kv.find(mark()).await? {
            self.given_up.read(&found, self.ledger.now_ms());
        }
        let (value, until_ms) = self.given_up.mark(needed_ms);
        let left_ms = until_ms.saturating_sub(self.ledger.now_ms());
        let lifetime = Duration::from_millis(left_ms).max(KNOWN_FOR);
        self.kv.put(mark(), value, lifetime).await?;
        self.kv.tell(mark()).await?;
        // Noted last: if it were noted before a write that fails, the next call would skip the write.
        self.given_up.stand_until(until_ms);
        Ok(())
    }

    /// Learns of the calls that clients gave up at other replicas, and before this process began.
    pub(super) async fn watch_given_up(self: Arc<Self>) {
        let watch = self.watch_value(mark());
        let watching = async {
            // This also finds what an earlier process left in a store that is this process's alone.
            let mut found = watch.read().await;
            loop {
                if let Some(found) = &found {
                    self.given_up.read(found, self.ledger.now_ms());
                }
                found = watch.told().await;
            }
        };
        self.halt.run_until_cancelled(watching).await;
    }

    /// Collects the call that the claim names, or begins this one, if another request has collected it before.
    pub async fn collect(
        self: &Arc<Self>,
        claim: CallClaim,
        call: CallSpec,
    ) -> Result<CallSubscriber, ClaimError> {
        let found = self.kv.find(claim.name).await?;
        let id = found.as_deref().map(|found| claim.read(found));
        let (Some(found), Some(Ok(Some(id)))) = (found, id) else {
            return Ok(self.call(call)?);
        };
        // The watch begins before the record is read: no change is missed.
        let watch = self.watches.watch(vec![id]);
        let loaded = self.ledger.load(id).await?;
        let now_ms = self.ledger.now_ms();
        let sharing = CallClaim::read_sharing(&found);
        let is_over = |task: &Task| task.is_ended() && sharing.is_some_and(|it| !it.keeps_result);
        let loaded = loaded.filter(|it| can_be_collected(&it.task, now_ms) && !is_over(&it.task));
        let Some(loaded) = loaded else {
            return Ok(self.call(call)?);
        };
        // The client of the first call keeps the result for later tries.
        let joined = sharing.map(|_| Sharing {
            keeps_result: false,
        });
        let claim = joined
            .and_then(|joined| claim.shared(joined))
            .unwrap_or(claim);
        // Of several requests one takes the claim: the others are calls of their own, which a client makes at the same time
        // because it wants both. No claim can be read from the value in its place.
        let taken = Bytes::from(TaskId::random().to_string());
        let lifetime = claim.give_up_window().unwrap_or_default();
        if !self.kv.replace(claim.name, found, taken, lifetime).await? {
            return Ok(self.call(call)?);
        }
        let terms = WaitTerms::of(&call, self.upstream.start_allowance());
        let reason = FollowReason::GivenUp {
            claim,
            clock: tool_of(&call.outgoing).and_then(|tool| call.client.clock_of(tool)),
            client: Some(FollowingClient::of(&call.outgoing)),
            running: call.client.running.clone(),
        };
        Ok(self.follow(loaded, watch, terms, reason))
    }

    /// Handles a client that leaves a call which it collected: the call may be collected once more, or ends.
    /// Returns `true` if it can be collected.
    pub(super) async fn left_again(
        self: &Arc<Self>,
        (claim, clock): (&CallClaim, Option<RungClock>),
        task: &Task,
    ) -> bool {
        let writing = self.begin_to_keep(claim, &task.name, clock);
        // The window begins anew: the replica that looks for the client must find it until then.
        self.mark_present(task).await;
        let written = self.write_claim(claim, task.id, task.on_disconnect);
        let written = written.await;
        drop(writing);
        match &written {
            Ok(()) => self.runs_on(task),
            Err(error) => {
                warn!(%error, "a call that its client gave up again cannot be collected");
                // Its result is lost, so it ends with its window. This looks again until the store answers.
                self.cancel_if_abandoned(task.id, task.on_disconnect);
            }
        }
        written.is_ok()
    }
}

/// A call that was cancelled, or that did not run, is begun anew. So is one that ended long ago: what it read may have
/// changed.
fn can_be_collected(task: &Task, now_ms: u64) -> bool {
    let is_recent = now_ms < task.updated_ms.saturating_add(ENDED_MS);
    match &task.outcome {
        None => true,
        Some(Outcome::Completed(_)) => is_recent,
        Some(Outcome::Failed(error)) => is_recent && !says_not_run(error),
        Some(Outcome::Cancelled) => false,
    }
}

/// The name of the value with the time until which claims may stand, and the clocks that rang.
pub fn mark() -> Name {
    Name::of(Kind::GivenUp, &["until"])
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
