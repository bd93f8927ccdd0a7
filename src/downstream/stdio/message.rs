//! One message of the client, and the headers that it would have over HTTP.

use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request};

use crate::downstream::inbound::request::{CancelMessage, Inbound, is_answer};
use crate::downstream::inbound::requester::Piped;
use crate::downstream::proxy::Proxy;
use crate::downstream::tools;
use crate::mcp::json::Object;
use crate::mcp::meta::{CLIENT_CAPABILITIES, PROTOCOL_VERSION};
use crate::mcp::version::Era;
use crate::mcp::{headers, params};
use crate::task::gave_up::CancelCause;

const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A message as it came, and what decides how it is handled.
pub(super) struct StdioMessage {
    pub(super) text: Bytes,
    pub(super) era: Era,
    /// The id of a request, as JSON.
    pub(super) id: Option<Box<str>>,
    pub(super) method: Option<Box<str>>,
    /// The id, as JSON, of the server's request that this answers.
    pub(super) answers: Option<Box<str>>,
    /// The id, as JSON, of the request that a notification cancels, and how its client leaves it.
    pub(super) cancels: Option<(Box<str>, CancelCause)>,
}

impl StdioMessage {
    /// `None`: the text is no message.
    pub(super) fn read(text: &Bytes) -> Option<Self> {
        let message = Inbound::read(text);
        let object = message.members()?;
        let method = message.method().map(|it| Box::from(&**it));
        let id: Option<Box<str>> = object.get("id").map(|id| id.get().into());
        let cancels = (method.as_deref() == Some("notifications/cancelled"))
            .then(|| CancelMessage::of(message.params()?))
            .flatten();
        let (id, answers) = match method {
            Some(_) => (id, None),
            // Neither a request that can be read nor an answer. Its client may wait for an answer.
            None if id.is_some() && !is_answer(object) => return None,
            None => (None, id),
        };
        Some(Self {
            era: message.era(),
            id,
            answers,
            method,
            cancels: cancels.map(|cancel| (cancel.id.get().into(), cancel.cause)),
            text: text.clone(),
        })
    }

    /// Returns `true` if this opens a session.
    pub(super) fn is_handshake(&self) -> bool {
        self.era == Era::Legacy && self.method.as_deref() == Some("initialize")
    }

    /// The headers that a modern client sends with the message over HTTP.
    pub(super) async fn modern_headers(
        &self,
        proxy: &Arc<Proxy>,
        message: &Inbound<'_>,
    ) -> HeaderMap {
        let mut out = plain_headers();
        // A fault of the message itself is found later, where all messages are read.
        let none = Object::default();
        let params = message.params().unwrap_or(&none);
        let meta = params.get_object("_meta").unwrap_or_default();
        let mut put = |name: &str, value: Option<&str>| {
            let name = HeaderName::try_from(name);
            let value = value.and_then(|value| HeaderValue::try_from(value).ok());
            if let (Ok(name), Some(value)) = (name, value) {
                out.insert(name, value);
            }
        };
        put(
            "mcp-protocol-version",
            meta.get_str(PROTOCOL_VERSION).as_deref(),
        );
        put("mcp-method", self.method.as_deref());
        let named = match self.method.as_deref() {
            Some("tools/call" | "prompts/get") => params.get_str("name"),
            Some("resources/read") => params.get_str("uri"),
            Some(method) if method.starts_with("tasks/") => params.get_str("taskId"),
            _ => None,
        };
        put("mcp-name", named.as_deref().map(headers::encode).as_deref());
        if self.method.as_deref() == Some("tools/call")
            && let Some(name) = &named
        {
            let capabilities = meta.get(CLIENT_CAPABILITIES).map_or("{}", |raw| raw.get());
            let by = proxy.requester(&parts(Method::POST, HeaderMap::new()), Era::Modern, None);
            let tools = tools::listed(proxy, &by, capabilities).await;
            // Without the list the check of these headers is left to the server.
            if let Some(tool) = tools.as_ref().and_then(|tools| tools.get(name)) {
                for (header, value) in params::mirrored(tool, params.get("arguments")) {
                    put(header, Some(&value));
                }
            }
        }
        out
    }
}

pub(super) fn plain_headers() -> HeaderMap {
    let mut out = HeaderMap::new();
    out.insert(ACCEPT, BOTH);
    out.insert(CONTENT_TYPE, JSON);
    out
}

/// The head of a request to raincheck itself.
pub(super) fn parts(method: Method, headers: HeaderMap) -> Box<Parts> {
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.method = method;
    parts.headers = headers;
    parts.extensions.insert(Piped);
    Box::new(parts)
}
