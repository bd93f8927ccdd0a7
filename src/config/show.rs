//! The settings as they count, defaults included, without secrets: for `raincheck config show` and operators.

use figment::value::{Dict, Value as Setting};
use serde_json::Value;

/// The text in place of a secret.
const HIDDEN: &str = "[secret]";

/// Hides all that may be secret: tokens, keys, headers, variables, arguments, and parts of URLs.
pub(super) fn without_secrets(settings: Value) -> Value {
    let mut shown = settings;
    if let Some(sections) = shown.as_object_mut() {
        for (section, settings) in sections {
            hide(section, settings);
        }
    }
    shown
}

fn hide(path: &str, value: &mut Value) {
    match (path, &mut *value) {
        // Arguments may hold keys, so only the program is shown.
        ("upstream.command", Value::Array(words)) => words.truncate(1),
        (
            "upstream.env" | "upstream.headers" | "telemetry.traces.headers",
            Value::Object(members),
        ) => {
            for value in members.values_mut() {
                *value = HIDDEN.into();
            }
        }
        (_, Value::Object(members)) => {
            for (key, value) in members {
                hide(&format!("{path}.{key}"), value);
            }
        }
        (_, Value::Array(all)) => {
            for one in all {
                hide(path, one);
            }
        }
        (_, Value::String(text)) => {
            let name = path.rsplit('.').next().unwrap_or_default();
            if matches!(
                name,
                "token" | "seal_key" | "seal_key_previous" | "secret" | "secret_previous"
            ) || path == "upstream.command"
            {
                HIDDEN.clone_into(text);
            } else if path == "notify.url" {
                *text = host_only(text);
            } else if text.contains("://") {
                *text = without_credentials(text);
            }
        }
        (_, Value::Null | Value::Bool(_) | Value::Number(_)) => {}
    }
}

/// The scheme and the host of a receiver of webhooks: who knows its path may send to it.
fn host_only(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return HIDDEN.to_owned();
    };
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority.rsplit('@').next().unwrap_or_default();
    let path = if path.len() > 1 { "/[secret]" } else { path };
    format!("{scheme}://{host}{path}")
}

/// A URL without its user, password and query.
fn without_credentials(url: &str) -> String {
    // The password of a Redis may hold a question mark, so the query begins behind it.
    let host_from = match url.rfind('@') {
        Some(at) if url.starts_with("redis") => at,
        Some(_) | None => 0,
    };
    let query_from = url.get(host_from..).and_then(|rest| rest.find('?'));
    let (url, query) = match query_from {
        Some(from) => (url.get(..host_from + from).unwrap_or_default(), "?[secret]"),
        None => (url, ""),
    };
    let shown = match url.split_once("://") {
        // A password that is not encoded may hold an `@`, so the last one counts.
        Some((scheme, rest)) => match rest.rsplit_once('@') {
            Some((_, host)) => format!("{scheme}://{HIDDEN}@{host}"),
            None => url.to_owned(),
        },
        None => url.to_owned(),
    };
    shown + query
}

/// The address of the example is no default: a server must be named.
pub(super) fn forget_example_server(defaults: &mut Dict) {
    if let Some(Setting::Dict(_, upstream)) = defaults.get_mut("upstream") {
        upstream.remove("url");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_lose_what_may_be_secret() {
        for (url, shown) in [
            ("redis://u:p@ss@host/1", "redis://[secret]@host/1"),
            (
                "redis://:hunter?2@host?tls=x",
                "redis://[secret]@host?[secret]",
            ),
            ("https://host/mcp?key=x", "https://host/mcp?[secret]"),
            ("https://host/mcp?key=x@y", "https://host/mcp?[secret]"),
            ("http://127.0.0.1:8000/mcp", "http://127.0.0.1:8000/mcp"),
        ] {
            assert_eq!(without_credentials(url), shown);
        }
    }
}
