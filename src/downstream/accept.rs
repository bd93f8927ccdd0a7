//! What a client reads: its `Accept`.

use hyper::HeaderMap;
use hyper::header::ACCEPT;

/// The client reads streams of events.
pub(super) fn accepts_events(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(ACCEPT).iter();
    values.any(|value| {
        let value = value.to_str().unwrap_or_default();
        value.contains("text/event-stream") || value.contains("*/*")
    })
}
