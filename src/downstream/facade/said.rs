//! What a legacy client hears of a request that is carried for it.

use std::time::Duration;

use tokio::sync::mpsc;

use crate::downstream::reply::Rpc;

/// How long a client that does not read holds its call up; then it misses a message.
const SLOW_CLIENT: Duration = Duration::from_secs(5);

/// What the client hears of its request.
#[derive(Debug)]
pub(in crate::downstream) enum Said {
    /// A notification, or a request of the server's.
    Message(String),
    /// The answer. Nothing follows.
    Answer(Rpc),
}

/// A client that is gone, or does not read, misses what is said.
pub(super) async fn say(said: &mpsc::Sender<Said>, message: String) -> bool {
    let saying = said.send(Said::Message(message));
    matches!(tokio::time::timeout(SLOW_CLIENT, saying).await, Ok(Ok(())))
}

/// A notification. The call waits for a slow client once, and then the client misses those for which it
/// has no room.
pub(in crate::downstream) async fn tell(
    said: &mpsc::Sender<Said>,
    notification: String,
    is_slow: &mut bool,
) {
    let patience = if *is_slow {
        Duration::ZERO
    } else {
        SLOW_CLIENT
    };
    let telling = said.send(Said::Message(notification));
    // Of a client that went away it is decided elsewhere what becomes of its call.
    *is_slow = tokio::time::timeout(patience, telling).await.is_err();
}
