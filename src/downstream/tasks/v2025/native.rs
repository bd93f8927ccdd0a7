//! Tools that the server runs as tasks of its own only, as its lists said when they passed here.
//!
//! To clients they are tools like any other: a plain call of one is a task that is waited for.

use std::collections::BTreeMap;
use std::sync::MutexGuard;

use crate::lock::Mutex;

/// More are not remembered: of those the server is asked.
const TOOLS_MAX: usize = 1024;

/// All of this process: whether they run as tasks only.
#[derive(Debug, Default)]
pub struct NativeTools(Mutex<BTreeMap<Box<str>, bool>>);

impl NativeTools {
    fn tools(&self) -> MutexGuard<'_, BTreeMap<Box<str>, bool>> {
        self.0.lock()
    }

    /// `None`: no list that passed here had that tool. The client may know it from another replica, or
    /// from before a restart.
    pub(in crate::downstream) fn requires_task(&self, name: &str) -> Option<bool> {
        self.tools().get(name).copied()
    }

    /// What a list says of the tool.
    pub(super) fn note(&self, name: &str, requires_task: bool) {
        let mut tools = self.tools();
        if let Some(known) = tools.get_mut(name) {
            *known = requires_task;
        } else if tools.len() < TOOLS_MAX {
            tools.insert(name.into(), requires_task);
        }
    }
}
