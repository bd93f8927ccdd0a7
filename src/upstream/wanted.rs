//! Which changes of a legacy server a listener hears. Pure.

use serde_json::value::RawValue;

use crate::mcp::json::{Object, Writer, quote, string};

/// What a legacy server was found to serve of a listener's wish.
#[derive(Debug, Default)]
pub(super) struct WantedChanges {
    /// Keys of the filter, with the notification that each stands for.
    lists: Vec<(&'static str, &'static str)>,
    /// Subscribed resources, where the server has subscriptions and any were asked for.
    pub(super) uris: Option<Vec<String>>,
}

const LISTS: [(&str, &str, &str); 3] = [
    (
        "toolsListChanged",
        "tools",
        "notifications/tools/list_changed",
    ),
    (
        "promptsListChanged",
        "prompts",
        "notifications/prompts/list_changed",
    ),
    (
        "resourcesListChanged",
        "resources",
        "notifications/resources/list_changed",
    ),
];

const UPDATED: &str = "notifications/resources/updated";

impl WantedChanges {
    /// What the server's capabilities leave of the filter.
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
            .iter()
            .filter(|(key, kind, _)| asked(key) && offers(kind, "listChanged"))
            .map(|(key, _, method)| (*key, *method));
        let uris = filter
            .get("resourceSubscriptions")
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
        for (key, _) in &self.lists {
            out.raw(key, "true");
        }
        if let Some(uris) = &self.uris {
            let uris: Vec<String> = uris.iter().map(|uri| quote(uri)).collect();
            out.raw("resourceSubscriptions", &format!("[{}]", uris.join(",")));
        }
        out.end()
    }

    /// A legacy server says everything to everybody. A resource below one that was subscribed to
    /// may be named instead of it.
    pub(super) fn hears(&self, method: &str, params: Option<&RawValue>) -> bool {
        if method != UPDATED {
            return self.lists.iter().any(|(_, wanted)| *wanted == method);
        }
        let uri = params.and_then(|params| Object::parse(params.get()).ok()?.get_str("uri"));
        let uris = self.uris.as_deref().unwrap_or_default();
        uri.is_some_and(|uri| uris.iter().any(|wanted| uri.starts_with(wanted.as_str())))
    }
}

/// Whether a notification tells of a change; nothing else belongs to a listener.
pub(super) fn is_change(method: &str) -> bool {
    method == UPDATED || LISTS.iter().any(|(_, _, change)| *change == method)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            wanted.hears(UPDATED, Some(&params))
        };
        assert!(updated("a:b") && updated("a:b/c") && !updated("a:c"));
        assert!(wanted.hears("notifications/tools/list_changed", None));
        assert!(!wanted.hears("notifications/resources/list_changed", None));
        assert!(
            !wanted.hears("notifications/message", None) && !is_change("notifications/message")
        );
        assert_eq!(WantedChanges::of(filter, "{}").honoured(), "{}");
    }
}
