//! Calls that may be the same call: several requests, of any client, begin it once.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::outbound::response::Rpc;
use super::proxy::Proxy;
use crate::mcp::error::{RpcError, SideEffect};
use crate::runner::CallSpec;
use crate::runner::claim::ClaimError;
use crate::runner::responder::CallSubscriber;

/// Begins a call, or joins the running call that is the same.
pub(super) async fn begin(
    proxy: &Arc<Proxy>,
    call: CallSpec,
) -> Result<CallSubscriber, ClaimError> {
    match call.terms.claim {
        Some(claim) if claim.is_of_given_up() => proxy.runner.collect(claim, call).await,
        Some(claim) => proxy.runner.call_once(claim, call).await,
        None => Ok(proxy.runner.call(call)?),
    }
}

/// The answer to a call that could not be claimed.
pub(super) fn refused(id: &RawValue, why: &ClaimError) -> Rpc {
    match why {
        ClaimError::OtherCall => Rpc::error(id.get(), &other_call()),
        // This request sends nothing before its claim and its record are stored.
        ClaimError::StoreUnavailable => Rpc::store_lost(id.get(), SideEffect::None),
        ClaimError::AdmitError(why) => Rpc::not_begun(id.get(), why.failure()),
    }
}

fn other_call() -> RpcError {
    RpcError::invalid_params(
        "Invalid params: this idempotency key stands for a call with another tool or other \
         arguments",
    )
}
