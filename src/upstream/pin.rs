//! What keeps several requests on one session of the server, or on one line to it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::channel::Line;
use super::channel::session::Session as ClientLine;
use super::sessions::Lease;

/// Requests that bear the same pin use the session or the line of the first of them, also at the
/// same time. Dropped with all its clones, a session is given up.
#[derive(Clone, Default)]
pub struct Pin(Arc<Mutex<Option<Held>>>);

enum Held {
    Session(Lease),
    Line(Line),
    /// A client's own session, for good.
    Client(Lease),
    ClientLine(Arc<ClientLine>),
}

impl Pin {
    pub(super) fn client(lease: Lease) -> Self {
        Self(Arc::new(Mutex::new(Some(Held::Client(lease)))))
    }

    pub(super) fn client_line(session: Arc<ClientLine>) -> Self {
        Self(Arc::new(Mutex::new(Some(Held::ClientLine(session)))))
    }

    /// The client's own line that it leads to.
    pub(super) fn line_of_client(&self) -> Option<Arc<ClientLine>> {
        match &*self.held() {
            Some(Held::ClientLine(session)) => Some(Arc::clone(session)),
            Some(Held::Session(_) | Held::Line(_) | Held::Client(_)) | None => None,
        }
    }

    /// Cancelled when the client ends the session that it leads to. Else never.
    pub(super) fn ended(&self) -> CancellationToken {
        match &*self.held() {
            Some(Held::Client(lease)) => lease.session.ended(),
            Some(Held::Session(_) | Held::Line(_) | Held::ClientLine(_)) | None => {
                CancellationToken::new()
            }
        }
    }

    /// Whether it leads to a session that a client of ours has, which has no like.
    pub(super) fn is_a_clients(&self) -> bool {
        match &*self.held() {
            Some(Held::Client(lease)) => lease.session.has_id(),
            Some(Held::ClientLine(_)) => true,
            Some(Held::Session(_) | Held::Line(_)) | None => false,
        }
    }

    /// Keeps a client's own session at the server while the token lives, though its client ends it.
    pub fn keep(&self) -> Option<TaskTrackerToken> {
        match &*self.held() {
            Some(Held::Client(lease)) => Some(lease.session.needed().token()),
            Some(Held::ClientLine(session)) => Some(session.needed().token()),
            Some(Held::Session(_) | Held::Line(_)) | None => None,
        }
    }

    fn held(&self) -> MutexGuard<'_, Option<Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session that is held, for one more request.
    pub(super) fn session(&self) -> Option<Lease> {
        match &*self.held() {
            Some(Held::Session(lease) | Held::Client(lease)) => Some(lease.also()),
            Some(Held::Line(_) | Held::ClientLine(_)) | None => None,
        }
    }

    /// Holds the session of an answered request; the first one's.
    pub(super) fn hold_session(&self, lease: Lease) {
        let mut held = self.held();
        if held.is_none() {
            *held = Some(Held::Session(lease));
            return;
        }
        drop(held);
        lease.give_back();
    }

    /// The server knows the session no more: the next one is held.
    pub(super) fn lose_session(&self) {
        let mut held = self.held();
        if matches!(*held, Some(Held::Session(_))) {
            let lost = held.take();
            drop(held);
            drop(lost);
        }
    }

    /// The line that is held, for one more request.
    pub(super) fn line(&self) -> Option<Line> {
        match &*self.held() {
            Some(Held::Line(line)) => Some(line.also()),
            Some(Held::Session(_) | Held::Client(_) | Held::ClientLine(_)) | None => None,
        }
    }

    /// Holds a line from here on.
    pub(super) fn hold_line(&self, line: Line) -> Line {
        let also = line.also();
        *self.held() = Some(Held::Line(line));
        also
    }

    /// All is answered: what was held is free for other calls.
    pub(super) fn give_back(&self) {
        let is_ours = |held: &mut Held| matches!(held, Held::Session(_) | Held::Line(_));
        let held = self.held().take_if(is_ours);
        if let Some(Held::Session(lease)) = held {
            lease.give_back();
        }
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pin")
    }
}
