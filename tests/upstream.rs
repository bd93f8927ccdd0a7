//! One contract, every connector: real connectors against servers that misbehave by script.
#![expect(
    clippy::disallowed_methods,
    reason = "tests own their tasks and environment"
)]

#[path = "support/authority.rs"]
mod authority;
#[path = "upstream/borrowed.rs"]
mod borrowed;
#[path = "upstream/calls.rs"]
mod calls;
#[path = "upstream/changing.rs"]
mod changing;
#[path = "upstream/cookies.rs"]
mod cookies;
#[path = "support/directory.rs"]
mod directory;
#[path = "support/eventually.rs"]
#[expect(dead_code, reason = "every wait of this binary has a runtime")]
mod eventually;
#[path = "upstream/faults.rs"]
mod faults;
#[path = "upstream/http2.rs"]
mod http2;
#[path = "upstream/http2_frames.rs"]
mod http2_frames;
#[path = "upstream/http2_lives.rs"]
mod http2_lives;
#[path = "upstream/http2_server.rs"]
mod http2_server;
#[path = "support/http_request.rs"]
mod http_request;
#[path = "upstream/knowing.rs"]
mod knowing;
#[path = "upstream/lost.rs"]
mod lost;
#[path = "upstream/native.rs"]
mod native;
#[path = "support/process.rs"]
mod process;
#[path = "upstream/reach.rs"]
mod reach;
#[path = "upstream/redirects.rs"]
mod redirects;
#[path = "support/relay.rs"]
mod relay;
#[path = "upstream/reply.rs"]
mod reply;
#[path = "support/scripted.rs"]
#[expect(dead_code, reason = "the bars have servers that misbehave more")]
mod scripted;
#[path = "upstream/server.rs"]
mod server;
#[path = "upstream/sessions.rs"]
mod sessions;
#[path = "upstream/slow.rs"]
mod slow;
#[path = "upstream/sse/mod.rs"]
mod sse;
#[path = "support/sse_server.rs"]
#[expect(dead_code, reason = "tests/suite looks at the queries")]
mod sse_server;
#[path = "upstream/standing.rs"]
mod standing;
#[path = "upstream/stdio/mod.rs"]
mod stdio;

use std::time::Duration;

use eventually::{eventually, try_eventually};
use futures_util::StreamExt;
use http_body_util::BodyExt;
use hyper::header::HeaderValue;
use hyper::{Request, StatusCode};
use raincheck::mcp::error::SideEffect;
use raincheck::mcp::version::Era;
use raincheck::upstream::http::RequestBody;
use raincheck::upstream::wrapped::{
    DiscoverError, LineChoice, ListenEvent, Listening, SessionMode, Settings, Transport, Upstream,
};
use raincheck::upstream::{Answer, Event, Exchange, Forwarded, Retry, UpstreamRequest};
use serde_json::Value;
use server::{Reply, Server};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

fn settings(url: impl Into<String>) -> Settings {
    Settings {
        url: url.into(),
        ..Settings::default()
    }
}

fn upstream(server: &Server) -> Upstream {
    Upstream::new(&settings(server.url()), TaskTracker::new()).unwrap()
}

fn call(tool: &str) -> UpstreamRequest {
    UpstreamRequest {
        caller: [1; 16],
        credentials: None,
        method: "tools/call".into(),
        params: format!(r#"{{"name":"{tool}","arguments":{{}}}}"#).into(),
        capabilities: r#"{"elicitation":{}}"#.into(),
        name: Some(tool.into()),
        param_headers: [].into(),
        query: None,
        headers: [].into(),
        wants_progress: true,
        log_level: None,
        retry: None,
        answer_patience: None,
        native_task: false,
        job: None,
        pin: None,
    }
}

async fn next(exchange: &mut Exchange) -> Event {
    loop {
        let next = timeout(Duration::from_secs(20), exchange.events.next());
        let event = next.await.expect("in time").expect("an event");
        if !matches!(event, Event::Sent) {
            return event;
        }
    }
}

/// What became of one call, in a word.
async fn outcome(upstream: &Upstream, era: Era) -> String {
    outcome_of(upstream.begin(era, call("t"))).await
}

async fn outcome_of(mut exchange: Exchange) -> String {
    loop {
        match next(&mut exchange).await {
            Event::Sent
            | Event::Progress(_)
            | Event::Log(_)
            | Event::Question(_)
            | Event::Job(_)
            | Event::Resumable(_)
            | Event::CredentialsRefused
            | Event::Later(_) => {}
            Event::Result(result) => return format!("result {}", result.get()),
            Event::Error(error) => return format!("error {} {}", error.status, error.error.get()),
            Event::Failed(failure) => {
                let effect = match failure.effect {
                    SideEffect::None => "none",
                    SideEffect::Unknown => "unknown",
                };
                return format!("{} {effect}", failure.reason.word());
            }
        }
    }
}

/// The text of a tool's answer.
async fn text_of(exchange: Exchange) -> String {
    let outcome = outcome_of(exchange).await;
    let result = outcome
        .strip_prefix("result ")
        .unwrap_or_else(|| panic!("{outcome}"));
    let result: Value = serde_json::from_str(result).unwrap();
    result["content"][0]["text"].as_str().unwrap().to_owned()
}

/// The time passes, for everybody here and in no time.
async fn wait(duration: Duration) {
    tokio::time::pause();
    tokio::time::advance(duration).await;
    tokio::time::resume();
}

const BOTH: [Era; 2] = [Era::Modern, Era::Legacy];
const OK: &str = r#"{"content":[]}"#;

const FILTER: &str =
    r#"{"toolsListChanged":true,"promptsListChanged":true,"resourceSubscriptions":["a:b"]}"#;
