//! The clients in this process that wait for one call: only the last of them may end it.

use std::mem;
use std::sync::Arc;

use crate::base::lock::Mutex;
use crate::base::prehashed::PrehashedMap;
use crate::task::id::TaskId;

/// The number of clients that follow each call.
pub(super) type ClientCounts = Arc<Mutex<PrehashedMap<TaskId, usize>>>;

/// One client of a call. Dropped, the client waits no more.
pub(super) struct ClientShare {
    clients: ClientCounts,
    id: TaskId,
    has_left: bool,
}

impl ClientShare {
    pub(super) fn of(clients: &ClientCounts, id: TaskId) -> Self {
        *clients.lock().entry(id).or_default() += 1;
        let clients = Arc::clone(clients);
        let has_left = false;
        Self {
            clients,
            id,
            has_left,
        }
    }

    /// The client waits no more. Returns `true` if no other client waits: of several that leave together one is the last.
    pub(super) fn leave(&mut self) -> bool {
        if mem::replace(&mut self.has_left, true) {
            return false;
        }
        let mut clients = self.clients.lock();
        let Some(count) = clients.get_mut(&self.id) else {
            return true;
        };
        *count -= 1;
        let is_last = *count == 0;
        if is_last {
            clients.remove(&self.id);
        }
        is_last
    }
}

impl Drop for ClientShare {
    fn drop(&mut self) {
        self.leave();
    }
}
