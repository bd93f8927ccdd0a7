//! Redirects: what repeats a request within the server is followed, and learned; nothing else is.

use super::*;

fn redirect(status: u16, location: &'static str) -> Reply {
    Reply::json(status, "").header("location", location)
}

/// Each method is redirected as often as said, and answered after that.
fn redirected(server: &Server, method: &'static str, hops: Vec<Reply>, last: Reply) {
    server.on_method(method, hops.into_iter().chain([last]).collect());
}

#[tokio::test]
async fn the_address_is_learned_by_whatever_is_sent_first() {
    for location in ["/mcp/", "mcp/", "//HOST/mcp/", "http://HOST/mcp/"] {
        for status in [307, 308] {
            for era in BOTH {
                let server = Server::start(Reply::result(OK)).await;
                let location = location.replace("HOST", &server.authority());
                let hop = redirect(status, String::leak(location));
                // A configured era is not asked for, so that another request is the first.
                let (first, last) = match era {
                    Era::Modern => ("server/discover", Reply::result(server::DISCOVERED)),
                    Era::Legacy => ("initialize", Reply::result(server::INITIALIZED)),
                };
                redirected(&server, first, vec![hop.clone()], last);
                let settings = Settings {
                    era: (era == Era::Legacy).then_some(era),
                    ..settings(server.url())
                };
                let upstream = Upstream::new(&settings, TaskTracker::new()).unwrap();
                assert_eq!(upstream.learned_address(), None);
                assert_eq!(upstream.era(None).await.unwrap(), era);
                for _ in 0..2 {
                    assert_eq!(outcome(&upstream, era).await, format!("result {OK}"));
                }
                assert_eq!(server.last("tools/call").path, "/mcp/", "{hop:?}");
                assert_eq!(server.count(first), 2, "{hop:?}");
                let learned = upstream.learned_address().unwrap();
                assert_eq!(learned, format!("http://{}/mcp/", server.authority()));
            }
        }
    }
}

/// The whole request goes again: its body, its headers, its method.
#[tokio::test]
async fn a_call_that_is_redirected_runs_once() {
    for era in BOTH {
        let server = Server::start(Reply::result(OK)).await;
        server.first(vec![redirect(307, "/a"), redirect(308, "/b?c=d")]);
        let upstream = upstream(&server);
        assert_eq!(outcome(&upstream, era).await, format!("result {OK}"));
        assert_eq!(server.calls(), 3);
        let seen = server.last("tools/call");
        assert_eq!(seen.path, "/b?c=d");
        assert!(seen.body.contains(r#""name":"t""#), "{}", seen.body);
        assert_eq!(seen.has("mcp-session-id"), era == Era::Legacy);
    }
}

#[tokio::test]
async fn hops_are_bounded() {
    for era in BOTH {
        let server = Server::start(Reply::result(OK)).await;
        let round = [redirect(307, "/a"), redirect(307, "/b")];
        server.first(round.into_iter().cycle().take(50).collect());
        let said = outcome(&upstream(&server), era).await;
        assert_eq!(said, "upstream_http unknown");
        // After the answer to an `initialize`, nobody expects a redirect: it is learned, and the call sent anew.
        let unexpected = usize::from(era == Era::Legacy);
        assert_eq!(server.calls(), 6 + unexpected);
    }
}

#[tokio::test]
async fn nothing_goes_to_another_origin_or_as_another_method() {
    let trap = Server::start(Reply::result(OK)).await;
    let elsewhere = format!("http://{}/mcp/", trap.authority());
    let tls = elsewhere.replace("http:", "https:");
    for (status, location) in [
        (301, "/mcp/"),
        (302, "/mcp/"),
        (303, "/mcp/"),
        (307, "/mcp"),
        (307, String::leak(elsewhere)),
        (308, String::leak(tls)),
        (308, "file:///etc/passwd"),
        (307, "http://["),
    ] {
        for era in BOTH {
            let server = Server::start(redirect(status, location)).await;
            let said = outcome(&upstream(&server), era).await;
            assert_eq!(said, "upstream_http unknown", "{status} {location}");
            assert_eq!(server.calls(), 1, "{status} {location}");
        }
    }
    assert_eq!(trap.connections(), 0);
}

/// Streams and ends of sessions go there, too, however they come to it.
#[tokio::test]
async fn a_get_and_a_delete_are_followed() {
    let server = Server::start(Reply::result(OK)).await;
    server.on_method("GET", vec![redirect(307, "/stream"), Reply::json(405, "")]);
    server.on_method("DELETE", vec![redirect(308, "/end"), Reply::json(200, "")]);
    let upstream = upstream(&server);
    assert_eq!(
        outcome(&upstream, Era::Legacy).await,
        format!("result {OK}")
    );
    assert_eq!(server.count("GET"), 2);
    assert_eq!(server.last("GET").path, "/stream");
    upstream.stop().await;
    server.until(|server| server.count("DELETE") == 2).await;
    assert_eq!(server.last("DELETE").path, "/end");
    // Messages go where they went before.
    assert_eq!(server.last("tools/call").path, "/mcp");
}
