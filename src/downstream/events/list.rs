//! `events/list`: the server's events as they are, and raincheck's behind the last of them.

use serde_json::value::RawValue;

use super::subscribe::webhooks_of;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::proxy::Proxy;
use crate::mcp::json::{Object, Writer, raw, set};
use crate::mcp::tool_list::is_last;
use crate::task::events::definition;

/// The ways of delivery of raincheck's event.
const DELIVERY: [&str; 3] = ["poll", "push", "webhook"];

/// The same for a client that cannot subscribe.
const WITHOUT_WEBHOOKS: [&str; 2] = ["poll", "push"];

/// The ways in which raincheck's event is delivered to this client.
pub(in crate::downstream) fn delivery(proxy: &Proxy, by: &Requester) -> &'static [&'static str] {
    let events = proxy.events.as_ref();
    match events.and_then(|events| webhooks_of(events, by)) {
        Some(_) => &DELIVERY,
        None => &WITHOUT_WEBHOOKS,
    }
}

/// The list in front of a server without events.
pub(in crate::downstream) fn ours_alone(delivery: &[&str]) -> String {
    let mut out = Writer::with_capacity(1280);
    out.str("resultType", "complete")
        .raw("events", &format!("[{}]", definition(delivery)));
    out.number("ttlMs", 0).str("cacheScope", "private");
    out.end()
}

/// The last page with raincheck's event. `None`: the page stays as it is.
pub(in crate::downstream) fn with_ours(
    page: &RawValue,
    delivery: &[&str],
) -> Option<Box<RawValue>> {
    if !is_last(page) {
        return None;
    }
    let events = Object::parse(page.get()).ok()?.get("events")?.get();
    // Edited as text, so that the server's own events keep their bytes.
    let theirs = events.strip_prefix('[')?.strip_suffix(']')?;
    let comma = if theirs.trim_ascii().is_empty() {
        ""
    } else {
        ","
    };
    let all = format!("[{theirs}{comma}{}]", definition(delivery));
    set(page.get(), "events", &all).and_then(raw).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn edited(page: &str) -> Option<String> {
        let page = raw(page.to_owned()).unwrap();
        with_ours(&page, &DELIVERY).map(|page| page.get().to_owned())
    }

    #[test]
    fn ours_is_behind_theirs_on_the_last_page() {
        let ours = definition(&DELIVERY);
        let theirs = r#"{"name": "a",  "n":1.10}"#;
        assert_eq!(
            edited(&format!(r#"{{"x":[ ],"events":[{theirs}],"y":1}}"#)).unwrap(),
            format!(r#"{{"x":[ ],"events":[{theirs},{ours}],"y":1}}"#)
        );
        assert_eq!(
            edited(r#"{"events":[ ],"nextCursor":null}"#).unwrap(),
            format!(r#"{{"events":[ {ours}],"nextCursor":null}}"#)
        );
        for page in [
            r#"{"events":[],"nextCursor":"x"}"#,
            r#"{"events":{}}"#,
            "{}",
        ] {
            assert_eq!(edited(page), None, "{page}");
        }
    }

    #[test]
    fn a_list_of_ours_alone_is_whole() {
        let said: Value = serde_json::from_str(&ours_alone(&DELIVERY)).unwrap();
        assert_eq!(said["events"].as_array().unwrap().len(), 1);
        assert_eq!(said["resultType"], "complete");
    }
}
