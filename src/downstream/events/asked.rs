//! What a request about events asks for. Pure.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::state::STREAMS_OF_CALLER;
use crate::mcp::error::{RpcError, code};
use crate::mcp::json::{Object, Writer};
use crate::mcp::request::Request;
use crate::task::events::NAME;
use crate::task::events::position::Position;
use crate::task::id::TaskId;
use crate::task::state::Task;

/// The most events in one answer, and how many there are where the client does not say.
const EVENTS_MAX: usize = 100;
const EVENTS_USUAL: usize = 50;

/// A request about raincheck's event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::downstream) enum EventOp {
    List,
    Poll,
    Stream,
    Subscribe,
    Unsubscribe,
}

/// What the request does with raincheck's event. `None`: it is about another event, or about none.
pub(in crate::downstream) fn op_of_ours(request: &Request<'_>) -> Option<EventOp> {
    let op = match &*request.method {
        "events/poll" => EventOp::Poll,
        "events/stream" => EventOp::Stream,
        "events/subscribe" => EventOp::Subscribe,
        "events/unsubscribe" => EventOp::Unsubscribe,
        _ => return None,
    };
    (request.params.get_str("name")? == NAME).then_some(op)
}

/// The refusal of a client that does not say who it is.
pub(in crate::downstream) fn not_permitted() -> RpcError {
    RpcError::new(
        code::EVENTS_FORBIDDEN,
        "Forbidden: this event needs credentials",
    )
}

/// Another event, where there is none but raincheck's.
pub(in crate::downstream) fn no_event() -> RpcError {
    let error = RpcError::new(code::EVENTS_NOT_FOUND, "NotFound: there is no such event");
    error.with_data(r#"{"kind":"event"}"#)
}

/// A way of delivery that the event does not have.
pub(super) fn no_webhooks() -> RpcError {
    let error = RpcError::new(
        code::EVENTS_UNSUPPORTED,
        "Unsupported: this event is delivered by events/poll and events/stream",
    );
    error.with_data(r#"{"feature":"deliveryMode","value":"webhook"}"#)
}

/// No such subscription is kept.
pub(super) fn no_subscription() -> RpcError {
    let error = RpcError::new(
        code::EVENTS_NOT_FOUND,
        "NotFound: there is no such subscription",
    );
    error.with_data(r#"{"kind":"subscription"}"#)
}

/// One more stream than there may be.
pub(super) fn too_many_streams() -> RpcError {
    let mut data = Writer::object();
    data.str("limit", "streams")
        .number("max", STREAMS_OF_CALLER);
    let error = RpcError::new(
        code::EVENTS_RESOURCE_EXHAUSTED,
        "ResourceExhausted: too many event streams are open",
    );
    error.with_data(data.end())
}

/// Where a client wants to go on.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum From {
    Now,
    After(Position),
    /// The client has a cursor that leads nowhere.
    Nowhere,
}

/// What the client wants to hear of, and from where on.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) filter: Filter,
    pub(super) from: From,
    pub(super) age_ms_max: Option<u64>,
    pub(super) events_max: usize,
}

/// The arguments of a subscription.
#[derive(Debug, Default)]
pub(super) struct Filter {
    /// As the client wrote it: a task that is unknown to the caller has no events.
    task: Option<Box<str>>,
    tool: Option<Box<str>>,
}

impl Filter {
    /// Whether the client wants to hear of the task.
    pub(super) fn admits(&self, task: &Task) -> bool {
        self.task
            .as_ref()
            .is_none_or(|wanted| TaskId::parse(wanted) == Some(task.id))
            && self.tool.as_ref().is_none_or(|wanted| *wanted == task.name)
    }

    fn read(arguments: Option<&RawValue>) -> Result<Self, RpcError> {
        let Some(arguments) = arguments else {
            return Ok(Self::default());
        };
        let read = Object::parse(arguments.get()).map_err(|_| invalid("arguments"))?;
        let mut filter = Self::default();
        for (key, value) in read.iter() {
            let text = crate::mcp::json::string(value);
            let text: Cow<'_, str> = text.ok_or_else(|| invalid(&format!("arguments.{key}")))?;
            match key {
                "taskId" => filter.task = Some(text.into()),
                "tool" => filter.tool = Some(text.into()),
                _ => return Err(invalid(&format!("arguments.{key}"))),
            }
        }
        Ok(filter)
    }
}

impl Asked {
    pub(super) fn read(params: &Object<'_>, now_ms: u64) -> Result<Self, RpcError> {
        let from = match present(params, "cursor") {
            None => From::Now,
            Some(raw) => {
                let text = crate::mcp::json::string(raw).ok_or_else(|| invalid("cursor"))?;
                Position::decode(&text, now_ms).map_or(From::Nowhere, From::After)
            }
        };
        let number = |key: &str| match present(params, key) {
            None => Ok(None),
            Some(raw) => {
                let number = raw.get().parse::<u64>();
                number.map(Some).map_err(|_| invalid(key))
            }
        };
        let wanted = number("maxEvents")?.map_or(EVENTS_USUAL, |wanted| {
            usize::try_from(wanted).unwrap_or(usize::MAX)
        });
        Ok(Self {
            filter: Filter::read(present(params, "arguments"))?,
            from,
            age_ms_max: number("maxAgeMs")?,
            events_max: wanted.clamp(1, EVENTS_MAX),
        })
    }
}

impl Asked {
    /// The place that the client named.
    pub(super) fn begins_at(&self) -> Option<Position> {
        match &self.from {
            From::After(position) => Some(position.clone()),
            From::Now | From::Nowhere => None,
        }
    }
}

/// A member that is there and is not `null`.
fn present<'a>(params: &Object<'a>, key: &str) -> Option<&'a RawValue> {
    params.get(key).filter(|raw| raw.get() != "null")
}

fn invalid(what: &str) -> RpcError {
    RpcError::invalid_params(format!("Invalid params: {what} is not as events/list says"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(params: &str) -> Result<Asked, i64> {
        let params = Object::parse(params).unwrap();
        Asked::read(&params, 1_000_000).map_err(|error| error.code)
    }

    #[test]
    fn what_is_not_said_is_usual() {
        for params in [
            "{}",
            r#"{"cursor":null,"arguments":null,"maxAgeMs":null,"maxEvents":null}"#,
        ] {
            let asked = read(params).unwrap();
            assert_eq!((asked.from, asked.events_max), (From::Now, EVENTS_USUAL));
            assert_eq!(asked.age_ms_max, None);
        }
        assert_eq!(read(r#"{"maxEvents":0}"#).unwrap().events_max, 1);
        assert_eq!(
            read(r#"{"maxEvents":1000}"#).unwrap().events_max,
            EVENTS_MAX
        );
        assert_eq!(read(r#"{"cursor":"x"}"#).unwrap().from, From::Nowhere);
    }

    #[test]
    fn what_the_schema_does_not_have_is_refused() {
        for params in [
            r#"{"arguments":[]}"#,
            r#"{"arguments":{"taskId":1}}"#,
            r#"{"arguments":{"other":"x"}}"#,
            r#"{"cursor":1}"#,
            r#"{"maxEvents":-1}"#,
            r#"{"maxAgeMs":"1"}"#,
        ] {
            assert_eq!(read(params).unwrap_err(), code::INVALID_PARAMS, "{params}");
        }
    }
}
