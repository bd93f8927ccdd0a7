//! A job that notifies receivers of the tasks that come through the outbox, several at a time, the notices of one
//! task in order.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::receiver::Attempt;
use crate::store::ledger::Ledger;
use crate::store::outbox::{NoticeLease, OutboxQueue};
use crate::task::machine::TaskEvent;
use crate::task::notices::{Notice, NoticeEvent, Notices, ReceiverId, is_in_time};
use crate::task::state::Task;
use crate::telemetry::notices::{Delivery, attempted, given_up};

/// Upper bound of the time that messages under way take after `stop`.
const LAST: Duration = Duration::from_millis(400);

/// Knows the receivers of one queue.
pub(super) trait Teller: Send + Sync + 'static {
    /// The messages of this queue at the same time.
    const AT_ONCE: usize;

    /// Tries to send the notice to the receiver. `None`: nothing was tried, and a sweep finds the notice again.
    fn attempt(
        &self,
        task: &Task,
        receiver: ReceiverId,
        notice: &Notice,
        now_ms: u64,
    ) -> impl Future<Output = Option<Attempt>> + Send;

    /// The host of the receiver, for the log, if there is only one.
    fn host(&self) -> Option<&str>;
}

/// Sends the notices of the tasks in the queue until `stop`. Notices that are not sent then are in the records.
pub(super) async fn tell<T: Teller>(
    teller: Arc<T>,
    ledger: Ledger,
    queue: OutboxQueue,
    stop: CancellationToken,
) {
    let told = stream::unfold(queue, |mut queue| async {
        let next = tokio::select! {
            // Biased: after `stop`, leases that are in the queue are still tried while `LAST` runs.
            biased;
            next = queue.recv() => next,
            () = stop.cancelled() => None,
        };
        next.map(|lease| (lease, queue))
    });
    let telling = told.for_each_concurrent(T::AT_ONCE, |lease| tell_of(&*teller, &ledger, lease));
    tokio::pin!(telling);
    tokio::select! {
        () = &mut telling => {}
        () = stop.cancelled() => {
            // A message that is cut off here is sent again by a sweep, under the same id.
            let _ = timeout(LAST, telling).await;
        }
    }
}

/// Notifies the receiver of one task, notice by notice, as long as the lease of this replica holds.
async fn tell_of<T: Teller>(teller: &T, ledger: &Ledger, lease: NoticeLease) {
    let receiver = lease.receiver;
    // A lease that waited for too long costs nothing: a sweep finds the notice again.
    if !is_in_time(lease.look_ms, ledger.now_ms()) {
        return;
    }
    // A failed read needs no retry here: the lease runs out, and a sweep finds the notice again.
    let Ok(Some(mut loaded)) = ledger.load(lease.task).await else {
        return;
    };
    // The notice was settled, or is leased by another replica.
    let notices = loaded.task.notices_of(receiver);
    if notices.and_then(Notices::look_ms) != Some(lease.look_ms) {
        return;
    }
    while let Some((event, delivery)) = next(teller, ledger, receiver, &loaded.task).await {
        let stays = matches!(
            event,
            NoticeEvent::Failed { .. } | NoticeEvent::Postponed { .. }
        );
        let event = TaskEvent::Notice(receiver, event);
        // If the commit fails, the lease runs out, and a sweep finds the notice again.
        let Ok((after, _)) = ledger.apply(&loaded, event).await else {
            // The attempt was made, so it counts, although the record does not have it.
            count(delivery);
            return;
        };
        let first = |task: &Task| Some(task.notices_of(receiver)?.first()?.number);
        // The machine decides when to give up, and shows it only by another first notice.
        let was_given_up = stays && first(&loaded.task) != first(&after.task);
        if was_given_up {
            given_up(&loaded.task, receiver, teller.host());
        } else {
            count(delivery);
        }
        // The next notices of the task wait as well, because they have to arrive in order.
        if stays && !was_given_up {
            return;
        }
        loaded = after;
    }
}

fn count(delivery: Option<Delivery>) {
    if let Some(delivery) = delivery {
        attempted(delivery);
    }
}

/// Tries the first notice. `None`: there is none, or the lease leaves no time for it.
async fn next<T: Teller>(
    teller: &T,
    ledger: &Ledger,
    receiver: ReceiverId,
    task: &Task,
) -> Option<(NoticeEvent, Option<Delivery>)> {
    let now_ms = ledger.now_ms();
    let notices = task.notices_of(receiver);
    let notices = notices.filter(|notices| notices.may_attempt(now_ms))?;
    let notice = notices.first()?;
    let number = notice.number;
    let failed = |pause: Option<Duration>| NoticeEvent::Failed {
        number,
        pause_ms: pause.map(|it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX)),
        random: random(),
    };
    let settled = NoticeEvent::Settled { number };
    Some(
        match teller.attempt(task, receiver, notice, now_ms).await? {
            Attempt::Delivered => (settled, Some(Delivery::Delivered)),
            // It was not taken: a subscription that is made again may ask for it.
            Attempt::Gone => (NoticeEvent::Unheard { number }, Some(Delivery::Gone)),
            Attempt::Rejected => (settled, Some(Delivery::Rejected)),
            Attempt::Outdated => (settled, None),
            Attempt::Unheard => (NoticeEvent::Unheard { number }, None),
            Attempt::Busy => (NoticeEvent::Postponed { number }, None),
            Attempt::Failed { why, pause } => {
                debug!(task = ?task.id, host = teller.host(), why, "a webhook was not taken");
                (failed(pause), Some(Delivery::Failed))
            }
            Attempt::Refused { why } => {
                debug!(task = ?task.id, host = teller.host(), why, "a webhook was not sent");
                (failed(None), Some(Delivery::Refused))
            }
        },
    )
}

/// Spreads the attempts after an outage. Without randomness they come together.
fn random() -> u8 {
    let mut byte = [0; 1];
    let _ = getrandom::fill(&mut byte);
    byte[0]
}
