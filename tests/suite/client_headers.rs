//! What a client says beside its message: the same reaches the server whether the call passes, is carried or
//! becomes a task, and nothing that a server would believe because it comes from this machine.

use hyper::Method;
use serde_json::{Value, json};

use crate::relay::over_socket;
use crate::support::client::Request;
use crate::support::upstream::Received;
use crate::support::{Client, Config, Era, PATIENCE, Rig, TempDir, Upstream, in_both_eras, within};

in_both_eras!(
    a_call_says_the_same_whatever_becomes_of_it,
    a_server_elsewhere_hears_what_it_needs,
    what_is_asked_for_is_said,
    a_trusted_proxy_is_believed,
);

/// Of the request's way, of its meaning, or of one hop: nothing for the server.
const MISLEADING: [(&str, &str); 24] = [
    ("x-forwarded-for", "192.0.2.66"),
    ("x-forwarded-host", "evil.example"),
    ("x-forwarded-proto", "https"),
    ("x-forwarded-prefix", "/admin"),
    ("forwarded", "for=192.0.2.66"),
    ("x-real-ip", "192.0.2.66"),
    ("client-ip", "192.0.2.66"),
    ("x-original-url", "/admin"),
    ("x-rewrite-url", "/admin"),
    ("x-http-method-override", "DELETE"),
    ("x-method-override", "DELETE"),
    ("http2-settings", "AAMAAABk"),
    ("proxy-authorization", "Basic x"),
    ("proxy-status", "x"),
    ("proxy", "http://evil.example"),
    ("content_length", "7"),
    ("mcp_session_id", "s"),
    ("mcp-session_id", "s"),
    ("x_api_key", "other"),
    ("x.api.key", "other"),
    ("x_caller", "root"),
    ("x_forwarded_for", "192.0.2.66"),
    ("x-private", "1"),
    ("connection", "x-private"),
];

/// Of the client.
const OF_THE_CLIENT: [(&str, &str); 3] = [
    ("cookie", "a=1"),
    ("x-api-key", "hunter2"),
    ("x-tenant", "ada"),
];

/// Of the call.
const OF_THE_CALL: [(&str, &str); 2] = [
    (
        "traceparent",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    ),
    ("user-agent", "suite/1"),
];

fn saying_much(request: Request) -> Request {
    let all = MISLEADING.iter().chain(&OF_THE_CLIENT).chain(&OF_THE_CALL);
    all.fold(request, |request, (name, value)| {
        request.header(name, value)
    })
}

fn assert_says(one: &Received, expected: &[(&str, &str)], absent: &[(&str, &str)]) {
    for (name, value) in expected {
        let values: Vec<_> = one.headers.get_all(*name).iter().collect();
        assert_eq!(values, [value], "{name}: {one:?}");
    }
    for (name, _) in absent {
        assert_eq!(one.header(name), None, "{one:?}");
    }
}

/// The call that a client makes, as the server got it.
async fn called(config: Config, upstream: &Upstream, url: &str, tasks: bool) -> Received {
    let proxy = config.start(url).await;
    let client = Client::of(proxy.address());
    let client = if tasks {
        client
    } else {
        client.without_tasks()
    };
    let call = saying_much(client.calling("echo", json!({"text": "x"})));
    let answer = call.send().await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    upstream
        .until("echo", "run", |tally| tally.finished > 0)
        .await;
    upstream.requests("tools/call").pop().unwrap()
}

async fn a_call_says_the_same_whatever_becomes_of_it(era: Era) {
    for (config, tasks) in [
        (Config::never(), false),
        (Config::never(), true),
        (Config::auto("10s"), true),
        (Config::always(), true),
    ] {
        let upstream = Upstream::start(era).await;
        let one = called(config, &upstream, &upstream.url(), tasks).await;
        assert_says(&one, &OF_THE_CLIENT, &MISLEADING);
        assert_says(&one, &OF_THE_CALL, &[]);
        assert_eq!(one.headers.get_all("via").iter().count(), 1, "{one:?}");
    }
}

/// The next leg is the answer's: it says what the client said with it.
#[tokio::test]
async fn the_next_leg_says_what_the_answer_said() {
    let upstream = Upstream::start(Era::Modern).await;
    let proxy = Config::always().start(&upstream.url()).await;
    let client = Client::of(proxy.address());
    let task = client.call("ask", json!({})).await.into_task();
    let asked = client.until(&task, "input_required").await;
    let update = saying_much(client.updating(&task, every(&asked["inputRequests"])));
    assert_eq!(update.send().await.status, 200);
    client.until(&task, "completed").await;
    assert_last_leg_says_much(&upstream);
}

#[tokio::test]
async fn so_does_the_leg_of_a_retry() {
    let upstream = Upstream::start(Era::Modern).await;
    let terms = "input = \"before_task\"\ngrace_window = \"5s\"";
    let proxy = Config::always().terms(terms).start(&upstream.url()).await;
    let client = Client::of(proxy.address());
    let asked = client.call("ask", json!({})).await.into_result();
    let retry = saying_much(client.calling("ask", json!({}))).edit(|message| {
        message["params"]["inputResponses"] = every(&asked["inputRequests"]);
        message["params"]["requestState"] = asked["requestState"].clone();
    });
    let task = retry.send().await.into_task();
    client.until(&task, "completed").await;
    assert_last_leg_says_much(&upstream);
}

