//! Attacks at the edges: headers that servers read as another, and transfer codings.

use std::collections::BTreeSet;

use hyper::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::auth_tokens::Tokens;
use crate::support::client::Request;
use crate::support::session::{NEWEST, Session, initialize};
use crate::support::upstream::Received;
use crate::support::{Config, Era, PATIENCE, Rig, in_both_eras, within};

in_both_eras!(
    no_other_spelling_of_a_header_reaches_the_server,
    a_header_that_is_named_goes_as_it_is_spelt,
);

/// A header as CGI, WSGI and PHP name it.
fn variable(name: &str) -> String {
    let sign = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    name.chars().map(sign).collect::<String>().to_uppercase()
}

/// All values of the headers that such a server reads as one.
fn values<'r>(one: &'r Received, name: &str) -> BTreeSet<&'r str> {
    let headers = one.headers.iter();
    headers
        .filter(|(own, _)| variable(own.as_str()) == variable(name))
        .map(|(_, value)| value.to_str().unwrap())
        .collect()
}

fn with_all(request: Request, headers: &[(&str, &str)]) -> Request {
    let all = headers.iter();
    all.fold(request, |request, (name, value)| request.also(name, value))
}

/// Sends these headers with a call that passes or is carried, and on a session: with its first message, a call, its
/// stream and its end. Returns what the server received with calls and from the session.
async fn sent(rig: &Rig, token: &str, headers: &[(&str, &str)]) -> Vec<Received> {
    let client = rig.client().named(token);
    let call = client.calling("echo", json!({"text": "x"}));
    assert_eq!(with_all(call, headers).send().await.status, 200);
    rig.upstream
        .until("echo", "run", |tally| tally.finished > 0)
        .await;
    if rig
        .upstream
        .received()
        .iter()
        .any(|one| one.text().contains("initialize"))
    {
        let hello = client.post(initialize(NEWEST, json!({})).to_string());
        let opened = with_all(hello, headers).send().await;
        let name = opened.headers["mcp-session-id"]
            .to_str()
            .unwrap()
            .to_owned();
        let session = Session {
            client: client.clone(),
            name,
            version: NEWEST,
        };
        let call = with_all(session.calling(7, "echo", json!({"text": "y"})), headers);
        assert_eq!(call.send().await.status, 200);
        let ending = with_all(session.http(Method::DELETE), headers);
        assert!(ending.send().await.status < 500);
    }
    rig.upstream.received_of_clients()
}

fn modes() -> [Config; 3] {
    [Config::never(), Config::auto("10s"), Config::always()]
}

/// The attack: a caller that is not trusted writes what raincheck, or the operator, says to the server.
async fn no_other_spelling_of_a_header_reaches_the_server(era: Era) {
    const OURS: [(&str, &[&str]); 4] = [
        ("x-caller", &["alice"]),
        ("x-static", &["operators"]),
        ("x-forwarded-for", &[]),
        ("x-api-key", &["hers"]),
    ];
    let spelt = ["x_{}", "x.{}", "x-{}", "x'{}"];
    let tokens = Tokens::new(&[("alice", "alices-token")]);
    for config in modes() {
        let lines = "caller_header = \"x-caller\"\nheaders.x-static = \"operators\"";
        let config = tokens
            .wanted_by(config)
            .section("upstream", lines)
            .env("RAINCHECK_AUTH__CREDENTIAL_HEADERS", "x-api-key");
        let rig = Rig::start(era, config).await;
        let mut attack = vec![("x-api-key".to_owned(), "hers")];
        for name in ["caller", "static", "api_key", "api.key", "forwarded_for"] {
            attack.extend(spelt.map(|form| (form.replace("{}", name), "attacker")));
        }
        for name in [
            "content_length",
            "mcp_session_id",
            "mcp-session_id",
            "proxy",
            "client-ip",
        ] {
            attack.push((name.to_owned(), "7"));
        }
        let attack: Vec<_> = attack
            .iter()
            .map(|(name, value)| (&**name, *value))
            .collect();
        let received = sent(&rig, "Bearer alices-token", &attack).await;
        assert!(!received.is_empty());
        for one in received {
            for (name, allowed) in OURS {
                let found = values(&one, name);
                let strange: Vec<_> = found.iter().filter(|it| !allowed.contains(it)).collect();
                assert!(strange.is_empty(), "{name}: {strange:?}: {one:?}");
            }
            for name in [
                "content_length",
                "mcp_session_id",
                "mcp-session_id",
                "proxy",
                "client-ip",
            ] {
                assert_eq!(one.header(name), None, "{one:?}");
            }
        }
    }
}

