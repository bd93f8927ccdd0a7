//! The same contract over HTTP+SSE, the transport of 2024-11-05.

use super::sse_server::{Refusal, SseServer};
use super::*;
use serde_json::Value;

mod borrowed;
mod calls;
mod faults;
mod finding;

const LEGACY: Era = Era::Legacy;

fn of(server: &SseServer) -> Settings {
    Settings {
        transport: Transport::Sse,
        ..settings(server.url())
    }
}

fn run(settings: &Settings) -> Upstream {
    Upstream::new(settings, TaskTracker::new()).unwrap()
}

async fn start() -> (SseServer, Upstream) {
    let server = SseServer::start().await;
    let upstream = run(&of(&server));
    (server, upstream)
}

fn call_with(tool: &str, arguments: &str) -> UpstreamRequest {
    UpstreamRequest {
        params: format!(r#"{{"name":"{tool}","arguments":{arguments}}}"#).into(),
        ..call(tool)
    }
}

fn begin(upstream: &Upstream, tool: &str, arguments: &str) -> Exchange {
    upstream.begin(LEGACY, call_with(tool, arguments))
}

async fn said(upstream: &Upstream, tool: &str, arguments: &str) -> String {
    outcome_of(begin(upstream, tool, arguments)).await
}

/// The text of a tool's answer.
async fn text(upstream: &Upstream, tool: &str, arguments: &str) -> String {
    text_of(begin(upstream, tool, arguments)).await
}

async fn on(upstream: &Upstream) {
    assert_eq!(text(upstream, "echo", r#"{"text":"on"}"#).await, "on");
}

/// A call that the server holds, and has.
async fn held(server: &SseServer, upstream: &Upstream, nonce: &str) -> Exchange {
    let mut exchange = begin(upstream, "hold", &format!(r#"{{"nonce":"{nonce}"}}"#));
    let before = server.seen("hold").len();
    let sent = timeout(Duration::from_secs(20), exchange.events.next());
    assert!(matches!(sent.await.expect("in time"), Some(Event::Sent)));
    let polled = async {
        tokio::select! {
            biased;
            event = exchange.events.next() => panic!("{event:?}"),
            () = server.until(|server| server.seen("hold").len() > before) => {}
        }
    };
    timeout(Duration::from_secs(20), polled)
        .await
        .expect("in time");
    exchange
}

async fn release(upstream: &Upstream, nonce: &str) {
    let nonces = format!(r#"{{"nonces":["{nonce}"]}}"#);
    assert_eq!(text(upstream, "release", &nonces).await, "released");
}
