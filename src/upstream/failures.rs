//! The failures that more than one part ends a request with.

use std::time::Duration;

use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::failure_detail::FailureDetail;

/// No server could be reached.
pub(super) const UNREACHABLE: Failure = Failure::new(Reason::UpstreamUnreachable, SideEffect::None);

/// All sessions or processes of the server are in use.
pub(super) const IN_USE: Failure = Failure::new(Reason::SessionsInUse, SideEffect::None);

/// The request runs nothing, and its answer could not be understood.
pub(super) const INVALID_WORDS: Failure = Failure::new(Reason::UpstreamInvalid, SideEffect::None);

/// The event stream of HTTP+SSE names an endpoint at which nothing may be sent.
pub(super) const OTHER_ORIGIN: Failure = Failure {
    reason: Reason::UpstreamInvalid,
    effect: SideEffect::None,
    detail: Some(FailureDetail::Text(
        "its event stream names an endpoint at another origin than upstream.url, or none",
    )),
};

/// The call may have run, and the answer could not be understood.
pub(super) const INVALID: Failure = Failure::new(Reason::UpstreamInvalid, SideEffect::Unknown);

/// A refusal before anything ran: the server wants the request again.
#[derive(Debug)]
pub(super) struct Postponed {
    /// The pause that the server asks for.
    pub(super) pause: Duration,
    /// The server asks for more than all tries cover, so the request is not sent again.
    pub(super) is_long: bool,
    /// The end of the request if it is not sent again.
    pub(super) failure: Failure,
}

/// The server said "later" too often, and never ran the call.
pub(super) const LATER: Failure = Failure {
    reason: Reason::UpstreamHttp,
    effect: SideEffect::None,
    detail: Some(FailureDetail::Text(
        "it is too busy (429, 503 with Retry-After, or a refused stream)",
    )),
};

pub(super) const TOO_LARGE: Failure = Failure::new(Reason::UpstreamTooLarge, SideEffect::Unknown);

pub(super) const TOO_DEEP: Failure = Failure::new(Reason::UpstreamTooDeep, SideEffect::Unknown);

pub(super) const RESET: Failure = Failure::new(Reason::UpstreamReset, SideEffect::Unknown);
