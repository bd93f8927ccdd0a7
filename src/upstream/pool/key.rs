//! Whose a session is.

use std::sync::Arc;

use crate::base::account::Account;
use crate::mcp::version::Era;
use crate::upstream::port::UpstreamRequest;
use crate::upstream::translate;

/// Whose session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::upstream) struct PoolKey {
    pub(in crate::upstream) caller: [u8; 16],
    pub(in crate::upstream) era: Era,
    /// The capabilities that are declared to a legacy server when the session begins, as JSON. A modern server
    /// receives the capabilities with each request, so nothing is declared.
    pub(in crate::upstream) declared: Arc<str>,
}

impl PoolKey {
    pub(in crate::upstream) fn of(era: Era, request: &UpstreamRequest) -> Self {
        match era {
            Era::Legacy => Self::legacy(request.caller, &request.capabilities),
            Era::Modern => Self::new(era, request.caller, "{}"),
        }
    }

    /// For a legacy server and a client that declares these capabilities, as modern clients do.
    pub(in crate::upstream) fn legacy(caller: [u8; 16], capabilities: &str) -> Self {
        let declared = translate::legacy_capabilities(capabilities);
        Self::new(Era::Legacy, caller, declared)
    }

    pub(in crate::upstream) fn new(
        era: Era,
        caller: [u8; 16],
        declared: impl Into<Arc<str>>,
    ) -> Self {
        Self {
            caller,
            era,
            declared: declared.into(),
        }
    }

    /// The account that the session counts on.
    pub(super) fn account(&self) -> Account {
        Account::of(self.caller)
    }
}
