//! The rest of a call that its client gave up, as a carrier reads it.

use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use serde_json::value::RawValue;

use super::item::StreamItem;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::json::Object;
use crate::upstream::{Control, Event, Exchange, NoopControl, Question, UpstreamError};

/// The rest of a call of a session. `control`: the way back to the server.
pub(super) fn of_session(
    items: BoxStream<'static, StreamItem>,
    control: Arc<dyn Control>,
) -> Exchange {
    let events = items.filter_map(async |item| event(item)).boxed();
    Exchange { events, control }
}

/// The rest of a modern call. Dropping the exchange closes the stream, which cancels the call.
pub(in crate::downstream) fn of_modern(items: BoxStream<'static, StreamItem>) -> Exchange {
    // A modern server asks by results. Nothing could answer another question.
    let events = items
        .filter_map(async |item| event(item).filter(|event| !matches!(event, Event::Question(_))));
    Exchange {
        events: events.boxed(),
        control: Arc::new(NoopControl),
    }
}

/// The event that an item of the server's is for a carrier.
fn event(item: StreamItem) -> Option<Event> {
    match item {
        StreamItem::Message { json, .. } => message(&json),
        StreamItem::Answer(json) => {
            let answer = Object::parse(&json).unwrap_or_default();
            let member = |name| answer.get(name).filter(|raw| raw.get() != "null");
            Some(match (member("result"), member("error")) {
                (Some(result), _) if is_complete(result) => Event::Result(result.to_owned()),
                // The request cannot be sent again with answers: nothing of it is known here. The same call begins anew.
                (Some(_), _) => {
                    Event::Failed(Failure::new(Reason::UpstreamReset, SideEffect::None))
                }
                (None, Some(error)) => Event::Error(UpstreamError::in_message(error.to_owned())),
                (None, None) => failed(Reason::UpstreamInvalid),
            })
        }
        StreamItem::End => Some(failed(Reason::UpstreamReset)),
        StreamItem::Other { .. } | StreamItem::EventId(_) => None,
    }
}

/// A modern result says what it is. Without that it is complete.
fn is_complete(result: &RawValue) -> bool {
    let result = Object::parse(result.get()).unwrap_or_default();
    let kind = result.get_str("resultType");
    kind.is_none_or(|kind| kind == "complete")
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
