//! Web pages as clients: what a browser asks before a request, and whether the page can read what comes back.

use hyper::Method;
use serde_json::{Value, json};

use crate::auth_tokens::Tokens;
use crate::support::client::{Answer, Request};
use crate::support::session::{SESSION, initialize};
use crate::support::{Client, Config, Era, Rig, in_both_eras};

in_both_eras!(
    a_page_reads_every_answer,
    a_preflight_is_answered_here,
    a_page_that_may_not_call_reads_nothing,
    a_page_reads_what_is_said_of_its_credential,
);

const APP: &str = "https://app.example.com";

/// The pages of this machine, and one that the operator names.
const PAGES: [&str; 5] = [
    APP,
    "http://localhost:6274",
    "https://localhost",
    "http://127.0.0.1:6274",
    "http://[::1]:6274",
];

const STRANGERS: [&str; 4] = [
    "https://evil.example",
    "null",
    "https://app.example.com.evil.example",
    "http://app.example.com",
];

fn allowing(config: Config) -> Config {
    config.section("listen", &format!("allowed_origins = [{APP:?}]"))
}

fn values<'a>(answer: &'a Answer, name: &str) -> Vec<&'a str> {
    let all = answer.headers.get_all(name).iter();
    all.map(|value| value.to_str().unwrap()).collect()
}

/// The names in the values of a header, in small letters.
fn names(answer: &Answer, name: &str) -> Vec<String> {
    let all = values(answer, name).join(",").to_lowercase();
    all.split(',').map(|name| name.trim().to_owned()).collect()
}

#[track_caller]
fn assert_readable(answer: &Answer, page: &str, what: &str) {
    let origins = values(answer, "access-control-allow-origin");
    assert_eq!(origins, [page], "{what}: {:?}", answer.headers);
    assert!(
        names(answer, "vary").contains(&"origin".to_owned()),
        "{what}"
    );
    // A page sends its token itself.
    let credentials = values(answer, "access-control-allow-credentials");
    assert_eq!(credentials, [""; 0], "{what}");
    let exposed = names(answer, "access-control-expose-headers");
    for name in [SESSION, "www-authenticate", "retry-after"] {
        assert!(exposed.contains(&name.to_owned()), "{what}: {exposed:?}");
    }
}

/// Requests whose answers raincheck passes, edits, makes or refuses.
fn requests(client: &Client) -> Vec<(&'static str, Request, Option<u16>)> {
    let hello = initialize("2025-06-18", json!({}));
    let too_long = "x".repeat(5 << 20);
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    vec![
        ("a handshake", client.post(hello.to_string()), Some(200)),
        (
            "a call",
            client.calling("echo", json!({"text": "x"})),
            Some(200),
        ),
        ("a list", client.request("tools/list", json!({})), Some(200)),
        ("without a session", client.post(list.to_string()), None),
        (
            "a task",
            client.request("tasks/get", json!({"taskId": "x"})),
            None,
        ),
        ("no JSON", client.post("{"), Some(400)),
        ("too much", client.post(too_long), Some(413)),
        ("a stream", client.http(Method::GET, "/mcp"), None),
        ("an end", client.http(Method::DELETE, "/mcp"), None),
        (
            "another method",
            client.http(Method::PUT, "/mcp"),
            Some(405),
        ),
        (
            "another path",
            client.http(Method::GET, "/other"),
            Some(404),
        ),
        (
            "another host",
            client.post("{}").header("host", "evil.example"),
            Some(403),
        ),
        (
            "the server's metadata",
            client.http(Method::GET, "/.well-known/oauth-protected-resource"),
            Some(200),
        ),
    ]
}

async fn a_page_reads_every_answer(era: Era) {
    for says_so in [false, true] {
        let rig = Rig::start(era, allowing(Config::auto("10s"))).await;
        if says_so {
            rig.upstream.allow_pages();
        }
        for page in PAGES {
            for (what, request, status) in requests(&rig.client()) {
                let answer = request.header("origin", page).send().await;
                assert_readable(&answer, page, what);
                if let Some(status) = status {
                    assert_eq!(answer.status, status, "{what}: {}", answer.body);
                }
            }
        }
        // Without a page there is nothing to allow.
        let answer = rig.client().call("echo", json!({"text": "x"})).await;
        let origins = values(&answer, "access-control-allow-origin");
        assert!(says_so || origins.is_empty(), "{origins:?}");
    }
}

/// A preflight as a browser sends it: without a body and without a credential.
fn preflight(client: &Client, path: &str, page: &str, method: &str) -> Request {
    client
        .http(Method::OPTIONS, path)
        .header("origin", page)
        .header("access-control-request-method", method)
        .header("sec-fetch-site", "cross-site")
        .header(
            "access-control-request-headers",
            "authorization,content-type,mcp-param-region,mcp-session-id",
        )
}

