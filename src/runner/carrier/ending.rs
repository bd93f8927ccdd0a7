//! The end of a call that the server does not end.

use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::time::timeout;
use tracing::warn;

use super::super::call::not_sent;
use super::super::outcome;
use super::super::report::tool_of;
use super::super::responder::CallAnswer;
use super::dispatch::{Dispatch, OpenLeg};
use super::{Audience, CallStage, Carrier, Flow};
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::store::ledger::ApplyError;
use crate::task::input_rule::AnsweredBy;
use crate::task::machine::TaskEvent;
use crate::task::unanswered;
use crate::upstream::{CANCELLING, Exchange};

impl Carrier {
    /// Waits until the client was notified of the task or went away. If the client was never notified of the task,
    /// the task must not remain.
    pub(super) async fn wait_for_settlement(&mut self) -> Flow {
        // The permits go back first, because the client may be slow to take its answer.
        self.end_dispatch();
        if let Audience::Client(client) = &self.audience
            && !client.responder.settled().await
        {
            self.commit_left().await;
        }
        Flow::Done
    }

    /// Handles a client that went away before it received an answer.
    pub(super) async fn on_gone(&mut self) -> Flow {
        if let Some((claim, clock)) = self.given_up() {
            let tool = tool_of(&self.server.outgoing).unwrap_or_default();
            let writing = self.runner.begin_to_keep(&claim, tool, clock);
            return self.keep(&claim, writing).await;
        }
        // The cancel goes out before the commit, which a store that is away would delay.
        self.cancel_upstream().await;
        self.commit_left().await;
        // With this in the record, no finder sends another cancel.
        self.commit_told().await;
        Flow::Done
    }

    /// Handles a cancellation by the client while the store is away: the server is notified now, and the record is
    /// changed when the store is back.
    pub(super) async fn on_stopped(&mut self) -> Flow {
        self.cancel_upstream().await;
        if let Some(recorded) = self.stage.recorded() {
            self.runner.finish_cancelled(&recorded.loaded).await;
        }
        Flow::Done
    }

    pub(super) async fn on_deadline(&mut self) -> Flow {
        let Some(recorded) = self.stage.recorded_mut() else {
            return self.give_up(Reason::Deadline).await;
        };
        let answers = unanswered::answers(recorded.task(), self.runner.ledger.now_ms());
        // This timer also stands for reminders and for overdue questions, so the machine decides which of them it is.
        let event = answers.map_or(TaskEvent::Tick, |answers| TaskEvent::Answered {
            answers,
            by: self.runner.incarnation.clone(),
            // The call is open while it asks.
            waits: false,
            from: AnsweredBy::Rule,
        });
        match self.runner.ledger.apply(&recorded.loaded, event).await {
            Ok((loaded, _)) if loaded.task.is_ended() => {
                recorded.loaded = loaded;
                self.cancel_upstream().await;
                self.commit_told().await;
                Flow::Done
            }
            // A question was told of again, or the rule answered it.
            Ok((loaded, _)) => self.act_on(loaded).await,
            Err(ApplyError::Rejected(_, latest)) => self.act_on(*latest).await,
            // If the store is away, the sweeper ends the record when the store is back.
            Err(ApplyError::Gone | ApplyError::Store(_)) => self.on_record_gone().await,
        }
    }

    /// Ends the call with a failure of raincheck's own.
    pub(super) async fn give_up(&mut self, reason: Reason) -> Flow {
        let is_unknown = self.effect_of(SideEffect::None) == SideEffect::Unknown;
        // Read before the cancel, which takes the leg out of the dispatch.
        let may_have_run = self.dispatch.exchange().is_some() || is_unknown;
        self.cancel_upstream().await;
        let last = self.take_last_news();
        match &self.stage {
            CallStage::Recorded(recorded) => {
                let failure = recorded.task().failure(reason);
                let end = Err(failure.to_error().to_raw());
                self.runner
                    .finish(&recorded.loaded, recorded.fence, end, last)
                    .await;
            }
            CallStage::Plain(_) if may_have_run => {
                self.answer(CallAnswer::Failed(Failure::new(
                    reason,
                    SideEffect::Unknown,
                )));
            }
            CallStage::Plain(_) => self.answer(CallAnswer::Failed(not_sent(reason))),
        }
        Flow::Done
    }

    /// The server's question stays unanswered, and the call cannot go on. The call may have had effects
    /// already.
    pub(super) async fn end_unanswered(&mut self, failure: Failure) -> Flow {
        self.cancel_upstream().await;
        let failure = failure.with_effect(SideEffect::Unknown);
        self.on_end(outcome::failed(&failure), CallAnswer::Failed(failure))
            .await
    }

    /// The store no longer has the record: no client can ever ask for the result.
    pub(super) async fn on_record_gone(&mut self) -> Flow {
        warn!("the record of a running call is gone; the call is cancelled");
        self.cancel_upstream().await;
        Flow::Done
    }

    /// Notifies the server that the call is cancelled, if a leg is there.
    pub(super) async fn cancel_upstream(&mut self) {
        if let Dispatch::Open(leg) = self.dispatch.take() {
            // A separate job tells the server, which may be slow to take the cancellation; otherwise the call
            // would run on at the server. The permits are held until then.
            let OpenLeg {
                exchange, permits, ..
            } = leg;
            let telling = self.runner.services.spawn(async {
                cancel(exchange).await;
                drop(permits);
            });
            let _ = timeout(CANCEL_PATIENCE, telling).await;
        }
        self.end_dispatch();
    }

    /// Answers the client that waits on its connection. The leg ends first, so that a slow client does not
    /// delay other calls.
    pub(super) fn answer(&mut self, answer: CallAnswer) {
        self.end_dispatch();
        if let Audience::Client(client) = &self.audience {
            client.answer(tool_of(&self.server.outgoing), answer);
        }
    }
}

/// The longest wait for the server to take a cancellation, before the carrier continues.
const CANCEL_PATIENCE: Duration = Duration::from_secs(2);

/// Cancels a call, and polls its exchange meanwhile: the request must reach the server before the server can
/// cancel it.
async fn cancel(exchange: Exchange) {
    let Exchange {
        mut events,
        control,
    } = exchange;
    let ending = async { while events.next().await.is_some() {} };
    let telling = async {
        tokio::select! {
            biased;
            () = control.cancel() => {}
            // A call whose events have ended needs no cancel.
            () = ending => {}
        }
    };
    // Bounded, because the permits of the leg are held until this returns.
    let _ = timeout(CANCELLING, telling).await;
}
