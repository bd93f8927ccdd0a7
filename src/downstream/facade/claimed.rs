//! A call with a key, or of a rule that attaches: it has a record, whose questions are put to every client that waits
//! for it, and is carried like any such call of a legacy session.

use hyper::{HeaderMap, Response};

use super::asked::Asked;
use super::words;
use crate::downstream::body::Body;
use crate::downstream::inbound::idempotency;
use crate::downstream::legacy::calls::{Carry, carry};
use crate::downstream::outbound::response::Rpc;
use crate::downstream::proxy::Shared;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::request::Request;
use crate::runner::claim::CallClaim;
use crate::runner::responder::CallAnswer;

const METHOD: &str = "tools/call";

pub(super) async fn answer(
    front: &Shared,
    headers: &HeaderMap,
    request: &Request<'_>,
    (asked, claim): (Asked, CallClaim),
) -> Response<Body> {
    let (by, session) = (asked.by.clone(), asked.session.key());
    let call = asked.joined(idempotency::digest(request)).await;
    let how = Carry {
        by: &by,
        headers,
        request,
        session: Some(session),
        words: answer_in_words,
    };
    carry(front, &how, (Some(claim), call)).await
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