async fn a_preflight_is_answered_here(era: Era) {
    let tokens = Tokens::new(&[("ada", "secret")]);
    for config in [Config::auto("10s"), tokens.wanted_by(Config::always())] {
        let rig = Rig::start(era, allowing(config)).await;
        let client = rig.client();
        for page in PAGES {
            for method in ["GET", "POST", "DELETE"] {
                // A page can read that its path is wrong only if its request comes.
                for path in ["/mcp", "/other", "/.well-known/oauth-protected-resource"] {
                    let asked = preflight(&client, path, page, method);
                    let answer = asked.clone().send().await;
                    assert_eq!(answer.status, 204, "{page} {method} {path}");
                    assert_eq!(values(&answer, "access-control-allow-origin"), [page]);
                    let methods = names(&answer, "access-control-allow-methods");
                    assert!(methods.contains(&method.to_lowercase()), "{methods:?}");
                    let allowed = names(&answer, "access-control-allow-headers");
                    for name in ["authorization", "mcp-param-region"] {
                        assert!(allowed.contains(&name.to_owned()), "{allowed:?}");
                    }
                    let vary = names(&answer, "vary");
                    assert!(vary.contains(&"origin".to_owned()), "{vary:?}");
                    let private = "access-control-allow-private-network";
                    assert_eq!(values(&answer, private), [""; 0]);
                    let asked = asked.header("access-control-request-private-network", "true");
                    assert_eq!(values(&asked.send().await, private), ["true"]);
                }
            }
        }
        let received = rig.upstream.received();
        let forwarded = received.iter().any(|one| one.verb == Method::OPTIONS);
        assert!(!forwarded, "{received:?}");
    }
}

async fn a_page_that_may_not_call_reads_nothing(era: Era) {
    let rig = Rig::start(era, allowing(Config::auto("10s"))).await;
    rig.upstream.allow_pages();
    let client = rig.client();
    for page in STRANGERS {
        for (what, request) in [
            ("a preflight", preflight(&client, "/mcp", page, "POST")),
            ("a call", client.calling("echo", json!({"text": "x"}))),
            ("a stream", client.http(Method::GET, "/mcp")),
        ] {
            let answer = request.header("origin", page).send().await;
            assert_eq!(answer.status, 403, "{page}: {what}");
            let origins = values(&answer, "access-control-allow-origin");
            assert_eq!(origins, [""; 0], "{page}: {what}");
        }
    }
    // Two of them, one of which may call.
    let both = client.calling("echo", json!({"text": "x"}));
    let both = both
        .header("origin", APP)
        .also("origin", "https://evil.example");
    assert_eq!(both.send().await.status, 403);
    // No preflight: it asks for no method.
    let bare = client.http(Method::OPTIONS, "/mcp").header("origin", APP);
    assert_eq!(bare.send().await.status, 405);
    assert!(rig.upstream.received_of_clients().is_empty());
    rig.proxy.until_said("listen.allowed_origins", 1).await;
}

/// A browser shows a page neither a refusal nor where to sign in, unless it may read the answer.
async fn a_page_reads_what_is_said_of_its_credential(era: Era) {
    let tokens = Tokens::new(&[("ada", "secret")]);
    let config = allowing(tokens.wanted_by(Config::always())).tool("held", "scopes = \"run\"");
    let rig = Rig::start(era, config).await;
    let client = rig.client();
    let called = |tool: &str, token: Option<&str>| {
        let call = client.calling(tool, json!({"text": "x", "nonce": "a"}));
        let call = call.header("origin", APP);
        match token {
            Some(token) => call.header("authorization", &format!("Bearer {token}")),
            None => call,
        }
    };
    for (what, request, status) in [
        ("no token", called("echo", None), 401),
        ("a wrong one", called("echo", Some("wrong")), 401),
        ("a scope is missing", called("held", Some("secret")), 403),
    ] {
        let answer = request.send().await;
        assert_eq!(answer.status, status, "{what}: {}", answer.body);
        assert_readable(&answer, APP, what);
        assert!(answer.headers.contains_key("www-authenticate"), "{what}");
    }
    let task = called("echo", Some("secret")).send().await;
    assert_readable(&task, APP, "a good one");
    let created: Value = task.json();
    assert!(created["result"]["taskId"].is_string(), "{created}");
    rig.upstream.until_received("tools/call", 1).await;
    assert_eq!(rig.upstream.requests("tools/call").len(), 1);
}
