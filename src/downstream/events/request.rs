//! The content of a request about events. Pure.

use serde_json::value::RawValue;

use super::state::{CHALLENGES_OF_CALLER, LOOKS_OF_CALLER, STREAMS_OF_CALLER};
use crate::mcp::error::{RpcError, code};
use crate::mcp::json::{self, Object, Writer};
use crate::mcp::request::Request;
use crate::task::events::NAME;
use crate::task::events::position::EventPosition;
use crate::task::events::subscriptions::{SUBSCRIPTIONS_MAX, SubscriptionKey};
use crate::task::id::{Caller, TaskId};

/// The most events in one answer, and their number where the client does not set it.
const EVENTS_MAX: usize = 100;
const EVENTS_USUAL: usize = 50;

/// The longest name of a tool that a client may choose. A stream keeps it.
const TOOL_BYTES_MAX: usize = 1024;

/// The longest id of a request for a stream, which goes into each of its messages.
pub(super) const STREAM_ID_BYTES_MAX: usize = 1024;

/// A request about raincheck's event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::downstream) enum EventOp {
    List,
    Poll,
    Stream,
    Subscribe,
    Unsubscribe,
}

/// Returns the operation that the request asks of raincheck's event. `None`: it is about another event, or about
/// none.
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

/// Returns the refusal of a client that does not identify itself.
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

/// No client has webhooks here.
pub(super) fn no_webhooks() -> RpcError {
    no_mode("webhook")
}

/// A way of delivery for which no client can subscribe.
pub(super) fn no_mode(mode: &str) -> RpcError {
    let mut data = Writer::object();
    data.str("feature", "deliveryMode").str("value", mode);
    let error = RpcError::new(
        code::EVENTS_UNSUPPORTED,
        "Unsupported: this event is not delivered in this way; see its delivery in events/list",
    );
    error.with_data(data.end())
}

/// Returns the error for a receiver that did not show that it wants messages from the client. `reason`: a word of the
/// specification.
pub(super) fn callback_failed(reason: &str) -> RpcError {
    let mut data = Writer::object();
    data.str("reason", reason);
    let error = RpcError::new(
        code::EVENTS_CALLBACK,
        "CallbackEndpointError: the address did not answer the challenge",
    );
    error.with_data(data.end())
}

/// One more subscription than there may be.
pub(super) fn too_many_subscriptions() -> RpcError {
    exhausted(
        "ResourceExhausted: too many subscriptions",
        ("subscriptions", SUBSCRIPTIONS_MAX),
    )
}

/// No turn for a challenge became free in time.
pub(super) fn too_many_challenges() -> RpcError {
    exhausted(
        "ResourceExhausted: too many addresses are verified at the same time",
        ("challenges", CHALLENGES_OF_CALLER),
    )
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
    exhausted(
        "ResourceExhausted: too many event streams are open",
        ("streams", STREAMS_OF_CALLER),
    )
}

/// No turn for a look became free in time.
pub(super) fn too_many_looks() -> RpcError {
    exhausted(
        "ResourceExhausted: too many clients ask for events",
        ("looks", LOOKS_OF_CALLER),
    )
}

fn exhausted(message: &'static str, (limit, max): (&str, usize)) -> RpcError {
    let mut data = Writer::object();
    data.str("limit", limit).number("max", max);
    RpcError::new(code::EVENTS_RESOURCE_EXHAUSTED, message).with_data(data.end())
}

/// The id of the request is too long to stand in each message of a stream.
pub(super) fn too_long_id() -> RpcError {
    RpcError::invalid_request("Invalid request: the id is too long for a stream of events")
}

/// Where a client wants to begin.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EventStart {
    Now,
    After(EventPosition),
    /// The client has a cursor that raincheck cannot read. It begins now, and is notified that it may have missed
    /// events.
    Unreadable,
}

/// The place from which on the client wants events, and their largest number.
#[derive(Debug)]
pub(super) struct EventRequest {
    pub(super) start: EventStart,
    pub(super) age_ms_max: Option<u64>,
    pub(super) events_max: usize,
}

/// The tasks of which a client wants events.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum WantedTasks {
    #[default]
    All,
    One(TaskId),
    /// The client named what is no id of a task. Like a task that is unknown to the caller, it has no events.
    NoTask,
}

/// The arguments of a subscription.
#[derive(Debug, Default)]
pub(super) struct EventFilter {
    pub(super) tasks: WantedTasks,
    tool: Option<Box<str>>,
}

