//! Large results as excerpts, with a way to every byte that an excerpt leaves out.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::held::{primed, rest};
use crate::redis_server::RedisServer;
use crate::support::client::Client;
use crate::support::session::{NEWEST, Session};
use crate::support::upstream::long_text;
use crate::support::{Config, Era, Rig, eventually, in_both_eras};

in_both_eras!(
    modern_clients_can_have_every_byte_over_a_file,
    modern_clients_can_have_every_byte_over_redis,
    legacy_clients_can_have_every_byte_over_a_file,
    legacy_clients_can_have_every_byte_over_redis,
    a_ticket_leads_to_every_byte_over_a_file,
    a_ticket_leads_to_every_byte_over_redis,
    a_call_that_others_joined_leads_to_every_byte,
    without_the_setting_results_are_whole,
    who_names_every_argument_gets_the_result_as_it_is,
    a_result_is_nobody_elses,
    what_is_not_ours_is_the_servers,
);

const BYTES: usize = 5 << 20;

/// Above this, an excerpt would not help.
const CONTEXT_MAX: usize = 4096;

pub(crate) fn terms(config: Config) -> Config {
    config.terms("result_inline = \"64KiB\"\ncompanion_tools = false")
}

/// A client of any kind, as it reads resources.
#[derive(Debug, Clone)]
pub(crate) enum Reader {
    Modern(Client),
    OnSession(Session),
}

impl Reader {
    /// The same client at another raincheck, or after a start.
    pub(crate) fn at(&self, address: SocketAddr) -> Self {
        let again = |client: &Client| client.clone().at(address);
        match self {
            Self::Modern(client) => Self::Modern(again(client)),
            Self::OnSession(session) => Self::OnSession(session.at(again(&session.client))),
        }
    }

    /// The result of a call.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Value {
        let answer = match self {
            Self::Modern(client) => client.call(tool, arguments).await,
            Self::OnSession(session) => session.calling("call", tool, arguments).send().await,
        };
        answer.into_result()
    }

    pub(crate) async fn read(&self, uri: &str) -> Value {
        let params = json!({"uri": uri});
        let request = match self {
            Self::Modern(client) => client
                .request("resources/read", params)
                .header("mcp-name", uri),
            Self::OnSession(session) => session.request("read", "resources/read", params),
        };
        request.send().await.json()
    }

    /// Everything, in ranges.
    pub(crate) async fn all(&self, uri: &str) -> String {
        let (mut whole, mut next) = (String::new(), format!("{uri}?limit=1000000"));
        loop {
            let read = self.read(&next).await;
            let result = &read["result"];
            let text = result["contents"][0]["text"].as_str();
            whole += text.unwrap_or_else(|| panic!("{read}"));
            let range = &result["_meta"]["io.raincheck/range"];
            assert_eq!(range["total"], BYTES, "{range}");
            let Some(offset) = range.get("nextOffset") else {
                return whole;
            };
            assert_eq!(offset, whole.len());
            result["contents"][1]["uri"]
                .as_str()
                .unwrap()
                .clone_into(&mut next);
        }
    }
}

/// The name of the whole result, from an excerpt that a model can bear.
#[track_caller]
pub(crate) fn uri(excerpt: &Value) -> String {
    assert!(excerpt.to_string().len() < CONTEXT_MAX, "{excerpt}");
    let text = excerpt["content"][0]["text"].as_str().unwrap();
    let whole = long_text(BYTES);
    let (head, behind) = text.split_once("[raincheck: ").unwrap();
    let (line, tail) = behind.split_once("]\n").unwrap();
    assert!(whole.starts_with(head) && whole.ends_with(tail), "{text}");
    assert!(
        line.contains(&format!("of {BYTES} bytes are left out")),
        "{line}"
    );
    let (_, named) = line.split_once("raincheck://").unwrap();
    let uri = format!("raincheck://{}", named.split('?').next().unwrap());
    for link in excerpt["content"].as_array().unwrap().iter().skip(1) {
        assert_eq!(link["type"], "resource_link");
        assert_eq!((&link["uri"], &link["size"]), (&json!(uri), &json!(BYTES)));
    }
    uri
}

