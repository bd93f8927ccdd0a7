//! Why a request finds no session, and the refusal for its client.

use hyper::{Response, StatusCode};
use serde_json::value::RawValue;

use crate::downstream::body::Body;
use crate::downstream::outbound::response::{self, Rpc};
use crate::mcp::error::RpcError;
use crate::store::StoreError;
use crate::telemetry::repeats::OF_OUTAGE;

/// Why a request on a session is refused.
#[derive(Debug)]
pub(super) enum SessionRefusal {
    Unnamed,
    Unknown,
    Store,
    /// The params are wrong; the text contains the reason.
    Params(&'static str),
}

impl From<StoreError> for SessionRefusal {
    fn from(error: StoreError) -> Self {
        tracing::warn!(name: OF_OUTAGE, %error, "cannot read a session: the store does not answer");
        Self::Store
    }
}

impl SessionRefusal {
    /// `id`: the id of a request. `None`: nothing else has an answer of its own.
    pub(super) fn into_response(self, id: Option<&RawValue>) -> Response<Body> {
        match (self, id) {
            (Self::Unnamed, _) => response::refuse(
                StatusCode::BAD_REQUEST,
                "Bad request: Mcp-Session-Id is missing",
            ),
            // A client that gets this answer begins a new session.
            (Self::Unknown, _) => response::refuse(StatusCode::NOT_FOUND, "Session not found"),
            (Self::Store, Some(id)) => Rpc::store_unavailable(id.get()).into_response(),
            (Self::Store, None) => response::store_unavailable(),
            (Self::Params(why), Some(id)) => Rpc::error(id.get(), &RpcError::invalid_params(why))
                .on_session()
                .into_response(),
            (Self::Params(why), None) => response::refuse(StatusCode::BAD_REQUEST, why),
        }
    }
}
