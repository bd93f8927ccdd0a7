//! The methods and the revisions that raincheck knows. Clients choose what they write in their place, so no other text is a
//! label of a metric.

/// The most frequent one is first.
const VERSIONS: [&str; 5] = [
    "2026-07-28",
    "2025-11-25",
    "2025-06-18",
    "2025-03-26",
    "2024-11-05",
];

/// The methods of clients, requests and notifications. The most frequent one is first.
const METHODS: [&str; 23] = [
    "tools/call",
    "completion/complete",
    "initialize",
    "logging/setLevel",
    "notifications/cancelled",
    "notifications/initialized",
    "notifications/progress",
    "notifications/roots/list_changed",
    "ping",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/subscribe",
    "resources/templates/list",
    "resources/unsubscribe",
    "server/discover",
    "subscriptions/listen",
    "tasks/cancel",
    "tasks/get",
    "tasks/result",
    "tasks/update",
    "tools/list",
];

/// The method, if it is known.
pub(super) fn known_method(name: &str) -> Option<&'static str> {
    known(&METHODS, name)
}

/// The revision, if it is known.
pub(super) fn known_version(name: &str) -> Option<&'static str> {
    known(&VERSIONS, name)
}

fn known(names: &[&'static str], name: &str) -> Option<&'static str> {
    names.iter().find(|known| **known == name).copied()
}
