//! A call that a rule refuses, in every spelling in which a server could read it and raincheck could
//! not: none of them reaches the server. Without such a rule sessions pass byte for byte.

use futures_util::future::join_all;
use hyper::Method;
use serde_json::json;

use crate::support::client::{Answer, Client};
use crate::support::session::SESSION;
use crate::support::{Config, Era, PATIENCE, Rig, TempDir, within};

const VERSION: &str = "mcp-protocol-version";

/// The call that the rule is about.
const CALL: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x"}}}"#;

/// Enough white space for a body over the limit.
const LIMIT: usize = 64 * 1024;

struct Spelling {
    what: &'static str,
    headers: Vec<(&'static str, &'static str)>,
    without: &'static str,
    body: Vec<u8>,
    refused: (u16, i64),
}

fn of(what: &'static str, body: impl Into<Vec<u8>>, refused: (u16, i64)) -> Spelling {
    Spelling {
        what,
        headers: Vec::new(),
        without: "",
        body: body.into(),
        refused,
    }
}

impl Spelling {
    fn with(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    fn without(self, name: &'static str) -> Self {
        Self {
            without: name,
            ..self
        }
    }
}

fn utf16(text: &str, order: fn(u16) -> [u8; 2]) -> Vec<u8> {
    text.encode_utf16().flat_map(order).collect()
}

/// It can be read, and the rule refuses it.
const BY_RULE: (u16, i64) = (200, -32601);
const PARSE: (u16, i64) = (400, -32700);
const INVALID: (u16, i64) = (400, -32600);

#[expect(clippy::too_many_lines, reason = "it is one table")]
fn spellings() -> Vec<Spelling> {
    let instead = |from: &str, to: &str| CALL.replace(from, to);
    let utf7 = instead("tools/call", "+AHQ-ools/call");
    let deep = instead(
        "\"x\"",
        &format!("{}1{}", "[".repeat(5000), "]".repeat(5000)),
    );
    let space = format!("{}{CALL}", " ".repeat(LIMIT));
    let trailing = format!("{CALL}{}", " ".repeat(LIMIT));
    vec![
        of("as it is", CALL, BY_RULE),
        of("an older version's header", CALL, BY_RULE).with(VERSION, "2025-06-18"),
        of("the oldest version's header", CALL, BY_RULE).with(VERSION, "2025-03-26"),
        of("a version that is none", CALL, BY_RULE).with(VERSION, "0"),
        of("no version's header", CALL, BY_RULE).without(VERSION),
        of("a chunked body", CALL, BY_RULE).with("transfer-encoding", "chunked"),
        of("text", CALL, BY_RULE).with("content-type", "text/plain"),
        of("no type", CALL, BY_RULE).without("content-type"),
        of("white space around", format!("\r\n\t {CALL} \n"), BY_RULE),
        of(
            "an escaped method",
            instead("tools/call", r"\u0074ools\/call"),
            BY_RULE,
        ),
        of(
            "an escaped member",
            instead("\"method\"", r#""m\u0065thod""#),
            BY_RULE,
        ),
        of("an escaped name", instead("echo", r"\u0065cho"), BY_RULE),
        of(
            "a task that is none",
            instead("\"name\"", r#""task":1,"name""#),
            BY_RULE,
        ),
        of("white space beyond the limit", space, (413, -32600)),
        of(
            "white space behind, beyond the limit",
            trailing,
            (413, -32600),
        ),
        of(
            "the method twice",
            instead("\"method\"", r#""method":"ping","method""#),
            INVALID,
        ),
        of(
            "in capitals, too",
            instead("\"method\"", r#""METHOD":"ping","method""#),
            INVALID,
        ),
        of(
            "in capitals only",
            instead("\"method\"", "\"Method\""),
            INVALID,
        ),
        of(
            "params in capitals, with a name that is a letter of Unicode",
            instead("\"params\"", "\"param\u{17f}\""),
            INVALID,
        ),
        of(
            "the params twice",
            instead("\"params\"", r#""params":{"name":"slow"},"params""#),
            INVALID,
        ),
        of(
            "the name twice",
            instead("\"name\"", r#""name":"slow","name""#),
            INVALID,
        ),
        of(
            "the name twice, escaped",
            instead("\"name\"", r#""n\u0061me":"slow","name""#),
            INVALID,
        ),
        of(
            "the name in capitals",
            instead("\"name\"", r#""name":"slow","NAME""#),
            INVALID,
        ),
        of(
            "a task's name with a letter of Unicode",
            instead("\"name\"", "\"tas\u{212a}\":{},\"name\""),
            INVALID,
        ),
        of(
            "the name in a list",
            instead("\"echo\"", r#"["echo"]"#),
            (400, -32602),
        ),
        of(
            "params that are a list",
            instead(r#"{"name":"echo","arguments":{"text":"x"}}"#, r#"["echo"]"#),
            INVALID,
        ),
        of("no id", instead("\"id\":7,", ""), INVALID),
        of("a null id", instead("\"id\":7", "\"id\":null"), INVALID),
        of(
            "a fraction as id",
            instead("\"id\":7", "\"id\":7.0"),
            BY_RULE,
        ),
        of(
            "a huge id",
            instead("\"id\":7", "\"id\":99999999999999999999"),
            BY_RULE,
        ),
        of(
            "a method in a list",
            instead("\"tools/call\"", r#"["tools/call"]"#),
            INVALID,
        ),
        of("a batch", format!("[{CALL}]"), INVALID),
        of("two values", format!("{CALL}{CALL}"), PARSE),
        of("behind another", format!("{{}}{CALL}"), PARSE),
        of("bytes behind it", format!("{CALL}\0"), PARSE),
        of("a byte order mark", format!("\u{feff}{CALL}"), PARSE),
        of("UTF-16, little", utf16(CALL, u16::to_le_bytes), PARSE),
        of("UTF-16, big", utf16(CALL, u16::to_be_bytes), PARSE),
        of(
            "UTF-16 with a mark",
            utf16(&format!("\u{feff}{CALL}"), u16::to_le_bytes),
            PARSE,
        ),
        of(
            "UTF-16 as the type says",
            utf16(CALL, u16::to_le_bytes),
            INVALID,
        )
        .with("content-type", "application/json; charset=utf-16le"),
        of("UTF-7", utf7, INVALID).with("content-type", "application/json; charset=utf-7"),
        of("compressed", &b"\x1f\x8b\x08\0\0\0\0\0"[..], INVALID).with("content-encoding", "gzip"),
        of("compressed by another name", CALL, INVALID).with("content-encoding", "x-gzip"),
        of("too deep", deep, PARSE),
        of(
            "a lone surrogate as the name of a param",
            instead("\"name\"", r#""\ud800":1,"name""#),
            PARSE,
        ),
        of(
            "a lone surrogate in the name",
            instead("echo", r"ech\udc00"),
            (400, -32602),
        ),
        of("not a number", instead("\"x\"", "NaN"), PARSE),
        of("a comment", format!("/**/{CALL}"), PARSE),
        of("a trailing comma", instead("}}}", "},}}"), PARSE),
        of("single quotes", instead("\"", "'"), PARSE),
        of("Latin-1", latin1(), PARSE),
    ]
}

/// A text that was cut in the middle of a surrogate pair. It passes unread, and the scripted server does not read it.
fn cut() -> Spelling {
    let text = CALL.replace("\"x\"", r#""\ud800""#);
    of("a lone surrogate", text, BY_RULE)
}

/// A byte that no UTF-8 has.
fn latin1() -> Vec<u8> {
    let at = CALL.find("\"x\"").unwrap() + 1;
    let mut bytes = CALL.as_bytes().to_vec();
    bytes[at] = 0xe9;
    bytes
}

/// A session of 2025-11-25, by its id.
async fn open(client: &Client) -> String {
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "suite", "version": "1"},
    }});
    let opened = client.post(initialize.to_string()).send().await;
    let session = opened.headers[SESSION].to_str().unwrap().to_owned();
    let ready = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let told = client.post(ready).header(SESSION, &session);
    assert_eq!(told.send().await.status, 202);
    session
}

async fn post(client: &Client, session: &str, spelling: &Spelling) -> Answer {
    let mut request = client
        .post(spelling.body.clone())
        .header(SESSION, session)
        .header(VERSION, "2025-11-25");
    if !spelling.without.is_empty() {
        request = request.without(spelling.without);
    }
    for (name, value) in &spelling.headers {
        request = request.header(name, value);
    }
    request.send().await
}

/// Messages that raincheck did not write itself. An unreadable message is not raincheck's own.
fn reached(rig: &Rig) -> usize {
    let own = [
        "initialize",
        "notifications/initialized",
        "server/discover",
        "tools/list",
    ];
    let is_own = |method: &str| own.contains(&method);
    let all = rig.upstream.received();
    let foreign = all.iter().filter(|received| {
        let message = received.json();
        received.verb == Method::POST && !message["method"].as_str().is_some_and(is_own)
    });
    foreign.count()
}

async fn none_gets_through(config: Config) {
    none_of_a_client_gets_through(config, |client| client, BY_RULE).await;
}

/// `by_rule`: how the rule refuses the call where it can be read.
async fn none_of_a_client_gets_through(
    config: Config,
    named: fn(Client) -> Client,
    by_rule: (u16, i64),
) {
    let config = config.section("limits", &format!("body_bytes_max = {LIMIT}"));
    for era in [Era::Legacy, Era::Modern] {
        let rig = Rig::start(era, config.clone()).await;
        let client = named(rig.client());
        let session = open(&client).await;
        for spelling in spellings().into_iter().chain([cut()]) {
            let answer = post(&client, &session, &spelling).await;
            let what = spelling.what;
            let (status, code) = answer.refusal();
            // A session of raincheck's own reads everything, and says the rest in its own way.
            if era == Era::Legacy || spelling.refused != BY_RULE {
                let is_read = spelling.refused == BY_RULE;
                let expected = if is_read { by_rule } else { spelling.refused };
                assert_eq!((status, code), expected, "{what}");
            }
            assert_eq!(reached(&rig), 0, "{what} reached the server");
        }
        assert_eq!(rig.upstream.executions(), 0, "{era:?}");
    }
}

#[tokio::test]
async fn what_a_rule_refuses_is_refused_in_every_spelling() {
    none_gets_through(Config::always().tool("echo", "require_tasks = true")).await;
}

#[tokio::test]
async fn what_a_scope_refuses_is_refused_in_every_spelling() {
    let directory = TempDir::new();
    // The hash of "alice", who has a scope, and not that one.
    let hash = "2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90";
    let file = directory.file("tokens", &format!("alice: {hash} other"));
    let config = Config::always()
        .tool("echo", "scopes = \"run\"")
        .section("auth", &format!("tokens_file = \"{}\"", file.display()));
    let alice = |client: Client| client.named("Bearer alice");
    none_of_a_client_gets_through(config, alice, (403, -32600)).await;
}

#[tokio::test]
async fn companion_tools_open_no_way_around_a_rule() {
    let config = Config::always()
        .terms("companion_tools = true")
        .tool("echo", "require_tasks = true");
    none_gets_through(config).await;
}

/// The rule is about other tools: what can be read passes, and what cannot be is refused all the same.
#[tokio::test]
async fn only_what_cannot_be_read_is_refused_beside_a_rule() {
    let config = Config::always()
        .tool("held", "require_tasks = true")
        .section("limits", &format!("body_bytes_max = {LIMIT}"));
    let rig = Rig::start(Era::Legacy, config).await;
    let client = rig.client();
    let session = open(&client).await;
    for spelling in spellings() {
        let answer = post(&client, &session, &spelling).await;
        let what = spelling.what;
        if spelling.refused == BY_RULE {
            assert_eq!(answer.json()["result"]["content"][0]["text"], "x", "{what}");
        } else {
            assert_eq!(answer.refusal(), spelling.refused, "{what}");
        }
    }
    let readable = spellings().iter().filter(|s| s.refused == BY_RULE).count();
    assert_eq!(rig.upstream.executions() as usize, readable);
}

/// Without a rule that refuses anything the server reads what was sent, whatever it is, up to the limit
/// that holds everywhere.
#[tokio::test]
async fn without_such_a_rule_sessions_pass_byte_for_byte() {
    let config = Config::always().section("limits", &format!("body_bytes_max = {LIMIT}"));
    let rig = Rig::start(Era::Legacy, config).await;
    let client = rig.client();
    let session = open(&client).await;
    for spelling in spellings() {
        let answer = post(&client, &session, &spelling).await;
        let received = rig.upstream.received();
        let last = &received.last().unwrap().body;
        let what = spelling.what;
        if spelling.refused.0 == 413 {
            assert_eq!(answer.refusal(), spelling.refused, "{what}");
            assert_ne!(*last, spelling.body, "{what}");
        } else {
            assert_eq!(*last, spelling.body, "{what}");
        }
    }
}

/// A program hears no more than a server with an address.
#[tokio::test]
async fn a_program_hears_none_of_them_either() {
    let config = Config::always()
        .tool("*", "require_tasks = true")
        .section("limits", &format!("body_bytes_max = {LIMIT}"));
    let proxy = config.run("plain").await;
    let client = Client::of(proxy.address());
    let session = open(&client).await;
    for spelling in spellings() {
        let answer = post(&client, &session, &spelling).await;
        assert_eq!(answer.refusal(), spelling.refused, "{}", spelling.what);
    }
}

/// A limit is one for all, whatever revision they speak.
#[tokio::test]
async fn a_limit_counts_the_calls_of_sessions() {
    for config in [
        Config::always().terms("concurrency = 2"),
        Config::always().section("upstream", "concurrency = 2"),
    ] {
        let rig = Rig::start(Era::Legacy, config).await;
        let client = rig.client();
        let session = open(&client).await;
        let calls = (0..9).map(|number| {
            let (rig, client, session) = (&rig, client.clone(), session.clone());
            let version = ["2025-11-25", "2025-06-18", "2025-03-26"][number % 3];
            async move {
                if number == 8 {
                    let other = rig.client().without_tasks();
                    let answer = other.call("slow", json!({"ms": 30})).await;
                    assert_eq!(answer.into_text(), "slept");
                    return;
                }
                let call = json!({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {
                    "name": "slow", "arguments": {"ms": 30},
                }});
                let call = client.post(call.to_string());
                let call = call.header(SESSION, &session).header(VERSION, version);
                let answer = call.send().await.json();
                assert_eq!(answer["id"], number);
                assert_eq!(answer["result"]["content"][0]["text"], "slept", "{answer}");
            }
        });
        within(PATIENCE * 2, "all had their turn", join_all(calls)).await;
        assert_eq!(rig.upstream.tally("slow").finished, 9);
        assert_eq!(rig.upstream.peak(), 2);
    }
}

/// And who finds the queue full hears so.
#[tokio::test]
async fn a_full_queue_refuses_the_calls_of_sessions() {
    let config = Config::always().tool("held", "concurrency = 1\nqueue = 0");
    let rig = Rig::start(Era::Legacy, config).await;
    let client = rig.client();
    let session = open(&client).await;
    let call = |id: u32| {
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"held","arguments":{{}}}}}}"#
        );
        let call = client.post(call).header(SESSION, &session);
        call.header(VERSION, "2025-06-18")
    };
    let first = tokio::spawn(call(1).send());
    rig.upstream.until_started("held").await;
    let refused = call(2).send().await;
    let reason = &refused.json()["error"]["data"]["io.raincheck/reason"];
    assert_eq!((refused.status, reason.as_str()), (503, Some("queue_full")));
    rig.upstream.release("held");
    let first = first.await.unwrap().json();
    assert_eq!(first["result"]["content"][0]["text"], "released");
    assert_eq!(rig.upstream.tally("held").started, 1);
}
