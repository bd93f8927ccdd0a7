//! The job of one receiver: tells it of the tasks that come through the outbox, several at a time, the notices of one task
//! in order.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::body::body;
use super::receiver::{Attempt, Message, Receiver};
use crate::store::ledger::Ledger;
use crate::store::outbox::{Claim, OutboxQueue};
use crate::task::machine::TaskEvent;
use crate::task::notices::{NoticeEvent, Notices, is_in_time, message_id};
use crate::task::state::Task;
use crate::telemetry::notices::{Delivery, attempted, given_up};

/// The messages to one receiver at the same time.
const AT_ONCE: usize = 8;

/// How long messages that are under way may take after `stop`.
const LAST: Duration = Duration::from_millis(400);

/// Tells the receiver of the tasks in the queue until `stop`. What is not told then is in the records.
pub async fn tell(
    receiver: Arc<Receiver>,
    ledger: Ledger,
    queue: OutboxQueue,
    stop: CancellationToken,
) {
    let told = stream::unfold(queue, |mut queue| async {
        let next = tokio::select! {
            biased;
            next = queue.recv() => next,
            () = stop.cancelled() => None,
        };
        next.map(|claim| (claim, queue))
    });
    let telling = told.for_each_concurrent(AT_ONCE, |claim| tell_of(&receiver, &ledger, claim));
    tokio::pin!(telling);
    tokio::select! {
        () = &mut telling => {}
        () = stop.cancelled() => {
            let _ = timeout(LAST, telling).await;
        }
    }
}

/// Tells the receiver of one task, notice by notice, as long as the claim of this replica holds.
async fn tell_of(receiver: &Receiver, ledger: &Ledger, claim: Claim) {
    // A claim that waited for too long costs nothing: a sweep finds the notice again.
    if !is_in_time(claim.look_ms, ledger.now_ms()) {
        return;
    }
    let Ok(Some(mut loaded)) = ledger.load(claim.task).await else {
        return;
    };
    // The notice was settled, or is claimed by another replica.
    let notices = loaded.task.notices_of(receiver.id);
    if notices.and_then(Notices::look_ms) != Some(claim.look_ms) {
        return;
    }
    while let Some((event, delivery)) = next(receiver, ledger, &loaded.task).await {
        let event = TaskEvent::Notice(receiver.id, event);
        // If the commit fails, the claim runs out, and a sweep finds the notice again.
        let Ok((after, _)) = ledger.apply(&loaded, event).await else {
            attempted(delivery);
            return;
        };
        let was_given_up = delivery.is_failure()
            && first_number(receiver, &loaded.task) != first_number(receiver, &after.task);
        if was_given_up {
            given_up(&loaded.task, Some(&receiver.host));
        } else {
            attempted(delivery);
        }
        if delivery.is_failure() && !was_given_up {
            return;
        }
        loaded = after;
    }
}

fn first_number(receiver: &Receiver, task: &Task) -> Option<u32> {
    Some(task.notices_of(receiver.id)?.first()?.number)
}

/// Tries the first notice. `None`: there is none, or the claim leaves no time for it.
async fn next(
    receiver: &Receiver,
    ledger: &Ledger,
    task: &Task,
) -> Option<(NoticeEvent, Delivery)> {
    let now_ms = ledger.now_ms();
    let notices = task.notices_of(receiver.id);
    let notices = notices.filter(|notices| notices.may_attempt(now_ms))?;
    let notice = notices.first()?;
    let number = notice.number;
    if receiver.is_gone() {
        return Some((NoticeEvent::Settled { number }, Delivery::Gone));
    }
    let message = Message {
        id: &message_id(task.id, receiver.id, notice),
        at_s: now_ms / 1000,
        body: body(task, notice),
    };
    let failed = |pause: Option<Duration>| NoticeEvent::Failed {
        number,
        pause_ms: pause.map(|it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX)),
        random: random(),
    };
    Some(match receiver.send(message).await {
        Attempt::Delivered => (NoticeEvent::Settled { number }, Delivery::Delivered),
        Attempt::Gone => {
            let host = &*receiver.host;
            warn!(
                host,
                "a receiver of webhooks is gone (HTTP 410): it is told nothing more until raincheck starts again"
            );
            (NoticeEvent::Settled { number }, Delivery::Gone)
        }
        Attempt::Failed { why, pause } => {
            debug!(task = ?task.id, host = &*receiver.host, why, "a webhook was not taken");
            (failed(pause), Delivery::Failed)
        }
        Attempt::Refused { why } => {
            warn!(host = &*receiver.host, why, "a webhook was not sent");
            (failed(None), Delivery::Refused)
        }
    })
}

/// Spreads the attempts after an outage. Without randomness they come together.
fn random() -> u8 {
    let mut byte = [0; 1];
    let _ = getrandom::fill(&mut byte);
    byte[0]
}
