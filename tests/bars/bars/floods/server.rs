//! A modern server that costs next to nothing itself: it parses no request, and the large result is made once.
//!
//! What slows a small call down during a flood is then raincheck and not the server.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::http::request::Parts;
use hyper::{Request, Response};
use serde_json::json;
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::apart::Apart;
use crate::hyper_server::{self, Body};
use crate::scripted::Listening;

#[derive(Debug)]
pub(super) struct Server {
    url: String,
    _serving: Apart,
}

/// The results, as JSON.
#[derive(Debug)]
struct Results {
    described: Bytes,
    tools: Bytes,
    small: Bytes,
    large: Bytes,
}

impl Server {
    /// A server whose tool `large` says so many bytes.
    pub(super) async fn start(result_bytes: usize) -> Self {
        let (bound, url) = oneshot::channel();
        let serving = Apart::start(move || async move {
            let results = Arc::new(Results::of(result_bytes));
            let serving = move |stream| serve(stream, Arc::clone(&results));
            let listening = Listening::start(serving).await;
            let _ = bound.send(listening.url());
            std::future::pending::<()>().await;
        });
        Self {
            url: url.await.expect("a server"),
            _serving: serving,
        }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }
}

impl Results {
    fn of(bytes: usize) -> Self {
        let said = |text: &str| {
            let content = json!([{"type": "text", "text": text}]);
            Bytes::from(json!({"resultType": "complete", "content": content}).to_string())
        };
        let tools = ["plain", "work", "large"];
        let tools = tools.map(|name| json!({"name": name, "inputSchema": {"type": "object"}}));
        let described = json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private",
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "floods", "version": "1"}},
        });
        let tools = json!({
            "tools": tools, "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
        });
        Self {
            described: described.to_string().into(),
            tools: tools.to_string().into(),
            small: said("done"),
            large: said(&"x".repeat(bytes)),
        }
    }

    /// The result of a request, by the method and the tool that its head names.
    fn answering(&self, request: &Parts) -> &Bytes {
        let named = |header| {
            let value = request.headers.get(header);
            value.and_then(|value| value.to_str().ok())
        };
        match (named("mcp-method"), named("mcp-name")) {
            (Some("server/discover"), _) => &self.described,
            (Some("tools/list"), _) => &self.tools,
            (_, Some("large")) => &self.large,
            _ => &self.small,
        }
    }
}

/// What the kernel takes of a result before raincheck reads it. With the kernel's own choice the large results of one flood
/// are copied at once, and small calls of either replica wait for this server for some 300 ms.
const SEND_BUFFER: usize = 64 << 10;

async fn serve(stream: TcpStream, results: Arc<Results>) {
    let _ = SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER);
    hyper_server::serve(stream, true, move |request| {
        handle(Arc::clone(&results), request)
    })
    .await;
}

async fn handle(results: Arc<Results>, request: Request<Incoming>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = body
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes);
    let id = body.ok().and_then(|body| id_of(&body)).unwrap_or_default();
    // In pieces, so that the large result is not copied.
    let before = Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"#));
    let result = results.answering(&parts).clone();
    let pieces = [before, result, Bytes::from_static(b"}")];
    let pieces = pieces.map(|piece| Ok::<_, Infallible>(Frame::data(piece)));
    let body = StreamBody::new(stream::iter(pieces)).boxed_unsync();
    hyper_server::response(200, "application/json", body)
}

/// The id of a request, which is a number. Found by a search, because parsing 4 MiB takes long in a development build.
fn id_of(body: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(body).ok()?;
    let (_, rest) = text.split_once(r#""id":"#)?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}