fn assert_last_leg_says_much(upstream: &Upstream) {
    let last = upstream.requests("tools/call").pop().unwrap();
    assert!(last.text().contains("inputResponses"), "{last:?}");
    assert_says(&last, &OF_THE_CLIENT, &MISLEADING);
    assert_says(&last, &OF_THE_CALL, &[]);
}

/// One answer to all that is asked.
fn every(questions: &Value) -> Value {
    let answer = json!({"action": "accept", "content": {"name": "Ada"}});
    let keys = questions.as_object().unwrap().keys();
    keys.map(|key| (key.clone(), answer.clone())).collect()
}

/// The same server, under an address that is not recognisable as this machine's.
fn elsewhere(upstream: &Upstream) -> String {
    format!("http://127.1:{}/mcp", upstream.address().port())
}

async fn a_server_elsewhere_hears_what_it_needs(era: Era) {
    for (config, tasks) in [(Config::never(), false), (Config::always(), true)] {
        let upstream = Upstream::start(era).await;
        let config = config.section("upstream", "forward_headers = [\"x-tenant\"]");
        let one = called(config, &upstream, &elsewhere(&upstream), tasks).await;
        assert_says(&one, &OF_THE_CALL, &MISLEADING);
        assert_says(&one, &[("x-tenant", "ada")], &OF_THE_CLIENT[..2]);
    }
}

async fn what_is_asked_for_is_said(era: Era) {
    for (config, tasks) in [(Config::never(), false), (Config::always(), true)] {
        for is_elsewhere in [false, true] {
            let upstream = Upstream::start(era).await;
            let lines = "forward_headers = [\"x-forwarded-for\", \"x-forwarded-proto\"]";
            let config = config.clone().section("upstream", lines);
            let url = if is_elsewhere {
                elsewhere(&upstream)
            } else {
                upstream.url()
            };
            let one = called(config, &upstream, &url, tasks).await;
            let ours = [
                ("x-forwarded-for", "127.0.0.1"),
                ("x-forwarded-proto", "http"),
            ];
            assert_says(&one, &ours, &MISLEADING[4..]);
            assert_eq!(one.header("x-forwarded-host"), None);
        }
    }
}

async fn a_trusted_proxy_is_believed(era: Era) {
    for (config, tasks) in [(Config::never(), false), (Config::always(), true)] {
        let upstream = Upstream::start(era).await;
        let config = config.section("listen", "trusted_proxies = [\"127.0.0.0/8\"]");
        let one = called(config, &upstream, &upstream.url(), tasks).await;
        assert_says(&one, &MISLEADING[..7], &MISLEADING[7..]);
    }
}

/// On a session everything that is no call of ours passes.
#[tokio::test]
async fn a_session_misleads_nobody() {
    let rig = Rig::start(Era::Legacy, Config::always()).await;
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "suite", "version": "1"}});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    let opening = saying_much(rig.client().post(message.to_string()));
    assert_eq!(opening.send().await.status, 200);
    let path = "/.well-known/oauth-protected-resource";
    let about = saying_much(rig.client().http(Method::GET, path));
    assert_eq!(about.send().await.status, 200);
    let received = rig.upstream.received();
    let passed = received
        .iter()
        .filter(|one| one.header("x-tenant").is_some());
    assert_eq!(passed.clone().count(), 2);
    for one in passed {
        assert_says(one, &OF_THE_CLIENT, &MISLEADING);
    }
}

/// No other replica has the cookie, so after a crash the call is not sent without it.
#[tokio::test]
async fn a_call_by_which_its_client_is_known_is_nobody_elses() {
    for (header, runs) in [(("x-api-key", "hunter2"), 1), (("user-agent", "suite"), 2)] {
        let upstream = Upstream::start(Era::Legacy).await;
        let config = Config::always()
            .embedded()
            .terms("on_owner_lost = \"rerun\"");
        let mut proxy = config.start(&upstream.url()).await;
        let client = Client::of(proxy.address());
        let call = client.calling("held", json!({})).header(header.0, header.1);
        let task = call.send().await.into_task();
        upstream.until_started("held").await;
        proxy.kill();
        proxy.restart().await;
        upstream.release("held");
        let client = client.at(proxy.address());
        let status = if runs == 1 { "failed" } else { "completed" };
        client.until(&task, status).await;
        assert_eq!(upstream.tally("held").started, runs, "{header:?}");
        assert!(!proxy.log().contains("hunter2"), "{}", proxy.log());
    }
}

/// Raincheck is its own server, which could not be known at its start.
#[tokio::test]
async fn a_circle_ends_at_its_second_turn() {
    let files = TempDir::new();
    let socket = files.path().join("s");
    let url = format!("unix:{}", socket.display());
    let proxy = Config::always().start(&url).await;
    let _relay = over_socket(&socket, proxy.address());
    let client = Client::of(proxy.address());
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "suite", "version": "1"}});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    let asking = client.post(message.to_string()).send();
    let answer = within(PATIENCE, "the end of a circle", asking).await;
    assert_eq!(answer.status, 508, "{}", answer.body);
    assert!(answer.body.contains("raincheck itself"), "{}", answer.body);
    let listing = client.request("tools/list", json!({})).send();
    let answer = within(PATIENCE, "the end of a circle", listing).await;
    assert!(answer.json()["error"].is_object(), "{}", answer.body);
    proxy.until_said("upstream.url leads here", 1).await;
    let descriptors = format!("/proc/{}/fd", proxy.pid());
    let open = std::fs::read_dir(descriptors).unwrap().count();
    assert!(open < 64, "{open} descriptors");
}
