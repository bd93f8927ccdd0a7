//! The waits of a carrier, one for each source of events. A wait for a source that is not there never resolves.

use std::future::{pending, poll_fn};
use std::task::Poll;

use tokio::sync::mpsc;

use super::super::custody::{Custody, CustodyNews};
use super::super::responder::{Presence, RelayedAnswer};
use super::super::state::Runner;

/// A step of a drain.
pub(super) enum Stop {
    /// The drain begins.
    Draining,
    /// Its grace period is over.
    Halted,
}

/// The next step of a drain that matters to a call. The wait for the first one also serves for the last one, which comes after it.
pub(super) async fn next_stop(runner: &Runner, may_hand_over: bool) -> Stop {
    let stop = if may_hand_over {
        &runner.draining
    } else {
        &runner.halt
    };
    stop.cancelled().await;
    if runner.halt.is_cancelled() {
        Stop::Halted
    } else {
        Stop::Draining
    }
}

/// A step of the client that waits.
pub(super) enum ClientStep {
    /// It received its answer.
    Told,
    Gone,
    SentAgain,
}

pub(super) async fn next_step(presence: Option<Presence<'_>>) -> ClientStep {
    match presence {
        // Boxed, because a call that runs for hours has no client that waits, and would keep room for one.
        Some(presence) => Box::pin(step_of(presence)).await,
        None => pending().await,
    }
}

async fn step_of(presence: Presence<'_>) -> ClientStep {
    // Once the client has its answer, `settled` resolves at once, and would wake the loop without end.
    let is_open = !presence.was_told();
    tokio::select! {
        biased;
        was_told = presence.settled(), if is_open => {
            if was_told { ClientStep::Told } else { ClientStep::Gone }
        }
        () = presence.sent_again() => ClientStep::SentAgain,
    }
}

pub(super) async fn news(custody: Option<&Custody>) -> CustodyNews {
    match custody {
        Some(custody) => custody.news().await,
        None => pending().await,
    }
}

pub(super) async fn next_answer(
    mut answers: Option<&mut mpsc::Receiver<RelayedAnswer>>,
) -> RelayedAnswer {
    let next = poll_fn(|context| match &mut answers {
        Some(answers) => match answers.poll_recv(context) {
            Poll::Ready(Some(answered)) => Poll::Ready(answered),
            // A closed channel yields `None` at once, and would wake the loop without end.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        },
        None => Poll::Pending,
    });
    next.await
}
