//! Makes every answer and every error of raincheck's own, in one place.

use bytes::Bytes;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER,
    WWW_AUTHENTICATE,
};
use hyper::{Response, StatusCode};
use serde_json::value::RawValue;
use tracing::debug;

use crate::auth::challenge::{Challenge, Denied};
use crate::downstream::body::Body;
use crate::mcp::envelope;
use crate::mcp::error::{Failure, Reason, RpcError, SideEffect, code};
use crate::mcp::result;
use crate::runner::responder::{CallAnswer, DeliveryGuard};
use crate::telemetry::limits::{self, LimitHit};
use crate::upstream::UpstreamError;
use crate::upstream::wrapped::DiscoverError;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");

/// When to send a request again that a limit refused, in seconds: each call that ends makes room. Proxies, and raincheck
/// itself, take a 503 with this for proof that nothing ran, so no other refusal has it.
const SOON: HeaderValue = HeaderValue::from_static("1");

/// A call on a client's own session that did not reach it.
const SESSION_LOST: Failure = Failure::new(Reason::UpstreamReset, SideEffect::None);

/// A JSON-RPC response, with its HTTP status and header.
#[derive(Debug)]
pub(in crate::downstream) struct Rpc {
    pub(in crate::downstream) json: String,
    status: StatusCode,
    www_authenticate: Option<HeaderValue>,
    /// Nothing ran, and there may be room soon.
    is_for_now: bool,
}

impl Rpc {
    pub(in crate::downstream) fn result(id: &str, result: &str) -> Self {
        Self::of(envelope::result(id, result), StatusCode::OK)
    }

    pub(in crate::downstream) fn error(id: &str, error: &RpcError) -> Self {
        debug!(code = error.code, reason = %error.message, "a request was answered with an error");
        Self::of(envelope::error(id, &error.to_json()), status_of(error.code))
    }

    /// An answer of the wrapped server as it is.
    pub(in crate::downstream) fn passed(json: String) -> Self {
        Self::of(json, StatusCode::OK)
    }

    /// An error object as it is.
    pub(in crate::downstream) fn verbatim_error(id: &str, error: &RawValue) -> Self {
        Self::of(envelope::error(id, error.get()), StatusCode::OK)
    }

