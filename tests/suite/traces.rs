//! Traces: what a collector gets of calls, and what the server is told of the trace.

use serde_json::json;

use crate::stdio_front::{Launched, modern};
use crate::support::client::Request;
use crate::support::collector::{Collector, Span, only};
use crate::support::pair::{Pair, SEAL_KEY};
use crate::support::session::Session;
use crate::support::upstream::Received;
use crate::support::{Client, Config, Era, Rig, Upstream, in_both_eras};

in_both_eras!(
    a_passed_a_plain_and_a_recorded_call_are_one_trace_each,
    the_span_of_a_header_is_the_parent_too,
    a_tool_that_fails_is_an_error,
    a_question_is_waited_for_in_the_trace,
    a_poll_is_its_own_span_and_points_to_its_call,
    what_the_client_does_not_record_is_not_recorded,
    without_configuration_nothing_is_told_and_nothing_changes,
    no_argument_no_result_and_no_secret_gets_into_a_span,
    the_last_spans_go_out_with_the_process,
    the_usual_variables_are_enough,
    a_client_on_a_pipe_is_traced_too,
);

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";
const CLIENT: i32 = 3;
const SERVER: i32 = 2;

fn parent() -> String {
    format!("00-{TRACE}-{PARENT}-01")
}

fn traced(request: Request) -> Request {
    request.edit(|message| {
        message["params"]["_meta"]["traceparent"] = json!(parent());
        message["params"]["_meta"]["tracestate"] = json!("a=1");
    })
}

/// The span that the server was told of, by both ways.
fn told(received: &Received) -> (String, String) {
    let in_meta = received.json()["params"]["_meta"]["traceparent"].clone();
    let in_meta = in_meta.as_str().expect("a traceparent").to_owned();
    assert_eq!(received.header("traceparent"), Some(&*in_meta));
    let mut parts = in_meta.split('-').skip(1).map(str::to_owned);
    (parts.next().unwrap(), parts.next().unwrap())
}

/// Whether each span is below one of the others, or below the client's.
fn assert_whole(spans: &[Span]) {
    for span in spans {
        let is_known = |parent: &str| spans.iter().any(|it| it.id == parent);
        assert!(
            span.parent == PARENT || is_known(&span.parent),
            "{span:#?} in {spans:#?}"
        );
        assert_eq!(span.trace, TRACE);
        assert!(span.start > 0 && span.start <= span.end, "{span:#?}");
    }
}

async fn a_passed_a_plain_and_a_recorded_call_are_one_trace_each(era: Era) {
    for (mode, is_task) in [
        (Config::never(), false),
        (Config::auto("10s"), false),
        (Config::always(), true),
    ] {
        let collector = Collector::start().await;
        let rig = Rig::start(era, collector.of(mode)).await;
        let client = rig.client();
        let answer = traced(client.calling("echo", json!({"text": "x"})))
            .send()
            .await;
        if is_task {
            let task = answer.into_task();
            client.until(&task, "completed").await;
        } else {
            answer.into_result();
        }
        let spans = collector.until("tools/call echo", 1).await;
        assert_whole(&spans);
        let call = only(&spans, "tools/call echo", SERVER);
        assert_eq!(call.parent, PARENT);
        for (key, text) in [
            ("mcp.method.name", "tools/call"),
            ("gen_ai.tool.name", "echo"),
            ("gen_ai.operation.name", "execute_tool"),
            ("mcp.protocol.version", "2026-07-28"),
            ("network.transport", "tcp"),
            ("error.type", ""),
        ] {
            assert_eq!(call.said(key), text, "{key}");
        }
        assert!(!call.is_error && !call.said("jsonrpc.request.id").is_empty());
        assert_eq!(call.said("raincheck.task.id").is_empty(), !is_task);
        assert_eq!(call.of_exporter("service.name"), "raincheck");
        let received = rig.upstream.requests("tools/call").pop().unwrap();
        let (trace, span) = told(&received);
        assert_eq!(trace, TRACE);
        assert!(spans.iter().any(|it| it.id == span), "{span}: {spans:#?}");
        let state = &received.json()["params"]["_meta"]["tracestate"];
        assert_eq!(state, "a=1");
    }
}

