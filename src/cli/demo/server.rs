//! The demo's wrapped server: legacy MCP over Streamable HTTP, slow, and without Tasks.
//!
//! It behaves like real servers of 2025: sessions, an SSE stream for each call, progress, a question in the
//! middle of a call, and `notifications/cancelled`.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt as _, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::HeaderName;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::call::DemoCall;
use super::state::DemoState;
use super::tools;
use super::wire::{DemoBody, at, error, json_body, plain, result, take, with_type};
use crate::base::lock::Mutex;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const BODY_BYTES_MAX: usize = 1 << 20;
/// Messages of one call that may wait for the client to read them.
const EVENTS_MAX: usize = 16;

/// The server while it runs.
#[derive(Debug)]
pub(in crate::cli) struct DemoServer {
    address: SocketAddr,
    state: Arc<DemoState>,
}

impl DemoServer {
    /// Serves on a loopback port of the system's choice until `stop`.
    pub(in crate::cli) async fn start(
        tracker: &TaskTracker,
        stop: CancellationToken,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let state = Arc::new(DemoState {
            sessions: Mutex::default(),
            calls: Mutex::default(),
            questions: Mutex::default(),
            cancelled: watch::Sender::default(),
            tracker: tracker.clone(),
            stop,
        });
        tracker.spawn(accept(listener, Arc::clone(&state)));
        Ok(Self { address, state })
    }

    pub(in crate::cli) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Resolves when the server received a notification to cancel a call.
    pub(super) async fn told_to_cancel(&self) {
        let mut cancelled = self.state.cancelled.subscribe();
        // The channel is never closed, because `self.state` holds the sender.
        let _ = cancelled.wait_for(|count| *count > 0).await;
    }
}

async fn accept(listener: TcpListener, state: Arc<DemoState>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = state.stop.cancelled() => return,
        };
        let Ok((socket, _)) = accepted else { return };
        let state = Arc::clone(&state);
        state.tracker.clone().spawn(async move {
            let service = service_fn(|request| {
                let state = Arc::clone(&state);
                async move { Ok::<_, Infallible>(answer(&state, request).await) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(socket), service);
            // An idle connection would keep the tracker from ending.
            tokio::select! {
                _ = connection => {}
                () = state.stop.cancelled() => {}
            }
        });
    }
}

async fn answer(state: &Arc<DemoState>, request: Request<Incoming>) -> Response<DemoBody> {
    let session = request
        .headers()
        .get(&SESSION)
        .and_then(|value| value.to_str().ok())
        .map(str::to_owned);
    match (request.method(), session) {
        (&Method::POST, session) => {
            let body = Limited::new(request.into_body(), BODY_BYTES_MAX);
            let message = body
                .collect()
                .await
                .ok()
                .and_then(|body| serde_json::from_slice::<Value>(&body.to_bytes()).ok());
            match message {
                Some(message) => received(state, session, message),
                None => plain(StatusCode::BAD_REQUEST),
            }
        }
        (&Method::DELETE, Some(session)) => {
            state.sessions.lock().remove(&session);
            plain(StatusCode::OK)
        }
        // A server without a stream of its own answers a GET with 405 (MCP).
        _ => plain(StatusCode::METHOD_NOT_ALLOWED),
    }
}

/// One message of the client.
fn received(
    state: &Arc<DemoState>,
    session: Option<String>,
    mut message: Value,
) -> Response<DemoBody> {
    let method = at(&message, "/method")
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let id = at(&message, "/id").clone();
    if method == "initialize" {
        return initialize(state, &id);
    }
    // raincheck finds out the era with this request, when there is no session yet.
    if method == "server/discover" {
        return json_body(&error(&id, -32601, "Method not found"));
    }
    let Some(session) = session else {
        return plain(StatusCode::BAD_REQUEST);
    };
    // MCP demands 404 for a session that has ended, so that its client begins a new one.
    if !state.sessions.lock().contains(&session) {
        return plain(StatusCode::NOT_FOUND);
    }
    match method.as_str() {
        "ping" => json_body(&result(&id, &json!({}))),
        "tools/list" => json_body(&result(&id, &tools::list())),
        "tools/call" if !id.is_null() => call(state, session, &id, take(&mut message, "/params")),
        "notifications/cancelled" => {
            let key = (session, at(&message, "/params/requestId").to_string());
            if let Some(call) = state.calls.lock().remove(&key) {
                call.cancel();
                state.cancelled.send_modify(|count| *count += 1);
            }
            plain(StatusCode::ACCEPTED)
        }
        // A message without a method is an answer to a question of this server.
        "" => {
            let waiting = state.questions.lock().remove(&(session, id.to_string()));
            if let Some(waiting) = waiting {
                let _ = waiting.send(take(&mut message, "/result"));
            }
            plain(StatusCode::ACCEPTED)
        }
        _ if id.is_null() => plain(StatusCode::ACCEPTED),
        _ => json_body(&error(&id, -32601, "Method not found")),
    }
}

fn initialize(state: &DemoState, id: &Value) -> Response<DemoBody> {
    let session = Uuid::new_v4().simple().to_string();
    let mut response = json_body(&result(
        id,
        &json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "slow-server", "version": "1.0"},
        }),
    ));
    if let Ok(value) = session.parse() {
        response.headers_mut().insert(SESSION, value);
    }
    state.sessions.lock().insert(session);
    response
}

