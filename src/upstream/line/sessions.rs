//! The sessions of legacy clients, by the id that raincheck gave them.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;
use tracing::info;
use uuid::Uuid;

use crate::base::account::Account;
use crate::base::lock::Mutex;
use crate::upstream::line::session::LineSession;
use crate::upstream::pool::UsedUp;

/// A session whose client has neither sent nor read anything for this long is ended, as servers do. The time is
/// long because a session holds what a user has done in it.
const IDLE: Duration = Duration::from_mins(30);

/// When all lines are in use, a session that was silent for this long is ended for another line. Most clients
/// leave without a word, and a client that comes back begins anew.
const SILENT: Duration = Duration::from_mins(1);

/// The same for a session without requests, or whose client has closed its stream and sent nothing since. Sessions that are
/// opened and left make room sooner.
const SILENT_LEFT: Duration = Duration::from_secs(5);

/// Which line a new session may use.
#[derive(Debug, Clone, Copy)]
pub enum LineChoice {
    /// Also the line of the spare process, which may have been asked for its era.
    Any,
    New,
}

#[derive(Debug, Default)]
pub(super) struct LineSessions {
    by_id: Mutex<HashMap<Box<str>, Arc<LineSession>>>,
}

impl LineSessions {
    fn by_id(&self) -> MutexGuard<'_, HashMap<Box<str>, Arc<LineSession>>> {
        self.by_id.lock()
    }

    /// Keeps a session under an id of its own: 122 random bits of the operating system cannot be guessed.
    pub(super) fn keep(&self, session: &Arc<LineSession>) -> Box<str> {
        let id: Box<str> = Uuid::new_v4().to_string().into();
        self.by_id().insert(id.clone(), Arc::clone(session));
        id
    }

    /// The session with that id, if it is the caller's and open. Another caller's session is unknown to the
    /// caller.
    pub(super) fn get(&self, id: &str, caller: [u8; 16]) -> Option<Arc<LineSession>> {
        let by_id = self.by_id();
        let session = by_id.get(id)?;
        // A session that has ended stays in the table until the next round.
        (session.caller == caller && session.is_open()).then(|| Arc::clone(session))
    }

    /// Ends the session that can be spared first, of those that would help, if its client was silent for long enough. False
    /// where there is none.
    pub(super) fn make_room(&self, used_up: UsedUp) -> bool {
        let by_id = self.by_id();
        let open = by_id.values().filter(|session| session.is_open());
        let open = open.filter(|session| {
            let account = Account::of(session.caller);
            used_up.is_helped_by_end_of(account)
        });
        let spared = open.filter_map(|session| {
            let patience = if session.may_be_left() {
                SILENT_LEFT
            } else {
                SILENT
            };
            Some((session.idle_since()?.checked_add(patience)?, session))
        });
        if let Some((from, session)) = spared.min_by_key(|(from, _)| *from)
            && from <= Instant::now()
        {
            info!("a session that its client does not use makes room for another line");
            session.close();
            return true;
        }
        false
    }

    /// Ends sessions whose clients have been silent for too long, and forgets those that have ended.
    pub(super) fn close_unused(&self) {
        let now = Instant::now();
        self.by_id().retain(|_, session| {
            let unused = session.unused_since();
            if unused.is_some_and(|since| now.saturating_duration_since(since) >= IDLE) {
                session.close();
            }
            session.is_open()
        });
    }
}
