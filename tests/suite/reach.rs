//! The wrapped server over TLS and behind a socket, with headers of ours, as operators set it up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Method;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::version::TLS13;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::authority::Authority;
use crate::relay::{Relay, over_socket, terms};
use crate::support::{
    Client, Config, Era, PATIENCE, Proxy, TempDir, Upstream, eventually, in_both_eras,
};
use crate::tls_client;

in_both_eras!(
    a_socket_is_wrapped,
    certificates_are_changed_under_a_running_call,
    certificates_are_changed_under_load,
    headers_of_ours_arrive_once_and_are_not_logged,
);

/// A task, and what passes.
async fn assert_wrapped(proxy: &Proxy, upstream: &Upstream, text: &str) {
    let client = Client::of(proxy.address());
    let task = client.call("echo", json!({"text": text})).await.into_task();
    let state = client.until(&task, "completed").await;
    assert_eq!(state["result"]["content"][0]["text"], text);
    let path = "/.well-known/oauth-protected-resource/mcp";
    let answer = client.http(Method::GET, path).send().await;
    assert_eq!(answer.status, 200, "{}", proxy.log());
    assert_eq!(upstream.received_of_clients().last().unwrap().path, path);
}

async fn a_socket_is_wrapped(era: Era) {
    let upstream = Upstream::start(era).await;
    let files = TempDir::new();
    let socket = files.path().join("s");
    let _relay = over_socket(&socket, upstream.address());
    let url = format!("unix:{}", socket.display());
    let proxy = Config::always().start(&url).await;
    assert_wrapped(&proxy, &upstream, "through a socket").await;
    let call = upstream.requests("tools/call").remove(0);
    assert_eq!(call.header("host"), Some("localhost"));
    assert_eq!(call.path, "/mcp");
}

/// The files of a client of the one and of the other authority.
fn write(files: &TempDir, servers: &Authority, clients: &Authority) -> String {
    let write = |name: &str, text: &str| {
        let path = files.path().join(name);
        std::fs::write(&path, text).unwrap();
        format!("{name} = \"{}\"\n", path.display())
    };
    let (certificate, key) = clients.issue();
    write("roots", &servers.roots()) + &write("certificate", &certificate) + &write("key", &key)
}

async fn certificates_are_changed_under_a_running_call(era: Era) {
    let (old, new) = (Authority::new(), Authority::new());
    let upstream = Upstream::start(era).await;
    let relay = Relay::over_tls(terms(old.issue(), Some(&old), &TLS13), upstream.address()).await;
    let files = TempDir::new();
    let config = Config::always().section("upstream.tls", &write(&files, &old, &old));
    let proxy = config.start(&relay.url("localhost")).await;
    assert_wrapped(&proxy, &upstream, "sealed").await;
    let client = Client::of(proxy.address());
    let task = client.call("held", json!({})).await.into_task();
    upstream.until_started("held").await;

    files.file("key", "hunter2");
    proxy.hang_up();
    proxy.until_said("the old files stay in use", 1).await;
    assert_wrapped(&proxy, &upstream, "still the old").await;

    relay.change(terms(new.issue(), Some(&new), &TLS13));
    write(&files, &new, &new);
    proxy.hang_up();
    proxy.until_said("read anew", 1).await;
    assert_wrapped(&proxy, &upstream, "the new").await;

    upstream.release("held");
    client.until(&task, "completed").await;
    assert_eq!(upstream.tally("held").started, 1);
    assert!(!proxy.log().contains("hunter2"), "{}", proxy.log());
}

