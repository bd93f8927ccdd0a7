//! A call whose client gave it up: the rest of the server's messages goes to a carrier, which keeps the result.

use std::mem;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::resumable_call::{CANCELLED_PATIENCE, KeptAs, ServerOfCall, cancel_of};
use crate::downstream::calls::item::StreamItem;
use crate::downstream::calls::kept;
use crate::downstream::outbound::response::Rpc;
use crate::downstream::proxy::Proxy;
use crate::mcp::envelope;
use crate::mcp::error::Failure;
use crate::runner::responder::Reply;
use crate::upstream::{Answer, Control};

/// Gives the rest of a call of this tool to the runner. `id`: the id under which the server has the call.
pub(super) fn hand_over(
    proxy: &Arc<Proxy>,
    kept_as: KeptAs,
    tool: &str,
    (server, id): (ServerOfCall, Box<RawValue>),
    source: BoxStream<'static, StreamItem>,
) {
    let exchange = kept::of_session(source, Arc::new(SessionControl { server, id }));
    let clock = kept_as.rung_clock(tool);
    let KeptAs { client, claim, .. } = kept_as;
    proxy
        .runner
        .keep_passed(client, (claim, clock), tool, exchange);
}

/// Gives the rest of such a call, which its client sent again while it waits, to the runner. Returns what the client gets;
/// `None`: there is no room for the call, and it goes on as it is.
pub(super) fn carry_on(
    proxy: &Arc<Proxy>,
    kept_as: &KeptAs,
    tool: &str,
    ((server, id), ended): ((ServerOfCall, Box<RawValue>), &CancellationToken),
    source: &mut BoxStream<'static, StreamItem>,
) -> Option<BoxStream<'static, StreamItem>> {
    let answered_as = id.clone();
    let ended = ended.clone();
    let exchange = || {
        // A server that was told of a cancel may never answer.
        let given_up = async move {
            ended.cancelled().await;
            tokio::time::sleep(CANCELLED_PATIENCE).await;
        };
        let items = mem::replace(source, stream::empty().boxed());
        let items = items.take_until(Box::pin(given_up));
        let items = items.chain(stream::iter([StreamItem::End])).boxed();
        kept::of_session(items, Arc::new(SessionControl { server, id }))
    };
    let client = (kept_as.client.clone(), kept_as.claim);
    let token = kept_as.progress_token.as_deref();
    let subscriber = proxy.runner.carry_passed(client, tool, token, exchange)?;
    let items = stream::unfold(Some(subscriber), move |subscriber| {
        let id = answered_as.clone();
        async move {
            let mut subscriber = subscriber?;
            match subscriber.next().await? {
                Reply::Relay(json) => {
                    let event_id = None;
                    Some((StreamItem::Message { json, event_id }, Some(subscriber)))
                }
                Reply::Answer(answer) => {
                    subscriber.into_guard().announce();
                    let json = Rpc::legacy_answer(id.get(), answer).json;
                    Some((StreamItem::Answer(json), None))
                }
            }
        }
    });
    Some(items.boxed())
}

/// The way back to the server, on the session of the client that gave the call up.
struct SessionControl {
    server: ServerOfCall,
    id: Box<RawValue>,
}

#[async_trait]
impl Control for SessionControl {
    async fn answer(&self, id: &str, answer: Answer) -> Result<(), Failure> {
        let text = match answer {
            Answer::Result(result) => envelope::result(id, &result),
            Answer::Refused(error) => envelope::error(id, &error),
        };
        // A message that does not arrive is only logged. The call then runs until its deadline.
        self.server.tell(text).await;
        Ok(())
    }

    async fn cancel(&self) {
        self.server.tell(cancel_of(&self.id)).await;
    }
}
