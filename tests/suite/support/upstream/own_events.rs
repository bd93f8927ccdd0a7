//! A server with events of its own, listed in two pages.

use serde_json::{Value, json};

/// What the server says of its capability.
const CAPABILITY: &str = r#"{"listChanged":true}"#;

/// The events as the server writes them.
pub(crate) const ALPHA: &str = r#"{"name":"alpha.changed",  "delivery":["poll"],"n":1.10}"#;
pub(crate) const BETA: &str = r#"{"name":"beta.changed","delivery":["webhook"]}"#;

/// The result of a poll of one of them.
pub(crate) const POLLED: &str = r#"{"resultType":"complete","events":[], "cursor":"theirs","truncated":false,"hasMore":false,"nextPollMs":1.50}"#;

/// `None`: the request is about something else.
pub(super) fn answer(method: &str, params: &Value) -> Option<String> {
    Some(match method {
        "server/discover" => format!(
            r#"{{"resultType":"complete","supportedVersions":["2026-07-28"],"ttlMs":0,"cacheScope":"private","capabilities":{{"tools":{{}},"events":{CAPABILITY},"extensions":{{"io.modelcontextprotocol/events":{CAPABILITY}}}}}}}"#
        ),
        "events/list" if params["cursor"] == json!("2") => {
            format!(r#"{{"resultType":"complete","ttlMs":7,"events":[{BETA}]}}"#)
        }
        "events/list" => {
            format!(r#"{{"resultType":"complete","ttlMs":7,"events":[{ALPHA}],"nextCursor":"2"}}"#)
        }
        "events/poll" => POLLED.to_owned(),
        _ => return None,
    })
}
