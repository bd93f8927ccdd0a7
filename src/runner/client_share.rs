//! The clients in this process that wait for one call: only the last of them may end it.

use std::collections::HashMap;
use std::sync::Arc;

use crate::lock::Mutex;
use crate::task::id::TaskId;

/// The number of clients that follow each call.
pub(super) type ClientCounts = Arc<Mutex<HashMap<TaskId, usize>>>;

/// One client of a call. Dropped, the client waits no more.
pub(super) struct ClientShare {
    clients: ClientCounts,
    id: TaskId,
}

impl ClientShare {
    pub(super) fn of(clients: &ClientCounts, id: TaskId) -> Self {
        *clients.lock().entry(id).or_default() += 1;
        let clients = Arc::clone(clients);
        Self { clients, id }
    }

    /// Returns `true` if no other client waits.
    pub(super) fn is_last(&self) -> bool {
        self.clients.lock().get(&self.id) == Some(&1)
    }
}

impl Drop for ClientShare {
    fn drop(&mut self) {
        let mut clients = self.clients.lock();
        if let Some(count) = clients.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                clients.remove(&self.id);
            }
        }
    }
}
