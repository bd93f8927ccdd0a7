//! A call whose client gave it up: the rest of the server's messages goes to a carrier, which keeps the result.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use serde_json::value::RawValue;

use super::item::StreamItem;
use super::resumable_call::{KeptAs, ServerOfCall, cancel_of};
use crate::downstream::proxy::Proxy;
use crate::mcp::envelope;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::json::Object;
use crate::upstream::{Answer, Control, Event, Exchange, Question, UpstreamError};

/// Gives the rest of a call of this tool to the runner. `id`: the id under which the server has the call.
pub(super) fn hand_over(
    proxy: &Arc<Proxy>,
    kept_as: KeptAs,
    tool: &str,
    (server, id): (ServerOfCall, Box<RawValue>),
    source: BoxStream<'static, StreamItem>,
) {
    let exchange = Exchange {
        events: source.filter_map(async |item| event(item)).boxed(),
        control: Arc::new(SessionControl { server, id }),
    };
    let KeptAs { client, claim, .. } = kept_as;
    proxy.runner.keep_passed(client, claim, tool, exchange);
}

/// The event that an item of the server's is for a carrier.
fn event(item: StreamItem) -> Option<Event> {
    match item {
        StreamItem::Message { json, .. } => message(&json),
        StreamItem::Answer(json) => {
            let answer = Object::parse(&json).unwrap_or_default();
            Some(match (answer.get("result"), answer.get("error")) {
                (Some(result), _) => Event::Result(result.to_owned()),
                (None, Some(error)) => Event::Error(UpstreamError::in_message(error.to_owned())),
                (None, None) => failed(Reason::UpstreamInvalid),
            })
        }
        StreamItem::End => Some(failed(Reason::UpstreamReset)),
        StreamItem::Other { .. } | StreamItem::EventId(_) => None,
    }
}

fn message(json: &str) -> Option<Event> {
    let message = Object::parse(json).ok()?;
    let method = message.get_str("method")?;
    let params = message.get("params").map(ToOwned::to_owned);
    match (&*method, message.get("id")) {
        ("notifications/progress", None) => params.map(Event::Progress),
        ("notifications/message", None) => params.map(Event::Log),
        // The client answers a ping if it still reads its stream. The carrier has no answer to one.
        ("ping", Some(_)) | (_, None) => None,
        (method, Some(id)) => Some(Event::Question(Question {
            id: id.get().into(),
            method: method.into(),
            params,
        })),
    }
}

fn failed(reason: Reason) -> Event {
    Event::Failed(Failure::new(reason, SideEffect::Unknown))
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