impl EventFilter {
    /// Returns `true` if the client wants events of calls of the tool.
    pub(super) fn admits(&self, tool: &str) -> bool {
        self.tool.as_deref().is_none_or(|wanted| wanted == tool)
    }

    /// Returns the key of a subscription with these arguments.
    pub(super) fn key(&self, caller: &Caller, url: &str) -> Result<SubscriptionKey, RpcError> {
        let task = match self.tasks {
            WantedTasks::All => None,
            WantedTasks::One(id) => Some(id),
            WantedTasks::NoTask => return Err(invalid("arguments.taskId")),
        };
        Ok(SubscriptionKey::new(
            caller,
            url,
            task,
            self.tool.as_deref(),
        ))
    }

    fn read(arguments: Option<&RawValue>) -> Result<Self, RpcError> {
        let Some(arguments) = arguments else {
            return Ok(Self::default());
        };
        let read = Object::parse(arguments.get()).map_err(|_| invalid("arguments"))?;
        let mut filter = Self::default();
        for (key, value) in read.iter() {
            let refusal = || invalid(&format!("arguments.{key}"));
            let text = json::string(value).ok_or_else(refusal)?;
            match key {
                "taskId" => {
                    filter.tasks =
                        TaskId::parse(&text).map_or(WantedTasks::NoTask, WantedTasks::One);
                }
                "tool" if text.len() <= TOOL_BYTES_MAX => filter.tool = Some(text.into()),
                // The input schema in `events/list` admits no other member.
                _ => return Err(refusal()),
            }
        }
        Ok(filter)
    }
}

impl EventRequest {
    /// Reads which events the client wants, and from which place on.
    pub(super) fn read(params: &Object<'_>, now_ms: u64) -> Result<(EventFilter, Self), RpcError> {
        let start = match present(params, "cursor") {
            None => EventStart::Now,
            Some(raw) => {
                let text = json::string(raw).ok_or_else(|| invalid("cursor"))?;
                let position = EventPosition::decode(&text, now_ms);
                position.map_or(EventStart::Unreadable, EventStart::After)
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
        let asked = Self {
            start,
            age_ms_max: number("maxAgeMs")?,
            events_max: wanted.clamp(1, EVENTS_MAX),
        };
        Ok((EventFilter::read(present(params, "arguments"))?, asked))
    }
}

/// A member that is there and is not `null`.
pub(super) fn present<'a>(params: &Object<'a>, key: &str) -> Option<&'a RawValue> {
    params.get(key).filter(|raw| raw.get() != "null")
}

fn invalid(what: &str) -> RpcError {
    RpcError::invalid_params(format!("Invalid params: {what} is not as events/list says"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_both(params: &str) -> Result<(EventFilter, EventRequest), i64> {
        let params = Object::parse(params).unwrap();
        EventRequest::read(&params, 1_000_000).map_err(|error| error.code)
    }

    fn read(params: &str) -> Result<EventRequest, i64> {
        read_both(params).map(|(_, asked)| asked)
    }

    #[test]
    fn what_is_not_said_is_usual() {
        for params in [
            "{}",
            r#"{"cursor":null,"arguments":null,"maxAgeMs":null,"maxEvents":null}"#,
        ] {
            let asked = read(params).unwrap();
            assert_eq!(
                (asked.start, asked.events_max),
                (EventStart::Now, EVENTS_USUAL)
            );
            assert_eq!(asked.age_ms_max, None);
        }
        assert_eq!(read(r#"{"maxEvents":0}"#).unwrap().events_max, 1);
        assert_eq!(
            read(r#"{"maxEvents":1000}"#).unwrap().events_max,
            EVENTS_MAX
        );
        let unreadable = read(r#"{"cursor":"x"}"#).unwrap().start;
        assert_eq!(unreadable, EventStart::Unreadable);
        let tasks = |id: &str| {
            let params = format!(r#"{{"arguments":{{"taskId":"{id}"}}}}"#);
            read_both(&params).unwrap().0.tasks
        };
        assert_eq!(tasks("nonsense"), WantedTasks::NoTask);
        let id = TaskId::from_bytes([7; 16]);
        assert_eq!(tasks(&id.to_string()), WantedTasks::One(id));
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
        let tool = "x".repeat(TOOL_BYTES_MAX + 1);
        let long = format!(r#"{{"arguments":{{"tool":"{tool}"}}}}"#);
        assert_eq!(read(&long).unwrap_err(), code::INVALID_PARAMS);
    }
}
