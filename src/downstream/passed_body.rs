//! The body of a response that passes, and what becomes of a `tools/call` whose client closes its connection before the
//! answer has passed: if the client's clock ended, the runner reads the rest.

use std::fmt;
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::FutureExt as _;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Response};
use memchr::memmem;
use tokio::time::Instant;

use super::inbound::idempotency::given_up_claim_of;
use super::inbound::request::Inbound;
use super::inbound::requester::Requester;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::room::SMALL;
use crate::runner::{CallClient, Runner};
use crate::task::gave_up::is_time_of_clock;
use crate::task::policy::Rules;
use crate::upstream::PassedResponse;
use crate::upstream::http::ResponseBody;
use crate::upstream::wrapped::Upstream;

const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");

/// A `tools/call` that passes.
pub(super) struct PassingCall {
    runner: Arc<Runner>,
    upstream: Arc<Upstream>,
    client: CallClient,
    /// The name under which the client may make the same call again.
    whose: [u8; 16],
    rules: Arc<Rules>,
    /// The request.
    sent: Bytes,
    began: Instant,
}

impl PassingCall {
    /// `None`: raincheck cannot distinguish the client from others, so that nobody could collect the call.
    pub(super) fn of(
        (runner, upstream): (&Arc<Runner>, &Arc<Upstream>),
        by: &Requester,
        sent: &Bytes,
    ) -> Option<Self> {
        let whose = by.gives_up_as()?;
        // The request is kept until the answer has passed. Large ones would take the room of others.
        if sent.len() > SMALL {
            return None;
        }
        Some(Self {
            runner: Arc::clone(runner),
            upstream: Arc::clone(upstream),
            client: by.client_of_call(None),
            whose,
            rules: Arc::clone(&by.rules),
            sent: sent.clone(),
            began: Instant::now(),
        })
    }

    /// Gives the rest of the call to the runner, if its client's clock has just ended.
    fn give_up(self, rest: impl FnOnce() -> Option<PassedResponse>) {
        if !is_time_of_clock(Instant::now().saturating_duration_since(self.began)) {
            return;
        }
        let message = Inbound::read(&self.sent);
        let (Some(id), Some(params)) = (message.request_id(), message.params()) else {
            return;
        };
        let Some(claim) = given_up_claim_of(params, &self.whose, &self.rules) else {
            return;
        };
        let tool = params.get_str("name").unwrap_or_default();
        if let Some(exchange) = rest().and_then(|rest| self.upstream.passed(rest, id.get())) {
            self.runner.keep_passed(self.client, claim, &tool, exchange);
        }
    }
}

/// The request of a call that passes, until the head of its response is there.
pub(super) struct PassingRequest {
    call: Option<PassingCall>,
    response: Option<PassedResponse>,
}

impl PassingRequest {
    pub(super) fn new(call: PassingCall, response: PassedResponse) -> Self {
        Self {
            call: Some(call),
            response: Some(response),
        }
    }

    /// Waits for the head. If this is dropped before it resolves, the client has closed its connection.
    pub(super) async fn passed(mut self) -> Result<Response<PassedBody>, Failure> {
        let response = match &mut self.response {
            Some(response) => response.await,
            None => return Err(Failure::new(Reason::UpstreamReset, SideEffect::Unknown)),
        };
        self.response = None;
        let call = self.call.take();
        response.map(|response| PassedBody::of_call(response, call))
    }
}

impl Drop for PassingRequest {
    fn drop(&mut self) {
        if let (Some(call), Some(response)) = (self.call.take(), self.response.take()) {
            call.give_up(|| Some(response));
        }
    }
}

/// The server's own body, frame by frame.
pub(super) enum PassedBody {
    /// A body that nobody reads if the client does not.
    Plain(ResponseBody),
    Call(Box<PassingStream>),
}

/// The events of a call that pass.
pub(super) struct PassingStream {
    /// `None` once the runner reads it.
    body: Option<ResponseBody>,
    /// `None` once the call is over.
    call: Option<PassingCall>,
    /// `true` if whole events have passed up to now.
    is_whole: bool,
}

impl PassedBody {
    /// The rest of a body that is no event stream, or is coded, is of no use without its beginning.
    fn of_call(response: Response<ResponseBody>, call: Option<PassingCall>) -> Response<Self> {
        let is_readable = is_event_stream(response.headers());
        response.map(|body| match call.filter(|_| is_readable) {
            Some(call) => Self::Call(Box::new(PassingStream {
                body: Some(body),
                call: Some(call),
                is_whole: true,
            })),
            None => Self::Plain(body),
        })
    }

    pub(super) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, <ResponseBody as HttpBody>::Error>>> {
        match self {
            Self::Plain(body) => Pin::new(body).poll_frame(context),
            Self::Call(stream) => stream.poll_frame(context),
        }
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.body().is_none_or(HttpBody::is_end_stream)
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        let hint = self.body().map(HttpBody::size_hint);
        hint.unwrap_or_else(|| SizeHint::with_exact(0))
    }

    fn body(&self) -> Option<&ResponseBody> {
        match self {
            Self::Plain(body) => Some(body),
            Self::Call(stream) => stream.body.as_ref(),
        }
    }
}

impl PassingStream {
    fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, <ResponseBody as HttpBody>::Error>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let polled = Pin::new(body).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref().filter(|data| !data.is_empty()) {
                    self.is_whole = data.ends_with(b"\n\n") || data.ends_with(b"\r\n\r\n");
                    // The client may have its answer now, and then it gives nothing up.
                    if may_be_answer(data) {
                        self.call = None;
                    }
                }
            }
            // The stream of the server has ended, so nothing is left that the runner could read.
            Poll::Ready(Some(Err(_)) | None) => self.call = None,
            Poll::Pending => {}
        }
        polled
    }
}

impl Drop for PassingStream {
    fn drop(&mut self) {
        let (Some(body), Some(call)) = (self.body.take(), self.call.take()) else {
            return;
        };
        // In the middle of an event nobody can go on.
        if body.is_end_stream() || !self.is_whole {
            return;
        }
        call.give_up(|| {
            let mut rest = Response::new(body);
            rest.headers_mut().insert(CONTENT_TYPE, EVENT_STREAM);
            Some(ready(Ok(rest)).boxed())
        });
    }
}

impl fmt::Debug for PassedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PassedBody")
    }
}

fn is_event_stream(head: &HeaderMap) -> bool {
    let kind = head
        .get(CONTENT_TYPE)
        .map_or(&b""[..], HeaderValue::as_bytes);
    kind.starts_with(b"text/event-stream") && !head.contains_key(CONTENT_ENCODING)
}

/// Returns `true` if the answer may be in this frame: a message of another kind may have the same words.
fn may_be_answer(data: &[u8]) -> bool {
    memmem::find(data, b"\"result\"").is_some() || memmem::find(data, b"\"error\"").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_the_answer_is_none_of_the_progress() {
        for (data, expected) in [
            (
                "data: {\"method\":\"notifications/progress\",\"params\":{}}\n\n",
                false,
            ),
            (": ping\n\n", false),
            ("data: {\"id\":1,\"result\":{}}\n\n", true),
            ("data: {\"id\":1,\"error\":{}}\n\n", true),
        ] {
            assert_eq!(may_be_answer(data.as_bytes()), expected, "{data}");
        }
    }
}
