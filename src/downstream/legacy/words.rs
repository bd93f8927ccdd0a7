//! What a legacy client's message is, as far as raincheck has to know it: pure.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::mcp::json::Object;
use crate::mcp::request::Request;
use crate::mcp::scan::scan;

/// The members of an envelope. A message in which one stands twice is the server's to refuse.
const RESERVED: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

#[derive(Debug)]
pub(in crate::downstream) enum Words<'a> {
    Request(Request<'a>),
    Notification(Cow<'a, str>, Option<Object<'a>>),
    /// To a question that was put to the client: its id, and the whole message.
    Answer(&'a RawValue, Object<'a>),
    /// A batch, or nothing that can be read: the server's own business.
    Other,
}

impl<'a> Words<'a> {
    pub(in crate::downstream) fn of(body: &'a [u8]) -> Self {
        let read = || {
            let object = Object::parse(scan(body).ok()?).ok()?;
            (!object.is_ambiguous(&RESERVED)).then_some(object)
        };
        let Some(object) = read() else {
            return Self::Other;
        };
        let params = object.get_object("params");
        match (object.get_str("method"), object.get("id")) {
            (Some(method), Some(id)) => Self::Request(Request {
                id,
                method,
                params_text: object.get("params").map_or("{}", RawValue::get),
                params: params.unwrap_or_default(),
            }),
            (Some(method), None) => Self::Notification(method, params),
            (None, Some(id)) => Self::Answer(id, object),
            (None, None) => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_apart() {
        let of = |text: &'static str| Words::of(text.as_bytes());
        assert!(matches!(
            of(r#"{"id":1,"method":"ping"}"#),
            Words::Request(Request {
                params_text: "{}",
                ..
            })
        ));
        assert!(matches!(
            of(r#"{"method":"notifications/initialized"}"#),
            Words::Notification(_, None)
        ));
        assert!(matches!(of(r#"{"id":"x","result":{}}"#), Words::Answer(..)));
        for other in ["[]", "{", r#"{"id":1,"id":2,"method":"ping"}"#, "{}"] {
            assert!(matches!(of(other), Words::Other), "{other}");
        }
    }
}