async fn the_span_of_a_header_is_the_parent_too(era: Era) {
    let collector = Collector::start().await;
    let rig = Rig::start(era, collector.of(Config::auto("10s"))).await;
    let client = rig.client();
    let call = client.calling("echo", json!({"text": "x"}));
    let answer = call.header("traceparent", &parent()).send().await;
    answer.into_result();
    let spans = collector.until("tools/call echo", 2).await;
    assert_whole(&spans);
    assert_eq!(only(&spans, "tools/call echo", SERVER).parent, PARENT);
    let sent = only(&spans, "tools/call echo", CLIENT);
    let received = rig.upstream.requests("tools/call").pop().unwrap();
    assert_eq!(told(&received), (TRACE.to_owned(), sent.id.clone()));
}

async fn a_tool_that_fails_is_an_error(era: Era) {
    for mode in [Config::never(), Config::auto("10s"), Config::always()] {
        let collector = Collector::start().await;
        let rig = Rig::start(era, collector.of(mode)).await;
        let client = rig.client();
        client.call("fail", json!({})).await;
        client.call("error", json!({})).await;
        let spans = collector.until("tools/call error", 1).await;
        let failed = only(&spans, "tools/call fail", SERVER);
        assert_eq!(failed.said("error.type"), "tool_error");
        let error = only(&spans, "tools/call error", SERVER);
        assert!(error.is_error && failed.is_error);
        let code = error.said("rpc.response.status_code");
        assert!(
            !code.is_empty() && code == error.said("error.type"),
            "{code}"
        );
        // Nobody named a trace: each call begins one.
        assert!(error.parent.is_empty() && error.trace != failed.trace);
    }
}

async fn a_question_is_waited_for_in_the_trace(era: Era) {
    let collector = Collector::start().await;
    let rig = Rig::start(era, collector.of(Config::always())).await;
    let client = rig.client();
    let task = traced(client.calling("ask", json!({}))).send().await;
    let task = task.into_task();
    let asked = client.until(&task, "input_required").await;
    let keys = asked["inputRequests"].as_object().unwrap().keys();
    let accept = json!({"action": "accept", "content": {"name": "ann"}});
    let answers = keys.map(|key| (key.clone(), accept.clone())).collect();
    // The answers come in a trace of their own.
    let other = "00-11111111111111111111111111111111-2222222222222222-01";
    let update = client.updating(&task, answers);
    update.header("traceparent", other).send().await;
    client.until(&task, "completed").await;
    let mut spans = collector.until("tools/call ask", 2).await;
    spans.retain(|span| span.trace == TRACE);
    assert_whole(&spans);
    let call = only(&spans, "tools/call ask", SERVER);
    let input = only(&spans, "input", 1);
    assert_eq!(input.parent, call.id);
    assert!(call.start <= input.start && input.end <= call.end);
    // All legs of the call are below one span.
    let sent = only(&spans, "tools/call ask", CLIENT);
    for received in rig.upstream.requests("tools/call") {
        assert_eq!(told(&received), (TRACE.to_owned(), sent.id.clone()));
    }
}

async fn a_poll_is_its_own_span_and_points_to_its_call(era: Era) {
    let collector = Collector::start().await;
    let rig = Rig::start(era, collector.of(Config::always())).await;
    let client = rig.client();
    let task = client.call("held", json!({})).await.into_task();
    // Polls of a client that does not trace have no span.
    client.get(&task).await;
    traced(client.asking("tasks/get", &task)).send().await;
    rig.upstream.release("held");
    client.until(&task, "completed").await;
    let spans = collector.until("tools/call held", 2).await;
    let call = only(&spans, "tools/call held", SERVER);
    let poll = only(&spans, "tasks/get", SERVER);
    assert_eq!((&*poll.trace, &*poll.parent), (TRACE, PARENT));
    assert_eq!(poll.link, Some((call.trace.clone(), call.id.clone())));
}

