//! The rest of a request that passed to a modern server, once nobody reads the server's bytes any more.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use hyper::Response;
use serde_json::value::RawValue;

use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::json::Object;
use crate::upstream::exchange::{NoopControl, RequestTransport, Unsent, Untaken};
use crate::upstream::http::ResponseBody;
use crate::upstream::http::origin::Origin;
use crate::upstream::http_response::{self, Messages, ResponseKind};
use crate::upstream::message::{About, about};
use crate::upstream::port::{Event, Exchange, UpstreamRequest};
use crate::upstream::request_id::RequestId;
use crate::upstream::server_message::ServerMessage;

/// The response to a request that passed, from the beginning of its body, or of an event in it.
pub type PassedResponse = BoxFuture<'static, Result<Response<ResponseBody>, Failure>>;

/// Reads the rest. `id`: the request's, as JSON. Dropping the exchange closes the stream, which cancels the request.
pub(in crate::upstream) fn begin(
    origin: Arc<Origin>,
    response: PassedResponse,
    id: &str,
) -> Exchange {
    let transport = PassedPost {
        origin,
        response: Some(response),
        id: RequestId::read(id),
        // Nothing of it is sent.
        request: UpstreamRequest::new([0; 16], "tools/call", "{}"),
    };
    super::begin(transport, Arc::new(NoopControl))
}

/// A modern result says what it is. Without that it is complete.
fn is_complete(result: &RawValue) -> bool {
    let result = Object::parse(result.get()).unwrap_or_default();
    let kind = result.get_str("resultType");
    kind.is_none_or(|kind| kind == "complete")
}

struct PassedPost {
    origin: Arc<Origin>,
    response: Option<PassedResponse>,
    id: RequestId,
    request: UpstreamRequest,
}

impl RequestTransport for PassedPost {
    type Open = Box<Messages>;

    async fn send(&mut self) -> Result<Box<Messages>, Untaken> {
        let failed = |failure| Untaken::End(Event::Failed(failure));
        let lost = Failure::new(Reason::UpstreamReset, SideEffect::Unknown);
        let response = self.response.take().ok_or_else(|| failed(lost))?;
        let response = response.await.map_err(failed)?;
        match http_response::classify_response(response, self.origin.message_bytes_max).await {
            ResponseKind::Messages(messages) => Ok(messages),
            ResponseKind::Error(error) => Err(Untaken::End(Event::Error(error))),
            ResponseKind::Refused { failure, .. } => Err(failed(failure)),
            // The request is not sent again: its client may do that.
            ResponseKind::Later(later) => Err(failed(later.failure)),
        }
    }

    async fn next(&mut self, messages: &mut Box<Messages>) -> Result<Event, Unsent> {
        loop {
            let message = match messages.next().await {
                Ok(Some(message)) => message,
                Ok(None) => return Ok(Event::Failed(messages.without_answer())),
                Err(failure) => return Ok(Event::Failed(failure)),
            };
            // The token is the client's own, and nothing else comes on this stream.
            if let ServerMessage::Notification {
                method,
                params: Some(params),
            } = &message
                && &**method == "notifications/progress"
            {
                return Ok(Event::Progress(params.clone()));
            }
            match about(message, &self.id, &self.request, &self.origin) {
                // The request cannot be sent again with answers: nothing of it is known here.
                About::This(Event::Result(result)) if !is_complete(&result) => {
                    let failure = Failure::new(Reason::UpstreamReset, SideEffect::None);
                    return Ok(Event::Failed(failure));
                }
                About::This(event) => return Ok(event),
                About::Another => messages.note_stray(),
                About::Asked { .. } | About::Nothing => {}
            }
        }
    }

    fn end(&mut self, messages: Option<Box<Messages>>, last: &Event) {
        // After any other end the body is dropped, which closes the stream and so cancels the request.
        if let Some(messages) = messages
            && last.is_answer()
        {
            self.origin.http.finish(messages.into_body());
        }
    }
}