    #[expect(
        clippy::needless_pass_by_value,
        reason = "callers give away the failure that they got"
    )]
    pub(in crate::downstream) fn failure(id: &str, failure: Failure) -> Self {
        Self::error(id, &failure.to_error())
    }

    /// The answer to a call. The status 404 becomes 200: clients read 404 as a missing page and lose the error.
    /// A server that answers a call with -32601 does not mean the method `tools/call`.
    pub(in crate::downstream) fn call_answer(id: &str, answer: CallAnswer) -> Self {
        let mut rpc = Self::answer(id, answer);
        if rpc.status == StatusCode::NOT_FOUND {
            rpc.status = StatusCode::OK;
        }
        rpc
    }

    /// The answer to a request.
    pub(in crate::downstream) fn answer(id: &str, answer: CallAnswer) -> Self {
        match answer {
            CallAnswer::Result(result) => Self::result(id, &result),
            CallAnswer::Failed(failure) => Self::failure(id, failure),
            CallAnswer::StoreUnavailable(effect) => Self::store_lost(id, effect),
            CallAnswer::Error(error) => {
                let json = result::error_for_client(error.error);
                let mut rpc = Self::upstream_error(id, &json, error.status);
                rpc.www_authenticate = error.www_authenticate;
                rpc
            }
        }
    }

    /// The answer for a legacy client: the server's errors word for word, and on 200 as they came. A call that did not
    /// run because its session is lost is answered as by a server that has lost it, so that its client begins another one.
    pub(in crate::downstream) fn legacy_answer(id: &str, answer: CallAnswer) -> Self {
        match answer {
            // A challenge keeps its status, because an OAuth client begins to sign in by it.
            CallAnswer::Error(error) if !matches!(error.status, 401 | 403) => {
                Self::of(envelope::error(id, error.error.get()), StatusCode::OK)
            }
            CallAnswer::Failed(failure) if failure == SESSION_LOST => Self {
                status: StatusCode::NOT_FOUND,
                ..Self::failure(id, failure)
            },
            CallAnswer::Error(_)
            | CallAnswer::Result(_)
            | CallAnswer::Failed(_)
            | CallAnswer::StoreUnavailable(_) => Self::answer(id, answer),
        }
    }

    /// An error of the wrapped server, with the server's HTTP status if that is an error, too. A legacy server
    /// sends 200 with every error.
    fn upstream_error(id: &str, error: &RawValue, status: u16) -> Self {
        let mapped = status_of(result::error_code(error).unwrap_or(code::INTERNAL));
        let own = StatusCode::from_u16(status)
            .ok()
            .filter(StatusCode::is_client_error);
        Self::of(envelope::error(id, error.get()), own.unwrap_or(mapped))
    }

    pub(in crate::downstream) fn store_unavailable(id: &str) -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            ..Self::error(id, &RpcError::store_unavailable())
        }
    }

    /// The store's record of the task cannot be read, now or later.
    pub(in crate::downstream) fn unreadable_task(id: &str) -> Self {
        Self::error(id, &RpcError::internal("The task cannot be read"))
    }

    /// The store does not answer, and the call may run all the same.
    pub(in crate::downstream) fn store_lost(id: &str, effect: SideEffect) -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            ..Self::failure(id, Failure::new(Reason::StoreLost, effect))
        }
    }

    /// A call whose carrier ended without an answer.
    pub(in crate::downstream) fn abandoned(id: &str) -> Self {
        Self::failure(id, Failure::new(Reason::OwnerLost, SideEffect::Unknown))
    }

    pub(in crate::downstream) fn busy(id: &str) -> Self {
        Self::not_begun(id, Failure::new(Reason::Busy, SideEffect::None))
    }

    /// A call that was refused before anything of it was stored or sent. A caller over its quota stays so for
    /// long, and so does a paused tool: those errors ride on 200, where every client reads them.
    pub(in crate::downstream) fn not_begun(id: &str, failure: Failure) -> Self {
        if matches!(failure.reason, Reason::Quota | Reason::Paused) {
            return Self::failure(id, failure);
        }
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            is_for_now: true,
            ..Self::failure(id, failure)
        }
    }

    /// A call, or a request about a task, that needs these scopes (RFC 6750, section 3.1).
    pub(in crate::downstream) fn insufficient_scope(
        id: &str,
        scopes: &[Box<str>],
        challenge: HeaderValue,
    ) -> Self {
        Self {
            status: StatusCode::FORBIDDEN,
            www_authenticate: Some(challenge),
            ..Self::error(id, &RpcError::insufficient_scope(scopes))
        }
    }

    /// An error of the wrapped server that is in the client's revision already.
    pub(in crate::downstream) fn error_as_it_is(id: &str, error: UpstreamError) -> Self {
        Self {
            www_authenticate: error.www_authenticate,
            ..Self::upstream_error(id, &error.error, error.status)
        }
    }

    /// Sets the status for a legacy session, where 404 means that the session is gone and other statuses hide the
    /// error from most clients: all but a challenge, and errors after which the request may be tried again, are sent
    /// with 200.
    pub(in crate::downstream) fn on_session(self) -> Self {
        match self.status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::SERVICE_UNAVAILABLE => {
                self
            }
            _ => Self {
                status: StatusCode::OK,
                ..self
            },
        }
    }

    fn of(json: String, status: StatusCode) -> Self {
        Self {
            json,
            status,
            www_authenticate: None,
            is_for_now: false,
        }
    }

    pub(in crate::downstream) fn into_response(self) -> Response<Body> {
        self.guarded(None)
    }

    /// The guard announces the answer once the response was handed to the connection.
    pub(in crate::downstream) fn guarded(self, guard: Option<DeliveryGuard>) -> Response<Body> {
        let body = Body::Ready {
            bytes: Some(Bytes::from(self.json)),
            guard,
            probe: None,
        };
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, JSON);
        if let Some(value) = self.www_authenticate {
            headers.insert(WWW_AUTHENTICATE, value);
        }
        if self.is_for_now {
            headers.insert(RETRY_AFTER, SOON);
        }
        response
    }
}

