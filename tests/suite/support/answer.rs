//! What the proxy answered.

use hyper::HeaderMap;
use serde_json::{Value, json};

/// A task that was announced to this client.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) id: String,
    /// The `CreateTaskResult`.
    pub(crate) created: Value,
}

/// A response, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// The JSON-RPC response as it came.
    pub(crate) text: String,
    /// The whole body, including the events before the response on a stream.
    pub(crate) body: String,
}

impl Task {
    /// A name for a task that this client was never told of.
    pub(crate) fn by_id(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            created: Value::Null,
        }
    }
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text)
            .unwrap_or_else(|_| panic!("{}: not JSON: {:?}", self.status, self.body))
    }

    /// This answer if it has that status, for a poll; otherwise a text of what was answered.
    pub(crate) fn of_status(self, status: u16) -> Result<Self, String> {
        if self.status == status {
            Ok(self)
        } else {
            Err(format!("{}: {}", self.status, self.body))
        }
    }

    /// The result of a request that went well.
    #[track_caller]
    pub(crate) fn into_result(self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        let result = self.json()["result"].take();
        assert!(result.is_object(), "no result: {}", self.body);
        result
    }

    #[track_caller]
    pub(crate) fn into_task(self) -> Task {
        let created = self.into_result();
        assert_eq!(created["resultType"], "task", "{created}");
        Task {
            id: created["taskId"].as_str().unwrap().to_owned(),
            created,
        }
    }

    /// A plain result's first text.
    #[track_caller]
    pub(crate) fn into_text(self) -> String {
        let result = self.into_result();
        assert_eq!(result["resultType"], "complete", "{result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// HTTP status and JSON-RPC code of a refusal.
    #[track_caller]
    pub(crate) fn refusal(&self) -> (u16, i64) {
        let json = self.json();
        let code = json["error"]["code"].as_i64();
        (
            self.status,
            code.unwrap_or_else(|| panic!("no error: {}", self.body)),
        )
    }

    #[track_caller]
    pub(crate) fn assert_acknowledged(self) {
        assert_eq!(self.into_result(), json!({"resultType": "complete"}));
    }
}
