//! The client's answers to a task's questions. Any replica accepts them.

use std::sync::Arc;

use tokio::task::JoinError;

use super::call::Busy;
use super::carrier::Carrier;
use super::custody::Custody;
use super::leg;
use super::state::Runner;
use crate::base::failpoint::{Point, hit};
use crate::mcp::error::Reason;
use crate::mcp::input::InputResponses;
use crate::mcp::version::Era;
use crate::store::StoreError;
use crate::store::ledger::{ApplyError, Loaded};
use crate::task::input_rule::AnsweredBy;
use crate::task::machine::{Effect, TaskEvent};
use crate::task::state::Leg;
use crate::upstream::Forwarded;

/// Why answers were not taken. Nothing was applied, except that this is in doubt when the store did not
/// answer.
#[derive(Debug)]
pub enum AnswerError {
    /// This replica cannot carry the call on now. Another replica can, or this replica later.
    Busy,
    /// The store no longer has the task.
    Gone,
    Store(StoreError),
}

impl From<Busy> for AnswerError {
    fn from(_: Busy) -> Self {
        Self::Busy
    }
}

impl From<StoreError> for AnswerError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Runner {
    /// Takes the answers of an update, of an operator or of a rule. Once the answers are committed, they are carried out
    /// even if the client that sent them goes away.
    ///
    /// The future names its bounds because a carrier awaits it, and its job may begin a carrier.
    pub fn answer(
        self: &Arc<Self>,
        loaded: Loaded,
        answers: InputResponses,
        from: (AnsweredBy, Forwarded),
    ) -> impl Future<Output = Result<(), AnswerError>> + Send + use<> {
        let runner = Arc::clone(self);
        let answering = self
            .calls
            .spawn(async move { runner.take_answers(&loaded, answers, from).await });
        async {
            // A job that panicked leaves the answers in doubt, as a store that does not answer does.
            let failed = |error: JoinError| StoreError::Unavailable(error.into());
            answering.await.map_err(failed)?
        }
    }

    /// Commits answers. The owner of the call sees them in the change log and passes them on. A parked call
    /// has no owner: if the answers complete its round, this replica carries the next leg, with the headers
    /// of this update.
    async fn take_answers(
        self: &Arc<Self>,
        loaded: &Loaded,
        answers: InputResponses,
        (answered_by, forwarded): (AnsweredBy, Forwarded),
    ) -> Result<(), AnswerError> {
        let answered = |waits| TaskEvent::Answered {
            answers,
            by: self.incarnation.clone(),
            waits,
            from: answered_by,
        };
        if loaded.task.open_questions().next().is_none() {
            // No open question: there is nothing to answer.
            return Ok(());
        }
        if !matches!(loaded.task.leg, Leg::Parked(_)) {
            // A legacy call is open, and its owner passes the answers on. Legacy servers ask no rounds, so no
            // leg follows.
            return self.apply_answers(loaded, answered(false)).await.map(drop);
        }
        // Take what the next leg needs before the commit that promises the leg.
        let permit = self.permit()?;
        let request = self.ledger.load_request(loaded.task.id).await?;
        let request = request.ok_or(StoreError::Corrupt("a task without its request"))?;
        let custody = Custody::of(self, &loaded.task);
        // The call was admitted when it began, so a full queue must not refuse its next leg.
        let mut admittance = self.admission.queue(&loaded.task.name);
        // A request that cannot be read fails again in `Carrier::dispatched`, which leads to the end of the task.
        if let Ok(outgoing) = leg::next(&request, &loaded.task, forwarded.clone()) {
            admittance =
                admittance.with_seat(&self.upstream, Some(Era::Modern), &outgoing, || None);
        }
        let event = answered(admittance.is_queued());
        let Some(dispatched) = self.apply_answers(loaded, event).await? else {
            return Ok(());
        };
        let id = dispatched.task.id;
        let runner = Arc::clone(self);
        match Carrier::dispatched(
            runner,
            dispatched,
            (custody, admittance),
            Era::Modern,
            &request,
            forwarded,
        ) {
            Ok(carrier) => self.spawn(carrier.task_id(), carrier.run(), permit),
            // The commit named this replica as owner, so the task must not stay without a carrier.
            Err(_unreadable) => self.abandon_by_id(id, Reason::StoreLost).await,
        }
        Ok(())
    }

    /// Returns the task, if the answers make this replica its owner.
    async fn apply_answers(
        &self,
        loaded: &Loaded,
        event: TaskEvent,
    ) -> Result<Option<Loaded>, AnswerError> {
        let applied = self.ledger.apply(loaded, event).await;
        match applied.inspect(|_| hit(Point::AnswerCommitted)) {
            Ok((loaded, Some(Effect::Dispatch))) => Ok(Some(loaded)),
            // Unknown and answered keys are ignored, and so is an answer that came too late.
            Ok(_) | Err(ApplyError::Rejected(..)) => Ok(None),
            Err(ApplyError::Gone) => Err(AnswerError::Gone),
            Err(ApplyError::Store(error)) => Err(error.into()),
        }
    }
}
