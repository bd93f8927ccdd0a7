//! Clients that name themselves get what keeps their long calls alive, without a setting. A setting counts more than what is
//! known of a client.

use hyper::Method;
use serde_json::{Value, json};

use crate::stdio_front::Launched;
use crate::support::client::{Answer, Client, Request};
use crate::support::pair::Pair;
use crate::support::session::{NEWEST, Session, initialize};
use crate::support::upstream::Upstream;
use crate::support::{Config, Era, PATIENCE, Rig, in_both_eras, within};

in_both_eras!(
    progress_is_sent_to_those_whom_it_helps,
    those_who_give_up_early_have_companion_tools,
    a_client_of_2026_is_known_by_each_request,
    what_the_settings_say_counts_more,
);

const OPENCODE: (&str, &str) = ("opencode", "1.18.33");
const OPENCODE_BEFORE: (&str, &str) = ("opencode", "1.14.0");
const CODEX: (&str, &str) = ("codex-mcp-client", "0.154.0");
const PYTHON: (&str, &str) = ("mcp", "0.1.0");
const CLAUDE_CODE: (&str, &str) = ("claude-code", "2.1.330");
const UNKNOWN: (&str, &str) = ("suite", "1");

const TICKETS_SOON: &str = "fallback_after = \"100ms\"";

/// A session of a client of that name.
async fn session(client: Client, (name, version): (&str, &str)) -> Session {
    let mut hello = initialize(NEWEST, json!({}));
    hello["params"]["clientInfo"] = json!({"name": name, "version": version});
    Session::greeting(client, NEWEST, &hello).await.0
}

/// A request of a client of 2026-07-28 of that name.
fn by(request: Request, (name, version): (&str, &str)) -> Request {
    request.edit(|message| {
        let meta = &mut message["params"]["_meta"];
        meta["io.modelcontextprotocol/clientInfo"] = json!({"name": name, "version": version});
    })
}

fn with_token(request: Request) -> Request {
    request.edit(|message| message["params"]["_meta"]["progressToken"] = json!("t"))
}

fn without_token(request: Request) -> Request {
    request.edit(|message| message["params"]["_meta"] = json!({}))
}

/// Whether the list has the companion tools: all of them, or none.
fn has_companions(list: &Value) -> bool {
    let tools = list["tools"].as_array();
    let tools = tools.unwrap_or_else(|| panic!("{list}"));
    let has = |name: &str| tools.iter().any(|tool| tool["name"] == name);
    let found = ["task_result", "task_cancel", "task_answer"]
        .map(|name| has(name) || has(&format!("raincheck_{name}")));
    assert!(found.iter().all(|it| *it == found[0]), "{list}");
    found[0]
}

async fn listed(session: &Session) -> Value {
    let listing = session.request(json!("l"), "tools/list", json!({}));
    listing.send().await.into_result()
}

async fn spared(what: &str, calling: tokio::task::JoinHandle<Answer>) {
    let answer = within(PATIENCE, what, calling).await.unwrap();
    assert!(answer.text.contains("released"), "{}", answer.text);
    assert!(
        !answer.body.contains("still running"),
        "{what}: {}",
        answer.body
    );
}

/// Of four that call at the same time, two hear of it while the server is silent.
async fn progress_is_sent_to_those_whom_it_helps(era: Era) {
    let rig = Rig::start(era, Config::auto("10s")).await;
    let nonce = json!({"nonce": "n"});
    let sessions = [OPENCODE, UNKNOWN, PYTHON, UNKNOWN].map(|name| session(rig.client(), name));
    let [opencode, unknown, python, silent] = futures_util::future::join_all(sessions)
        .await
        .try_into()
        .unwrap();
    let python = python.calling(1, "held", nonce.clone());
    let silent = without_token(silent.calling(1, "held", nonce.clone()));
    let not_helped = tokio::spawn(python.send());
    let not_asked = tokio::spawn(silent.send());
    let (opencode, unknown) = (
        opencode.calling(1, "held", nonce.clone()),
        unknown.calling(1, "held", nonce),
    );
    let (mut opencode, mut unknown) = tokio::join!(opencode.stream(), unknown.stream());
    for stream in [&mut opencode, &mut unknown] {
        let note = stream.next_of("notifications/progress").await;
        assert_eq!(note["params"]["message"], "still running", "{note}");
        assert_eq!(note["params"]["progressToken"], "t");
    }
    rig.upstream.release("n");
    for stream in [&mut opencode, &mut unknown] {
        let answer = stream.next().await;
        assert_eq!(
            answer["result"]["content"][0]["text"], "released",
            "{answer}"
        );
    }
    spared("a client that progress does not help", not_helped).await;
    spared("a client that asked for no progress", not_asked).await;
}

