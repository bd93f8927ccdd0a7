//! What operators see of a server that goes away while nobody calls it, and of raincheck's own process.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::fleet::ask;
use crate::redis_server::RedisServer;
use crate::sse_server::SseServer;
use crate::support::{
    Client, Config, Era, PATIENCE, Proxy, TempDir, Upstream, eventually, in_both_eras,
};

in_both_eras!(
    a_server_that_goes_away_is_seen_without_a_call,
    a_store_without_room_is_seen_until_it_has_some,
);

fn watched() -> Config {
    Config::never().probed("listen = \"127.0.0.1:0\"")
}

async fn samples(proxy: &Proxy) -> BTreeMap<String, f64> {
    let operators = Client::of(proxy.operators().await);
    let page = operators.page("/metrics").await.of_status(200).unwrap();
    let lines = page.body.lines().filter(|line| !line.starts_with('#'));
    let samples = lines.map(|line| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    });
    samples.collect()
}

/// A server is asked every 10 s, and a connection is tried for some time.
async fn until_up(proxy: &Proxy, up: f64) {
    let what = format!("raincheck_upstream_up is {up}");
    eventually(PATIENCE * 2, &what, async || {
        let seen = samples(proxy).await["raincheck_upstream_up"];
        if seen.total_cmp(&up).is_eq() {
            Ok(())
        } else {
            Err(seen)
        }
    })
    .await;
}

/// It stays ready: its server has a probe of its own.
async fn is_ready_and_degraded(proxy: &Proxy, cause: Option<&str>) {
    let ready = Client::of(proxy.probes().await).page("/readyz").await;
    assert_eq!(
        (ready.status, &ready.json()["degraded"]),
        (200, &json!(cause))
    );
    let seen = samples(proxy).await;
    let is_away = seen["raincheck_degraded{cause=\"upstream_away\"}"];
    assert!(
        is_away
            .total_cmp(&f64::from(u8::from(cause.is_some())))
            .is_eq()
    );
    assert!(seen["raincheck_ready"] > 0.0);
    assert!(seen["raincheck_degraded{cause=\"store_away\"}"] < 1.0);
}

async fn a_server_that_goes_away_is_seen_without_a_call(era: Era) {
    let upstream = Upstream::start(era).await;
    let address = upstream.address();
    let proxy = watched().start(&upstream.url()).await;
    until_up(&proxy, 1.0).await;
    is_ready_and_degraded(&proxy, None).await;
    drop(upstream);
    until_up(&proxy, 0.0).await;
    is_ready_and_degraded(&proxy, Some("upstream_away")).await;
    proxy
        .until_said("the server does not answer any more", 1)
        .await;
    let _upstream = Upstream::start_at(era, address).await;
    until_up(&proxy, 1.0).await;
    is_ready_and_degraded(&proxy, None).await;
    proxy.until_said("the server answers again", 1).await;
}

/// Such a server is tried by connections that carry nothing, because each event stream is a session.
#[tokio::test]
async fn a_server_of_event_streams_that_goes_away_is_seen_without_a_call() {
    let server = SseServer::start().await;
    let proxy = watched()
        .section("upstream", "transport = \"sse\"")
        .start(&server.url())
        .await;
    until_up(&proxy, 1.0).await;
    drop(server);
    until_up(&proxy, 0.0).await;
    is_ready_and_degraded(&proxy, Some("upstream_away")).await;
}

#[tokio::test]
async fn a_program_that_cannot_be_run_is_down_until_it_can() {
    let directory = TempDir::new();
    let file = directory.path().join("may-start");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/stdio_server.py");
    let command = format!("command = [\"python3\", {script:?}, \"dies\", {file:?}]");
    let proxy = watched().section("upstream", &command).start("").await;
    until_up(&proxy, 0.0).await;
    std::fs::write(&file, "").unwrap();
    until_up(&proxy, 1.0).await;
}

async fn a_store_without_room_is_seen_until_it_has_some(era: Era) {
    let redis = RedisServer::start();
    let config = Config::always().redis(&redis.url());
    let config = config.probed("listen = \"127.0.0.1:0\"");
    let upstream = Upstream::start(era).await;
    let proxy = config.start(&upstream.url()).await;
    let client = Client::of(proxy.address());
    client.call("echo", json!({"text": "x"})).await.into_task();
    let probes = Client::of(proxy.probes().await);
    let until = async |room: &str, cause: Option<&str>| {
        let _: String = ask(&mut redis.connect(), &["CONFIG", "SET", "maxmemory", room]);
        eventually(PATIENCE, "the probe says so", async || {
            // A new task needs room.
            let _ = client.call("echo", json!({"text": "x"})).await;
            let ready = probes.page("/readyz").await;
            let degraded = ready.json()["degraded"].take();
            let is_so = ready.status == 200 && degraded == json!(cause);
            is_so.then_some(()).ok_or(degraded)
        })
        .await;
    };
    until("1", Some("store_full")).await;
    until("0", None).await;
}

#[tokio::test]
async fn the_process_is_measured_as_prometheus_does() {
    let upstream = Upstream::start(Era::Modern).await;
    let proxy = watched().start(&upstream.url()).await;
    let seen = samples(&proxy).await;
    assert!(seen["process_open_fds"] > 5.0, "{seen:?}");
    assert!(
        seen["process_max_fds"] > seen["process_open_fds"],
        "{seen:?}"
    );
    assert!(seen["process_resident_memory_bytes"] > 1e6, "{seen:?}");
    assert!(
        seen["process_virtual_memory_bytes"] > seen["process_resident_memory_bytes"],
        "{seen:?}"
    );
    assert!(seen["process_threads"] > 1.0, "{seen:?}");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let age = now.as_secs_f64() - seen["process_start_time_seconds"];
    assert!((-2.0..300.0).contains(&age), "{age}");
    let cpu = "process_cpu_seconds_total";
    // It rises from nothing, and never falls.
    eventually(PATIENCE, "more CPU was used", async || {
        let now = samples(&proxy).await[cpu];
        assert!(now >= seen[cpu], "{now}");
        now > seen[cpu]
    })
    .await;
}
