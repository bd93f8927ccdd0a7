//! The changes of a server that a client can subscribe to (2026-07-28, Subscriptions).

/// A list that may change.
#[derive(Debug, Clone, Copy)]
pub struct ListKind {
    /// The name in the server's capabilities.
    pub capability: &'static str,
    /// The key in the filter of a subscription.
    pub filter_key: &'static str,
    /// The notification of a change.
    pub notification: &'static str,
}

pub const LISTS: [ListKind; 3] = [
    ListKind {
        capability: "tools",
        filter_key: "toolsListChanged",
        notification: "notifications/tools/list_changed",
    },
    ListKind {
        capability: "prompts",
        filter_key: "promptsListChanged",
        notification: "notifications/prompts/list_changed",
    },
    ListKind {
        capability: "resources",
        filter_key: "resourcesListChanged",
        notification: "notifications/resources/list_changed",
    },
];

/// The key of a filter that names resources.
pub const RESOURCE_SUBSCRIPTIONS: &str = "resourceSubscriptions";

/// The notification that a resource has changed.
pub const RESOURCE_UPDATED: &str = "notifications/resources/updated";

/// Returns `true` if a notification is about a change, and so belongs to a subscription and to no request.
pub fn is_change(method: &str) -> bool {
    method == RESOURCE_UPDATED || LISTS.iter().any(|list| list.notification == method)
}