async fn those_who_give_up_early_have_companion_tools(era: Era) {
    let config = Config::auto("10s").tool("held", TICKETS_SOON);
    let rig = Rig::start(era, config).await;
    for name in [OPENCODE, PYTHON, CLAUDE_CODE, UNKNOWN] {
        let session = session(rig.client(), name).await;
        assert!(!has_companions(&listed(&session).await), "{name:?}");
        let nonce = format!("{name:?}");
        let calling = without_token(session.calling(1, "held", json!({"nonce": &nonce})));
        let calling = tokio::spawn(calling.send());
        rig.upstream.until_started(&nonce).await;
        rig.upstream.release(&nonce);
        spared("a call that is no ticket", calling).await;
    }
    for name in [CODEX, OPENCODE_BEFORE] {
        let session = session(rig.client(), name).await;
        assert!(has_companions(&listed(&session).await), "{name:?}");
        let nonce = format!("{name:?}");
        let held = session.calling(1, "held", json!({"nonce": &nonce}));
        let ticket = held.send().await.into_result();
        let ticket = ticket["structuredContent"]["ticket"].clone();
        assert!(ticket.is_string(), "{name:?}");
        rig.upstream.release(&nonce);
        let result = session.calling(2, "task_result", json!({"ticket": ticket}));
        let result = result.send().await.into_result();
        assert_eq!(result["content"][0]["text"], "released");
    }
}

async fn a_client_of_2026_is_known_by_each_request(era: Era) {
    let config = Config::auto("10s").tool("held", TICKETS_SOON);
    let rig = Rig::start(era, config).await;
    let client = rig.client().without_tasks();
    let list = async |client: &Client, name| {
        let listing = by(client.request("tools/list", json!({})), name);
        has_companions(&listing.send().await.into_result())
    };
    for name in [OPENCODE, PYTHON, CLAUDE_CODE, UNKNOWN] {
        assert!(!list(&client, name).await, "{name:?}");
    }
    assert!(list(&client, CODEX).await);
    assert!(
        !list(&rig.client(), CODEX).await,
        "a client that declares Tasks"
    );
    let call = by(client.calling("held", json!({"nonce": "c"})), CODEX);
    let ticket = call.send().await.into_result()["structuredContent"]["ticket"].clone();
    rig.upstream.release("c");
    let result = client.calling("task_result", json!({"ticket": ticket}));
    assert_eq!(by(result, CODEX).send().await.into_text(), "released");

    let nonce = json!({"nonce": "n"});
    let silent = with_token(by(client.calling("held", nonce.clone()), PYTHON));
    let silent = tokio::spawn(silent.send());
    let mut told = with_token(by(client.calling("held", nonce), OPENCODE))
        .stream()
        .await;
    let note = told.next_of("notifications/progress").await;
    assert_eq!(note["params"]["message"], "still running");
    rig.upstream.release("n");
    spared("a client that progress does not help", silent).await;
}

async fn what_the_settings_say_counts_more(era: Era) {
    let config = Config::auto("10s")
        .terms("companion_tools = false\nheartbeat = true")
        .tool("held", "heartbeat = false");
    let rig = Rig::start(era, config).await;
    let codex = session(rig.client(), CODEX).await;
    assert!(
        !has_companions(&listed(&codex).await),
        "companion_tools = false"
    );
    let opencode = session(rig.client(), OPENCODE).await;
    let python = session(rig.client(), PYTHON).await;
    let held = opencode.calling(1, "held", json!({"nonce": "n"}));
    let held = tokio::spawn(held.send());
    let mut steps = python
        .calling(1, "steps", json!({"n": 0, "nonce": "n"}))
        .stream()
        .await;
    let note = steps.next_of("notifications/progress").await;
    assert_eq!(
        note["params"]["message"], "still running",
        "heartbeat = true"
    );
    rig.upstream.release("n");
    spared("heartbeat = false", held).await;
}

#[tokio::test]
async fn a_reload_changes_what_clients_get_until_a_setting_says_otherwise() {
    let config = || {
        let auto = Config::auto("10s").tool("held", TICKETS_SOON);
        auto.section("admin", "listen = \"127.0.0.1:0\"")
    };
    let rig = Rig::start(Era::Legacy, config().terms("fallback_after = \"20s\"")).await;
    let operators = Client::of(rig.proxy.operators().await);
    let codex = session(rig.client(), CODEX).await;
    let wait_max = async |name| {
        let session = session(rig.client(), name).await;
        let list = listed(&session).await;
        let tools = list["tools"].as_array().unwrap();
        let result = tools
            .iter()
            .find(|tool| tool["name"].as_str().unwrap().ends_with("task_result"));
        result.unwrap()["inputSchema"]["properties"]["wait_seconds"]["maximum"].clone()
    };
    let newer = ("codex-mcp-client", "0.169.0");
    assert_eq!([wait_max(CODEX).await, wait_max(newer).await], [15.0, 15.0]);
    rig.proxy.directory.file("raincheck.toml", &config().text());
    let told = operators.http(Method::POST, "/reload").send().await;
    assert_eq!(told.status, 200, "{}", told.body);
    assert_eq!(
        [wait_max(CODEX).await, wait_max(newer).await],
        [40.0, 220.0]
    );
    let held = codex.calling(1, "held", json!({"nonce": "n"})).send().await;
    assert!(held.into_result()["structuredContent"]["ticket"].is_string());
    rig.upstream.release("n");
}

