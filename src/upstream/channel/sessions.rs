//! The sessions of legacy clients, by the id that raincheck gave them.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;
use tracing::info;
use uuid::Uuid;

use crate::lock::Mutex;
use crate::upstream::channel::session::Session;

/// A client that neither says nor hears anything for so long has gone without a word. Servers do
/// the same; a session holds what a user has done in it.
const IDLE: Duration = Duration::from_mins(30);

/// Where all lines are in use, one that is silent for so long makes room: most clients go without a
/// word, and one that comes back begins anew.
const SILENT: Duration = Duration::from_mins(1);

/// Over which line a session may be.
#[derive(Debug, Clone, Copy)]
pub enum Line {
    /// Also one on which something was said before.
    Any,
    New,
}

#[derive(Debug, Default)]
pub(super) struct LineSessions {
    by_id: Mutex<HashMap<Box<str>, Arc<Session>>>,
}

impl LineSessions {
    fn by_id(&self) -> MutexGuard<'_, HashMap<Box<str>, Arc<Session>>> {
        self.by_id.lock()
    }

    /// Keeps a session under an id of its own: 122 random bits of the operating system cannot be guessed.
    pub(super) fn keep(&self, session: &Arc<Session>) -> Box<str> {
        let id: Box<str> = Uuid::new_v4().to_string().into();
        self.by_id().insert(id.clone(), Arc::clone(session));
        id
    }

    /// Another caller's session is as unknown as one that never was.
    pub(super) fn get(&self, id: &str, caller: [u8; 16]) -> Option<Arc<Session>> {
        let by_id = self.by_id();
        let session = by_id.get(id)?;
        (session.caller == caller && session.is_open()).then(|| Arc::clone(session))
    }

    /// Ends the session that was unused for longest, if that is long enough. False where there is none.
    pub(super) fn make_room(&self) -> bool {
        let by_id = self.by_id();
        let open = by_id.values().filter(|session| session.is_open());
        let idle = open.filter_map(|session| Some((session.idle_since()?, session)));
        let longest = idle.min_by_key(|(since, _)| *since);
        let is_silent = |since| Instant::now().saturating_duration_since(since) >= SILENT;
        if let Some((since, session)) = longest
            && is_silent(since)
        {
            info!("a session that its client does not use makes room for another line");
            session.close();
            return true;
        }
        false
    }

    /// Ends those whose clients are silent for too long, and forgets those that have ended.
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
