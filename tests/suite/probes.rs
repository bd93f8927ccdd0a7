//! What an orchestrator hears on the probe listener.

use std::process::{Command, Output};

use hyper::Method;
use serde_json::json;

use crate::redis_server::RedisServer;
use crate::support::{Client, Config, Era, Rig, Upstream, in_both_eras};

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

    // Nobody but raincheck itself talks to it.
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
    let asking = async { while probes.page("/readyz").await.json()["degraded"] != wanted {} };
    crate::support::within(crate::support::PATIENCE, "degraded or not", asking).await;
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

/// As the kubelet does it: from outside of the pod's network, at the pod's address.
#[tokio::test]
async fn another_network_namespace_probes_and_drains() {
    let config = Config::always()
        .probed_at("0.0.0.0:0", "")
        .section("drain", &format!("token = {TOKEN:?}"));
    let mut rig = Rig::start(Era::Modern, config).await;
    let port = rig.proxy.probes().await.port();
    let node = Namespace::start();
    Client::of(([127, 0, 0, 1], port).into())
        .until_page("/readyz", 200)
        .await;
    assert!(node.get(port, "/livez").starts_with("HTTP/1.1 200 "));
    assert!(node.get(port, "/readyz").starts_with("HTTP/1.1 200 "));
    assert!(node.get(port, "/mcp").starts_with("HTTP/1.1 404 "));
    let elsewhere = node.connect(rig.proxy.address().port(), "/mcp");
    assert!(
        !elsewhere.status.success(),
        "clients are served on loopback only"
    );

    let drained = node.get(port, &format!("/drain/{TOKEN}"));
    assert!(drained.starts_with("HTTP/1.1 200 "), "{drained}");
    assert!(node.get(port, "/readyz").starts_with("HTTP/1.1 503 "));
    assert!(rig.proxy.stop().await.success());
}

/// A network of its own with a cable to ours; gone when dropped.
struct Namespace {
    name: String,
    /// Our end of the cable.
    address: String,
}

impl Namespace {
    fn start() -> Self {
        let random = uuid::Uuid::new_v4();
        let [a, b, c, ..] = random.into_bytes();
        let name = format!("rc{}", &random.simple().to_string()[..8]);
        // Four addresses of the range that is kept for measuring networks (RFC 2544).
        let network = |last: u8| format!("198.{}.{b}.{}", 18 + (a & 1), (c & 0xFC) + last);
        let node = Self {
            address: network(1),
            name,
        };
        let (name, ours, theirs) = (
            &node.name,
            format!("{}a", node.name),
            format!("{}b", node.name),
        );
        ip(&format!("netns add {name}"));
        ip(&format!(
            "link add {ours} type veth peer name {theirs} netns {name}"
        ));
        ip(&format!("addr add {}/30 dev {ours}", network(1)));
        ip(&format!("link set {ours} up"));
        ip(&format!(
            "-n {name} addr add {}/30 dev {theirs}",
            network(2)
        ));
        ip(&format!("-n {name} link set {theirs} up"));
        node
    }

    /// The whole answer to a GET.
    fn get(&self, port: u16, path: &str) -> String {
        let output = self.connect(port, path);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn connect(&self, port: u16, path: &str) -> Output {
        let script = r#"exec 3<>"/dev/tcp/$0/$1" || exit 1
                        printf 'GET %s HTTP/1.1\r\nHost: %s:%s\r\nConnection: close\r\n\r\n' "$2" "$0" "$1" >&3
                        cat <&3"#;
        Command::new("timeout")
            .args([
                "20", "ip", "netns", "exec", &self.name, "bash", "-c", script,
            ])
            .args([&self.address, &port.to_string(), path])
            .output()
            .unwrap()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Both ends of the cable go with it.
        let _ = Command::new("ip")
            .args(["netns", "del", &self.name])
            .status();
    }
}

fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    let said = output.map(|output| (output.status.success(), String::from_utf8(output.stderr)));
    assert!(
        matches!(said, Ok((true, _))),
        "this test makes a network namespace: it needs root and iproute2 (ip {arguments}: {said:?})"
    );
}