/// A tool that runs as a task only says so to everybody.
#[tokio::test]
async fn whose_user_a_task_blocks_is_not_told_of_optional_tasks() {
    let config = Config::auto("10s").tool("held", "require_tasks = true");
    let rig = Rig::start(Era::Legacy, config).await;
    for (name, said) in [
        (("Visual Studio Code", "1.126.0"), Value::Null),
        (UNKNOWN, json!("optional")),
    ] {
        let list = listed(&session(rig.client(), name).await).await;
        let of = |tool: &str| {
            let mut tools = list["tools"].as_array().unwrap().iter();
            let tool = tools.find(|it| it["name"] == tool).unwrap();
            tool["execution"]["taskSupport"].clone()
        };
        assert_eq!(
            [of("slow"), of("held")],
            [said, json!("required")],
            "{name:?}"
        );
    }
}

/// Only one replica saw the `initialize`.
#[tokio::test]
async fn every_replica_knows_the_client_of_a_session() {
    let upstream = Upstream::start(Era::Legacy).await;
    let config = Config::auto("10s").tool("held", TICKETS_SOON);
    let pair = Pair::of(upstream, config.section("upstream", "shared = true")).await;
    let at_a = session(pair.at_a(), CODEX).await;
    let at_b = at_a.at(pair.at_b());
    assert!(has_companions(&listed(&at_b).await));
    let held = at_b.calling(1, "held", json!({"nonce": "n"})).send().await;
    let ticket = held.into_result()["structuredContent"]["ticket"].clone();
    pair.upstream.release("n");
    let result = at_a.calling(2, "task_result", json!({"ticket": ticket}));
    let result = result.send().await.into_result();
    assert_eq!(result["content"][0]["text"], "released");
}

/// In front of a server with an address and of a program.
#[tokio::test]
async fn a_client_that_launches_raincheck_hears_of_its_call_too() {
    let upstream = Upstream::start(Era::Legacy).await;
    let url = upstream.url();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/stdio_server.py");
    let ways = [
        vec!["--upstream", &url],
        vec!["--", "python3", script, "legacy"],
    ];
    let hearing = ways.map(async |way| {
        let mut front = Launched::with(&way, &Config::auto("10s"));
        front.initialize().await;
        let tool = if way[0] == "--" { "hold" } else { "held" };
        let params =
            json!({"name": tool, "arguments": {"nonce": "n"}, "_meta": {"progressToken": 7}});
        front
            .say(json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}))
            .await;
        let note = front.notification("notifications/progress").await;
        assert_eq!(note["params"]["message"], "still running", "{note}");
        assert_eq!(note["params"]["progressToken"], 7);
    });
    futures_util::future::join_all(hearing).await;
    upstream.release("n");
}

/// What launches raincheck is most often a host with a model. One that needs no companion tools is spared them.
#[tokio::test]
async fn a_client_that_launches_raincheck_has_companion_tools_unless_it_needs_none() {
    let upstream = Upstream::start(Era::Legacy).await;
    let url = upstream.url();
    for (name, expected) in [("host", true), ("claude-code", false)] {
        let mut front = Launched::with(&["--upstream", &url], &Config::auto("10s"));
        let params = json!({"protocolVersion": NEWEST, "capabilities": {},
            "clientInfo": {"name": name, "version": "2.1.330"}});
        front.request(json!(1), "initialize", params).await;
        front
            .say(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await;
        let list = front.request(json!(2), "tools/list", json!({})).await;
        assert!(list["error"].is_null(), "{list}");
        assert_eq!(has_companions(&list["result"]), expected, "{name}");
        // A session that the server lost is opened again, also where raincheck carries the calls on it.
        upstream.forget_sessions();
        let echo = json!({"name": "echo", "arguments": {"text": "x"}});
        let answer = front.request(json!(3), "tools/call", echo).await;
        assert_eq!(answer["result"]["content"][0]["text"], "x", "{answer}");
    }
}
