//! Job tools of the scripted server: one starts a job, others report on it, fetch its result and cancel it.

use serde_json::{Value, json};

use super::tools::{Call, End};
use super::{Shared, Upstream};

/// The answer of `job_status` for each job, in place of "running". A text is an answer without structure.
pub(super) type Answers = std::sync::Mutex<std::collections::BTreeMap<String, Value>>;

pub(super) fn tools() -> Vec<Value> {
    let tool = |name: &str, arguments: Value, required: &[&str]| {
        let schema = json!({"type": "object", "properties": arguments, "required": required});
        json!({"name": name, "inputSchema": schema})
    };
    let job = || json!({"job_id": {"type": "string"}, "region": {"type": "string"}});
    vec![
        tool(
            "job_start",
            json!({
                "name": {"type": "string"},
                "region": {"type": "string"},
                "token": {"type": "string"},
                "wait": {"type": "boolean"},
            }),
            &[],
        ),
        tool("job_status", job(), &["job_id"]),
        tool("job_result", job(), &["job_id"]),
        tool(
            "job_cancel",
            json!({"job_id": {"type": "string"}}),
            &["job_id"],
        ),
    ]
}

impl Upstream {
    /// A server with job tools.
    pub(crate) async fn with_jobs(era: super::Era) -> Self {
        Self::with_jobs_at(era, ([127, 0, 0, 1], 0).into()).await
    }

    /// The same, at the address of one that is gone.
    pub(crate) async fn with_jobs_at(era: super::Era, address: std::net::SocketAddr) -> Self {
        let upstream = Self::start_at(era, address).await;
        upstream
            .shared
            .has_jobs
            .store(true, std::sync::atomic::Ordering::Relaxed);
        upstream
    }

    /// From now on `job_status` answers so about that job.
    pub(crate) fn job_is(&self, job: &str, answer: Value) {
        let mut answers = self.shared.jobs.lock().unwrap();
        answers.insert(job.to_owned(), answer);
    }

    /// Waits until the start has come a second time.
    pub(crate) async fn until_sent_again(&self) {
        let again = |it: super::Tally| it.started == 2;
        self.until("job_start", "started again", again).await;
    }

    /// The arguments of the last call of that tool.
    pub(crate) fn last_arguments(&self, tool: &str) -> Value {
        self.all_arguments(tool).pop().unwrap_or_default()
    }

    /// The arguments of all calls of that tool.
    pub(crate) fn all_arguments(&self, tool: &str) -> Vec<Value> {
        let received = self.shared.received.borrow();
        let calls = received.iter().map(super::Received::json);
        let calls = calls.filter(|message| message["params"]["name"] == tool);
        calls
            .map(|mut call| call["params"]["arguments"].take())
            .collect()
    }
}

impl Call {
    /// `None`: it is no job tool.
    pub(super) async fn of_job(&self, shared: &Shared) -> Option<End> {
        let job = self.arguments["job_id"].as_str().unwrap_or_default();
        let said = |job: &str| shared.jobs.lock().unwrap().get(job).cloned();
        Some(match self.name.as_str() {
            "job_start" => {
                if said("start is held").is_some() {
                    shared.released("job_start").await;
                }
                let name = self.arguments["name"].as_str().unwrap_or("a");
                let started =
                    said("start").unwrap_or_else(|| json!({"job_id": name, "status": "QUEUED"}));
                self.document(&started)
            }
            "job_status" => {
                if said("status is held").is_some_and(|held| held == job) {
                    shared.released("job_status").await;
                }
                match said(job) {
                    Some(Value::Null) => out_of_order(),
                    Some(answer) => self.document(&answer),
                    None => self.document(&json!({"status": "running"})),
                }
            }
            "job_result" => {
                if said("result is held").is_some() {
                    shared.released("job_result").await;
                }
                match said("result fails") {
                    Some(Value::Null) => out_of_order(),
                    Some(how) if how == "isError" => self.document(&json!({"isError": true})),
                    _ => self.text(&format!("the result of {job}")),
                }
            }
            "job_cancel" if said("cancel") == Some(Value::Null) => out_of_order(),
            "job_cancel" => self.text("cancelled"),
            _ => return None,
        })
    }

    /// A text, or structured content.
    fn document(&self, answer: &Value) -> End {
        if let Some(text) = answer.as_str() {
            return self.text(text);
        }
        let kind = self.kind();
        let is_error = answer["isError"].as_bool().unwrap_or_default();
        let text = Value::from(answer.to_string());
        End::Result(format!(
            r#"{{{kind}"content":[{{"type":"text","text":{text}}}],"structuredContent":{answer},"isError":{is_error}}}"#
        ))
    }
}

fn out_of_order() -> End {
    End::Error(r#"{"code":-32603,"message":"out of order"}"#.into())
}
