//! Makes the record of a call, with what has happened to the call already.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::call::CallOrigin;
use super::super::custody::Custody;
use super::super::leg;
use super::super::report::tool_of_task;
use super::super::waiting::question;
use super::record_terms::RecordTerms;
use super::{Audience, CallStage, Carrier, RecordedCall, Timer};
use crate::mcp::version::Era;
use crate::store::ledger::CreateError;
use crate::task::id::Fence;
use crate::task::machine::{OwnerEvent, Step, TaskEvent, step};
use crate::task::policy::OnOwnerLost;
use crate::task::state::{Leg, Reach, Task};
use crate::task::ticket_terms::TicketTerms;

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Carrier {
    /// Makes the record of this call and notifies the client of it.
    pub(super) async fn record(
        &mut self,
        events: Vec<OwnerEvent>,
        terms: RecordTerms,
    ) -> Result<(), CreateError> {
        let CallStage::Plain(plain) = &self.stage else {
            return Ok(());
        };
        let origin = &plain.origin;
        let mut task = self.new_task(origin, terms);
        match self.runner.subscribed(&task).await {
            Ok(subscribed) => task.notices.extend(subscribed),
            Err(why) => {
                self.not_recorded();
                return Err(why.into());
            }
        }
        if let Some(round) = &plain.round {
            let (by, waits) = (&self.runner.incarnation, self.dispatch.waits());
            task = round.in_record(task, by, waits);
        }
        for event in events {
            let decided = step(&task, TaskEvent::Owner(task.fence, event), task.created_ms);
            task = decided.map_or(task, |Step { task, .. }| task);
        }
        // Another replica may send a request that waits, or send it again. A modern server that asked wants the request
        // again with the answers in it.
        let may_repeat = task.on_owner_lost == OnOwnerLost::Rerun || task.leg == Leg::Queued;
        let is_modern = self.server.era == Era::Modern;
        let is_kept = may_repeat || task.round > 0 || self.runner.settings.keeps_requests;
        let request = is_kept
            .then(|| leg::store(&self.server.outgoing))
            .transpose()
            .inspect_err(|_| self.not_recorded())?;
        let runner = Arc::clone(&self.runner);
        let custody = Custody::of(&runner, &task);
        let loaded = match runner.ledger.create(task, request).await {
            Ok(loaded) => loaded,
            Err(why @ (CreateError::Taken | CreateError::Quota)) => {
                self.not_recorded();
                return Err(why);
            }
            Err(CreateError::Store(why)) => {
                self.not_recorded();
                if let CallStage::Plain(plain) = &mut self.stage {
                    plain.may_run_elsewhere |= may_repeat;
                }
                drop(custody);
                runner.doubt(terms.id);
                return Err(why.into());
            }
        };
        let _ = self.task_id.set(terms.id);
        self.progress.messages.clear();
        self.timers.disarm(Timer::GraceWindow);
        self.timers.disarm(Timer::Gather);
        let pin = self.server.outgoing.pin.as_ref();
        let mut recorded = RecordedCall::new(loaded, custody, pin);
        recorded.lacks_request = is_modern && !is_kept;
        self.stage = CallStage::Recorded(Box::new(recorded));
        self.announce();
        if let CallStage::Recorded(recorded) = &self.stage {
            runner.subscribe_late(&recorded.loaded);
        }
        self.tell_progress_later();
        self.tell_queue_later();
        Ok(())
    }

    /// Notes that there is no record: the span of the client's request is reported with its answer again.
    fn not_recorded(&self) {
        if let CallStage::Plain(plain) = &self.stage
            && let Some(span) = &plain.origin.client.span
        {
            span.not_recorded();
        }
    }

    /// Notifies the client of the record: of the task, or of the question that parks the call.
    fn announce(&mut self) {
        let (CallStage::Recorded(recorded), Audience::Client(client)) =
            (&self.stage, &self.audience)
        else {
            return;
        };
        let task = recorded.task();
        let heard = if task.announced {
            client.task(task, &self.runner)
        } else {
            question(task)
        };
        client.answer(tool_of_task(task), heard);
    }

    pub(super) fn new_task(&self, origin: &CallOrigin, terms: RecordTerms) -> Task {
        let (rule, now_ms) = (&self.server.rule, self.runner.ledger.now_ms());
        let (outgoing, client) = (&self.server.outgoing, &origin.client);
        // A call that waits between two legs was sent before.
        let is_sent = !self.dispatch.waits() || self.had_leg();
        let since_began = Instant::now().saturating_duration_since(origin.began);
        let began_ms = now_ms.saturating_sub(millis(since_began));
        let name: Box<str> = outgoing.name.as_deref().unwrap_or_default().into();
        let mut task = Task {
            id: terms.id,
            caller: client.caller,
            label: client.label.clone(),
            method: (&*outgoing.method).into(),
            created_ms: now_ms,
            began_ms: Some(began_ms),
            updated_ms: now_ms,
            deadline_ms: now_ms.saturating_add(rule.max_duration_ms),
            ttl_ms: terms.ttl_ms.max(rule.ttl_ms()),
            poll_interval_ms: rule.poll_interval_ms,
            input_timeout_ms: rule.input_timeout_ms,
            on_input_timeout: rule.on_input_timeout.clone(),
            input_reminder_ms: rule.input_reminder_ms,
            announced: terms.announced,
            listed: client.list_key == Some(client.caller),
            on_disconnect: terms.on_disconnect,
            // Only the retry of a call that is parked unannounced is compared with the digest.
            digest: (!terms.announced).then(|| leg::digest(outgoing)),
            owner: Some(self.runner.incarnation.clone()),
            fence: Fence(1),
            reach: self.runner.settings.reach.clone(),
            on_owner_lost: self.on_owner_lost(origin.repeatable),
            attempts: 0,
            released: false,
            leg: if is_sent { Leg::Sent(1) } else { Leg::Queued },
            sent_ms: is_sent.then_some(now_ms),
            input_wait_ms: 0,
            resume: None,
            job: self.job.clone(),
            questions: Vec::new(),
            round: 0,
            request_state: None,
            status_message: self.dispatch.queue_message(),
            progress: None,
            messages: self.progress.messages.clone(),
            outcome: None,
            cancelled_by: None,
            must_tell: false,
            log: None,
            ticket: self.ticket_terms(origin),
            trace: client
                .span
                .as_ref()
                .and_then(|span| span.of_record(began_ms)),
            related: client.related.clone(),
            notices: self.runner.settings.notify.notices_of(&name),
            name,
        };
        // The point is sealed to the id and the caller of the task, so it comes after them.
        task.resume = self.resume_point(&task);
        task
    }

    /// Returns the terms that the client needs to find its ticket again.
    fn ticket_terms(&self, origin: &CallOrigin) -> Option<Box<TicketTerms>> {
        let client = &origin.client;
        let session = client.list_key.filter(|list| *list != client.caller);
        let params = &self.server.outgoing.params;
        origin
            .by_ticket
            .then(|| Box::new(TicketTerms::new(params, session)))
    }

    /// Returns the action that other replicas may take on the call if this replica is lost. They have neither the
    /// caller's credentials nor the client's session, which may hold what the call needs (a login, a browser): a call
    /// that uses one of them cannot be sent again.
    fn on_owner_lost(&self, repeatable: bool) -> OnOwnerLost {
        let can_repeat = self.server.outgoing.is_anybodys();
        let repeatable = repeatable || self.has_key();
        match self.server.rule.on_owner_lost {
            OnOwnerLost::Fail => OnOwnerLost::Fail,
            OnOwnerLost::Rerun if can_repeat => OnOwnerLost::Rerun,
            OnOwnerLost::Resume if can_repeat && repeatable => OnOwnerLost::Rerun,
            OnOwnerLost::Resume | OnOwnerLost::Rerun => OnOwnerLost::Resume,
        }
    }

    /// Returns `true` if the server recognizes the call by a key when another replica sends it again. A server that only this
    /// replica reaches is asked by no other.
    pub(super) fn has_key(&self) -> bool {
        let (outgoing, settings) = (&self.server.outgoing, &self.runner.settings);
        let is_reached = settings.reach == Reach::Shared || settings.exclusive_store;
        let job = outgoing.job.as_ref().filter(|_| is_reached);
        job.is_some_and(|job| job.has_key(&outgoing.params))
    }
}
