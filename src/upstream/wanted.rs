//! The changes of a legacy server that a client receives. Pure.

use serde_json::value::RawValue;

use crate::mcp::changes::{LISTS, ListKind, RESOURCE_SUBSCRIPTIONS, RESOURCE_UPDATED};
use crate::mcp::json::{Object, Writer, quote, string};

/// The part of a client's filter that a legacy server serves.
#[derive(Debug, Default)]
pub(super) struct WantedChanges {
    /// The lists whose changes the server reports.
    lists: Vec<ListKind>,
    /// Subscribed resources, where the server has subscriptions and any were asked for.
    pub(super) uris: Option<Vec<String>>,
}

impl WantedChanges {
    /// Returns the part of the filter that the server's capabilities support.
    pub(super) fn of(filter: &str, capabilities: &str) -> Self {
        let capabilities = Object::parse(capabilities).unwrap_or_default();
        let filter = Object::parse(filter).unwrap_or_default();
        let offers = |kind: &str, what: &str| {
            let kind = capabilities.get_object(kind);
            kind.and_then(|kind| kind.get(what))
                .is_some_and(|raw| raw.get() == "true")
        };
        let asked = |key: &str| filter.get(key).is_some_and(|raw| raw.get() == "true");
        let lists = LISTS
            .into_iter()
            .filter(|list| asked(list.filter_key) && offers(list.capability, "listChanged"));
        let uris = filter
            .get(RESOURCE_SUBSCRIPTIONS)
            .filter(|_| offers("resources", "subscribe"));
        let uris = uris.map(|raw| {
            let uris: Vec<&RawValue> = serde_json::from_str(raw.get()).unwrap_or_default();
            let uris = uris.into_iter().filter_map(string);
            uris.map(std::borrow::Cow::into_owned).collect()
        });
        Self {
            lists: lists.collect(),
            uris,
        }
    }

    /// The part of the filter that is served, as JSON.
    pub(super) fn honoured(&self) -> String {
        let mut out = Writer::object();
        for list in &self.lists {
            out.raw(list.filter_key, "true");
        }
        if let Some(uris) = &self.uris {
            let uris: Vec<String> = uris.iter().map(|uri| quote(uri)).collect();
            out.raw(RESOURCE_SUBSCRIPTIONS, &format!("[{}]", uris.join(",")));
        }
        out.end()
    }

    /// Returns `true` if the client receives a notification. A legacy server sends all changes to every client, and
    /// may name a resource below the one that was subscribed to.
    pub(super) fn hears(&self, method: &str, params: Option<&RawValue>) -> bool {
        if method != RESOURCE_UPDATED {
            return self.lists.iter().any(|list| list.notification == method);
        }
        let uri = params.and_then(|params| Object::parse(params.get()).ok()?.get_str("uri"));
        let uris = self.uris.as_deref().unwrap_or_default();
        uri.is_some_and(|uri| uris.iter().any(|wanted| is_at_or_below(&uri, wanted)))
    }
}

/// Returns `true` if a resource is the one that was subscribed to, or a part of it.
fn is_at_or_below(uri: &str, subscribed: &str) -> bool {
    let below = uri.strip_prefix(subscribed);
    below.is_some_and(|below| {
        below.is_empty() || subscribed.ends_with('/') || below.starts_with(['/', '?', '#'])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::changes::is_change;

    const ALL: &str = r#"{"tools":{"listChanged":true},"prompts":{},"resources":{"listChanged":true,"subscribe":true}}"#;

    #[test]
    fn what_the_server_has_and_the_client_wants() {
        let filter = r#"{"toolsListChanged":true,"promptsListChanged":true,"resourceSubscriptions":["a:b"]}"#;
        let wanted = WantedChanges::of(filter, ALL);
        assert_eq!(
            wanted.honoured(),
            r#"{"toolsListChanged":true,"resourceSubscriptions":["a:b"]}"#
        );
        let updated = |uri: &str| {
            let params = RawValue::from_string(format!(r#"{{"uri":"{uri}"}}"#)).unwrap();
            wanted.hears(RESOURCE_UPDATED, Some(&params))
        };
        assert!(updated("a:b") && updated("a:b/c") && updated("a:b?c") && updated("a:b#c"));
        assert!(!updated("a:c") && !updated("a:bc") && !updated("a:"));
        assert!(is_at_or_below("file:///a/b", "file:///a/") && is_at_or_below("a", "a"));
        assert!(wanted.hears("notifications/tools/list_changed", None));
        assert!(!wanted.hears("notifications/resources/list_changed", None));
        assert!(
            !wanted.hears("notifications/message", None) && !is_change("notifications/message")
        );
        assert_eq!(WantedChanges::of(filter, "{}").honoured(), "{}");
    }
}
