//! Tools that the server runs only as tasks of its own, according to the lists that passed through this process.
//!
//! Clients see them as other tools: raincheck waits for the task behind a plain call.

use std::collections::BTreeMap;
use std::sync::MutexGuard;

use crate::base::lock::Mutex;

/// Tools that are remembered. For others raincheck asks the server.
const TOOLS_MAX: usize = 1024;

/// The tools of all lists that passed, and whether each runs only as a task.
#[derive(Debug, Default)]
pub struct NativeTools(Mutex<BTreeMap<Box<str>, bool>>);

impl NativeTools {
    fn tools(&self) -> MutexGuard<'_, BTreeMap<Box<str>, bool>> {
        self.0.lock()
    }

    /// `None`: no list that passed had that tool. The client may know the tool from another replica, or from
    /// before a restart.
    pub(in crate::downstream) fn requires_task(&self, name: &str) -> Option<bool> {
        self.tools().get(name).copied()
    }

    /// Remembers the declaration of a list about a tool.
    pub(super) fn note(&self, name: &str, requires_task: bool) {
        let mut tools = self.tools();
        if let Some(known) = tools.get_mut(name) {
            *known = requires_task;
        } else if tools.len() < TOOLS_MAX {
            tools.insert(name.into(), requires_task);
        }
    }
}
