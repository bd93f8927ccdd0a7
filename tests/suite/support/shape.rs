//! The rules of the Tasks schema, and what real clients need beyond it.

use serde_json::Value;

/// The members of every task. Each status adds further members.
const COMMON: [&str; 7] = [
    "taskId",
    "status",
    "statusMessage",
    "createdAt",
    "lastUpdatedAt",
    "ttlMs",
    "pollIntervalMs",
];

/// `CreateTaskResult`: flat, and nothing of a later state.
#[track_caller]
pub(crate) fn assert_created(result: &Value) {
    assert_eq!(result["resultType"], "task", "{result}");
    assert_common(result);
    assert_members(result, &["resultType", "_meta"]);
}

/// `GetTaskResult` of this status.
#[track_caller]
pub(crate) fn assert_state(result: &Value, status: &str) {
    assert_eq!(result["resultType"], "complete", "{result}");
    assert_detailed(result, status, &["resultType", "_meta"]);
}

/// The params of `notifications/tasks`: the same task, without a `resultType` of its own.
#[track_caller]
pub(crate) fn assert_notified(params: &Value, status: &str) {
    assert!(params.get("resultType").is_none(), "{params}");
    assert_detailed(params, status, &["_meta"]);
}

#[track_caller]
fn assert_detailed(task: &Value, status: &str, others: &[&str]) {
    assert_eq!(task["status"], status, "{task}");
    assert_common(task);
    let own = match status {
        "working" | "cancelled" => None,
        "input_required" => Some("inputRequests"),
        "completed" => Some("result"),
        "failed" => Some("error"),
        other => panic!("unknown status {other}"),
    };
    let allowed: Vec<&str> = others.iter().copied().chain(own).collect();
    assert_members(task, &allowed);
    if let Some(own) = own {
        assert!(task[own].is_object(), "{own} is missing: {task}");
    }
    match status {
        "completed" => assert_eq!(task["result"]["resultType"], "complete", "{task}"),
        "failed" => {
            assert!(task["error"]["code"].is_i64(), "{task}");
            assert!(task["error"]["message"].is_string(), "{task}");
        }
        "input_required" => assert_questions(&task["inputRequests"]),
        _ => {}
    }
}

#[track_caller]
pub(crate) fn assert_questions(requests: &Value) {
    let requests = requests.as_object().unwrap();
    assert!(!requests.is_empty(), "input is required, but nothing asked");
    for request in requests.values() {
        assert_eq!(request["method"], "elicitation/create", "{request}");
        assert!(request["params"].is_object(), "{request}");
        assert!(request["params"].get("_meta").is_none(), "{request}");
        assert!(request.get("id").is_none(), "{request}");
    }
}

#[track_caller]
fn assert_common(task: &Value) {
    assert!(task["taskId"].is_string(), "{task}");
    for date in ["createdAt", "lastUpdatedAt"] {
        assert!(
            is_rfc3339(task[date].as_str().unwrap_or_default()),
            "{date}: {task}"
        );
    }
    assert!(
        task["ttlMs"].as_u64().is_some_and(|ttl| ttl > 0),
        "ttlMs: {task}"
    );
    assert!(
        task["pollIntervalMs"].as_u64().is_some_and(|ms| ms > 0),
        "pollIntervalMs: {task}"
    );
}

/// No null, and no member but these: legacy names (`ttl`, `pollInterval`, `task`), a server's
/// `requestState` and another status's payload are all found here.
#[track_caller]
fn assert_members(task: &Value, allowed: &[&str]) {
    for (key, value) in task.as_object().unwrap() {
        let known = COMMON.contains(&key.as_str()) || allowed.contains(&key.as_str());
        assert!(known, "{key} does not belong here: {task}");
        assert!(!value.is_null(), "{key} is null: {task}");
    }
}

/// A date and time of RFC 3339 in UTC.
fn is_rfc3339(text: &str) -> bool {
    let shape: String = text
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c })
        .collect();
    let fraction = shape
        .strip_prefix("0000-00-00T00:00:00")
        .and_then(|rest| rest.strip_suffix('Z'));
    match fraction {
        Some("") => true,
        Some(fraction) => fraction.strip_prefix('.').is_some_and(|digits| {
            (1..=9).contains(&digits.len()) && digits.bytes().all(|digit| digit == b'0')
        }),
        None => false,
    }
}
