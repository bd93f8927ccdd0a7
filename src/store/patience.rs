//! The time that callers wait for a store that is away.

use std::time::Duration;

use tokio::time::Instant;

use super::error::StoreError;
use crate::base::backoff::Backoff;

/// The time that a call is repeated while the store does not answer.
#[derive(Debug, Clone, Copy)]
pub struct StorePatience {
    /// For reads and changes of what exists.
    pub read: Duration,
    /// For creates. Shorter, because the client can still be refused.
    pub create: Duration,
}

/// Repeats `ask` with growing pauses until the store answers or `until` has passed.
///
/// Repeating is safe because every call of the port is idempotent: a write carries a nonce, and
/// key-value calls are the same call when they are sent twice.
pub(super) async fn patiently<T, F>(
    until: Instant,
    mut ask: impl FnMut() -> F,
) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut pauses = Backoff::new(Duration::from_millis(5), Duration::from_millis(500));
    loop {
        let pause = pauses.pause();
        match tokio::time::timeout_at(until, ask()).await {
            Ok(Err(StoreError::Unavailable(why))) => {
                // The next attempt would come too late, so the error is returned without that pause.
                if Instant::now() + pause >= until {
                    return Err(StoreError::Unavailable(why));
                }
            }
            // Every other error is an answer of the store. Only a missing answer is worth a repetition.
            Ok(answered) => return answered,
            // The call that is dropped here may still happen, as after any other missing answer.
            Err(elapsed) => return Err(StoreError::Unavailable(Box::new(elapsed))),
        }
        tokio::time::sleep(pause).await;
    }
}