/// The excerpts that clients of 2026-07-28 get, and how they read.
async fn of_modern_clients(rig: &Rig) -> Vec<(Reader, Value)> {
    let arguments = || json!({"bytes": BYTES});
    let client = rig.client().named("Bearer alice");
    let task = client.call("long", arguments()).await.into_task();
    let ended = client.until(&task, "completed").await;
    let mut told = client.listen(&[&task]).await;
    let told = told.next_of("notifications/tasks").await;
    assert_eq!(told["params"]["result"], ended["result"]);

    let plain = client.clone().without_tasks();
    let result = plain.call("long", arguments()).await.into_result();
    vec![
        (Reader::Modern(client), ended["result"].clone()),
        (Reader::Modern(plain), result),
    ]
}

/// The excerpts that clients of 2025 get, and how they read.
async fn of_legacy_clients(rig: &Rig) -> Vec<(Reader, Value)> {
    let arguments = || json!({"bytes": BYTES});
    let client = rig.client().named("Bearer alice");
    let older = Session::open(client.clone(), "2025-06-18").await;
    let plain = older.calling(1, "long", arguments()).send().await;

    let newest = Session::open(client, NEWEST).await;
    let params = json!({"name": "long", "arguments": arguments(), "task": {}});
    let made = newest.request(1, "tools/call", params).send().await;
    let asked = json!({"taskId": made.into_result()["task"]["taskId"]});
    let result = newest.request(2, "tasks/result", asked).send().await;
    let result = result.into_result();
    assert_eq!(result["content"][1]["type"], "resource_link");
    vec![
        (Reader::OnSession(older), plain.into_result()),
        (Reader::OnSession(newest), result),
    ]
}

/// Everything is read from another process than the one that stored it.
async fn all_is_there(rig: &mut Rig, found: Vec<(Reader, Value)>) {
    let whole = long_text(BYTES);
    rig.proxy.kill();
    rig.proxy.restart().await;
    for (reader, excerpt) in &found {
        assert!(
            reader.at(rig.proxy.address()).all(&uri(excerpt)).await == whole,
            "{reader:?}"
        );
    }
}

async fn modern_clients_can_have_every_byte_over_a_file(era: Era) {
    let mut rig = Rig::start(era, terms(Config::always().embedded())).await;
    let found = of_modern_clients(&rig).await;
    all_is_there(&mut rig, found).await;
}

async fn modern_clients_can_have_every_byte_over_redis(era: Era) {
    let redis = RedisServer::start();
    let mut rig = Rig::start(era, terms(Config::always().redis(&redis.url()))).await;
    let found = of_modern_clients(&rig).await;
    all_is_there(&mut rig, found).await;
}

async fn legacy_clients_can_have_every_byte_over_a_file(era: Era) {
    let mut rig = Rig::start(era, terms(Config::always().embedded())).await;
    let found = of_legacy_clients(&rig).await;
    all_is_there(&mut rig, found).await;
}

async fn legacy_clients_can_have_every_byte_over_redis(era: Era) {
    let redis = RedisServer::start();
    let mut rig = Rig::start(era, terms(Config::always().redis(&redis.url()))).await;
    let found = of_legacy_clients(&rig).await;
    all_is_there(&mut rig, found).await;
}

/// A model that has companion tools, in either era.
async fn ask(reader: &Reader, arguments: Value) -> Value {
    reader.call("task_result", arguments).await
}

fn text(result: &Value, at: usize) -> &str {
    let text = result["content"][at]["text"].as_str();
    text.unwrap_or_else(|| panic!("{result}"))
}

