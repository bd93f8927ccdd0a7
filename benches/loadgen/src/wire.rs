//! The requests, as bytes.

use crate::options::{Options, Wire};
use crate::tally::next_id;

const DECLARES_TASKS: &str = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"loadgen","version":"0.1.0"}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// A `tools/call`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Call<'a> {
    pub(crate) id: u64,
    pub(crate) session: Option<&'a str>,
    /// Members of the arguments, as JSON without the braces.
    pub(crate) arguments: &'a str,
    /// The client knows of tasks; a legacy client asks for one.
    pub(crate) wants_task: bool,
    /// The client asks for progress, under the id of the request.
    pub(crate) wants_progress: bool,
}

impl Options {
    pub(crate) fn call(&self, call: Call<'_>) -> Vec<u8> {
        let (id, tool) = (call.id, &self.tool);
        let arguments = joined(call.arguments, &self.extra_arguments);
        let task = match self.wire {
            Wire::Legacy if call.wants_task => r#","task":{"ttl":3600000}"#,
            Wire::Legacy | Wire::Modern => "",
        };
        let meta = self.meta(call.wants_task, call.wants_progress.then_some(id));
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{{arguments}}}{task}{meta}}}}}"#
        );
        self.post("tools/call", tool, call.session, &body)
    }

    pub(crate) fn get_task(&self, id: u64, session: Option<&str>, task: &str) -> Vec<u8> {
        let meta = self.meta(true, None);
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tasks/get","params":{{"taskId":"{task}"{meta}}}}}"#
        );
        self.post("tasks/get", task, session, &body)
    }

    pub(crate) fn list_tools(&self, id: u64, session: Option<&str>) -> Vec<u8> {
        let meta = self.meta(false, None);
        let params = meta.trim_start_matches(',');
        let body =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list","params":{{{params}}}}}"#);
        self.post("tools/list", "", session, &body)
    }

    pub(crate) fn initialize(&self) -> Vec<u8> {
        self.post("initialize", "", None, INITIALIZE)
    }

    pub(crate) fn initialized(&self, session: Option<&str>) -> Vec<u8> {
        self.post("notifications/initialized", "", session, INITIALIZED)
    }

    /// The member `_meta` of the params, after its comma, where there is one.
    fn meta(&self, declares_tasks: bool, progress_token: Option<u64>) -> String {
        let token = progress_token.map(|token| format!(r#""progressToken":{token}"#));
        let token = token.unwrap_or_default();
        let capabilities = if declares_tasks { DECLARES_TASKS } else { "{}" };
        let members = match self.wire {
            Wire::Legacy if token.is_empty() => return String::new(),
            Wire::Legacy => token,
            Wire::Modern => joined(
                &format!(
                    r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{{"name":"loadgen","version":"0.1.0"}},"io.modelcontextprotocol/clientCapabilities":{capabilities}"#
                ),
                &token,
            ),
        };
        format!(r#","_meta":{{{members}}}"#)
    }

    fn post(&self, method: &str, name: &str, session: Option<&str>, body: &str) -> Vec<u8> {
        let mut request = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: {}\r\n",
            self.path,
            self.host,
            body.len()
        );
        let mut header = |name: &str, value: &str| {
            request.extend([name, ": ", value, "\r\n"]);
        };
        match self.wire {
            Wire::Legacy => {
                if method != "initialize" {
                    header("MCP-Protocol-Version", "2025-11-25");
                }
                if let Some(session) = session {
                    header("Mcp-Session-Id", session);
                }
            }
            Wire::Modern => {
                header("MCP-Protocol-Version", "2026-07-28");
                header("Mcp-Method", method);
                if !name.is_empty() {
                    header("Mcp-Name", name);
                }
            }
        }
        if let Some(caller) = next_id().checked_rem(self.callers) {
            header("Authorization", &format!("Bearer caller-{caller}"));
        }
        request.extend([&self.headers, "\r\n", body]);
        request.into_bytes()
    }
}

/// The members of two objects, as those of one.
fn joined(first: &str, second: &str) -> String {
    let comma = if first.is_empty() || second.is_empty() {
        ""
    } else {
        ","
    };
    format!("{first}{comma}{second}")
}