/// Both ends get other certificates again and again. No kept connection ends, no new one fails, no call is lost.
async fn certificates_are_changed_under_load(era: Era) {
    let authorities = Arc::new([Authority::new(), Authority::new()]);
    let clients = Authority::new();
    let upstream = Upstream::start(era).await;
    let server = |authority: &Authority| terms(authority.issue(), Some(&clients), &TLS13);
    let relay = Relay::over_tls(server(&authorities[0]), upstream.address()).await;
    let files = TempDir::new();
    let put = |name: &str, text: &str| {
        let path = files.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let write = |authority: &Authority| {
        let (certificate, key) = authority.issue();
        let [certificate, key] =
            [("shown", certificate), ("shown.key", key)].map(|(n, t)| put(n, &t));
        let (ours, our_key) = clients.issue();
        let [ours, our_key] = [("ours", ours), ("ours.key", our_key)].map(|(n, t)| put(n, &t));
        let roots = put("roots", &(authorities[0].roots() + &authorities[1].roots()));
        [
            format!("certificate = {certificate:?}\nkey = {key:?}"),
            format!("roots = {roots:?}\ncertificate = {ours:?}\nkey = {our_key:?}"),
        ]
    };
    let [listener, to_server] = write(&authorities[0]);
    let config = Config::auto("10s")
        .section("listen.tls", &listener)
        .section("upstream.tls", &to_server);
    let proxy = config.start(&relay.url("localhost")).await;
    let load = Load::start(&proxy, &authorities);
    for round in 1..=CHANGES {
        let [old, new] = [(round + 1) % 2, round % 2].map(|one| &authorities[one]);
        write(new);
        relay.change(server(new));
        proxy.hang_up();
        // The files of the listener, and those for the server.
        proxy.until_said("read anew", 2 * round).await;
        assert!(is_trusted(&proxy, new).await && !is_trusted(&proxy, old).await);
        load.goes_on().await;
    }
    let (calls, connections) = load.end().await;
    println!("{calls} calls on {connections} connections");
    assert_eq!(upstream.tally("echo").finished as usize, calls);
}

const CHANGES: usize = 6;

/// Clients that call without a pause: some on one connection each, one on a new connection each time.
struct Load {
    calls: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
    stop: CancellationToken,
    clients: JoinSet<()>,
}

impl Load {
    const KEPT: usize = 8;

    fn start(proxy: &Proxy, authorities: &Arc<[Authority; 2]>) -> Self {
        let mut load = Self {
            calls: Arc::default(),
            connections: Arc::default(),
            stop: CancellationToken::new(),
            clients: JoinSet::new(),
        };
        let client = Client::of(proxy.address());
        for number in 0..=Self::KEPT {
            let (client, authorities) = (client.clone(), Arc::clone(authorities));
            let (calls, connections) = (Arc::clone(&load.calls), Arc::clone(&load.connections));
            let stop = load.stop.clone();
            load.clients.spawn(async move {
                let mut kept = None;
                while !stop.is_cancelled() {
                    let mut sender = if let Some(sender) = kept.take() {
                        sender
                    } else {
                        connections.fetch_add(1, Ordering::Relaxed);
                        sender_of(&client, &authorities).await
                    };
                    echo(&client, &mut sender).await;
                    calls.fetch_add(1, Ordering::Relaxed);
                    kept = (number < Self::KEPT).then_some(sender);
                }
            });
        }
        load
    }

    /// Waits for some more calls.
    async fn goes_on(&self) {
        let before = self.calls.load(Ordering::Relaxed);
        let more = async || {
            let calls = self.calls.load(Ordering::Relaxed);
            if calls > before + 20 {
                Ok(())
            } else {
                Err(calls)
            }
        };
        eventually(PATIENCE, "calls go on", more).await;
    }

    /// How many calls there were, on how many connections.
    async fn end(mut self) -> (usize, usize) {
        self.stop.cancel();
        while let Some(ended) = self.clients.join_next().await {
            ended.unwrap();
        }
        let [calls, connections] =
            [self.calls, self.connections].map(|n| n.load(Ordering::Relaxed));
        (calls, connections)
    }
}

async fn sender_of(client: &Client, authorities: &[Authority; 2]) -> SendRequest<Full<Bytes>> {
    let trusted: Vec<&Authority> = authorities.iter().collect();
    let stream = tls_client::connect(client.address(), &trusted, None)
        .await
        .unwrap();
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn echo(client: &Client, sender: &mut SendRequest<Full<Bytes>>) {
    sender.ready().await.unwrap();
    let request = client.calling("echo", json!({"text": "on and on"}));
    let response = sender.send_request(request.into_http()).await.unwrap();
    assert_eq!(response.status(), 200);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&body);
    assert!(text.contains("on and on"), "{text}");
}

async fn headers_of_ours_arrive_once_and_are_not_logged(era: Era) {
    let upstream = Upstream::start(era).await;
    let proxy = Config::always()
        .section(
            "upstream.headers",
            "authorization = \"Bearer hunter2\"\nx-api-key = \"hunter3\"",
        )
        .section("telemetry", "log = \"trace\"")
        .start(&upstream.url())
        .await;
    let client = Client::of(proxy.address()).named("Bearer alice");
    let task = client.call("echo", json!({"text": "x"})).await.into_task();
    client.until(&task, "completed").await;
    let path = "/.well-known/oauth-protected-resource/mcp";
    let passed = client.http(Method::GET, path).header("x-api-key", "theirs");
    assert_eq!(passed.send().await.status, 200);
    let received = upstream.received();
    assert!(received.iter().any(|one| one.path == path));
    for one in received {
        for (name, expected) in [
            ("authorization", "Bearer hunter2"),
            ("x-api-key", "hunter3"),
        ] {
            let values: Vec<_> = one.headers.get_all(name).iter().collect();
            assert_eq!(values, [expected], "{one:?}");
        }
    }
    assert!(!proxy.log().contains("hunter"), "{}", proxy.log());
}

/// Our own credentials are there after a restart, too; a caller's are not, and need not be.
#[tokio::test]
async fn a_call_under_our_own_credentials_is_carried_on() {
    let upstream = Upstream::start(Era::Legacy).await;
    upstream.keep_events();
    let mut proxy = Config::always()
        .embedded()
        .section("upstream.headers", "authorization = \"Bearer ours\"")
        .start(&upstream.url())
        .await;
    let client = Client::of(proxy.address()).named("Bearer alice");
    let task = client.call("steps", json!({"n": 1})).await.into_task();
    client
        .until_it(&task, "at step 1", |state| {
            state["statusMessage"] == "step 1"
        })
        .await;
    proxy.kill();
    proxy.restart().await;
    upstream.release("steps");
    let client = client.at(proxy.address());
    client.until(&task, "completed").await;
    assert_eq!(upstream.tally("steps").started, 1);
}

#[tokio::test]
async fn the_listeners_certificate_is_read_anew() {
    let (old, new) = (Authority::new(), Authority::new());
    let files = TempDir::new();
    let proxy = over_tls(&files, &old).start(NOWHERE).await;
    assert!(is_trusted(&proxy, &old).await && !is_trusted(&proxy, &new).await);
    shown(&files, &new);
    proxy.hang_up();
    proxy.until_said("read anew", 1).await;
    assert!(is_trusted(&proxy, &new).await && !is_trusted(&proxy, &old).await);
}

#[tokio::test]
async fn a_client_without_tls_is_told_to_speak_https() {
    let (authority, files) = (Authority::new(), TempDir::new());
    let proxy = over_tls(&files, &authority).start(NOWHERE).await;
    let client = Client::of(proxy.address()).named("Bearer s3cret-token");
    // The second body is larger than the kernel's buffers: the client gets the refusal while raincheck reads no body.
    for body in ["{}".to_owned(), "x".repeat(4 << 20)] {
        let refused = client.post(body).send().await;
        assert_eq!(refused.status, 400);
        assert!(refused.text.contains("begin the URL with https://"));
    }
    assert!(is_trusted(&proxy, &authority).await);
    proxy.until_said("came without TLS", 1).await;
    let log = proxy.log();
    assert_eq!(log.matches("came without TLS").count(), 1, "{log}");
    assert!(!log.contains("s3cret-token"), "{log}");
}

/// The URL of a server that gets no request in these tests.
const NOWHERE: &str = "http://127.0.0.1:9/mcp";

/// A listener that shows a certificate of this authority, from these files.
fn over_tls(files: &TempDir, authority: &Authority) -> Config {
    shown(files, authority);
    let folder = files.path().display();
    let lines = format!("certificate = \"{folder}/certificate\"\nkey = \"{folder}/key\"");
    Config::always().section("listen.tls", &lines)
}

fn shown(files: &TempDir, authority: &Authority) {
    let (certificate, key) = authority.issue();
    std::fs::write(files.path().join("certificate"), certificate).unwrap();
    std::fs::write(files.path().join("key"), key).unwrap();
}

/// Whether the proxy shows a certificate that this authority signed.
async fn is_trusted(proxy: &Proxy, authority: &Authority) -> bool {
    let trusted = [authority];
    let connected = tls_client::connect(proxy.address(), &trusted, None);
    connected.await.is_ok()
}

#[test]
fn check_says_what_is_wrong_with_the_files() {
    let checked = |upstream: &str, roots: Option<&str>| {
        let mut check = std::process::Command::new(env!("CARGO_BIN_EXE_raincheck"));
        check.args(["check", "--store", "memory:", "--upstream", upstream]);
        if let Some(roots) = roots {
            check.env("RAINCHECK_UPSTREAM__TLS__ROOTS", roots);
        }
        let output = check.output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stdout).unwrap()
    };
    let said = checked("https://localhost:1/mcp", Some("/nonexistent/roots.pem"));
    let expected = "upstream.tls: /nonexistent/roots.pem: cannot be read: No such file";
    assert!(said.contains(expected), "{said}");
    let said = checked("unix:/nonexistent/s", None);
    assert!(said.contains("there is no /nonexistent/s"), "{said}");
}
