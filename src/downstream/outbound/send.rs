//! Sends events to a client that may be slow, or gone: whether its call goes on is decided elsewhere.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::stream::ResponseEvent;

/// The time that a question waits for a client that does not read, before it is asked in another way.
const SLOW_CLIENT: Duration = Duration::from_secs(5);

/// The time that a client that does not read delays its call: a little longer than its connection is kept.
const STUCK_CLIENT: Duration = Duration::from_secs(35);

/// Sends a message. False where the client does not take it.
pub(in crate::downstream) async fn send(
    events: &mpsc::Sender<ResponseEvent>,
    message: String,
) -> bool {
    let sending = events.send(ResponseEvent::Message(message));
    matches!(timeout(SLOW_CLIENT, sending).await, Ok(Ok(())))
}

/// Sends a notification. The call waits for a slow client once; then the client misses the notifications for
/// which the channel has no room.
pub(in crate::downstream) async fn notify(
    events: &mpsc::Sender<ResponseEvent>,
    notification: String,
    is_slow: &mut bool,
) {
    let patience = if *is_slow {
        Duration::ZERO
    } else {
        STUCK_CLIENT
    };
    let sending = events.send(ResponseEvent::Message(notification));
    // A closed channel is no slow client: only an elapsed time counts.
    *is_slow = timeout(patience, sending).await.is_err();
}