async fn a_ticket_leads_to_every_byte(era: Era, config: Config) {
    let config = config.terms("companion_tools = true\nfallback_after = \"20s\"");
    let mut rig = Rig::start(era, config.tool("long", "fallback_after = \"100ms\"")).await;
    let client = rig.client().named("Bearer alice");
    let readers = [
        Reader::Modern(client.clone().without_tasks()),
        Reader::OnSession(Session::open(client, "2025-06-18").await),
    ];
    let whole = long_text(BYTES);
    let mut tickets = Vec::new();
    for reader in &readers {
        let arguments = json!({"bytes": BYTES, "ms": 1500});
        let issued = reader.call("long", arguments).await;
        let ticket = issued["structuredContent"]["ticket"].as_str().unwrap();
        let excerpt = ask(reader, json!({"ticket": ticket})).await;
        assert!(excerpt.to_string().len() < CONTEXT_MAX, "{excerpt}");
        let line = text(&excerpt, 0);
        assert!(line.contains(&format!(
            "call task_result with ticket {ticket} and offset "
        )));
        assert!(whole.ends_with(line.rsplit_once("]\n").unwrap().1));
        tickets.push(ticket.to_owned());
    }
    rig.proxy.kill();
    rig.proxy.restart().await;
    for (reader, ticket) in readers.iter().zip(tickets) {
        let reader = reader.at(rig.proxy.address());
        let mut read = String::new();
        while read.len() < BYTES {
            let wanted = json!({"ticket": ticket, "offset": read.len(), "limit": 1_000_000});
            let part = ask(&reader, wanted).await;
            read += text(&part, 0);
            let more = format!("offset {} for more", read.len());
            let says = text(&part, 1).contains(if read.len() < BYTES { &more } else { "the end" });
            assert!(says, "{}", text(&part, 1));
        }
        assert!(read == whole);
        let found = ask(&reader, json!({"ticket": ticket, "grep": "LINE 7777 "})).await;
        let (offset, line) = text(&found, 0).split_once(": ").unwrap();
        assert!(whole[offset.parse().unwrap()..].starts_with(line));
        let none = ask(&reader, json!({"ticket": ticket, "block": 9})).await;
        assert_eq!(none["isError"], true);
    }
}

async fn a_ticket_leads_to_every_byte_over_a_file(era: Era) {
    a_ticket_leads_to_every_byte(era, Config::always().embedded()).await;
}

async fn a_ticket_leads_to_every_byte_over_redis(era: Era) {
    let redis = RedisServer::start();
    a_ticket_leads_to_every_byte(era, Config::always().redis(&redis.url())).await;
}

/// Some models leave no argument out.
async fn who_names_every_argument_gets_the_result_as_it_is(era: Era) {
    let config = Config::always().terms("companion_tools = true\nfallback_after = \"20s\"");
    let rig = Rig::start(era, config.tool("long", "fallback_after = \"100ms\"")).await;
    let client = rig.client().without_tasks();
    let issued = client
        .call("long", json!({"bytes": 1000, "ms": 1500}))
        .await;
    let issued = issued.into_result();
    let ticket = issued["structuredContent"]["ticket"].as_str().unwrap();
    let reader = Reader::Modern(client);
    let whole = ask(&reader, json!({"ticket": ticket})).await;
    assert_eq!(text(&whole, 0), long_text(1000));
    let named = json!({"ticket": ticket, "offset": 0, "limit": 16384, "grep": "", "as": "text"});
    assert_eq!(ask(&reader, named).await, whole);
    assert_eq!(
        ask(&reader, json!({"ticket": ticket, "offset": 0})).await,
        whole
    );
    let part = ask(&reader, json!({"ticket": ticket, "offset": 0, "limit": 10})).await;
    assert_eq!(text(&part, 0), &long_text(1000)[..10]);
    let part = ask(&reader, json!({"ticket": ticket, "block": 0, "limit": 10})).await;
    assert_eq!(text(&part, 0), &long_text(1000)[..10]);
    let json = ask(&reader, json!({"ticket": ticket, "as": "json"})).await;
    let json: Value = serde_json::from_str(text(&json, 0)).unwrap();
    assert_eq!(json["content"], whole["content"]);
}

/// Such a call has a record from the start, of which its clients know nothing.
async fn a_call_that_others_joined_leads_to_every_byte(era: Era) {
    let rig = Rig::start(era, terms(Config::never())).await;
    let client = rig.client().named("Bearer alice").without_tasks();
    for number in 1..=2 {
        let call = client.calling("long", json!({"bytes": BYTES, "nonce": "once"}));
        let result = call
            .header("idempotency-key", "k")
            .send()
            .await
            .into_result();
        let uri = uri(&result);
        let reader = Reader::Modern(client.clone());
        if number == 2 {
            assert!(reader.all(&uri).await == long_text(BYTES));
        }
    }
    assert_eq!(rig.upstream.tally("once").started, 1);
}

