//! The body of a response that passes, frame by frame.

use std::fmt;
use std::future::ready;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::FutureExt as _;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Response};
use memchr::memmem;

use super::calls::server_answer::CallAtServer;
use super::passing::{PassedResponse, PassingRequest, ReadOn, ResponseRest};
use crate::upstream::Exchange;
use crate::upstream::http::ResponseBody;

const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");

/// The server's own body, frame by frame.
pub(super) enum PassedBody {
    /// A body that nobody reads if the client does not.
    Plain(ResponseBody),
    Call(Box<ResponseRest<PassingEvents>>),
}

/// The events of a call that pass.
pub(super) struct PassingEvents {
    body: ResponseBody,
    /// `true` if whole events have passed up to now.
    is_whole: bool,
}

impl ReadOn for PassingEvents {
    fn read_on(self, call: CallAtServer) -> Option<Exchange> {
        // The rest of an event cannot be read without its beginning.
        if self.body.is_end_stream() || !self.is_whole {
            return None;
        }
        let mut rest = Response::new(self.body);
        rest.headers_mut().insert(CONTENT_TYPE, EVENT_STREAM);
        let rest: PassedResponse = ready(Ok(rest)).boxed();
        rest.read_on(call)
    }
}

impl PassedBody {
    /// The body behind this head. The rest of one that is no event stream, or is coded, is of no use without its beginning.
    pub(super) fn of_call(
        head: &HeaderMap,
        body: ResponseBody,
        call: Option<PassingRequest<'_>>,
    ) -> Self {
        match call.filter(|_| is_event_stream(head)) {
            Some(call) => {
                let is_whole = true;
                let events = PassingEvents { body, is_whole };
                Self::Call(Box::new(ResponseRest::new(Some(call), events).kept()))
            }
            None => Self::Plain(body),
        }
    }

    /// Notes that raincheck has answered the call, so that its client gives nothing up.
    pub(super) fn answered(&mut self) {
        if let Self::Call(events) = self {
            events.passed();
        }
    }

    pub(super) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, <ResponseBody as HttpBody>::Error>>> {
        match self {
            Self::Plain(body) => Pin::new(body).poll_frame(context),
            Self::Call(events) => events.poll_frame(context),
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
            Self::Call(events) => events.rest().map(|events| &events.body),
        }
    }
}

impl ResponseRest<PassingEvents> {
    fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, <ResponseBody as HttpBody>::Error>>> {
        let Some(events) = self.rest_mut() else {
            return Poll::Ready(None);
        };
        let polled = Pin::new(&mut events.body).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref().filter(|data| !data.is_empty()) {
                    events.is_whole = data.ends_with(b"\n\n") || data.ends_with(b"\r\n\r\n");
                    // The client may have its answer now, and then it gives nothing up.
                    if may_be_answer(data) {
                        self.passed();
                    }
                }
            }
            // The stream of the server has ended, so nothing is left that the runner could read.
            Poll::Ready(Some(Err(_)) | None) => {
                self.passed();
            }
            Poll::Pending => {}
        }
        polled
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
