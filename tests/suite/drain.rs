//! The order in which a process takes its leave, on SIGTERM and on a GET.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::net::TcpStream;

use crate::operators_log::sample;
use crate::support::client::Answer;
use crate::support::proxy::until_closed;
use crate::support::shape::assert_state;
use crate::support::{Client, Config, Era, PATIENCE, Rig, in_both_eras, within};

in_both_eras!(
    it_is_not_ready_at_once_and_serves_on_for_the_delay,
    open_connections_hear_of_their_tasks_and_make_no_more,
    what_outlasts_the_grace_fails_within_it,
    a_drain_by_get_waits_for_calls_and_leaves_the_process,
    a_drain_without_a_signal_ends_the_process,
    a_second_drain_joins_the_first,
    a_call_of_a_client_without_tasks_is_waited_for,
);

const TOKEN: &str = "correct-horse-battery-staple";
const DRAIN: &str = "/drain/correct-horse-battery-staple";

fn config(drain: &str) -> Config {
    Config::always()
        .http2()
        .probed("listen = \"127.0.0.1:0\"")
        .section("drain", &format!("token = {TOKEN:?}\n{drain}"))
}

/// The rig, ready, and who probes it.
async fn rig(era: Era, config: Config) -> (Rig, Client) {
    let rig = Rig::start(era, config).await;
    let probes = Client::of(rig.proxy.probes().await);
    probes.until_page("/readyz", 200).await;
    (rig, probes)
}

async fn it_is_not_ready_at_once_and_serves_on_for_the_delay(era: Era) {
    let (mut rig, probes) = rig(era, config("delay = \"4s\"\ngrace = \"8s\"")).await;
    let client = rig.client();
    let held = client.call("held", json!({})).await.into_task();
    let mut listening = client.listen(&[&held]).await;
    listening.next_of("notifications/tasks").await;

    let from = Instant::now();
    rig.proxy.terminate();
    let not_ready = probes.until_page("/readyz", 503).await;
    assert_eq!(not_ready.json()["draining"], true);
    assert!(
        from.elapsed() < Duration::from_secs(2),
        "{:?}",
        from.elapsed()
    );
    assert_eq!(probes.page("/livez").await.status, 200);
    // New connections, new tasks: as usual.
    let task = client.call("slow", json!({"ms": 1})).await.into_task();
    client.until(&task, "completed").await;
    assert!(
        from.elapsed() < Duration::from_secs(4),
        "{:?}",
        from.elapsed()
    );

    let cancelled = listening.next_of("notifications/cancelled").await;
    assert!(
        from.elapsed() >= Duration::from_secs(4),
        "{:?}",
        from.elapsed()
    );
    let end = listening.next().await;
    assert_eq!(end["id"], cancelled["params"]["requestId"]);
    assert_eq!(end["result"]["resultType"], "complete");
    assert!(listening.next_or_end().await.is_none());
    assert!(
        TcpStream::connect(client.address()).await.is_err(),
        "the listener is closed"
    );
    rig.upstream.release("held");
    assert!(rig.proxy.ended().await.success());
    assert!(
        from.elapsed() < Duration::from_secs(12),
        "{:?}",
        from.elapsed()
    );
}

async fn open_connections_hear_of_their_tasks_and_make_no_more(era: Era) {
    let (mut rig, probes) = rig(era, config("grace = \"20s\"")).await;
    let (client, _arrived) = rig.client().over_http2().await;
    let held = client.call("held", json!({})).await.into_task();
    rig.upstream.until_started("held").await;
    rig.proxy.terminate();
    probes.until_page("/readyz", 503).await;
    until_closed(client.address()).await;

    let refused: Answer = client.call("echo", json!({"text": "x"})).await;
    assert_eq!(refused.refusal().0, 503);
    assert_eq!(rig.upstream.tally("echo").started, 0);
    let counted = "raincheck_refusals_total{limit=\"drain\"}";
    assert_eq!(sample(&rig, counted).await, Some(1.0));
    assert_state(&client.get(&held).await, "working");
    rig.upstream.release("held");
    assert!(rig.proxy.ended().await.success());
}

