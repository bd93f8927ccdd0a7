//! What the server says about one request on a line.

use std::sync::Arc;

use serde_json::value::RawValue;

use crate::mcp::error::Failure;
use crate::upstream::port::{Question, UpstreamError};

/// A message of the server about one request.
#[derive(Debug)]
pub(in crate::upstream) enum LineEvent {
    Progress(Box<RawValue>),
    Log(Box<RawValue>),
    Question(Question),
    /// Any other notification that names the request.
    Notice(Arc<LineNotice>),
    Result(Box<RawValue>),
    Error(Box<RawValue>),
    /// The server did not take the message of the request; this is what the server said.
    Refused(UpstreamError),
    /// The request had no effect, and may be sent over another line.
    Unsent(Failure),
    Failed(Failure),
}

/// A notification.
#[derive(Debug)]
pub(in crate::upstream) struct LineNotice {
    pub(in crate::upstream) method: Box<str>,
    pub(in crate::upstream) params: Option<Box<RawValue>>,
}
