//! The caller and the session of a request that is about a task.

use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::HeaderValue;

use crate::downstream::accept::accepts_events;
use crate::downstream::claims::{self, Claimant, InHeader};
use crate::downstream::legacy::pushes::SessionKey;
use crate::downstream::proxy::Shared;
use crate::downstream::{auth, patience};
use crate::task::id::Caller;

/// How long the head of an answer waits for the first word, where its client takes large events.
const HEAD_PATIENCE: Duration = Duration::from_secs(3);

/// Who asks.
#[derive(Debug)]
pub(in crate::downstream) struct Asker {
    pub(in crate::downstream) caller: Caller,
    pub(in crate::downstream) credentials: Option<HeaderValue>,
    /// Where questions and changes are pushed; `None`: its session has no name of its own.
    pub(in crate::downstream) key: Option<SessionKey>,
    /// Somebody in particular, whose tasks can be listed.
    pub(in crate::downstream) is_somebody: bool,
    /// Reads event streams.
    pub(in crate::downstream) streams: bool,
    /// How long the head of an answer waits before it is a stream.
    pub(in crate::downstream) head_patience: Duration,
    /// What its header says of an idempotency key.
    pub(in crate::downstream) idempotency_key: InHeader,
}

impl Asker {
    pub(in crate::downstream) fn of(front: &Shared, headers: &HeaderMap) -> Self {
        let caller = front.callers.of(headers);
        Self {
            caller,
            credentials: front.credentials(headers),
            key: SessionKey::named(&caller, headers),
            is_somebody: auth::is_somebody(headers),
            streams: accepts_events(headers),
            head_patience: patience::of_legacy(headers, HEAD_PATIENCE),
            idempotency_key: claims::in_header(headers),
        }
    }

    pub(super) fn claimant(&self) -> Claimant<'_> {
        Claimant {
            caller: &self.caller,
            is_somebody: self.is_somebody,
            session: self.key,
            in_header: &self.idempotency_key,
        }
    }
}
