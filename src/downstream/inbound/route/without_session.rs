//! What becomes of a call whose client has no session at the server that raincheck can use. Pure.

use super::call::CallFacts;
use crate::runner::CallTerms;
use crate::task::plan::Plan;

/// The fate of a call whose client has no session at the server that raincheck can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::downstream) enum WithoutSession {
    /// A server without sessions gives its clients no id: any connection will do.
    Run,
    /// The server itself can best report that it does not know the session.
    Pass,
    /// Passed on, the call would break a promise.
    Busy,
}

impl WithoutSession {
    /// `names_session`: the request does.
    pub(in crate::downstream) fn of(
        terms: &CallTerms,
        facts: &CallFacts<'_>,
        names_session: bool,
    ) -> Self {
        if !names_session && !matches!(terms.plan, Plan::Always { .. }) {
            return Self::Run;
        }
        let is_claimed = terms.claim.is_some_and(|claim| !claim.is_of_given_up());
        let must_not_pass = terms.rule.require_tasks || is_claimed || facts.is_limited;
        if must_not_pass && facts.server.speaks_http {
            Self::Busy
        } else {
            Self::Pass
        }
    }
}
