//! The events that the server sends during a leg.

use tracing::info;

use super::super::responder::CallAnswer;
use super::super::{leg, outcome};
use super::dispatch::LegOrigin;
use super::{Audience, CallStage, Carrier, Flow};
use crate::base::failpoint::{Point, hit};
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::result;
use crate::mcp::version::Era;
use crate::upstream::{self, UpstreamError};

impl Carrier {
    pub(super) async fn on_upstream(&mut self, event: upstream::Event) -> Flow {
        match event {
            upstream::Event::Sent => self.on_sent(),
            upstream::Event::Progress(params) => {
                hit(Point::EventProgress);
                self.on_progress(&params).await
            }
            upstream::Event::Log(params) => {
                hit(Point::EventLog);
                // Once there is a record, its clients read that, and get no messages from this carrier.
                if !self.stage.is_recorded() {
                    self.relay("notifications/message", params.get()).await;
                }
                self.on_log(&params);
                Flow::Continue
            }
            upstream::Event::Question(question) => {
                hit(Point::EventQuestion);
                self.on_question(question).await
            }
            upstream::Event::Result(result) => {
                hit(Point::EventResult);
                self.on_result(result).await
            }
            upstream::Event::Error(error) => {
                hit(Point::EventError);
                self.on_error(error).await
            }
            upstream::Event::Job(job) => self.on_job(job).await,
            upstream::Event::Resumable(keep) => self.on_resumable(keep),
            upstream::Event::CredentialsRefused => self.on_credentials_refused().await,
            upstream::Event::Later(pause) => self.on_later(pause),
            upstream::Event::Failed(failure) => {
                hit(Point::EventFailed);
                self.on_failed(failure).await
            }
        }
    }

    async fn on_error(&mut self, mut error: UpstreamError) -> Flow {
        let outgoing = &self.server.outgoing;
        // Revision 2026-07-28 has another code for an unknown resource than legacy servers send.
        if self.server.era == Era::Legacy && &*outgoing.method == "resources/read" {
            let uri = outgoing.name.as_deref().unwrap_or_default();
            error.error = result::resource_error(error.error, uri);
        }
        // The record leaves out the words of this error, which may contain credentials, so they go to the client by
        // this way.
        if outcome::is_unauthorized(&error)
            && matches!(self.audience, Audience::Maker(_))
            && let Audience::Maker(maker) =
                std::mem::replace(&mut self.audience, Audience::RecordReaders)
        {
            // Without a receiver the client is gone, and nobody needs the error.
            let _ = maker.send(error.clone());
        }
        let answer = CallAnswer::Error(error.clone());
        let effect = self.effect_of(SideEffect::None);
        self.on_end(outcome::of_error(error, effect), answer).await
    }

    async fn on_failed(&mut self, failure: Failure) -> Flow {
        if failure.reason == Reason::UpstreamReset
            && let Some(flow) = self.repeat().await
        {
            return flow;
        }
        if self.stage.is_recorded()
            && let Some(detail) = &failure.detail
        {
            let tool = self.server.outgoing.name.as_deref().unwrap_or_default();
            info!(tool, %detail, "the server did not answer the call of a task");
        }
        let effect = self.effect_of(failure.effect);
        let failure = failure.with_effect(effect);
        self.on_end(outcome::failed(&failure), CallAnswer::Failed(failure))
            .await
    }

    /// The effect of a call whose last leg had the effect `leg`. An earlier leg or another run may have had
    /// an effect, even if the last leg had none.
    pub(super) fn effect_of(&self, leg: SideEffect) -> SideEffect {
        let is_adopted = self.dispatch.origin() == Some(LegOrigin::Adopted);
        let may_run_elsewhere = match &self.stage {
            CallStage::Plain(plain) => plain.may_run_elsewhere,
            CallStage::Recorded(_) => false,
        };
        if is_adopted || may_run_elsewhere || self.had_leg() {
            SideEffect::Unknown
        } else {
            leg
        }
    }

    /// Returns `true` if nothing of the call was sent yet, and it continues no call at the server: a pause of its tool is for
    /// such calls.
    pub(super) fn is_new(&self) -> bool {
        let was_sent = match &self.stage {
            CallStage::Plain(plain) => plain.round.is_some(),
            CallStage::Recorded(recorded) => recorded.task().sent_ms.is_some(),
        };
        !was_sent && !leg::goes_on(Some(self.server.era), &self.server.outgoing)
    }

    /// Returns `true` if the call was sent before this leg.
    pub(super) fn had_leg(&self) -> bool {
        match &self.stage {
            CallStage::Plain(plain) => plain.round.is_some(),
            CallStage::Recorded(recorded) => {
                let task = recorded.task();
                task.round > 0 || task.attempts > 0
            }
        }
    }
}
