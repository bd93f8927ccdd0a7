//! The result of a call in the form for the client that gets it.

use serde_json::value::RawValue;

use super::responder::CallAnswer;
use super::state::Runner;
use crate::mcp::result;
use crate::mcp::version::Era;
use crate::task::state::Task;
use crate::upstream::UpstreamRequest;

impl Runner {
    /// A result as a server of that era sent it, for a client of this era. `None`: the result cannot be read.
    pub(super) fn fit_sent(
        &self,
        (server_era, request): (Era, &UpstreamRequest),
        client_era: Era,
        result: Box<RawValue>,
    ) -> Option<Box<RawValue>> {
        match (server_era, client_era) {
            (Era::Modern, _) | (Era::Legacy, Era::Legacy) => Some(result),
            (Era::Legacy, Era::Modern) => {
                let info = self.upstream.server_info(request.caller);
                result::from_legacy(&request.method, result, info.as_deref()).ok()
            }
        }
    }

    /// A result as the record keeps it, as the client would have had it without a record.
    pub(super) fn fit_kept(
        &self,
        task: &Task,
        client_era: Era,
        result: Box<RawValue>,
    ) -> CallAnswer {
        let fit = match client_era {
            Era::Legacy => result::for_legacy(result.get()),
            Era::Modern => {
                let is_of_legacy = self.upstream.known_era() == Some(Era::Legacy);
                let info = self.upstream.server_info(*task.caller.as_bytes());
                match info.filter(|_| is_of_legacy) {
                    Some(info) => result::with_server_info(result.get(), &info),
                    None => return CallAnswer::result(result),
                }
            }
        };
        fit.map_or_else(|_| CallAnswer::result(result), CallAnswer::result)
    }
}