async fn what_the_client_does_not_record_is_not_recorded(era: Era) {
    let collector = Collector::start().await;
    let rig = Rig::start(era, collector.of(Config::auto("10s"))).await;
    let client = rig.client();
    let unsampled = format!("00-{TRACE}-{PARENT}-00");
    let call = client.calling("echo", json!({"text": "x"}));
    let call = call.edit(|message| {
        message["params"]["_meta"]["traceparent"] = json!(unsampled);
    });
    call.send().await.into_result();
    let received = rig.upstream.requests("tools/call").pop().unwrap();
    let in_meta = received.json()["params"]["_meta"]["traceparent"].clone();
    assert_eq!(in_meta, json!(unsampled));
    client.call("fail", json!({})).await;
    let spans = collector.until("tools/call fail", 1).await;
    assert!(!spans.iter().any(|span| span.trace == TRACE), "{spans:#?}");

    // And the server learns that a trace that is left out is none.
    let left_out = Config::auto("10s").section(
        "telemetry.traces",
        &format!("endpoint = \"{}/v1/traces\"\nratio = 0", collector.url),
    );
    let rig = Rig::start(era, left_out).await;
    let answer = rig.client().call("echo", json!({"text": "x"})).await;
    answer.into_result();
    let received = rig.upstream.requests("tools/call").pop().unwrap();
    told(&received);
    let parent = received.header("traceparent").unwrap().to_owned();
    assert!(parent.ends_with("-00"), "{parent}");
    assert!(
        collector
            .got()
            .spans
            .iter()
            .all(|it| !it.name.contains("echo"))
    );
}

async fn without_configuration_nothing_is_told_and_nothing_changes(era: Era) {
    let rig = Rig::start(era, Config::never()).await;
    let client = rig.client();
    client.call("echo", json!({"text": "x"})).await;
    let call = traced(client.calling("echo", json!({"text": "x"})));
    call.header("traceparent", &parent()).send().await;
    let received = rig.upstream.requests("tools/call");
    let meta = |received: &Received| received.json()["params"]["_meta"].clone();
    assert_eq!(received[0].header("traceparent"), None);
    assert!(meta(&received[0]).get("traceparent").is_none());
    assert_eq!(received[1].header("traceparent"), Some(&*parent()));
    assert_eq!(meta(&received[1])["traceparent"], json!(parent()));
}

const SECRETS: [&str; 4] = [
    "b4e1c0de-argument",
    "b4e1c0de-token",
    "b4e1c0de-header",
    "b4e1c0de-query",
];

