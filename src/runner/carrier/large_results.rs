//! The large result of a call without a record: it is stored as the record of a task that has ended, before its client gets an
//! excerpt. If it cannot be stored, the client gets it whole.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::super::call::Announce;
use super::{CallStage, Carrier, RecordTerms};
use crate::mcp::json::raw;
use crate::mcp::result::{self, ResultType};
use crate::mcp::version::Era;
use crate::task::large_results::{ReadHint, is_large, shortened};
use crate::task::on_disconnect::OnDisconnect;
use crate::task::state::{Leg, Outcome, Payload};
use crate::task::ticket::CompanionTool;

/// The time that the client waits for the store, with its result at hand.
const STORE_PATIENCE: Duration = Duration::from_secs(3);

impl Carrier {
    /// The excerpt in place of a complete result. `None`: the client gets the whole result.
    pub(super) async fn excerpt(
        &mut self,
        result: &RawValue,
        client_era: Era,
    ) -> Option<Box<RawValue>> {
        let inline_bytes = self.server.rule.result_inline.for_clients()?;
        if !is_large(result.get(), inline_bytes) || &*self.server.outgoing.method != "tools/call" {
            return None;
        }
        // A legacy result is always complete, whatever it contains.
        if self.server.era == Era::Modern && result::result_type(result) != Ok(ResultType::Complete)
        {
            return None;
        }
        let CallStage::Plain(plain) = &self.stage else {
            return None;
        };
        let origin = &plain.origin;
        if !self.runner.ledger.has_room(&origin.client.caller) {
            return None;
        }
        let announce = &self.audience.client()?.terms.announce;
        let tool = match announce {
            Announce::Ticket(ticket) => Some(ticket.names.of(CompanionTool::Result)),
            Announce::Task => None,
        };
        let terms = RecordTerms {
            // A client with a ticket knows of a task. Every other client knows the name of the result only.
            on_disconnect: OnDisconnect::Keep,
            ..RecordTerms::of_call(tool.is_some())
        };
        let way = match &tool {
            Some(tool) => ReadHint::ToolLater(tool),
            None => ReadHint::Resource {
                knows_links: client_era == Era::Modern,
            },
        };
        let excerpt = shortened(result.get(), Some(inline_bytes), terms.id, way)?;
        let stored = result::for_task(result.to_owned()).ok()?;
        let bytes = Bytes::copy_from_slice(stored.get().as_bytes());
        let mut task = self.new_task(origin, terms);
        // The record is of a call that is over: it waits for nothing, and no replica may resume it.
        task.leg = Leg::Sent(1);
        task.resume = None;
        task.listed &= tool.is_some();
        // The call is over, so only its result has to live.
        task.ttl_ms = self.server.rule.retention_ms;
        task.outcome = Some(Outcome::Completed(Payload::Kept {
            fence: task.fence,
            bytes: bytes.len() as u64,
            is_error: result::is_tool_error(stored.get()),
        }));
        self.runner.ledger.reserve(&task, bytes.len()).ok()?;
        // The server has answered: others may have their turn while the store is slow.
        self.end_dispatch();
        let runner = Arc::clone(&self.runner);
        let storing = async {
            // The result is written before the record that names it, so that no record leads to a missing result.
            runner.ledger.keep(&task, task.fence, bytes).await?;
            runner.ledger.create(task, None).await
        };
        match timeout(STORE_PATIENCE, storing).await {
            Ok(Ok(_stored)) => raw(excerpt).ok(),
            // A record that the store took in spite of this expires with its retention.
            Ok(Err(_)) | Err(_) => None,
        }
    }
}