/// Starts the tool and answers with the stream of its events.
fn call(state: &Arc<DemoState>, session: String, id: &Value, params: Value) -> Response<DemoBody> {
    let (events, queue) = mpsc::channel(EVENTS_MAX);
    // A child of `stop`, so that a tool that never ends does not outlive the demo.
    let cancel = state.stop.child_token();
    let key = (session.clone(), id.to_string());
    // Entered before the tool runs, so that a cancel that comes at once finds it.
    state.calls.lock().insert(key.clone(), cancel.clone());
    let call = DemoCall {
        state: Arc::clone(state),
        session,
        progress_token: at(&params, "/_meta/progressToken").clone(),
        events,
    };
    let id = id.clone();
    state.tracker.spawn(async move {
        let outcome = tokio::select! {
            outcome = tools::run(&call, &params) => Some(outcome),
            () = cancel.cancelled() => None,
        };
        call.state.calls.lock().remove(&key);
        // A cancelled call gets no answer: its stream ends.
        if let Some(outcome) = outcome {
            call.send(&result(&id, &outcome)).await;
        }
    });
    let frames = stream::unfold(queue, |mut queue| async move {
        let event: String = queue.recv().await?;
        Some((Ok(Frame::data(Bytes::from(event))), queue))
    });
    let body = StreamBody::new(frames).boxed_unsync();
    with_type(StatusCode::OK, "text/event-stream", body)
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;
    use hyper::client::conn::http1 as client;

    use super::*;

    /// Sends one message as a legacy client; returns the session header and the body.
    async fn post(
        server: &DemoServer,
        session: &str,
        message: Value,
    ) -> (StatusCode, String, String) {
        let (mut sender, connection) = client::handshake(TokioIo::new(
            tokio::net::TcpStream::connect(server.address)
                .await
                .unwrap(),
        ))
        .await
        .unwrap();
        server.state.tracker.spawn(connection);
        let request = Request::post("/mcp")
            .header("mcp-session-id", session)
            .body(Full::<Bytes>::from(message.to_string()))
            .unwrap();
        let response = sender.send_request(request).await.unwrap();
        let status = response.status();
        let header = response.headers().get(SESSION);
        let session = header
            .map(|v| v.to_str().unwrap().to_owned())
            .unwrap_or_default();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, session, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn started() -> (DemoServer, String) {
        let server = DemoServer::start(&TaskTracker::new(), CancellationToken::new())
            .await
            .unwrap();
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}});
        let (_, session, body) = post(&server, "", hello).await;
        assert!(body.contains("2025-11-25"));
        (server, session)
    }

    fn call(id: u64, tool: &str, arguments: &Value) -> Value {
        let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": "p"}});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
    }

    #[tokio::test]
    async fn a_report_with_progress() {
        let (server, session) = started().await;
        let arguments = json!({"seconds": 0.01, "steps": 2});
        let (_, _, stream) = post(&server, &session, call(1, "build_report", &arguments)).await;
        assert_eq!(stream.matches("notifications/progress").count(), 2);
        assert!(stream.contains("The report has 2 chapters."));
    }

    #[tokio::test]
    async fn a_question_on_the_stream_of_the_call() {
        let (server, session) = started().await;
        let asking = post(&server, &session, call(1, "ask_name", &json!({})));
        let answering = async {
            let id = loop {
                let key = server.state.questions.lock().keys().next().cloned();
                if let Some((_, id)) = key {
                    break serde_json::from_str::<Value>(&id).unwrap();
                }
                tokio::task::yield_now().await;
            };
            let answer = json!({"action": "accept", "content": {"name": "Ada"}});
            post(&server, &session, result(&id, &answer)).await
        };
        let ((_, _, stream), (status, ..)) = tokio::join!(asking, answering);
        assert_eq!(status, StatusCode::ACCEPTED);
        assert!(stream.contains("elicitation/create") && stream.contains("Hello, Ada!"));
    }

    #[tokio::test]
    async fn a_cancelled_call_ends_without_an_answer() {
        let (server, session) = started().await;
        let calling = post(&server, &session, call(7, "sleep_forever", &json!({})));
        let cancelling = async {
            while server.state.calls.lock().is_empty() {
                tokio::task::yield_now().await;
            }
            let params = json!({"requestId": 7});
            let cancel = json!({"method": "notifications/cancelled", "params": params});
            post(&server, &session, cancel).await;
            server.told_to_cancel().await;
        };
        let ((_, _, stream), ()) = tokio::join!(calling, cancelling);
        assert_eq!(stream, "");
    }

    #[tokio::test]
    async fn it_is_a_server_of_2025() {
        let (server, session) = started().await;
        let discover = json!({"jsonrpc": "2.0", "id": 1, "method": "server/discover"});
        assert!(post(&server, "", discover).await.2.contains("-32601"));
        let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
        assert!(
            post(&server, &session, list.clone())
                .await
                .2
                .contains("sleep_forever")
        );
        let (status, ..) = post(&server, "another", list).await;
        assert_eq!(status, StatusCode::NOT_FOUND);
        assert_eq!(
            post(&server, &session, json!([])).await.0,
            StatusCode::ACCEPTED
        );
    }
}