async fn no_argument_no_result_and_no_secret_gets_into_a_span(era: Era) {
    let [argument, token, header, query] = SECRETS;
    let collector = Collector::start().await;
    let endpoint = format!("endpoint = \"{}/v1/traces?key={query}\"", collector.url);
    let config = Config::always()
        .section("telemetry", "log = \"trace\"")
        .section("telemetry.traces", &endpoint)
        .section("telemetry.traces.headers", &format!("x-key = {header:?}"));
    let mut rig = Rig::start(era, config).await;
    let client = rig.client().named(format!("Bearer {token}"));
    let echo = client.call("echo", json!({"text": argument})).await;
    let task = echo.into_task();
    let ended = client.until(&task, "completed").await;
    assert!(ended.to_string().contains(argument));
    collector.until("tools/call echo", 2).await;
    rig.proxy.stop().await;
    let got = collector.got();
    assert_eq!(got.headers[0]["x-key"], header);
    for body in &got.bodies {
        let text = String::from_utf8_lossy(body).into_owned();
        for secret in SECRETS.iter().chain([&&*task.id]) {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
    }
    let log = rig.proxy.log();
    for secret in [header, query, token] {
        assert!(!log.contains(secret), "{secret}: {log}");
    }
}

async fn the_last_spans_go_out_with_the_process(era: Era) {
    let collector = Collector::start().await;
    let mut rig = Rig::start(era, collector.of(Config::auto("10s"))).await;
    rig.client().call("fail", json!({})).await;
    rig.proxy.stop().await;
    let got = collector.got();
    only(&got.spans, "tools/call fail", SERVER);
}

async fn the_usual_variables_are_enough(era: Era) {
    let collector = Collector::start().await;
    let config = Config::auto("10s")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url)
        .env("OTEL_EXPORTER_OTLP_HEADERS", "x-key=b4e1%20c0de")
        .env("OTEL_SERVICE_NAME", "tools")
        .env("OTEL_METRICS_EXPORTER", "otlp");
    let rig = Rig::start(era, config).await;
    rig.client().call("fail", json!({})).await;
    let spans = collector.until("tools/call fail", 1).await;
    assert_eq!(spans[0].of_exporter("service.name"), "tools");
    assert_eq!(collector.got().headers[0]["x-key"], "b4e1 c0de");
    rig.proxy.until_said("OTEL_METRICS_EXPORTER: ", 1).await;
    assert!(!rig.proxy.log().contains("b4e1"), "{}", rig.proxy.log());
}

async fn a_client_on_a_pipe_is_traced_too(era: Era) {
    let collector = Collector::start().await;
    let upstream = Upstream::start(era).await;
    let config = collector.of(Config::auto("10s"));
    let mut front = Launched::with(&["--upstream", &upstream.url()], &config);
    for tool in ["fail", "echo"] {
        let params = modern(json!({"name": tool, "arguments": {}}));
        front.request(json!(tool), "tools/call", params).await;
    }
    let spans = collector.until("tools/call echo", 2).await;
    let failed = only(&spans, "tools/call fail", SERVER);
    assert_eq!(failed.said("error.type"), "tool_error");
    let call = only(&spans, "tools/call echo", SERVER);
    assert_eq!(call.said("network.transport"), "pipe");
    assert_eq!(call.said("error.type"), "");
}

#[tokio::test]
async fn a_task_whose_owner_was_killed_is_one_trace() {
    let collector = Collector::start().await;
    let upstream = Upstream::start(Era::Legacy).await;
    upstream.keep_events();
    let config = Config::always()
        .section("upstream", "shared = true\ntrust_annotations = true")
        .store(&format!("seal_key = {SEAL_KEY:?}"));
    let mut pair = Pair::of(upstream, collector.of(config)).await;
    let call = pair.at_a().calling("steps", json!({"n": 2}));
    let task = traced(call).send().await.into_task();
    let at_a = pair.at_a();
    at_a.until_it(&task, "at step 2", |state| {
        state["statusMessage"] == "step 2"
    })
    .await;
    pair.until_resumable(&task).await;
    pair.a.kill();
    pair.upstream.release("steps");
    pair.at_b().until(&task, "completed").await;
    let spans = collector.until("tools/call steps", 2).await;
    assert_whole(&spans);
    let call = only(&spans, "tools/call steps", SERVER);
    assert_eq!(call.parent, PARENT);
    assert_eq!(call.said("raincheck.outcome"), "completed");
    assert_eq!(call.said("raincheck.owners"), "2");
    // Both told by the replica that took over; the first one told nothing.
    assert_eq!(call.of_exporter("service.instance.id"), "b");
    let taken_over = only(&spans, "taken over", 1);
    assert_eq!(taken_over.parent, call.id);
    // The server was told of the span by the replica that was killed.
    let received = pair.upstream.requests("tools/call").pop().unwrap();
    let sent = only(&spans, "tools/call steps", CLIENT);
    assert_eq!(told(&received), (TRACE.to_owned(), sent.id.clone()));
    assert_eq!(pair.upstream.tally("steps").started, 1);
}

