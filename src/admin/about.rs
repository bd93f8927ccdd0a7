//! The answer to `GET /about`: which raincheck this is, which replicas there are, and what is not in order. Pure.

use serde_json::{Value, json};

use crate::base::utc::rfc3339;
use crate::telemetry::reloads::LastReload;

/// `operator`: the name and the role of the operator. `settings`: those that the process runs on, without secrets. `readiness`: the answer to a
/// readiness probe. `replicas`: the names of the replicas whose leases run, or `None` while the store has not shown them for
/// long enough. `paused`: the pauses of tools, and the number of failures that nobody has acknowledged. `reloaded`: the last reload.
pub(super) fn about(
    (operator, settings): (Value, &Value),
    readiness: &Value,
    replica: &str,
    replicas: Option<&[String]>,
    (paused, unacknowledged): (&[Value], i64),
    reloaded: Option<&LastReload>,
) -> Value {
    let upstream = settings.get("upstream");
    let command = || upstream?.get("command")?.get(0);
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "operator": operator,
        "replica": replica,
        "replicas": replicas,
        "namespace": settings.get("store").and_then(|store| store.get("namespace")),
        "upstream": upstream.and_then(|upstream| upstream.get("url")).or_else(command),
        "readiness": readiness,
        "paused": paused,
        "unacknowledged": unacknowledged,
        "reloaded": reloaded.map(|last| json!({
            "at": rfc3339(last.at_ms),
            "outcome": last.outcome.word(),
            "error": last.why,
        })),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::reloads::ReloadOutcome;

    #[test]
    fn a_server_is_named_by_its_address_or_its_program() {
        let ready = json!({"ready": true});
        let settings =
            json!({"store": {"namespace": "orders"}, "upstream": {"url": "http://a/mcp"}});
        let failed = LastReload {
            at_ms: 0,
            outcome: ReloadOutcome::Failed,
            why: Some("a mistake".into()),
        };
        let of_address = about(
            (json!({"name": "ada", "role": "read"}), &settings),
            &ready,
            "web-0",
            Some(&["web-0".into(), "web-1".into()]),
            (&[], 2),
            Some(&failed),
        );
        assert_eq!(of_address["namespace"], "orders");
        assert_eq!(of_address["upstream"], "http://a/mcp");
        assert_eq!(of_address["replicas"], json!(["web-0", "web-1"]));
        assert_eq!(of_address["readiness"], ready);
        assert_eq!(of_address["unacknowledged"], 2);
        assert_eq!(of_address["reloaded"]["error"], "a mistake");
        assert_eq!(of_address["operator"]["name"], "ada");
        let program = json!({"store": {}, "upstream": {"command": ["npx", "-y", "x"]}});
        let of_program = about(
            (Value::Null, &program),
            &ready,
            "web-0",
            None,
            (&[], 0),
            None,
        );
        assert_eq!(of_program["upstream"], "npx");
        assert!(of_program["namespace"].is_null() && of_program["replicas"].is_null());
    }
}
