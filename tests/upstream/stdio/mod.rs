//! The same contract over standard input and output: a real program, run by raincheck.

use super::*;
use raincheck::upstream::stdio::Program;
use serde_json::Value;

mod calls;
mod doubts;
mod faults;
mod processes;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/stdio_server.py");

fn program(mode: &str) -> Program {
    let path = std::env::var_os("PATH").unwrap_or_default();
    Program {
        launcher: env!("CARGO_BIN_EXE_raincheck").into(),
        name: "python3".into(),
        arguments: vec![SCRIPT.into(), mode.into()],
        environment: vec![("PATH".into(), path.into_string().unwrap())],
        directory: None,
        open_files: None,
    }
}

fn of(mode: &str) -> Settings {
    Settings {
        command: Some(program(mode)),
        ..Settings::default()
    }
}

fn run(settings: &Settings) -> Upstream {
    Upstream::new(settings, TaskTracker::new()).unwrap()
}

fn mode(era: Era) -> &'static str {
    match era {
        Era::Legacy => "legacy",
        Era::Modern => "modern",
    }
}

fn upstream(era: Era) -> Upstream {
    run(&of(mode(era)))
}

fn with_one_child(era: Era) -> Upstream {
    let mut settings = of(mode(era));
    settings.children_max = 1;
    run(&settings)
}

/// A modern request says so in its `_meta`; to a legacy server none of it goes.
fn call_with(tool: &str, arguments: &str) -> UpstreamRequest {
    UpstreamRequest {
        params: format!(
            r#"{{"name":"{tool}","arguments":{arguments},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{"elicitation":{{}}}}}}}}"#
        )
        .into(),
        ..call(tool)
    }
}

/// The text of a tool's answer.
async fn text(upstream: &Upstream, era: Era, tool: &str, arguments: &str) -> String {
    text_of(upstream.begin(era, call_with(tool, arguments))).await
}

/// The process that serves a caller.
async fn pid(upstream: &Upstream, era: Era) -> u32 {
    text(upstream, era, "pid", "{}").await.parse().unwrap()
}

/// Everything that the child heard before, by method.
async fn seen(upstream: &Upstream, era: Era) -> Vec<Value> {
    serde_json::from_str(&text(upstream, era, "seen", "{}").await).unwrap()
}

/// Sends a request and waits until the child has it: another one was answered after it.
async fn begun(upstream: &Upstream, era: Era, outgoing: UpstreamRequest) -> Exchange {
    let mut exchange = upstream.begin(era, outgoing);
    // The child may have to be started for it.
    let sent = timeout(Duration::from_secs(20), exchange.events.next());
    assert!(matches!(sent.await.expect("in time"), Some(Event::Sent)));
    let polled = timeout(Duration::from_secs(20), async {
        tokio::select! {
            biased;
            event = exchange.events.next() => panic!("{event:?}"),
            _ = pid(upstream, era) => {}
        }
    });
    polled.await.expect("in time");
    exchange
}
