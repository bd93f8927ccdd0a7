//! What the server answers, and whether it is right. Pure.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::options::{Options, Wire};

/// Bytes of an answer that an error quotes.
const QUOTED_MAX: usize = 200;

#[derive(Debug, Deserialize)]
pub(crate) struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<&'a str>,
    #[serde(borrow)]
    pub(crate) params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

impl<'a> Message<'a> {
    pub(crate) fn read(text: &'a [u8]) -> Result<Self, String> {
        serde_json::from_slice(text).map_err(|error| format!("json: {error}: {}", quoted(text)))
    }

    /// The method, if this is a notification.
    pub(crate) fn notification(&self) -> Option<&'a str> {
        self.method.filter(|_| self.id.is_none())
    }

    /// Whether this answers a request.
    pub(crate) fn is_answer(&self) -> bool {
        self.method.is_none()
    }

    /// The result of the request with that id.
    pub(crate) fn result_of(&self, id: u64) -> Result<Outcome, String> {
        let own = self.id.map_or("none", RawValue::get);
        if own.parse() != Ok(id) {
            return Err(format!("the answer of request {own}, not of {id}"));
        }
        if let Some(error) = self.error {
            return Err(format!("rpc error {}", quoted(error.get().as_bytes())));
        }
        let result = self.result.ok_or("neither result nor error")?.get();
        serde_json::from_str(result)
            .map_err(|error| format!("result: {error}: {}", quoted(result.as_bytes())))
    }
}

/// The result of a call, of a list, or of a request about a task.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Outcome {
    result_type: Option<String>,
    task_id: Option<String>,
    status: Option<String>,
    created_at: Option<String>,
    content: Option<Vec<Content>>,
    is_error: Option<bool>,
    tools: Option<Vec<IgnoredAny>>,
    /// Of a task that has ended.
    result: Option<Box<Self>>,
    /// The task of a legacy client's call.
    task: Option<Box<Self>>,
}

#[derive(Debug, Deserialize)]
struct Content {
    text: Option<String>,
}

impl Outcome {
    /// Checks the result of a call.
    pub(crate) fn check_call(&self, nonce: &str, options: &Options) -> Result<(), String> {
        self.check_type("complete", options.wire)?;
        self.check_content(nonce, options)
    }

    pub(crate) fn check_list(&self) -> Result<(), String> {
        match &self.tools {
            Some(tools) if !tools.is_empty() => Ok(()),
            Some(_) | None => Err("no tools".to_owned()),
        }
    }

    /// The id of the task that was created.
    pub(crate) fn created_task(&self, wire: Wire) -> Result<String, String> {
        let task = match wire {
            Wire::Legacy => self.task.as_deref().ok_or("no result.task")?,
            Wire::Modern => self,
        };
        task.check_type("task", wire)?;
        let status = task.status.as_deref();
        let is_known = matches!(status, Some("working" | "completed" | "input_required"));
        if !is_known || task.created_at.is_none() {
            return Err(format!(
                "task status {status:?} createdAt {:?}",
                task.created_at
            ));
        }
        let id = task.task_id.clone().filter(|id| !id.is_empty());
        id.ok_or_else(|| "no taskId".to_owned())
    }

    /// Whether the task is completed, with that nonce in its result. An answer that is neither this nor `working` is wrong.
    pub(crate) fn is_completed(
        &self,
        task: &str,
        nonce: Option<&str>,
        options: &Options,
    ) -> Result<bool, String> {
        self.check_type("complete", options.wire)?;
        if self.task_id.as_deref() != Some(task) {
            return Err(format!("tasks/get {task}: got {:?}", self.task_id));
        }
        match (self.status.as_deref(), &self.result, options.wire) {
            (Some("working"), None, _) => Ok(false),
            // A legacy client gets the result with a request of its own.
            (Some("completed"), _, Wire::Legacy) => Ok(true),
            (Some("completed"), Some(result), Wire::Modern) => {
                if let Some(nonce) = nonce {
                    result.check_content(nonce, options)?;
                }
                Ok(true)
            }
            (Some("completed"), None, _) => Err("completed without result".to_owned()),
            (status, ..) => Err(format!("status {status:?}")),
        }
    }

    fn check_type(&self, wanted: &str, wire: Wire) -> Result<(), String> {
        match (wire, self.result_type.as_deref()) {
            (Wire::Modern, found) if found != Some(wanted) => {
                Err(format!("resultType {found:?}, not {wanted}"))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the text is the nonce, or the nonce and what `big` says after it.
    fn check_content(&self, nonce: &str, options: &Options) -> Result<(), String> {
        if self.is_error == Some(true) {
            return Err("isError".to_owned());
        }
        let content = self.content.as_ref().and_then(|content| content.first());
        let text = content.and_then(|content| content.text.as_deref());
        let text = text.ok_or("no content text")?;
        let rest = text.strip_prefix(nonce);
        if options.checks_nonce
            && !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('|'))
        {
            return Err(format!("nonce {nonce}: got {}", quoted(text.as_bytes())));
        }
        Ok(())
    }
}

/// The first bytes of a text, for an error.
pub(crate) fn quoted(text: &[u8]) -> String {
    let most = text.len().min(QUOTED_MAX);
    String::from_utf8_lossy(text.get(..most).unwrap_or_default()).into_owned()
}
