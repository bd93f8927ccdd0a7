//! Tasks that the modern server makes itself, for the tool `own`: they ask for a name and end with it.

use hyper::Response;
use serde_json::{Value, json};

use super::super::http::{self, Body};
use super::Shared;
use super::modern::{error, result};

pub(super) const ID: &str = "theirs-1";

#[derive(Debug, Default)]
pub(super) struct Tasks {
    answers: Option<Value>,
    cancelled: bool,
}

/// What cancels of such a task are counted under.
const CANCELLED: &str = "their cancel";

/// `CreateTaskResult`.
pub(super) fn created() -> String {
    let mut task = common("working");
    task["resultType"] = json!("task");
    task.to_string()
}

fn common(status: &str) -> Value {
    json!({
        "resultType": "complete", "taskId": ID, "status": status, "statusMessage": "theirs",
        "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z",
        "ttlMs": 60000, "pollIntervalMs": 250,
    })
}

/// `tasks/*`; `None` where this server has no tasks.
pub(super) fn answer(shared: &Shared, message: &Value) -> Option<Response<Body>> {
    let mut own = shared.own.lock().unwrap();
    let tasks = own.as_mut()?;
    let (id, params) = (&message["id"], &message["params"]);
    if params["taskId"] != ID {
        let unknown = r#"{"code":-32602,"message":"their unknown task"}"#;
        return Some(http::json(400, error(id, unknown)));
    }
    let state = match message["method"].as_str()? {
        "tasks/get" => tasks.state(),
        "tasks/update" => {
            tasks.answers = Some(params["inputResponses"].clone());
            json!({"resultType": "complete"})
        }
        "tasks/cancel" => {
            tasks.cancelled = true;
            shared.tally(CANCELLED, |tally| {
                tally.started += 1;
                tally.cancelled += 1;
            });
            json!({"resultType": "complete"})
        }
        _ => return None,
    };
    Some(http::json(200, result(id, &state.to_string())))
}

impl Tasks {
    fn state(&self) -> Value {
        if self.cancelled {
            return common("cancelled");
        }
        let Some(answers) = &self.answers else {
            let mut state = common("input_required");
            state["inputRequests"] = json!({"their key": {
                "method": "elicitation/create",
                "params": {"mode": "form", "message": "name?", "requestedSchema": {
                    "type": "object", "properties": {"name": {"type": "string"}},
                }},
            }});
            return state;
        };
        let mut state = common("completed");
        let said = answers["their key"]["content"]["name"].to_string();
        state["result"] = json!({
            "resultType": "complete", "content": [{"type": "text", "text": said}],
        });
        state
    }
}