/// The HTTP status of a JSON-RPC error (streamable-http, Protocol Version Header and Server
/// Validation). What is no fault of the request rides on 200, where every client reads it.
fn status_of(number: i64) -> StatusCode {
    match number {
        code::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        code::PARSE
        | code::INVALID_REQUEST
        | code::INVALID_PARAMS
        | code::HEADER_MISMATCH
        | code::MISSING_CLIENT_CAPABILITY
        | code::UNSUPPORTED_VERSION => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

/// The era of the server is not known, for this reason.
pub(in crate::downstream) fn undecided(id: &RawValue, error: DiscoverError) -> Response<Body> {
    match error {
        DiscoverError::Unauthorized(error) | DiscoverError::Refused(error) => {
            Rpc::answer(id.get(), CallAnswer::Error(error))
        }
        DiscoverError::Failed(failure) => Rpc::failure(id.get(), failure),
    }
    .into_response()
}

/// A refusal before any request was read: an error response without an id.
pub(in crate::downstream) fn refusal(status: StatusCode, error: &RpcError) -> Response<Body> {
    let status_code = status.as_u16();
    debug!(status = status_code, reason = %error.message, "a request was refused");
    let json = envelope::error_without_id(&error.to_json());
    let mut response = Response::new(Body::ready(json));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// [`refusal`] of a message that needs the store while the store is away.
pub(in crate::downstream) fn store_unavailable() -> Response<Body> {
    refusal(
        StatusCode::SERVICE_UNAVAILABLE,
        &RpcError::store_unavailable(),
    )
}

/// [`refusal`] of a request whose id could be read.
pub(in crate::downstream) fn refusal_of(
    id: Option<&RawValue>,
    status: StatusCode,
    error: &RpcError,
) -> Response<Body> {
    let mut response = refusal(status, error);
    if let Some(id) = id {
        *response.body_mut() = Body::ready(envelope::error(id.get(), &error.to_json()));
    }
    response
}

/// [`refusal`] of a request for which there may be room soon. Nothing of it ran.
pub(in crate::downstream) fn refusal_for_now(error: &RpcError) -> Response<Body> {
    let mut response = refusal(StatusCode::SERVICE_UNAVAILABLE, error);
    response.headers_mut().insert(RETRY_AFTER, SOON);
    response
}

/// [`refusal`] on a connection whose request was not read to its end.
pub(in crate::downstream) fn refusal_and_close(
    status: StatusCode,
    error: &RpcError,
) -> Response<Body> {
    closing(refusal(status, error))
}

/// A refusal of a request whose client is not known, before its body was read.
/// `scopes`: what any call needs.
pub(in crate::downstream) fn denied(
    denied: Denied,
    challenge: &Challenge,
    scopes: &[Box<str>],
) -> Response<Body> {
    let error = RpcError::new(code::INVALID_REQUEST, denied.message());
    let mut response = refusal_and_close(denied.status(), &error);
    if let Some(challenge) = challenge.to(denied, scopes) {
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
    response
}

/// [`Rpc::insufficient_scope`] for a message without an id.
pub(in crate::downstream) fn insufficient_scope(
    scopes: &[Box<str>],
    challenge: HeaderValue,
) -> Response<Body> {
    let error = RpcError::insufficient_scope(scopes);
    let mut response = refusal(StatusCode::FORBIDDEN, &error);
    response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    response
}

/// A refusal of one more request of a caller that has its share.
pub(in crate::downstream) fn too_many_requests() -> Response<Body> {
    limits::refused(LimitHit::RequestsPerCaller);
    let error = RpcError::internal(
        "Too many requests of this caller are under way (limits.requests_per_caller); try again later",
    );
    // The request was refused before its body was read.
    closing(refusal_for_now(&error))
}

/// A refusal of one more large request of a caller that has its share.
pub(in crate::downstream) fn too_many_bytes() -> Response<Body> {
    limits::refused(LimitHit::BufferBytes);
    let error = RpcError::internal(
        "This caller is sending too much at the same time (half of limits.buffer_bytes_max); try again later",
    );
    refusal_for_now(&error)
}

/// A refusal of a malformed request.
pub(in crate::downstream) fn refuse(status: StatusCode, message: &'static str) -> Response<Body> {
    refusal(status, &RpcError::invalid_request(message))
}

/// A refusal of an HTTP method.
pub(in crate::downstream) fn not_allowed(methods: &'static str) -> Response<Body> {
    let mut response = empty(StatusCode::METHOD_NOT_ALLOWED);
    let methods = HeaderValue::from_static(methods);
    response.headers_mut().insert(ALLOW, methods);
    response
}

/// Closes the connection after the response: the bytes that follow may belong to a body.
pub(in crate::downstream) fn closing(mut response: Response<Body>) -> Response<Body> {
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(CONNECTION, close);
    response
}

pub(in crate::downstream) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = status;
    response
}

pub(in crate::downstream) fn event_stream(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, EVENT_STREAM);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Asks proxies on the way not to hold events back (streamable-http, Receiving Messages).
    headers.insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_did_not_run_is_to_be_sent_again() {
        let retry_after = |response: Response<Body>| {
            assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
            response.headers().get(RETRY_AFTER).cloned()
        };
        for refused in [
            Rpc::busy("1").into_response(),
            Rpc::not_begun("1", Failure::new(Reason::QueueFull, SideEffect::None))
                .on_session()
                .into_response(),
            too_many_requests(),
            too_many_bytes(),
        ] {
            assert_eq!(retry_after(refused), Some(SOON));
        }
        for effect in [SideEffect::None, SideEffect::Unknown] {
            let lost = Rpc::store_lost("1", effect);
            assert_eq!(retry_after(lost.into_response()), None);
        }
        let quota =
            Rpc::not_begun("1", Failure::new(Reason::Quota, SideEffect::None)).into_response();
        assert!(!quota.headers().contains_key(RETRY_AFTER));
    }
}
