//! Redirects within the server are followed, and others are said.

use hyper::Method;
use serde_json::json;

use crate::support::client::Client;
use crate::support::session::{NEWEST, Session};
use crate::support::upstream::Upstream;
use crate::support::{Config, Era, Rig, in_both_eras};

in_both_eras!(
    calls_go_where_the_server_redirects,
    a_redirect_that_comes_later_is_followed,
    a_redirect_elsewhere_ends_the_call_and_is_said,
    both_spellings_of_the_path_are_one,
);

async fn moved(era: Era, config: Config, status: u16, location: &str) -> Rig {
    let upstream = Upstream::start(era).await;
    upstream.move_to(status, location);
    let proxy = config.start(&upstream.url()).await;
    Rig { proxy, upstream }
}

async fn calls_go_where_the_server_redirects(era: Era) {
    for status in [307, 308] {
        let rig = moved(era, Config::always(), status, "/mcp/").await;
        rig.proxy.until_said("the server answers", 1).await;
        for nonce in ["a", "b"] {
            let arguments = json!({"text": "x", "nonce": nonce});
            let task = rig.client().call("echo", arguments).await.into_task();
            let state = rig.client().until(&task, "completed").await;
            assert_eq!(state["result"]["content"][0]["text"], "x");
            assert_eq!(rig.upstream.tally(nonce).started, 1);
        }
        // What is learned costs no request more.
        assert_eq!(rig.upstream.redirected(), 1);
        rig.proxy.until_said("the server redirects", 1).await;
        assert!(
            rig.proxy.log().contains("path=\"/mcp/\""),
            "{}",
            rig.proxy.log()
        );
    }
}

#[tokio::test]
async fn a_legacy_session_passes_to_where_the_server_redirects() {
    let rig = moved(Era::Legacy, Config::always(), 307, "/mcp/").await;
    rig.proxy.until_said("the server answers", 1).await;
    let session = Session::open(rig.client(), NEWEST).await;
    let answer = session
        .calling(1, "echo", json!({"text": "x"}))
        .send()
        .await;
    assert_eq!(answer.json()["result"]["content"][0]["text"], "x");
    let stream = session.http(Method::GET).stream().await;
    assert_eq!(stream.status, 200);
    drop(stream);
    assert_eq!(session.end().await, 200);
    rig.upstream.until_sessions_ended(1).await;
    assert_eq!(rig.upstream.redirected(), 1);
}

/// The first request meets it, and is the only one that may fail.
async fn a_redirect_that_comes_later_is_followed(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    rig.client()
        .call("echo", json!({"text": "x"}))
        .await
        .into_task();
    rig.upstream.move_to(308, "/moved");
    let _ = rig.client().call("echo", json!({"text": "x"})).await;
    let arguments = json!({"text": "y", "nonce": "later"});
    let task = rig.client().call("echo", arguments).await.into_task();
    let state = rig.client().until(&task, "completed").await;
    assert_eq!(state["result"]["content"][0]["text"], "y");
    assert_eq!(rig.upstream.tally("later").started, 1);
}

async fn a_redirect_elsewhere_ends_the_call_and_is_said(era: Era) {
    let elsewhere = Upstream::start(era).await;
    for (status, location) in [
        (307, format!("{}?key=s3cret", elsewhere.url())),
        (302, "/mcp/".to_owned()),
        (308, "https://user:s3cret@sso.example/login".to_owned()),
        (307, "/mcp".to_owned()),
    ] {
        let rig = moved(era, Config::never(), status, &location).await;
        let answer = rig.client().call("echo", json!({"text": "x"})).await;
        assert!(answer.body.contains("upstream_"), "{}", answer.body);
        assert!(!answer.body.contains("s3cret"), "{}", answer.body);
        let hello = rig.client().request("tools/list", json!({})).send().await;
        assert!(hello.json()["error"].is_object(), "{}", hello.body);
        assert!(!hello.headers.contains_key("location"));
        rig.proxy.until_said("which is not followed", 1).await;
        let log = rig.proxy.log();
        for word in [format!("status={status}"), "upstream.url".to_owned()] {
            assert!(log.contains(&word), "{word}: {log}");
        }
        assert!(!log.contains("s3cret"), "{log}");
    }
    assert!(elsewhere.received().is_empty());
}

async fn both_spellings_of_the_path_are_one(era: Era) {
    let upstream = Upstream::start(era).await;
    for path in ["/mcp", "/mcp/"] {
        let config = Config::always().section("listen", &format!("path = {path:?}"));
        let proxy = config.start(&upstream.url()).await;
        let client = Client::of(proxy.address());
        for asked in ["/mcp", "/mcp/"] {
            let answer = client.http(Method::GET, asked).send().await;
            assert_ne!(answer.status, 404, "{path} {asked}: {}", answer.body);
            assert_eq!(client.http(Method::GET, "/mcp//").send().await.status, 404);
        }
    }
}
