//! A call with a key, or of a rule that attaches: it has a record, whose questions are put to whoever
//! waits for it, and goes its way as any such call of a legacy session.

use hyper::Response;
use hyper::http::request::Parts;

use super::super::auth::is_somebody;
use super::super::body::Body;
use super::super::claims::{self, Claimant};
use super::super::companion::desk::Desk;
use super::super::legacy::calls::{Carry, carry};
use super::super::legacy::words::Request;
use super::super::proxy::Shared;
use super::super::reply::Rpc;
use super::asked::Asked;
use super::session::Session;
use super::words;
use crate::mcp::error::{Failure, Reason, RpcError, SideEffect};
use crate::runner::responder::CallAnswer;

const METHOD: &str = "tools/call";

/// `None`: it stands for nothing but itself.
pub(super) async fn answer(
    front: &Shared,
    parts: &Parts,
    session: &Session,
    request: &Request<'_>,
    desk: Option<&Desk<'_>>,
) -> Option<Response<Body>> {
    let headers = &parts.headers;
    if request.method != METHOD {
        return None;
    }
    let name = request.params.get_str("name")?;
    let rule = front.rules.for_tool(&name).0;
    if !claims::may_be(request, headers, rule) {
        return None;
    }
    let refuse = |error: &RpcError| {
        let refused = Rpc::error(request.id.get(), error).on_session();
        Some(refused.into_response())
    };
    let by = Claimant {
        caller: &session.caller,
        is_somebody: is_somebody(headers),
        session: Some(session.key()),
        in_header: &claims::in_header(headers),
    };
    let claim = match claims::of_legacy(request, &by, rule) {
        Ok(claim) => claim?,
        Err(error) => return refuse(&error),
    };
    let mut asked = match Asked::new(front, headers, session.clone(), request) {
        Ok(asked) => asked,
        Err(error) => return refuse(&error),
    };
    if let Some(desk) = desk {
        asked = asked.with_tickets(desk, headers);
    }
    let call = asked.joined(request.digest()).await;
    let how = Carry {
        parts,
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
