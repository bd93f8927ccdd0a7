//! A call with a key, or of a rule that attaches: it has a record, whose questions are put to whoever
//! waits for it, and goes its way as any such call of a legacy session.

use hyper::{HeaderMap, Response};

use super::asked::Asked;
use super::session::Session;
use super::words;
use crate::downstream::body::Body;
use crate::downstream::companion::desk::Desk;
use crate::downstream::inbound::idempotency;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::legacy::calls::{Carry, carry};
use crate::downstream::outbound::response::Rpc;
use crate::downstream::proxy::Shared;
use crate::mcp::error::{Failure, Reason, RpcError, SideEffect};
use crate::mcp::request::Request;
use crate::runner::responder::CallAnswer;

const METHOD: &str = "tools/call";

/// `None`: it stands for nothing but itself.
pub(super) async fn answer(
    front: &Shared,
    (by, headers): (&Requester, &HeaderMap),
    session: &Session,
    request: &Request<'_>,
    desk: Option<&Desk<'_>>,
) -> Option<Response<Body>> {
    if request.method != METHOD {
        return None;
    }
    let name = request.params.get_str("name")?;
    let rule = front.rules.for_tool(&name).0;
    if !idempotency::may_claim(request, by, rule) {
        return None;
    }
    let refuse = |error: &RpcError| {
        let refused = Rpc::error(request.id.get(), error).on_session();
        Some(refused.into_response())
    };
    let claim = match idempotency::claim_of_legacy(request, by, rule) {
        Ok(claim) => claim?,
        Err(error) => return refuse(&error),
    };
    let mut asked = match Asked::new(front, (by, headers), session.clone(), request) {
        Ok(asked) => asked,
        Err(error) => return refuse(&error),
    };
    if let Some(desk) = desk {
        asked = asked.with_tickets(desk);
    }
    let call = asked.joined(idempotency::digest(request)).await;
    let how = Carry {
        by,
        headers,
        request,
        session: Some(session.key()),
        words: answer_in_words,
    };
    Some(carry(front, &how, (Some(claim), call)).await)
}

fn answer_in_words(id: &str, answer: CallAnswer) -> Rpc {
    let rpc = match answer {
        CallAnswer::Result(result) => words::result(METHOD, &result).map_or_else(
            |_| {
                let failure = Failure::new(Reason::UpstreamInvalid, SideEffect::Unknown);
                Rpc::failure(id, failure)
            },
            |result| Rpc::result(id, &result),
        ),
        CallAnswer::Error(mut error) => {
            error.error = words::error(METHOD, error.error);
            Rpc::error_as_it_is(id, error)
        }
        CallAnswer::Failed(_) | CallAnswer::StoreUnavailable(_) => Rpc::answer(id, answer),
    };
    rpc.on_session()
}
