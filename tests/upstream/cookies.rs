//! The cookies of sessions of raincheck's own.

use super::*;

const INITIALIZED: &str = server::INITIALIZED;

fn started(session: &'static str, cookie: &'static str) -> Reply {
    let reply = Reply::result(INITIALIZED).header("mcp-session-id", session);
    reply.header("set-cookie", cookie)
}

#[tokio::test]
async fn what_is_set_on_a_session_comes_back_with_all_that_follows() {
    for mode in [SessionMode::Pool, SessionMode::Caller] {
        let server = Server::start(Reply::result(OK).header("set-cookie", "lb=2; Path=/")).await;
        server.on_method("initialize", vec![started("s1", "lb=1; Path=/; HttpOnly")]);
        let settings = Settings {
            session: mode,
            ..settings(server.url())
        };
        let upstream = Upstream::new(&settings, TaskTracker::new()).unwrap();
        assert!(outcome(&upstream, Era::Legacy).await.starts_with("result"));
        assert_eq!(server.last("initialize").header("cookie"), "(absent)");
        for what in ["notifications/initialized", "GET", "tools/call"] {
            assert_eq!(server.last(what).header("cookie"), "lb=1", "{what}");
        }
        // The newest counts, and the client's own cookies go with it.
        let mine = (hyper::header::COOKIE, HeaderValue::from_static("a=1; lb=9"));
        let own = UpstreamRequest {
            headers: [mine].into(),
            ..call("t")
        };
        let said = outcome_of(upstream.begin(Era::Legacy, own)).await;
        assert!(said.starts_with("result"), "{said}");
        assert_eq!(server.last("tools/call").header("cookie"), "lb=2; a=1");
        upstream.stop().await;
        server.until(|server| server.count("DELETE") == 1).await;
        assert_eq!(server.last("DELETE").header("cookie"), "lb=2");
    }
}

#[tokio::test]
async fn no_caller_has_the_cookies_of_another() {
    let server = Server::start(Reply::result(OK)).await;
    let starts = vec![started("s1", "lb=1"), started("s2", "lb=2")];
    server.on_method("initialize", starts);
    let upstream = upstream(&server);
    for caller in [1, 2] {
        let request = UpstreamRequest {
            caller: [caller; 16],
            ..call("t")
        };
        outcome_of(upstream.begin(Era::Legacy, request)).await;
        let seen = server.last("tools/call");
        assert_eq!(seen.header("mcp-session-id"), format!("s{caller}"));
        assert_eq!(seen.header("cookie"), format!("lb={caller}"));
    }
}

/// A session that replaces another begins without cookies.
#[tokio::test]
async fn a_lost_session_takes_its_cookies_with_it() {
    let server = Server::start(Reply::result(OK)).await;
    let again = Reply::result(INITIALIZED).header("mcp-session-id", "s2");
    server.on_method("initialize", vec![started("s1", "lb=1"), again]);
    server.first(vec![Reply::json(404, "gone")]);
    let said = outcome(&upstream(&server), Era::Legacy).await;
    assert!(said.starts_with("result"), "{said}");
    assert_eq!(server.last("initialize").header("cookie"), "(absent)");
    assert_eq!(server.last("tools/call").header("cookie"), "(absent)");
}

#[tokio::test]
async fn a_stream_that_was_cut_is_resumed_with_them_by_any_process() {
    let server = Server::start(Reply::sse("id: 7\ndata: {\"id\":ID,\"method\":\"x\"}\n\n")).await;
    server.on_method("initialize", vec![started("s1", "lb=1; Max-Age=60")]);
    let upstream = upstream(&server);
    let mut exchange = upstream.begin(Era::Legacy, call("t"));
    let Event::Resumable(_) = next(&mut exchange).await else {
        panic!("not resumable")
    };
    let point = exchange.control.resume_point().unwrap();
    exchange.control.leave();
    drop(exchange);
    server.on_resume(vec![Reply::events(&[r#"{"id":ID,"result":{"there":1}}"#])]);
    let another = super::upstream(&server);
    let adopted = another
        .adopt([1; 16], &point, Forwarded::default())
        .unwrap();
    assert_eq!(outcome_of(adopted).await, r#"result {"there":1}"#);
    assert_eq!(server.last("resume").header("cookie"), "lb=1");
}