async fn what_outlasts_the_grace_fails_within_it(era: Era) {
    let (mut rig, _probes) = rig(era, config("grace = \"3s\"").embedded()).await;
    let task = rig.client().call("never", json!({})).await.into_task();
    rig.upstream.until_started("never").await;
    let from = Instant::now();
    assert!(rig.proxy.stop().await.success());
    let took = from.elapsed();
    assert!(
        took > Duration::from_millis(1_500),
        "it was waited for: {took:?}"
    );
    assert!(
        took < Duration::from_secs(4),
        "within the grace and the process's end: {took:?}"
    );
    rig.proxy.restart().await;
    let state = rig.client().get(&task).await;
    assert_state(&state, "failed");
    assert_eq!(state["error"]["data"]["io.raincheck/reason"], "shutdown");
}

async fn a_drain_by_get_waits_for_calls_and_leaves_the_process(era: Era) {
    let (mut rig, probes) = rig(era, config("grace = \"20s\"").embedded()).await;
    let client = rig.client();
    let task = client.call("held", json!({})).await.into_task();
    rig.upstream.until_started("held").await;
    let draining = tokio::spawn({
        let probes = probes.clone();
        async move { probes.page(DRAIN).await }
    });
    probes.until_page("/readyz", 503).await;
    assert!(!draining.is_finished(), "a call still runs");
    rig.upstream.release("held");
    let drained = within(PATIENCE, "the drain is answered", draining)
        .await
        .unwrap();
    assert_eq!(
        (drained.status, drained.json()),
        (200, json!({"drained": true}))
    );

    assert!(
        TcpStream::connect(client.address()).await.is_err(),
        "the listener is closed"
    );
    assert_eq!(probes.page("/livez").await.status, 200);
    assert_eq!(probes.page("/readyz").await.status, 503);
    assert_eq!(
        probes.page(DRAIN).await.status,
        200,
        "once more says the same"
    );
    assert!(rig.proxy.is_running(), "until it is told to stop");
    let from = Instant::now();
    assert!(rig.proxy.stop().await.success());
    assert!(
        from.elapsed() < Duration::from_secs(5),
        "{:?}",
        from.elapsed()
    );
    rig.proxy.restart().await;
    assert_state(&rig.client().get(&task).await, "completed");
}

async fn a_drain_without_a_signal_ends_the_process(era: Era) {
    let (mut rig, probes) = rig(era, config("grace = \"1s\"")).await;
    assert_eq!(probes.page(DRAIN).await.status, 200);
    assert!(rig.proxy.ended().await.success());
    let log = rig.proxy.log();
    assert!(log.contains("no signal came after the drain"), "{log}");
}

async fn a_second_drain_joins_the_first(era: Era) {
    let (mut rig, probes) = rig(era, config("grace = \"3s\"")).await;
    let _task = rig.client().call("never", json!({})).await.into_task();
    rig.upstream.until_started("never").await;
    let from = Instant::now();
    let (one, two) = tokio::join!(probes.page(DRAIN), probes.page(DRAIN));
    assert_eq!((one.status, two.status), (200, 200));
    assert!(
        from.elapsed() < Duration::from_secs(4),
        "{:?}",
        from.elapsed()
    );
    assert!(rig.proxy.stop().await.success());
}

/// Also where raincheck does not carry it but streams it past.
async fn a_call_of_a_client_without_tasks_is_waited_for(era: Era) {
    let config = config("grace = \"20s\"").tool("held", "mode = \"never\"");
    let (mut rig, probes) = rig(era, config).await;
    // Of a client without Tasks: a modern server's answer to it is not even read.
    let client = rig.client().without_tasks();
    let call = tokio::spawn(async move { client.call("held", json!({})).await });
    rig.upstream.until_started("held").await;
    let mut draining = tokio::spawn(async move { probes.page(DRAIN).await });
    until_closed(rig.proxy.address()).await;
    let early = tokio::time::timeout(Duration::from_millis(500), &mut draining).await;
    assert!(early.is_err(), "drained although a call runs: {early:?}");
    rig.upstream.release("held");
    let answer = within(PATIENCE, "the call is answered", call)
        .await
        .unwrap();
    assert_eq!(answer.status, 200);
    let drained = within(PATIENCE, "the drain is answered", draining).await;
    assert_eq!(drained.unwrap().status, 200);
    assert!(rig.proxy.stop().await.success());
}
