//! How a call ends when it is not the wrapped server that ends it.

use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::time::timeout;
use tracing::warn;

use super::super::call::not_sent;
use super::super::outcome;
use super::super::seat::Answer;
use super::super::turn::Turn;
use super::{Carrier, Flow};
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::store::ledger::NotApplied;
use crate::task::machine::Event;
use crate::upstream::{CANCELLING, Exchange};

impl Carrier {
    /// Nothing more to carry, but a client that never heard of the task must not leave it behind.
    pub(super) async fn wait_for_settlement(&mut self) -> Flow {
        self.end_turn();
        if let Some(seat) = self.seat.take()
            && !seat.settled().await
        {
            self.commit_cancel().await;
        }
        Flow::Done
    }

    /// The client went away before it was told.
    pub(super) async fn on_gone(&mut self) -> Flow {
        self.cancel_upstream().await;
        self.commit_cancel().await;
        self.told().await;
        Flow::Done
    }

    pub(super) async fn on_due(&mut self) -> Flow {
        let Some(kept) = &mut self.kept else {
            return self.give_up(Reason::Deadline).await;
        };
        match self.runner.ledger.apply(&kept.loaded, Event::Tick).await {
            Ok((loaded, _)) => {
                kept.loaded = loaded;
                self.cancel_upstream().await;
                self.told().await;
                Flow::Done
            }
            Err(NotApplied::Rejected(_, stands)) => self.see(*stands).await,
            // With the store away the sweeper ends the record when it is back.
            Err(NotApplied::Gone | NotApplied::Store(_)) => self.lost().await,
        }
    }

    /// Ends the call on raincheck's own account.
    pub(super) async fn give_up(&mut self, reason: Reason) -> Flow {
        let opened = self.exchange.is_some();
        self.cancel_upstream().await;
        match &self.kept {
            Some(kept) => {
                let failure = kept.loaded.task.failure(reason);
                let end = Err(failure.to_error().to_raw());
                self.runner
                    .finish(&kept.loaded, kept.fence, end, None)
                    .await;
            }
            None if opened => {
                self.answer(Answer::Failed(Failure::new(reason, SideEffect::Unknown)))
                    .await;
            }
            None => self.answer(Answer::Failed(not_sent(reason))).await,
        }
        Flow::Done
    }

    /// The server has no answer to its question, and its call cannot go on: it may have run so far.
    pub(super) async fn end_unanswered(&mut self, failure: Failure) -> Flow {
        self.cancel_upstream().await;
        let failure = Failure::new(failure.reason, SideEffect::Unknown);
        self.on_end(outcome::failed(failure), Answer::Failed(failure))
            .await
    }

    /// The store no longer has the record: nobody can ever ask for the result.
    pub(super) async fn lost(&mut self) -> Flow {
        warn!("the record of a running call is gone; the call is cancelled");
        self.cancel_upstream().await;
        Flow::Done
    }

    pub(super) async fn cancel_upstream(&mut self) {
        if let Some(exchange) = self.exchange.take() {
            // A server that is slow to hear is told beside: else its call would run on for nobody. Its
            // place is not free before.
            let places = std::mem::replace(&mut self.turn, Turn::Over);
            let telling = self.runner.services.spawn(async {
                call_off(exchange).await;
                drop(places);
            });
            let _ = timeout(CANCEL_PATIENCE, telling).await;
        }
        self.end_turn();
    }

    #[expect(
        clippy::unused_async,
        reason = "an end of a call may wait; this one has its place in the queue"
    )]
    pub(super) async fn answer(&mut self, answer: Answer) {
        // A slow client keeps nobody waiting.
        self.exchange = None;
        self.end_turn();
        if let Some(seat) = self.seat.take() {
            seat.answer(answer);
        }
    }
}

/// How long what follows a cancel waits for the server to hear of it.
const CANCEL_PATIENCE: Duration = Duration::from_secs(2);

/// Polled meanwhile: a call that is on its way must be at the server before the server can cancel it.
async fn call_off(exchange: Exchange) {
    let Exchange {
        mut events,
        control,
    } = exchange;
    let ending = async { while events.next().await.is_some() {} };
    let telling = async {
        tokio::select! {
            biased;
            () = control.cancel() => {}
            () = ending => {}
        }
    };
    let _ = timeout(CANCELLING, telling).await;
}
