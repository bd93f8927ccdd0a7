//! The failures that more than one part ends a request with.

use crate::mcp::error::{Failure, Reason, SideEffect};

/// No server could be reached.
pub(super) const UNREACHABLE: Failure = Failure {
    reason: Reason::UpstreamUnreachable,
    effect: SideEffect::None,
};

/// The request runs nothing, and its answer could not be understood.
pub(super) const INVALID_WORDS: Failure = Failure {
    reason: Reason::UpstreamInvalid,
    effect: SideEffect::None,
};

/// The call may have run, and the answer could not be understood.
pub(super) const INVALID: Failure = Failure {
    reason: Reason::UpstreamInvalid,
    effect: SideEffect::Unknown,
};

/// The server said "later" too often, and never ran the call.
pub(super) const LATER: Failure = Failure {
    reason: Reason::UpstreamHttp,
    effect: SideEffect::None,
};

pub(super) const TOO_LARGE: Failure = Failure {
    reason: Reason::UpstreamTooLarge,
    effect: SideEffect::Unknown,
};

pub(super) const TOO_DEEP: Failure = Failure {
    reason: Reason::UpstreamTooDeep,
    effect: SideEffect::Unknown,
};

pub(super) const RESET: Failure = Failure {
    reason: Reason::UpstreamReset,
    effect: SideEffect::Unknown,
};
