//! Calls that may be the same call: begun once, whoever makes them.

use hyper::Response;
use serde_json::value::RawValue;

use super::body::Body;
use super::call::{self, Asked};
use super::inbound::idempotency::hide_key;
use super::outbound::response::Rpc;
use super::proxy::Shared;
use crate::mcp::error::{RpcError, SideEffect};
use crate::runner::CallSpec;
use crate::runner::claim::{CallClaim, NotClaimed};
use crate::runner::responder::CallSubscriber;
use crate::task::policy::{Plan, Rule};

/// Carries the call that the claim stands for, or joins it, and answers as it goes.
pub(super) async fn carry(
    front: &Shared,
    asked: &Asked<'_>,
    claim: CallClaim,
    plan: Plan,
    rule: Rule,
) -> Response<Body> {
    if let Some(response) = call::come_back(front, asked, &rule).await {
        return response;
    }
    let id = asked.modern.request.id;
    let heartbeat = call::heartbeat(asked.modern, &rule);
    let mut call = call::call(asked, plan, rule);
    // Whoever joins it may ask for progress.
    call.outgoing.wants_progress = true;
    hide_key(&mut call.outgoing);
    match front.runner.call_once(claim, call).await {
        Ok(client) => {
            let answered = (id.to_owned(), Rpc::call_answer as call::ToRpc);
            call::respond(answered, client, heartbeat, asked.by).await
        }
        Err(why) => refused(id, &why).into_response(),
    }
}

/// Begins a legacy call, or joins the one that it is.
pub(super) async fn begin(
    front: &Shared,
    claim: Option<CallClaim>,
    call: CallSpec,
) -> Result<CallSubscriber, NotClaimed> {
    match claim {
        Some(claim) => front.runner.call_once(claim, call).await,
        None => Ok(front.runner.call(call)?),
    }
}

/// What a client is told whose call could not be claimed.
pub(super) fn refused(id: &RawValue, why: &NotClaimed) -> Rpc {
    match why {
        NotClaimed::OtherCall => Rpc::error(id.get(), &other_call()),
        NotClaimed::StoreUnavailable => Rpc::store_lost(id.get(), SideEffect::None),
        NotClaimed::NotAdmitted(why) => Rpc::not_begun(id.get(), why.reason()),
    }
}

fn other_call() -> RpcError {
    RpcError::invalid_params(
        "Invalid params: this idempotency key stands for a call with another tool or other \
         arguments",
    )
}