async fn without_the_setting_results_are_whole(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let client = rig.client();
    let task = client
        .call("long", json!({"bytes": BYTES}))
        .await
        .into_task();
    let ended = client.until(&task, "completed").await;
    assert!(text(&ended["result"], 0) == long_text(BYTES));
    let plain = client.without_tasks();
    let plain = plain.call("long", json!({"bytes": BYTES})).await;
    assert!(plain.into_text() == long_text(BYTES));
    let small = Rig::start(era, terms(Config::always())).await;
    let small = small.client().without_tasks();
    let small = small.call("long", json!({"bytes": 30_000})).await;
    assert!(small.into_text() == long_text(30_000));
}

async fn a_result_is_nobody_elses(era: Era) {
    let rig = Rig::start(era, terms(Config::always())).await;
    let alice = rig.client().named("Bearer alice");
    let result = alice.clone().without_tasks();
    let result = result.call("long", json!({"bytes": BYTES})).await;
    let uri = uri(&result.into_result());
    let running = alice.call("never", json!({})).await.into_task();
    let not_yet = format!("raincheck://task/{}/result", running.id);
    let unknown = "raincheck://task/3ad6b4fd-737e-47b0-aa3e-9980ad6444a1/result";
    let bob = rig.client().named("Bearer bob");
    let readers = [
        (
            Reader::Modern(alice.clone()),
            Reader::Modern(bob.clone()),
            -32602,
        ),
        (
            Reader::OnSession(Session::open(alice, NEWEST).await),
            Reader::OnSession(Session::open(bob, NEWEST).await),
            -32002,
        ),
    ];
    for (alice, bob, code) in readers {
        let first = alice.read(&uri).await;
        let first = first["result"]["contents"][0]["text"].as_str().unwrap();
        assert!(first.len() <= 16 << 10 && long_text(BYTES).starts_with(first));
        for (reader, uri) in [
            (&bob, &*uri),
            (&alice, unknown),
            (&alice, &*not_yet),
            (&alice, &*format!("{uri}?offset=x")),
            (&alice, "raincheck://task/"),
        ] {
            let error = &reader.read(uri).await["error"];
            let expected =
                json!({"code": code, "message": "Resource not found", "data": {"uri": uri}});
            assert_eq!(*error, expected);
        }
    }
    assert!(rig.upstream.requests("resources/read").is_empty());
}

async fn what_is_not_ours_is_the_servers(era: Era) {
    let rig = Rig::start(era, terms(Config::always())).await;
    let client = rig.client();
    let session = Session::open(client.clone(), NEWEST).await;
    for (number, reader) in [Reader::Modern(client), Reader::OnSession(session)]
        .iter()
        .enumerate()
    {
        let theirs = "file:///raincheck://task/";
        reader.read(theirs).await;
        let asked = eventually(
            crate::support::PATIENCE,
            "the server is asked",
            async || {
                let asked = rig.upstream.requests("resources/read");
                (asked.len() > number).then_some(()).ok_or(asked.len())
            },
        );
        asked.await;
    }
}

/// The record of a call that runs on in its stream is no result.
#[tokio::test]
async fn a_call_that_can_be_come_back_to_has_no_result_of_that_name() {
    let rig = Rig::start(Era::Legacy, Config::always()).await;
    let session = crate::held::Session::open(rig.client()).await;
    let mut stream = session.calling("steps", json!({"n": 1})).stream().await;
    let first = primed(&mut stream).await;
    rig.upstream.release("steps");
    rest(&mut stream).await;
    let call = first.split('/').nth(1).unwrap();
    let uri = format!("raincheck://task/{call}/result");
    let read = session.request(8, "resources/read", json!({"uri": uri}));
    let read = read.send().await.json();
    assert_eq!(read["error"]["code"], -32002, "{read}");
}
