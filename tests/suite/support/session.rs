//! A session of a legacy client (2025-11-25 and before), as the client sees it. Test files that need further
//! methods wrap this type.

use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};

use super::answer::Answer;
use super::client::{Client, Request};

pub(crate) const SESSION: &str = "mcp-session-id";
pub(crate) const NEWEST: &str = "2025-11-25";

/// The first message of a session: its id is "one".
pub(crate) fn initialize(version: &str, capabilities: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": "one", "method": "initialize", "params": {
        "protocolVersion": version, "capabilities": capabilities,
        "clientInfo": {"name": "suite", "version": "1"},
    }})
}

/// The answer to a form that the server asked for.
pub(crate) fn accept(name: &str) -> Value {
    json!({"action": "accept", "content": {"name": name}})
}

#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) name: String,
    pub(crate) version: &'static str,
}

impl Session {
    /// Opens a session of a client that supports form elicitation.
    pub(crate) async fn open(client: Client, version: &'static str) -> Self {
        Self::declaring(client, version, json!({"elicitation": {}})).await
    }

    pub(crate) async fn declaring(
        client: Client,
        version: &'static str,
        capabilities: Value,
    ) -> Self {
        let hello = initialize(version, capabilities);
        Self::greeting(client, version, &hello).await.0
    }

    /// The session that begins with this message, and the answer to it.
    pub(crate) async fn greeting(
        client: Client,
        version: &'static str,
        hello: &Value,
    ) -> (Self, Answer) {
        let answer = client.post(hello.to_string()).send().await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let name = answer.headers[SESSION].to_str().unwrap().to_owned();
        let session = Self {
            client,
            name,
            version,
        };
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(session.post(&ready).send().await.status, 202);
        (session, answer)
    }

    /// The same client with another session id, which may not exist.
    pub(crate) fn named(&self, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..self.clone()
        }
    }

    /// The same session at another replica, or used by another caller.
    pub(crate) fn at(&self, client: Client) -> Self {
        Self {
            client,
            ..self.clone()
        }
    }

    pub(crate) fn post(&self, message: &Value) -> Request {
        self.post_text(message.to_string())
    }

    /// A body as it is.
    pub(crate) fn post_text(&self, body: impl Into<Bytes>) -> Request {
        self.on_it(self.client.post(body))
    }

    /// A request without a message: GET listens, DELETE ends the session.
    pub(crate) fn http(&self, verb: Method) -> Request {
        let request = self.client.http(verb, "/mcp");
        self.on_it(request.header("accept", "text/event-stream"))
    }

    fn on_it(&self, request: Request) -> Request {
        request
            .header(SESSION, &self.name)
            .header("mcp-protocol-version", self.version)
    }

    pub(crate) fn request(&self, id: impl Into<Value>, method: &str, params: Value) -> Request {
        let id: Value = id.into();
        self.post(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
    }

    /// A call that may be told of progress.
    pub(crate) fn calling(&self, id: impl Into<Value>, tool: &str, arguments: Value) -> Request {
        let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": "t"}});
        self.request(id, "tools/call", params)
    }

    pub(crate) async fn end(&self) -> u16 {
        self.ending().send().await.status
    }

    pub(crate) fn ending(&self) -> Request {
        self.on_it(self.client.http(Method::DELETE, "/mcp"))
    }
}
