//! Calls with an idempotency key, or under a rule with `attach`. Such a call has a record, and its questions go to
//! every client that waits for it. It is carried like such a call on any other legacy session.

use std::sync::Arc;

use hyper::{HeaderMap, Response};

use super::translate;
use super::translated::TranslatedRequest;
use crate::downstream::body::Body;
use crate::downstream::outbound::response::Rpc;
use crate::downstream::proxy::Proxy;
use crate::downstream::sessions::calls::{CarriedRequest, carry};
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::request::Request;
use crate::runner::responder::CallAnswer;

const METHOD: &str = "tools/call";

pub(super) async fn answer(
    proxy: &Arc<Proxy>,
    headers: &HeaderMap,
    request: &Request<'_>,
    asked: TranslatedRequest,
) -> Response<Body> {
    let (by, session) = (asked.by.clone(), asked.session.key());
    let call = asked.whole().await;
    let carried = CarriedRequest {
        by: &by,
        headers,
        request,
        session: Some(session),
        to_rpc: to_legacy_rpc,
    };
    carry(proxy, &carried, call).await
}

fn to_legacy_rpc(id: &str, answer: CallAnswer) -> Rpc {
    let rpc = match answer {
        CallAnswer::Result(result) => translate::result(METHOD, &result).map_or_else(
            |_| {
                let failure = Failure::new(Reason::UpstreamInvalid, SideEffect::Unknown);
                Rpc::failure(id, failure)
            },
            |result| Rpc::result(id, &result),
        ),
        CallAnswer::Error(mut error) => {
            error.error = translate::error(METHOD, error.error);
            Rpc::error_as_it_is(id, error)
        }
        CallAnswer::Failed(_) | CallAnswer::StoreUnavailable(_) => Rpc::answer(id, answer),
    };
    rpc.on_session()
}
