//! Which kind of stream has a question of a task: the session's GET stream, or streams of `tasks/result`, of all
//! replicas.
//!
//! A note in the store names the kind for as long as such a stream lives. When the stream or its replica is gone,
//! the note expires, and the question goes to any stream there is.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::question::SessionQuestion;
use crate::downstream::proxy::Proxy;

/// The time that a stream counts as open after it was last known to be.
const LIFETIME: Duration = Duration::from_secs(10);

/// The pause after which a stream renews the notes of its questions.
pub(super) const RENEWAL: Duration = Duration::from_secs(3);

/// A kind of stream for questions.
#[derive(Debug, Clone, Copy)]
pub(super) enum StreamKind {
    Session,
    Result,
}

impl StreamKind {
    /// All streams of one kind write the same note: each stream is another chance to see the question, because
    /// an older stream may be dead.
    fn note(self) -> Bytes {
        Bytes::from_static(match self {
            Self::Session => b"session",
            Self::Result => b"result",
        })
    }
}

impl SessionQuestion<'_> {
    /// Returns `true` if a stream of that kind may have the question, because no stream of the other kind has it.
    /// Asks the store once, and not at all where there is no other replica.
    pub(super) async fn claim(&self, kind: StreamKind, proxy: &Arc<Proxy>) -> bool {
        if proxy.runner.is_alone() {
            return true;
        }
        let store = proxy.runner.ledger().store();
        let claim = store.claim(self.name(), kind.note(), expires_ms(proxy));
        // While the store is away, a question asked twice is better than one that is never asked.
        !matches!(claim.await, Ok(Some(_other)))
    }

    /// Notes that a stream of that kind still has the question.
    pub(super) async fn renew(&self, kind: StreamKind, proxy: &Arc<Proxy>) {
        if proxy.runner.is_alone() {
            return;
        }
        let store = proxy.runner.ledger().store();
        let put = store.put(self.name(), kind.note(), expires_ms(proxy));
        // Without the note, another stream may ask the question, too.
        let _ = put.await;
    }
}

fn expires_ms(proxy: &Arc<Proxy>) -> u64 {
    let lifetime = u64::try_from(LIFETIME.as_millis()).unwrap_or(u64::MAX);
    proxy.runner.ledger().now_ms().saturating_add(lifetime)
}
