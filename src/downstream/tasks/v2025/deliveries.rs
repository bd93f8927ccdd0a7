//! The sessions of this process that have open tasks, and the questions on open streams of `tasks/result`.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, MutexGuard};

use tokio::sync::Notify;

use super::question::SessionQuestion;
use crate::base::lock::Mutex;
use crate::downstream::inbound::session_key::SessionKey;
use crate::task::id::{Caller, TaskId};
use crate::task::state::Status;

/// Sessions whose open tasks are remembered. One more replaces the least recently used session that has no
/// job.
const SESSIONS_MAX: usize = 4096;

/// The sessions of this process that have open tasks.
#[derive(Debug, Default)]
pub struct Deliveries(Mutex<Table>);

#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) sessions: HashMap<SessionKey, TaskSession>,
    /// The questions on open streams of `tasks/result` here, each with the number of its streams: each of them is another chance to
    /// see the question, because an older stream may be dead.
    pub(super) on_results: HashMap<QuestionKey, usize>,
    uses: u64,
}

/// The key of a [`SessionQuestion`].
pub(super) type QuestionKey = (SessionKey, TaskId, Box<str>);

/// A question on the stream of a `tasks/result`. Dropped when the stream is closed.
#[derive(Debug)]
pub(super) struct OnResult {
    pub(super) deliveries: Arc<Deliveries>,
    pub(super) question: QuestionKey,
}

impl Drop for OnResult {
    fn drop(&mut self) {
        let mut table = self.deliveries.table();
        if let Entry::Occupied(mut streams) = table.on_results.entry(self.question.clone()) {
            *streams.get_mut() -= 1;
            if *streams.get() == 0 {
                streams.remove();
            }
        }
        let (key, id, _) = self.question;
        if let Some(session) = table.sessions.get_mut(&key)
            && let Some(job) = &session.job
        {
            // The stream may have closed before the client read the question, so the job asks it again.
            session.again.insert(id);
            job.notify_one();
        }
    }
}

#[derive(Debug)]
pub(super) struct TaskSession {
    pub(super) caller: Caller,
    /// Open tasks, with the last status that the client was notified of.
    pub(super) tasks: BTreeMap<TaskId, Status>,
    /// Tasks whose questions were on a stream that closed: the job looks at them again.
    pub(super) again: BTreeSet<TaskId>,
    /// Wakes the job, while there is one.
    pub(super) job: Option<Arc<Notify>>,
    used: u64,
}

impl Deliveries {
    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock()
    }

    /// Notes the status that the session is notified of. True if the session did not know it.
    pub(super) fn is_news(&self, key: SessionKey, id: TaskId, status: Status) -> bool {
        let mut table = self.table();
        let session = table.sessions.get_mut(&key);
        let told = session.and_then(|session| session.tasks.get_mut(&id));
        told.is_some_and(|told| std::mem::replace(told, status) != status)
    }

    pub(super) fn is_on_result(&self, question: &SessionQuestion<'_>) -> bool {
        self.table().on_results.contains_key(&owned(question))
    }

    pub(super) fn forget(&self, key: SessionKey, id: TaskId) {
        if let Some(session) = self.table().sessions.get_mut(&key) {
            session.tasks.remove(&id);
        }
    }
}

impl Table {
    pub(super) fn session(&mut self, key: SessionKey, caller: Caller) -> Option<&mut TaskSession> {
        self.uses += 1;
        let used = self.uses;
        if !self.sessions.contains_key(&key) && self.sessions.len() >= SESSIONS_MAX {
            // A session with a job has an open GET stream here, and would lose its notifications.
            let idle = self.sessions.iter().filter(|(_, one)| one.job.is_none());
            let oldest = idle.min_by_key(|(_, one)| one.used).map(|(key, _)| *key)?;
            self.sessions.remove(&oldest);
        }
        let session = self.sessions.entry(key).or_insert_with(|| TaskSession {
            caller,
            tasks: BTreeMap::new(),
            again: BTreeSet::new(),
            job: None,
            used,
        });
        session.used = used;
        Some(session)
    }
}

pub(super) fn owned(question: &SessionQuestion<'_>) -> QuestionKey {
    (question.session, question.task, question.key.into())
}