/// An operator who names such a header gets it, and no other spelling of what raincheck writes.
async fn a_header_that_is_named_goes_as_it_is_spelt(era: Era) {
    let tokens = Tokens::new(&[("alice", "alices-token")]);
    for config in modes() {
        let lines = "caller_header = \"x_caller\"\nheaders.x_static = \"operators\"\n\
                     forward_headers = [\"x_tenant\"]\ncredentials = \"forward\"";
        let config = tokens
            .wanted_by(config)
            .section("upstream", lines)
            .env("RAINCHECK_AUTH__CREDENTIAL_HEADERS", "x_key");
        let rig = Rig::start(era, config).await;
        let received = sent(
            &rig,
            "Bearer alices-token",
            &[
                ("x_caller", "root"),
                ("x-caller", "root"),
                ("x_static", "theirs"),
                ("x-static", "theirs"),
                ("x_key", "hers"),
                ("x-key", "his"),
                ("x_tenant", "ada"),
            ],
        )
        .await;
        let calls = received
            .iter()
            .filter(|one| one.text().contains("tools/call"));
        let calls: Vec<_> = calls.collect();
        assert!(!calls.is_empty());
        for one in calls {
            for (name, value) in [
                ("x_caller", "alice"),
                ("x_static", "operators"),
                ("x_key", "hers"),
                ("x_tenant", "ada"),
            ] {
                assert_eq!(one.header(name), Some(value), "{name}: {one:?}");
                assert_eq!(values(one, name), [value].into(), "{name}: {one:?}");
            }
        }
    }
}

/// RFC 9112, 6.1: a list of codings may end the body elsewhere for the next server, which has no way to say so.
#[tokio::test]
async fn only_chunked_alone_is_a_transfer_coding() {
    let rig = Rig::start(Era::Modern, Config::never()).await;
    let call = rig.client().calling("echo", json!({"text": "x"}));
    let request = String::from_utf8(call.bytes()).unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let lines = head.split("\r\n");
    let head: Vec<_> = lines
        .filter(|line| !line.to_ascii_lowercase().starts_with("content-length"))
        .collect();
    let head = head.join("\r\n");
    for (codings, status) in [
        ("transfer-encoding: chunked", 200),
        ("Transfer-Encoding: \tCHUNKED ", 200),
        ("transfer-encoding: gzip, chunked", 400),
        ("transfer-encoding: identity, chunked", 400),
        ("transfer-encoding: chunked, chunked", 400),
        ("transfer-encoding: , chunked", 400),
        ("transfer-encoding: x;a=\"b\", chunked", 400),
        ("transfer-encoding: gzip\r\ntransfer-encoding: chunked", 400),
        (
            "transfer-encoding: identity\r\nTransfer-Encoding: chunked",
            400,
        ),
        (
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
            400,
        ),
        ("transfer-encoding:\r\ntransfer-encoding: chunked", 400),
        ("transfer-encoding: gzip", 400),
        ("transfer-encoding: chunked, identity", 400),
    ] {
        let before = rig.upstream.requests("tools/call").len();
        let mut stream = TcpStream::connect(rig.proxy.address()).await.unwrap();
        let size = body.len();
        let bytes = format!(
            "{head}\r\nconnection: close\r\n{codings}\r\n\r\n{size:x}\r\n{body}\r\n0\r\n\r\n"
        );
        stream.write_all(bytes.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let reading = stream.read_to_string(&mut answer);
        within(PATIENCE, "an answer and its end", reading)
            .await
            .unwrap();
        let found = answer.split(' ').nth(1).unwrap_or_default();
        assert_eq!(found, status.to_string(), "{codings:?}: {answer}");
        let reached = rig.upstream.requests("tools/call").len() - before;
        assert_eq!(reached == 1, status == 200, "{codings:?}");
    }
}
