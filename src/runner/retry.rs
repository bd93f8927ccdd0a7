//! The retry of a call that was parked with a question before any client was notified of a task. It brings the
//! answers, to any replica.

use std::sync::Arc;
use std::time::Duration;

use super::answer::AnswerError;
use super::follower::FollowReason;
use super::responder::{CallAnswer, CallSubscriber};
use super::state::Runner;
use super::waiting::WaitTerms;
use crate::mcp::error::RpcError;
use crate::mcp::input::{self, InputResponses};
use crate::store::ledger::{ApplyError, Loaded};
use crate::task::digest::Digest;
use crate::task::id::{Caller, TaskId};
use crate::task::input_rule::AnsweredBy;
use crate::task::machine::{TaskEvent, repeats};
use crate::task::state::Leg;
use crate::task::ticket::Ticket;
use crate::upstream::Forwarded;

pub use super::request_state::read_state;

/// A retry with a request state that raincheck gave out.
#[derive(Debug)]
pub struct ClientRetry {
    pub id: TaskId,
    pub caller: Caller,
    pub digest: Digest,
    pub answers: InputResponses,
    /// For the next leg of a modern server's call.
    pub from: Forwarded,
    pub heard_by: NotifyBy,
}

/// The means by which the client of a retry is notified of the end of its call.
#[derive(Debug)]
pub enum NotifyBy {
    /// By a task: the call becomes a task with this retry.
    Task,
    /// On this connection.
    Waiting,
    /// On this connection for a while, and then by a ticket.
    Ticket(Duration, Ticket),
}

/// The outcome of a retry.
#[derive(Debug)]
pub enum RetryOutcome {
    Answer(CallAnswer),
    /// The client waits on this connection for the end of the call. If it goes away before that, the call is
    /// cancelled (streamable-http, Cancellation), unless the call outlives its clients.
    Follow(CallSubscriber),
    /// This caller has no such call.
    Unknown,
    Refused(RpcError),
    StoreUnavailable,
    /// This replica cannot take the answers now. Another replica can, or this replica later.
    Busy,
}

impl Runner {
    /// Commits the answers of a retry. A retry with answers that were given before changes nothing.
    pub async fn rejoin(self: &Arc<Self>, retry: ClientRetry) -> RetryOutcome {
        // The watch begins before the record is read: no change is missed.
        let watch = self.watches.watch(vec![retry.id]);
        let loaded = match self.ledger.load(retry.id).await {
            Ok(Some(loaded)) => loaded,
            Ok(None) => return RetryOutcome::Unknown,
            Err(_) => return RetryOutcome::StoreUnavailable,
        };
        let task = &loaded.task;
        // A foreign call gets the same answer as an unknown one, so that a guessed state reveals nothing.
        if !task.belongs_to(&retry.caller) || task.digest != Some(retry.digest) {
            return RetryOutcome::Unknown;
        }
        if !repeats(task, &retry.answers) {
            return RetryOutcome::Refused(unknown_state());
        }
        let misshapen = task.open_questions().any(|(question, request)| {
            let answer = retry.answers.get(&question.key);
            answer.is_some_and(|answer| !input::answers(request, answer))
        });
        if misshapen {
            return RetryOutcome::Refused(RpcError::invalid_params(
                "Invalid params: an input response does not have the shape that was asked for",
            ));
        }
        let ClientRetry {
            answers,
            from,
            heard_by,
            ..
        } = retry;
        let taken = async {
            // The announcement comes before the answers: the answers may end the call at once, and no client
            // finds a task that ended unannounced.
            let loaded = match heard_by {
                NotifyBy::Task => self.advance(loaded, TaskEvent::Announced).await?,
                NotifyBy::Waiting | NotifyBy::Ticket(..) => loaded,
            };
            self.take(loaded, answers, from.clone()).await
        };
        let loaded = match taken.await {
            Ok(loaded) => loaded,
            Err(refused) => return refused,
        };
        let terms = match heard_by {
            NotifyBy::Task if loaded.task.announced => return self.told(&loaded),
            // The call had ended before this retry came.
            NotifyBy::Task | NotifyBy::Waiting => WaitTerms::held(),
            NotifyBy::Ticket(patience, ticket) => WaitTerms::by_ticket(patience, ticket),
        };
        RetryOutcome::Follow(self.follow(loaded, watch, terms, FollowReason::Retry(from)))
    }

    fn told(&self, loaded: &Loaded) -> RetryOutcome {
        RetryOutcome::Answer(CallAnswer::result(self.tell_of(&loaded.task)))
    }

    async fn take(
        self: &Arc<Self>,
        loaded: Loaded,
        answers: InputResponses,
        from: Forwarded,
    ) -> Result<Loaded, RetryOutcome> {
        if !matches!(loaded.task.leg, Leg::Parked(_)) {
            let answered = TaskEvent::Answered {
                answers,
                by: self.incarnation.clone(),
                // The call is open while it asks.
                waits: false,
                from: AnsweredBy::Client,
            };
            return self.advance(loaded, answered).await;
        }
        let id = loaded.task.id;
        match self
            .answer(loaded, answers, (AnsweredBy::Client, from))
            .await
        {
            Ok(()) => {}
            Err(AnswerError::Busy) => return Err(RetryOutcome::Busy),
            Err(AnswerError::Gone) => return Err(RetryOutcome::Unknown),
            Err(AnswerError::Store(_)) => return Err(RetryOutcome::StoreUnavailable),
        }
        // The answers may have ended the call or begun its next leg, and `answer` returns no record.
        match self.ledger.load(id).await {
            Ok(loaded) => loaded.ok_or(RetryOutcome::Unknown),
            Err(_) => Err(RetryOutcome::StoreUnavailable),
        }
    }

    async fn advance(&self, loaded: Loaded, event: TaskEvent) -> Result<Loaded, RetryOutcome> {
        match self.ledger.apply(&loaded, event).await {
            Ok((loaded, _)) => Ok(loaded),
            // A repeated retry finds its change already made, which is no fault.
            Err(ApplyError::Rejected(_, latest)) => Ok(*latest),
            Err(ApplyError::Gone) => Err(RetryOutcome::Unknown),
            Err(ApplyError::Store(_)) => Err(RetryOutcome::StoreUnavailable),
        }
    }
}

pub fn unknown_state() -> RpcError {
    RpcError::invalid_params("Invalid params: the request state is unknown or does not fit")
}