#[tokio::test]
async fn a_collector_that_is_away_keeps_no_call_waiting() {
    let collector = Collector::start().await;
    collector.answer_with(503);
    let rig = Rig::start(Era::Modern, collector.of(Config::auto("10s"))).await;
    let client = rig.client();
    client.call("fail", json!({})).await;
    collector.until_asked().await;
    for _ in 0..20 {
        client
            .call("echo", json!({"text": "x"}))
            .await
            .into_result();
    }
    rig.proxy.until_said("does not take spans", 1).await;
    collector.answer_with(200);
    // What waited comes when the collector is back, once each.
    let spans = collector.until("tools/call echo", 40).await;
    only(&spans, "tools/call fail", SERVER);
    rig.proxy.until_said("takes spans again", 1).await;
    assert_eq!(rig.proxy.log().matches("does not take spans").count(), 1);
}

#[tokio::test]
async fn spans_go_over_grpc_too() {
    const UNAVAILABLE: u16 = 14;
    const UNAUTHENTICATED: u16 = 16;
    let collector = Collector::of_grpc().await;
    collector.answer_with(UNAVAILABLE);
    let config = collector.of(Config::auto("10s"));
    let rig = Rig::start(Era::Modern, config).await;
    let client = rig.client();
    client.call("fail", json!({})).await;
    let said = "why=\"gRPC 14 UNAVAILABLE\"";
    rig.proxy.until_said(said, 1).await;
    collector.answer_with(0);
    let spans = collector.until("tools/call fail", 2).await;
    let failed = only(&spans, "tools/call fail", SERVER);
    assert_eq!(failed.said("error.type"), "tool_error");
    rig.proxy.until_said("takes spans again", 1).await;
    collector.answer_with(UNAUTHENTICATED);
    client.call("echo", json!({"text": "x"})).await;
    let said = "status=gRPC 16 UNAUTHENTICATED";
    rig.proxy.until_said(said, 1).await;
}

#[tokio::test]
async fn the_usual_variables_are_enough_for_grpc() {
    let collector = Collector::of_grpc().await;
    let config = Config::auto("10s")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url)
        .env("OTEL_EXPORTER_OTLP_HEADERS", "x-key=b4e1%20c0de")
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    let rig = Rig::start(Era::Modern, config).await;
    rig.client().call("fail", json!({})).await;
    collector.until("tools/call fail", 1).await;
    assert_eq!(collector.got().headers[0]["x-key"], "b4e1 c0de");
}

#[tokio::test]
async fn what_speaks_no_grpc_is_named_as_that() {
    let collector = Collector::start().await;
    let terms = format!("endpoint = {:?}\nprotocol = \"grpc\"", collector.url);
    let config = Config::auto("10s").section("telemetry.traces", &terms);
    let rig = Rig::start(Era::Modern, config).await;
    rig.client().call("fail", json!({})).await;
    rig.proxy.until_said("does not take spans", 1).await;
}

#[tokio::test]
async fn a_call_on_a_session_is_traced_and_its_other_bytes_stay() {
    for (config, is_carried) in [(Config::never(), false), (Config::always(), true)] {
        let collector = Collector::start().await;
        let rig = Rig::start(Era::Legacy, collector.of(config)).await;
        let session = Session::open(Client::of(rig.proxy.address()), "2025-11-25").await;
        let call = session.calling(7, "echo", json!({"text": "x"}));
        let mut answer = traced(call).send().await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.body.clear();
        let spans = collector.until("tools/call echo", 1).await;
        let call = only(&spans, "tools/call echo", SERVER);
        assert_eq!((&*call.trace, &*call.parent), (TRACE, PARENT));
        assert_eq!(call.said("jsonrpc.request.id"), "7");
        assert_eq!(call.said("mcp.protocol.version"), "2025-11-25");
        let received = rig.upstream.requests("tools/call").pop().unwrap();
        let (_, told) = told(&received);
        assert!(
            spans.iter().any(|span| span.id == told),
            "{is_carried}: {spans:#?}"
        );
    }
}
