//! What an orchestrator hears on the probe listener.

use hyper::Method;
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use crate::redis_server::RedisServer;
use crate::support::{
    Client, Config, Era, PATIENCE, Rig, TempDir, Upstream, eventually, in_both_eras, within,
};

in_both_eras!(
    it_is_ready_when_the_server_was_reached,
    nothing_else_is_served,
    a_store_that_is_lost_in_redis_is_degraded_and_ready,
    a_gateway_whose_redis_is_lost_is_not_ready,
);

const TOKEN: &str = "correct-horse-battery-staple";

async fn it_is_ready_when_the_server_was_reached(era: Era) {
    let upstream = Upstream::start(era).await;
    let address = upstream.address();
    drop(upstream);
    let proxy = Config::always()
        .probed("")
        .start(&format!("http://{address}/mcp"))
        .await;
    let probes = Client::of(proxy.probes().await);
    let live = probes.page("/livez").await;
    assert_eq!((live.status, live.json()), (200, json!({"live": true})));
    let ready = probes.page("/readyz").await;
    assert_eq!(ready.status, 503);
    assert_eq!(ready.json()["missing"], json!(["upstream"]));

    // Only raincheck itself talks to the server.
    let _upstream = Upstream::start_at(era, address).await;
    let ready = probes.until_page("/readyz", 200).await;
    let all = json!({"ready": true, "missing": [], "draining": false, "degraded": null});
    assert_eq!(ready.json(), all);
}

#[tokio::test]
async fn a_server_that_wants_credentials_is_reached() {
    for era in ["auto", "legacy"] {
        let upstream = Upstream::start(Era::Legacy).await;
        upstream.challenge();
        let config = Config::always().probed("");
        let config = config.section("upstream", &format!("era = {era:?}"));
        let proxy = config.start(&upstream.url()).await;
        let probes = Client::of(proxy.probes().await);
        probes.until_page("/readyz", 200).await;
    }
}

/// Whether or not its era has to be found out.
#[tokio::test]
async fn a_program_that_cannot_be_run_is_missing_until_it_can() {
    let directory = TempDir::new();
    let until_it_can = async |era: &str| {
        let file = directory.path().join(era);
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/stdio_server.py");
        let upstream =
            format!("command = [\"python3\", {script:?}, \"dies\", {file:?}]\nera = {era:?}");
        let config = Config::always().probed("").section("upstream", &upstream);
        let proxy = config.start("").await;
        let probes = Client::of(proxy.probes().await);
        let missing = json!(["upstream", "upstream_cannot_run"]);
        until_ready_says(&probes, "missing", &missing).await;
        assert_eq!(probes.page("/readyz").await.status, 503);

        std::fs::write(&file, "").unwrap();
        probes.until_page("/readyz", 200).await;
    };
    tokio::join!(until_it_can("auto"), until_it_can("legacy"));
}

async fn nothing_else_is_served(era: Era) {
    let config = Config::always()
        .probed("")
        .section("drain", &format!("token = {TOKEN:?}"));
    let mut rig = Rig::start(era, config).await;
    let probes = rig.client().at(rig.proxy.probes().await);
    for path in ["/", "/mcp", "/livez/", "/drain", "/drain/", "/drain/wrong"] {
        assert_eq!(probes.page(path).await.status, 404, "{path}");
    }
    let call = probes.call("echo", json!({"text": "x"})).await;
    assert_eq!(call.status, 404);
    for path in ["/livez", "/readyz", &format!("/drain/{TOKEN}")] {
        let post = probes.http(Method::POST, path).send().await;
        assert_eq!(
            (post.status, &post.headers["allow"]),
            (405, &"GET".parse().unwrap())
        );
    }
    assert_eq!(rig.client().page("/livez").await.status, 404);
    assert!(rig.proxy.is_running());
    assert_eq!(probes.page("/livez").await.status, 200);
    assert!(!rig.proxy.log().contains(TOKEN));
}

async fn a_store_that_is_lost_in_redis_is_degraded_and_ready(era: Era) {
    let mut redis = RedisServer::start();
    let rig = Rig::start(era, Config::always().redis(&redis.url()).probed("")).await;
    let probes = rig.client().at(rig.proxy.probes().await);
    probes.until_page("/readyz", 200).await;
    redis.kill();
    until_degraded(&probes, json!("store_away")).await;
    assert_eq!(probes.page("/readyz").await.status, 200);
    redis.restart();
    until_degraded(&probes, json!(null)).await;
}

async fn until_degraded(probes: &Client, wanted: serde_json::Value) {
    until_ready_says(probes, "degraded", &wanted).await;
}

async fn until_ready_says(probes: &Client, what: &str, wanted: &serde_json::Value) {
    eventually(PATIENCE, &format!("{what} is {wanted}"), async || {
        let said = probes.page("/readyz").await.json();
        let is_so = said[what] == *wanted;
        is_so.then_some(()).ok_or(said)
    })
    .await;
}

async fn a_gateway_whose_redis_is_lost_is_not_ready(era: Era) {
    let mut redis = RedisServer::start();
    let config = Config::always().redis(&redis.url());
    let rig = Rig::start(era, config.probed("ready_needs_store = true")).await;
    let probes = rig.client().at(rig.proxy.probes().await);
    probes.until_page("/readyz", 200).await;
    redis.kill();
    probes.until_page("/readyz", 503).await;
    redis.restart();
    probes.until_page("/readyz", 200).await;
}

/// Who says nothing, from however many connections, delays a probe for as long as a request's head
/// may take and no longer.
#[tokio::test]
async fn silent_connections_are_few_and_short() {
    let rig = Rig::start(Era::Modern, Config::always().probed("")).await;
    let address = rig.proxy.probes().await;
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let probes = Client::of(address);
    assert_eq!(probes.page("/livez").await.status, 200);
    for mut stream in silent {
        let closed = async { matches!(stream.read(&mut [0]).await, Ok(0) | Err(_)) };
        assert!(within(PATIENCE, "a silent connection is closed", closed).await);
    }
}
