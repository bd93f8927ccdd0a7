//! A running call of the demo's server, as its tool has it.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use super::state::DemoState;

/// The context of a running tool: the means to report progress and to ask.
#[derive(Debug)]
pub(super) struct DemoCall {
    pub(super) state: Arc<DemoState>,
    pub(super) session: String,
    pub(super) progress_token: Value,
    pub(super) events: mpsc::Sender<String>,
}

impl DemoCall {
    /// Reports progress, if the client asked for it.
    pub(super) async fn progress(&self, progress: u64, total: u64, message: &str) {
        if !self.progress_token.is_null() {
            self.send(&json!({
                "jsonrpc": "2.0",
                "method": "notifications/progress",
                "params": {
                    "progressToken": self.progress_token,
                    "progress": progress,
                    "total": total,
                    "message": message,
                },
            }))
            .await;
        }
    }

    /// Asks the user through the client, on this call's stream, and waits for the answer.
    pub(super) async fn ask(&self, params: Value) -> Option<Value> {
        let id = Value::from(Uuid::new_v4().to_string());
        let (answered, answer) = oneshot::channel();
        let key = (self.session.clone(), id.to_string());
        // Entered before the question is sent, because the answer may come at once.
        self.state.questions.lock().insert(key, answered);
        self.send(&json!({
            "jsonrpc": "2.0",
            "id": id,
            "method": "elicitation/create",
            "params": params,
        }))
        .await;
        answer.await.ok()
    }

    pub(super) async fn send(&self, message: &Value) {
        let event = format!("event: message\ndata: {message}\n\n");
        // If the client went away, the tool runs on, as tools of legacy servers do.
        let _ = self.events.send(event).await;
    }
}
