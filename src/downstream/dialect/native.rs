//! Tools that the server runs as tasks of its own only, as its lists said when they passed here.
//!
//! To clients they are tools like any other: a plain call of one is a task that is waited for.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// More are not remembered: their plain calls are the server's to refuse.
const TOOLS_MAX: usize = 1024;

/// All of this process.
#[derive(Debug, Default)]
pub struct NativeTools(Mutex<BTreeSet<Box<str>>>);

impl NativeTools {
    fn names(&self) -> MutexGuard<'_, BTreeSet<Box<str>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::downstream) fn contains(&self, name: &str) -> bool {
        self.names().contains(name)
    }
    /// What a list says of the tool.
    pub(super) fn note(&self, name: &str, requires_task: bool) {
        let mut names = self.names();
        if !requires_task {
            names.remove(name);
        } else if names.len() < TOOLS_MAX {
            names.insert(name.into());
        }
    }
}
