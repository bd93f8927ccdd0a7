//! A request to a modern server over Streamable HTTP: one POST, with questions as `input_required`
//! results.

use std::sync::Arc;

use hyper::http::request;

use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::headers::{METHOD, NAME, PROTOCOL_VERSION, encode};
use crate::mcp::version::MODERN;
use crate::upstream::exchange::{NoopControl, RequestTransport, Unsent, Untaken};
use crate::upstream::http::origin::Origin;
use crate::upstream::http_response;
use crate::upstream::http_response::{Messages, ResponseKind};
use crate::upstream::message::{About, about};
use crate::upstream::port::{Event, Exchange, UpstreamRequest};
use crate::upstream::request_id::RequestId;
use crate::upstream::translate;

/// Begins one request; it is sent when the events are first polled.
///
/// Dropping the exchange closes the stream, which cancels the request.
pub(in crate::upstream) fn begin(origin: Arc<Origin>, request: Arc<UpstreamRequest>) -> Exchange {
    let transport = ModernPost {
        origin,
        request,
        id: RequestId::number(0),
    };
    super::begin(transport, Arc::new(NoopControl))
}

struct ModernPost {
    origin: Arc<Origin>,
    request: Arc<UpstreamRequest>,
    /// Of the POST that was sent last.
    id: RequestId,
}

impl ModernPost {
    fn head(&self) -> request::Builder {
        let request = &self.request;
        let mut head = self
            .origin
            .post(request.credentials.as_ref())
            .header(PROTOCOL_VERSION, MODERN)
            .header(METHOD, &*request.method);
        if let Some(name) = &request.name {
            head = head.header(NAME, &*encode(name));
        }
        for (name, value) in request.param_headers.iter().chain(&*request.headers) {
            head = head.header(name, value);
        }
        self.origin.with_query(head, request.query.as_deref())
    }
}

impl RequestTransport for ModernPost {
    type Open = Box<Messages>;

    async fn send(&mut self) -> Result<Box<Messages>, Untaken> {
        let failed = |failure| Untaken::End(Event::Failed(failure));
        // Each attempt has its own id, because some servers hang when one comes twice.
        self.id = self.origin.next_id();
        let method = &self.request.method;
        // In a block, because a call that waits for its answer would keep the params.
        let asking = {
            let params = translate::for_modern(&self.request, &self.id)
                .map_err(|_| failed(Failure::new(Reason::UpstreamInvalid, SideEffect::None)))?;
            let body = translate::request(&self.id, method, &params);
            self.origin.request(self.head(), method, body)
        };
        let response = asking.await;
        let response = response.map_err(failed)?;
        match http_response::classify_response(response, self.origin.message_bytes_max).await {
            ResponseKind::Messages(messages) => Ok(messages),
            ResponseKind::Error(error) => Err(Untaken::End(Event::Error(error))),
            ResponseKind::Refused { failure, .. } => Err(failed(failure)),
            ResponseKind::Later(later) => Err(Untaken::Later(later)),
        }
    }

    async fn next(&mut self, messages: &mut Box<Messages>) -> Result<Event, Unsent> {
        loop {
            let message = match messages.next().await {
                Ok(Some(message)) => message,
                // A modern stream that was cut cannot be resumed.
                Ok(None) => return Ok(Event::Failed(messages.without_answer())),
                Err(failure) => return Ok(Event::Failed(failure)),
            };
            match about(message, &self.id, &self.request, &self.origin) {
                About::This(event) => return Ok(event),
                About::Another => messages.note_stray(),
                // A modern server asks by `input_required` results only, so a request here has no reader.
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
