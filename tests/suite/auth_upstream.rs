//! What the server gets of its clients' credentials: the newest token of a caller, keys in other headers, or nothing but who
//! calls.

use serde_json::json;

use crate::sse_server::SseServer;
use crate::support::client::{Client, Request};
use crate::support::issuer::Issuer;
use crate::support::session::Session;
use crate::support::upstream::Received;
use crate::support::{Config, Era, Rig, in_both_eras};

in_both_eras!(
    the_server_gets_the_newest_token,
    a_key_in_another_header_tells_callers_apart,
    a_server_that_gets_no_credentials_gets_none,
    the_server_is_told_who_calls,
);

const KEY: &str = "x-api-key";
const KEYED: &str = "credential_headers = [\"x-api-key\"]";

fn echo(client: &Client) -> Request {
    client.calling("echo", json!({"text": "x"}))
}

fn last_call(rig: &Rig) -> Received {
    rig.upstream.requests("tools/call").pop().unwrap()
}

async fn behind(issuer: &Issuer, era: Era, config: Config) -> Rig {
    let rig = Rig::start(era, issuer.wanted_by(config, "")).await;
    rig.proxy
        .until_said("the keys of an issuer were fetched", 1)
        .await;
    rig
}

/// A session at the server outlives the token that it was opened with.
async fn the_server_gets_the_newest_token(era: Era) {
    let issuer = Issuer::start().await;
    for (config, named) in [
        (Config::never(), "passed"),
        (Config::auto("10s"), "carried"),
    ] {
        let rig = behind(&issuer, era, config).await;
        for _ in 0..3 {
            let token = issuer.token("alice");
            let answer = echo(&rig.client().named(token.clone())).send().await;
            assert_eq!(answer.into_text(), "x");
            let call = last_call(&rig);
            assert_eq!(call.header("authorization"), Some(&*token), "{named}");
        }
    }
}

/// A line over HTTP+SSE is opened with the first token, and lives on.
#[tokio::test]
async fn a_line_posts_with_the_newest_token() {
    let (issuer, server) = (Issuer::start().await, SseServer::start().await);
    let config = issuer.wanted_by(Config::never(), "");
    let proxy = config.start(&server.url()).await;
    proxy
        .until_said("the keys of an issuer were fetched", 1)
        .await;
    proxy.until_said("the server answers", 1).await;
    let tokens = [issuer.token("alice"), issuer.token("alice")];
    let clients = tokens
        .clone()
        .map(|token| Client::of(proxy.address()).named(token));
    let session = Session::open(clients[0].clone(), "2025-06-18").await;
    for (client, token) in clients.iter().zip(&tokens) {
        let answer = echo(client).send().await;
        assert_eq!(answer.into_text(), "x");
        assert_eq!(server.credentials().pop().unwrap().unwrap(), **token);
        let own = session.at(client.clone());
        let answer = own.calling(7, "echo", json!({"text": "x"})).send().await;
        assert!(answer.body.contains("\"x\""), "{}", answer.body);
        assert_eq!(server.credentials().pop().unwrap().unwrap(), **token);
    }
    assert_eq!(server.opened(), 3, "to ask, for the session, for the calls");
}

async fn a_key_in_another_header_tells_callers_apart(era: Era) {
    let rig = Rig::start(era, Config::always().section("auth", KEYED)).await;
    let client = rig.client();
    let task = echo(&client).header(KEY, "hers").send().await.into_task();
    let asked = |key| client.asking("tasks/get", &task).header(KEY, key).send();
    let foreign = asked("his").await;
    assert_eq!(foreign.refusal(), (400, -32602));
    let nobody = client.asking("tasks/get", &task).send().await;
    assert_eq!(nobody.body.replace("\"id\":2", "\"id\":1"), foreign.body);
    assert_eq!(asked("hers").await.json()["result"]["taskId"], task.id);
    // It goes where a token goes: also to what raincheck itself asks for the client.
    rig.upstream
        .until("echo", "run", |tally| tally.finished > 0)
        .await;
    let of_hers = rig.upstream.received();
    let of_hers = of_hers.iter().filter(|one| one.header(KEY) == Some("hers"));
    let methods: Vec<String> = of_hers
        .filter(|one| !one.body.is_empty())
        .map(|one| one.json()["method"].as_str().unwrap_or("").to_owned())
        .collect();
    assert!(
        methods.iter().any(|method| method == "tools/call"),
        "{methods:?}"
    );
    if era == Era::Legacy {
        assert!(
            methods.iter().any(|method| method == "initialize"),
            "{methods:?}"
        );
    }
    let calls = rig.upstream.requests("tools/call");
    let keys: Vec<_> = calls[0].headers.get_all(KEY).iter().collect();
    assert_eq!(keys, ["hers"], "once");
}

async fn a_server_that_gets_no_credentials_gets_none(era: Era) {
    for config in [Config::never(), Config::auto("10s")] {
        let config = config
            .section("auth", KEYED)
            .section("upstream", "credentials = \"strip\"");
        let rig = Rig::start(era, config).await;
        let client = rig.client().named("Bearer alice");
        let answer = echo(&client).header(KEY, "hers").send().await;
        assert_eq!(answer.into_text(), "x");
        let session = Session::open(client, "2025-06-18").await;
        let call = session.calling(7, "echo", json!({"text": "x"}));
        assert_eq!(call.send().await.status, 200);
        for one in rig.upstream.received() {
            assert_eq!((one.header("authorization"), one.header(KEY)), (None, None));
        }
    }
}

async fn the_server_is_told_who_calls(era: Era) {
    let issuer = Issuer::start().await;
    for config in [Config::never(), Config::auto("10s")] {
        let config = config.section(
            "upstream",
            "credentials = \"strip\"\ncaller_header = \"x-caller\"",
        );
        let rig = behind(&issuer, era, config).await;
        for subject in ["alice", "bob"] {
            let client = rig.client().named(issuer.token(subject));
            let call = echo(&client).header("x-caller", "root");
            assert_eq!(call.also("x-caller", "admin").send().await.into_text(), "x");
            let call = last_call(&rig);
            let said: Vec<_> = call.headers.get_all("x-caller").iter().collect();
            assert_eq!(said, [&*format!("{}#{subject}", issuer.name())]);
            assert_eq!(call.header("authorization"), None);
        }
        for one in rig.upstream.received() {
            assert_ne!(one.header("x-caller"), Some("root"));
        }
    }
}
