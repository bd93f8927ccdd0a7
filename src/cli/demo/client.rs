//! The demo's client: a small one that speaks revision 2026-07-28 and declares Tasks.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::Request;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::wire::{at, take};
use crate::base::io_reason::io_reason;
use crate::mcp::version::MODERN;

const BODY_BYTES_MAX: usize = 1 << 20;

/// The client, with the address that it calls.
#[derive(Debug)]
pub(super) struct DemoClient {
    address: SocketAddr,
}

impl DemoClient {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address }
    }

    /// `server/discover`.
    pub(super) async fn discover(&self) -> Result<Value, String> {
        self.request("server/discover", None, json!({})).await
    }

    /// `tools/call`.
    pub(super) async fn call(&self, tool: &str, arguments: Value) -> Result<Value, String> {
        let params = json!({"name": tool, "arguments": arguments});
        self.request("tools/call", Some(tool), params).await
    }

    /// `tasks/get`.
    pub(super) async fn get(&self, task: &str) -> Result<Value, String> {
        let params = json!({"taskId": task});
        self.request("tasks/get", Some(task), params).await
    }

    /// `tasks/update`: the answer to a question of the server.
    pub(super) async fn answer(&self, task: &str, key: &str, content: Value) -> Result<(), String> {
        let answer = json!({"action": "accept", "content": content});
        let params = json!({"taskId": task, "inputResponses": {key: answer}});
        self.request("tasks/update", Some(task), params)
            .await
            .map(drop)
    }

    /// `tasks/cancel`.
    pub(super) async fn cancel(&self, task: &str) -> Result<(), String> {
        let params = json!({"taskId": task});
        self.request("tasks/cancel", Some(task), params)
            .await
            .map(drop)
    }

    /// Sends one request on a new connection and returns its `result`.
    async fn request(
        &self,
        method: &str,
        name: Option<&str>,
        mut params: Value,
    ) -> Result<Value, String> {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": {"name": "raincheck-demo", "version": "1.0"},
            "io.modelcontextprotocol/clientCapabilities": {
                "elicitation": {},
                "extensions": {"io.modelcontextprotocol/tasks": {}},
            },
        });
        if let Some(params) = params.as_object_mut() {
            params.insert("_meta".into(), meta);
        }
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let mut request = Request::post("/mcp")
            .header(HOST, self.address.to_string())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream")
            .header("mcp-protocol-version", MODERN)
            .header("mcp-method", method);
        if let Some(name) = name {
            request = request.header("mcp-name", name);
        }
        let request = request
            .body(Full::new(Bytes::from(body.to_string())))
            .map_err(|e| e.to_string())?;
        let answer = self
            .exchange(request)
            .await
            .map_err(|e| format!("{method}: {}", io_reason(&*e)))?;
        let mut message = message(&answer).ok_or_else(|| format!("{method}: no answer in it"))?;
        if let Some(text) = at(&message, "/error/message").as_str() {
            return Err(format!("{method}: {} {text}", at(&message, "/error/code")));
        }
        Ok(take(&mut message, "/result"))
    }

    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Bytes, Box<dyn std::error::Error + Send + Sync>> {
        let socket = TcpStream::connect(self.address).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await?;
        let answer = async {
            let response = sender.send_request(request).await?;
            Ok(Limited::new(response.into_body(), BODY_BYTES_MAX)
                .collect()
                .await?
                .to_bytes())
        };
        tokio::pin!(connection, answer);
        tokio::select! {
            answer = &mut answer => answer,
            // If the server closes at once, the connection ends first, and the answer that it read is still
            // available.
            _ = &mut connection => answer.await,
        }
    }
}

/// The JSON-RPC response in a body, which is one message or a stream of events.
fn message(body: &[u8]) -> Option<Value> {
    if let Ok(message) = serde_json::from_slice(body) {
        return Some(message);
    }
    // A question of the server on the same stream may have the id 1, too. Only an answer has no method.
    std::str::from_utf8(body)
        .ok()?
        .lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .filter_map(|data| serde_json::from_str::<Value>(data).ok())
        .find(|message| at(message, "/id") == 1 && at(message, "/method").is_null())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_found_in_json_and_in_a_stream() {
        let answer = br#"{"jsonrpc":"2.0","id":1,"result":{"a":1}}"#;
        assert_eq!(message(answer).unwrap()["result"]["a"], 1);
        let stream = b"id: 0\ndata: \n\n: comment\n\ndata: {\"method\":\"notifications/message\"}\r\n\r\n\
                       event: message\r\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"a\":2}}\r\n\r\n";
        assert_eq!(message(stream).unwrap()["result"]["a"], 2);
        assert!(message(b"502 Bad Gateway").is_none());
    }

    #[tokio::test]
    async fn an_error_is_one_line_with_the_method() {
        let tracker = tokio_util::task::TaskTracker::new();
        let stop = tokio_util::sync::CancellationToken::new();
        let server = super::super::server::DemoServer::start(&tracker, stop)
            .await
            .unwrap();
        let address = server.url().parse::<hyper::Uri>().unwrap();
        let address = address.authority().unwrap().as_str().parse().unwrap();
        assert_eq!(
            DemoClient::new(address).discover().await.unwrap_err(),
            "server/discover: -32601 Method not found"
        );
    }
}
