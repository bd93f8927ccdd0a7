//! The one place that speaks to clients: every answer and every error of raincheck's own.

use bytes::Bytes;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE,
};
use hyper::{Response, StatusCode};
use serde_json::value::RawValue;

use super::body::Body;
use crate::mcp::envelope;
use crate::mcp::error::{Failure, Reason, RpcError, SideEffect, code};
use crate::mcp::result;
use crate::runner::responder::{CallAnswer, DeliveryGuard};
use crate::upstream::UpstreamError;
use crate::upstream::wrapped::DiscoverError;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");

/// A JSON-RPC response: its text, and the HTTP status and header that go with it.
#[derive(Debug)]
pub(super) struct Rpc {
    pub(super) json: String,
    status: StatusCode,
    www_authenticate: Option<HeaderValue>,
}

impl Rpc {
    pub(super) fn result(id: &str, result: &str) -> Self {
        Self::of(envelope::result(id, result), StatusCode::OK)
    }

    pub(super) fn error(id: &str, error: &RpcError) -> Self {
        Self::of(envelope::error(id, &error.to_json()), status_of(error.code))
    }

    /// An error object as it is.
    pub(super) fn verbatim_error(id: &str, error: &RawValue) -> Self {
        Self::of(envelope::error(id, error.get()), StatusCode::OK)
    }

    pub(super) fn failure(id: &str, failure: Failure) -> Self {
        Self::error(id, &failure.to_error())
    }

    /// How a call was answered. Its 404 would say that there is no such page, and clients lose the error
    /// behind it: -32601 is about `tools/call` only where raincheck says it.
    pub(super) fn call_answer(id: &str, answer: CallAnswer) -> Self {
        let mut rpc = Self::answer(id, answer);
        if rpc.status == StatusCode::NOT_FOUND {
            rpc.status = StatusCode::OK;
        }
        rpc
    }

    /// How a request was answered.
    pub(super) fn answer(id: &str, answer: CallAnswer) -> Self {
        match answer {
            CallAnswer::Result(result) => Self::result(id, result.get()),
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

    /// The same for a legacy client: the server's errors word for word, and on 200 as they came.
    pub(super) fn legacy_answer(id: &str, answer: CallAnswer) -> Self {
        match answer {
            CallAnswer::Error(error) if !matches!(error.status, 401 | 403) => {
                Self::of(envelope::error(id, error.error.get()), StatusCode::OK)
            }
            CallAnswer::Error(_)
            | CallAnswer::Result(_)
            | CallAnswer::Failed(_)
            | CallAnswer::StoreUnavailable(_) => Self::answer(id, answer),
        }
    }

    /// An error of the wrapped server. Its own HTTP status counts where it had one to say; a
    /// legacy server says 200 whatever the error is.
    fn upstream_error(id: &str, error: &RawValue, status: u16) -> Self {
        let mapped = status_of(result::error_code(error).unwrap_or(code::INTERNAL));
        let own = StatusCode::from_u16(status)
            .ok()
            .filter(StatusCode::is_client_error);
        Self::of(envelope::error(id, error.get()), own.unwrap_or(mapped))
    }

    pub(super) fn store_unavailable(id: &str) -> Self {
        let error = RpcError::internal("The task store does not answer; try again later");
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            ..Self::error(id, &error)
        }
    }

    /// The same for a call, which may run all the same.
    pub(super) fn store_lost(id: &str, effect: SideEffect) -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            ..Self::failure(id, Failure::new(Reason::StoreLost, effect))
        }
    }

    /// A call whose carrier ended without a word.
    pub(super) fn abandoned(id: &str) -> Self {
        Self::failure(id, Failure::new(Reason::OwnerLost, SideEffect::Unknown))
    }

    pub(super) fn busy(id: &str) -> Self {
        Self::not_begun(id, Reason::Busy)
    }

    /// A call that was refused before anything of it was stored or sent. One that is over its caller's
    /// quota is so for long, and its client shall read why: that rides on 200.
    pub(super) fn not_begun(id: &str, reason: Reason) -> Self {
        if reason == Reason::Quota {
            return Self::failure(id, Failure::new(reason, SideEffect::None));
        }
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            ..Self::failure(id, Failure::new(reason, SideEffect::None))
        }
    }

    /// An error of the wrapped server in words that are the client's already.
    pub(super) fn error_as_it_is(id: &str, error: UpstreamError) -> Self {
        Self {
            www_authenticate: error.www_authenticate,
            ..Self::upstream_error(id, &error.error, error.status)
        }
    }

    /// On a legacy session, where 404 says that the session is gone and other statuses hide the error
    /// from most clients: all but a challenge, and what may be tried again, rides on 200.
    pub(super) fn on_session(self) -> Self {
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
        }
    }

    pub(super) fn into_response(self) -> Response<Body> {
        self.guarded(None)
    }

    /// The guard is told once the response was handed to the connection.
    pub(super) fn guarded(self, guard: Option<DeliveryGuard>) -> Response<Body> {
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

/// Why it is not known how the server is spoken to.
pub(super) fn undecided(id: &RawValue, error: DiscoverError) -> Response<Body> {
    match error {
        DiscoverError::Unauthorized(error) | DiscoverError::Refused(error) => {
            Rpc::answer(id.get(), CallAnswer::Error(error))
        }
        DiscoverError::Failed(failure) => Rpc::failure(id.get(), failure),
    }
    .into_response()
}

/// An answer of the wrapped server as it is.
pub(super) fn passed(json: String) -> Response<Body> {
    let mut response = Response::new(Body::ready(json));
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// A refusal before any request was read: an error response without an id.
pub(super) fn refusal(status: StatusCode, error: &RpcError) -> Response<Body> {
    let json = envelope::error_without_id(&error.to_json());
    let mut response = Response::new(Body::ready(json));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// [`refusal`] on a connection whose request was not read to its end.
pub(super) fn refusal_and_close(status: StatusCode, error: &RpcError) -> Response<Body> {
    closing(refusal(status, error))
}

/// What is no request as it should be: why.
pub(super) fn refuse(status: StatusCode, message: &'static str) -> Response<Body> {
    refusal(status, &RpcError::invalid_request(message))
}

/// A method that the place does not know.
pub(super) fn not_allowed(methods: &'static str) -> Response<Body> {
    let mut response = empty(StatusCode::METHOD_NOT_ALLOWED);
    let methods = HeaderValue::from_static(methods);
    response.headers_mut().insert(ALLOW, methods);
    response
}

/// Nothing more is read of a connection: what follows may belong to a body.
pub(super) fn closing(mut response: Response<Body>) -> Response<Body> {
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(CONNECTION, close);
    response
}

pub(super) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = status;
    response
}

pub(super) fn event_stream(body: Body) -> Response<Body> {
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
