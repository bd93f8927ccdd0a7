//! A client that proved who it is.

use crate::task::id::Caller;

/// A client that proved who it is. Made once for each credential; requests share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The owner of the client's tasks. A renewed credential of the same client gives the same caller.
    pub caller: Caller,
    /// The name that operators know the client by. It is no secret and decides nothing.
    pub label: Option<Box<str>>,
    /// What the credential allows.
    pub scopes: Box<[Box<str>]>,
    /// From then on the credential counts no more, in Unix milliseconds. `None`: it has no end of its own.
    pub ends_at_ms: Option<u64>,
}

impl Identity {
    /// The scopes of these that the credential lacks.
    pub fn lacks<'s>(&self, wanted: &'s [Box<str>]) -> impl Iterator<Item = &'s str> {
        let lacking = wanted.iter().filter(|scope| !self.scopes.contains(scope));
        lacking.map(AsRef::as_ref)
    }
}
