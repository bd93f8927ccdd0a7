//! On which kind of stream a question of a task is: on its session's own, or on those of `tasks/result`,
//! of all replicas.
//!
//! A note says so for as long as such a stream lives. Where the stream is gone, or its replica, the note
//! expires, and the question is said on what stream there is.

use std::time::Duration;

use bytes::Bytes;

use super::question::Question;
use crate::downstream::proxy::Shared;

/// How long a question counts as said there, counted from when that was last known.
const LIFETIME: Duration = Duration::from_secs(10);

/// How often it is told that it still is.
pub(super) const TELL_AGAIN: Duration = Duration::from_secs(3);

#[derive(Debug, Clone, Copy)]
pub(super) enum Stream {
    Session,
    Result,
}

impl Stream {
    /// All streams of one kind say the same: each is another chance to see the question, because an
    /// older one may be dead.
    fn word(self) -> Bytes {
        Bytes::from_static(match self {
            Self::Session => b"session",
            Self::Result => b"result",
        })
    }
}

impl Question<'_> {
    /// Whether it may be said on that kind of stream here: it is on none of the other kind. Asks the
    /// store once, and not where there is no other replica.
    pub(super) async fn may_be_on(&self, stream: Stream, front: &Shared) -> bool {
        if front.runner.is_alone() {
            return true;
        }
        let ledger = front.runner.ledger();
        let claim = ledger
            .store()
            .claim(self.note(), stream.word(), expires_ms(front));
        // It is rather said twice than not at all.
        !matches!(claim.await, Ok(Some(_other)))
    }

    /// It is still said there.
    pub(super) async fn is_on(&self, stream: Stream, front: &Shared) {
        if front.runner.is_alone() {
            return;
        }
        let ledger = front.runner.ledger();
        let put = ledger
            .store()
            .put(self.note(), stream.word(), expires_ms(front));
        // Not written, it may be said on another, too.
        let _ = put.await;
    }
}

fn expires_ms(front: &Shared) -> u64 {
    let lifetime = u64::try_from(LIFETIME.as_millis()).unwrap_or(u64::MAX);
    front.runner.ledger().now_ms().saturating_add(lifetime)
}
