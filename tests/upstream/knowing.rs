//! What the server is, what it offers, what it announces.

use super::*;

const ONE_TOOL: &str = r#"{"tools":[{"name":"a"}]}"#;

#[tokio::test]
async fn the_era_is_asked_for_once() {
    let server = Server::start(Reply::result(OK)).await;
    let up = upstream(&server);
    let asked = futures_util::future::join_all((0..5).map(|_| up.era(None))).await;
    assert!(asked.iter().all(|era| matches!(era, Ok(Era::Modern))));
    assert_eq!(server.count("server/discover"), 1);
    assert_eq!(up.known_era(), Some(Era::Modern));

    for (reply, era) in [
        (
            Reply::error(404, r#"{"code":-32601,"message":"m"}"#),
            Era::Legacy,
        ),
        (Reply::json(405, ""), Era::Legacy),
        (Reply::json(400, "Bad Request"), Era::Legacy),
        (
            Reply::error(400, r#"{"code":-32020,"message":"m"}"#),
            Era::Modern,
        ),
    ] {
        let server = Server::start(Reply::result(OK)).await;
        server.on_discover(reply);
        assert_eq!(upstream(&server).era(None).await.unwrap(), era);
    }
    let server = Server::start(Reply::result(OK)).await;
    server.on_discover(Reply::json(401, "").header("www-authenticate", "Bearer"));
    let up = upstream(&server);
    assert!(matches!(up.era(None).await, Err(DiscoverError::Unauthorized(e)) if e.status == 401));
    assert_eq!(up.known_era(), None);
}

/// Some are started by the request, as gateways do with programs.
#[tokio::test]
async fn a_server_that_is_slow_to_say_what_it_is_is_waited_for() {
    let server = Server::start(Reply::result(OK)).await;
    let slow = Duration::from_secs(20);
    server.on_discover(Reply::result(server::DISCOVERED).after(slow));
    let up = upstream(&server);
    // This holds also after the client that asked first has gone.
    tokio::select! {
        _ = up.era(None) => panic!("it is slow"),
        () = server.until(|s| s.count("server/discover") == 1) => {}
    }
    wait(slow).await;
    assert_eq!(up.era(None).await.unwrap(), Era::Modern);
    assert_eq!(server.count("server/discover"), 1);
}

#[tokio::test]
async fn who_waits_for_a_server_that_hangs_waits_no_longer_than_the_first() {
    let server = Server::start(Reply::result(OK)).await;
    server.on_discover(Reply::hang());
    let up = upstream(&server);
    let asking = futures_util::future::join_all((0..5).map(|_| up.era(None)));
    tokio::pin!(asking);
    tokio::select! {
        _ = &mut asking => panic!("it hangs"),
        () = server.until(|s| s.count("server/discover") == 1) => {}
    }
    wait(Duration::from_secs(30)).await;
    let asked = timeout(Duration::from_secs(5), asking).await;
    let asked = asked.expect("all at once");
    assert!(
        asked
            .iter()
            .all(|era| matches!(era, Err(DiscoverError::Failed(_))))
    );
    assert_eq!(server.count("server/discover"), 1);

    server.on_discover(Reply::result(server::DISCOVERED));
    assert_eq!(up.era(None).await.unwrap(), Era::Modern, "asked anew");
}

/// The next one may have others, which are accepted.
#[tokio::test]
async fn a_refusal_of_credentials_is_nobody_elses() {
    let server = Server::start(Reply::result(OK)).await;
    server.on_discover(Reply::json(401, "").after(Duration::from_millis(100)));
    let up = upstream(&server);
    let asked = futures_util::future::join_all((0..3).map(|_| up.era(None))).await;
    assert!(
        asked
            .iter()
            .all(|era| matches!(era, Err(DiscoverError::Unauthorized(_))))
    );
    assert_eq!(server.count("server/discover"), 3);
}

#[tokio::test]
async fn discovery_of_either_era() {
    for era in BOTH {
        let server = Server::start(Reply::result(OK)).await;
        if era == Era::Legacy {
            server.on_discover(Reply::error(404, r#"{"code":-32601,"message":"m"}"#));
        }
        let up = upstream(&server);
        let found = up.discover([1; 16], None, "{}").await.unwrap();
        assert!(found.capabilities.get().contains("tools"));
        assert!(
            found
                .server_info
                .as_ref()
                .unwrap()
                .get()
                .contains("fixture")
        );
        assert_eq!(found.instructions.as_ref().unwrap().get(), "\"do\"");
    }
}

#[tokio::test]
async fn tools_are_read_once_until_they_change() {
    for era in BOTH {
        let server = Server::start(Reply::events(&[
            r#"{"method":"notifications/tools/list_changed"}"#,
            r#"{"id":ID,"result":{}}"#,
        ]))
        .await;
        if era == Era::Legacy {
            server.on_discover(Reply::json(405, ""));
        }
        let up = upstream(&server);
        let read = || up.tools([1; 16], None, "{}".into());
        let all = futures_util::future::join_all((0..4).map(|_| read())).await;
        let tools = all[0].as_ref().unwrap();
        assert_eq!(tools.names().count(), 2, "both pages");
        assert_eq!(server.count("tools/list"), 2);
        assert_eq!(
            tools.get("a").unwrap().mirrored[0].header,
            "mcp-param-region"
        );
        outcome(&up, era).await;
        read().await.unwrap();
        assert_eq!(server.count("tools/list"), 4, "a change was seen");
    }
}

/// Clients wait for a few seconds of it; else it would never be known.
#[tokio::test]
async fn what_nobody_waits_for_any_more_is_read_all_the_same() {
    let slow = Duration::from_secs(20);
    for era in BOTH {
        let server = Server::start(Reply::result(OK)).await;
        let (described, says) = if era == Era::Legacy {
            server.on_discover(Reply::json(405, ""));
            ("initialize", server::INITIALIZED)
        } else {
            ("server/discover", server::DISCOVERED)
        };
        let up = upstream(&server);
        assert_eq!(up.era(None).await.unwrap(), era);
        server.on_method(described, vec![Reply::result(says).after(slow)]);
        let asked = server.count(described) + 1;
        tokio::select! {
            _ = up.discover([1; 16], None, "{}") => panic!("it is slow"),
            () = server.until(|s| s.count(described) == asked) => {}
        }
        assert!(up.last_discovered([1; 16]).is_none());
        wait(slow).await;
        let known = async || up.last_discovered([1; 16]).is_some();
        eventually(Duration::from_secs(5), "it is known", known).await;

        server.on_method("tools/list", vec![Reply::result(ONE_TOOL).after(slow)]);
        tokio::select! {
            _ = up.tools([1; 16], None, "{}".into()) => panic!("it is slow"),
            () = server.until(|s| s.count("tools/list") == 1) => {}
        }
        wait(slow).await;
        let tools = up.tools([1; 16], None, "{}".into()).await.unwrap();
        assert_eq!(tools.names().count(), 1);
        assert_eq!(server.count("tools/list"), 1);
    }
}

#[tokio::test]
async fn a_list_that_could_not_be_read_is_read_anew() {
    let server = Server::start(Reply::result(OK)).await;
    let up = upstream(&server);
    let list = vec![Reply::json(503, ""), Reply::result(ONE_TOOL)];
    server.on_method("tools/list", list);
    let read = || up.tools([1; 16], None, "{}".into());
    assert!(read().await.is_err());
    assert_eq!(read().await.unwrap().names().count(), 1);
}

async fn heard(listening: &mut Listening) -> String {
    let next = timeout(Duration::from_secs(10), listening.next());
    match next.await.expect("in time").expect("an event") {
        ListenEvent::Acknowledged(filter) => format!("ack {filter}"),
        ListenEvent::Notification { method, params } => {
            format!(
                "{method} {}",
                params.map_or(String::new(), |p| p.get().to_owned())
            )
        }
        ListenEvent::Missed => "missed".into(),
        ListenEvent::Ended => "ended".into(),
    }
}

#[tokio::test]
async fn listening_to_a_modern_server() {
    let server = Server::start(Reply::result(OK)).await;
    let up = upstream(&server);
    assert_eq!(up.era(None).await.unwrap(), Era::Modern);
    let mut listening = up.listen([1; 16], None, "{}".into(), FILTER.into());
    assert_eq!(
        heard(&mut listening).await,
        r#"ack {"toolsListChanged":true}"#
    );
    assert_eq!(
        heard(&mut listening).await,
        r#"notifications/tools/list_changed {"_meta":{"io.modelcontextprotocol/subscriptionId":2}}"#
    );
    assert_eq!(heard(&mut listening).await, "ended");
    assert!(listening.next().await.is_none());
}

#[tokio::test]
async fn listening_to_a_legacy_server() {
    let server = Server::start(Reply::result(OK)).await;
    server.on_get(vec![Reply::sse_open(
        "data: {\"method\":\"notifications/prompts/list_changed\"}\n\n\
         data: {\"id\":1,\"method\":\"ping\"}\n\n\
         data: {\"method\":\"notifications/resources/updated\",\"params\":{\"uri\":\"a:b\"}}\n\n",
    )]);
    let up = upstream(&server);
    server.on_discover(Reply::json(405, ""));
    assert_eq!(up.era(None).await.unwrap(), Era::Legacy);
    let mut listening = up.listen([1; 16], None, "{}".into(), FILTER.into());
    let ack = r#"ack {"toolsListChanged":true,"resourceSubscriptions":["a:b"]}"#;
    assert_eq!(heard(&mut listening).await, ack);
    assert_eq!(
        heard(&mut listening).await,
        r#"notifications/resources/updated {"uri":"a:b"}"#
    );
    server.until(|s| s.count("answer") == 1).await;
    drop(listening);
    server.until(|s| s.count("DELETE") == 1).await;

    let server = Server::start(Reply::result(OK)).await;
    server.on_get(vec![Reply::json(405, "")]);
    let up = upstream(&server);
    server.on_discover(Reply::json(405, ""));
    assert_eq!(up.era(None).await.unwrap(), Era::Legacy);
    let mut listening = up.listen([1; 16], None, "{}".into(), FILTER.into());
    // A server without such a stream announces nothing, and would announce nothing on another session.
    assert_eq!(heard(&mut listening).await, "ack {}");
    server.until(|s| s.count("DELETE") == 1).await;
    let next = futures_util::FutureExt::now_or_never(listening.next());
    assert!(next.is_none());
}

#[tokio::test]
async fn passing_leaves_bytes_alone() {
    let server = Server::start(Reply::sse("data:  x\r\n\r\n").header("x-mine", "1")).await;
    let up = upstream(&server);
    let body = "{ \"odd\" :1.10, \"method\":\"tools/call\", \"id\":1}";
    let request = Request::post("http://client.example/anything?q=1")
        .header("host", "client.example")
        .header("origin", "http://evil.example")
        .header("connection", "x-hop")
        .header("x-hop", "1")
        .header("authorization", "Bearer t")
        .header("mcp-session-id", "theirs")
        .body(body)
        .unwrap();
    let (parts, body_sent) = request.into_parts();
    let response = up
        .pass(Box::new(parts), RequestBody::json(body_sent.to_owned()))
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["x-mine"], "1");
    assert!(!response.headers().contains_key("transfer-encoding"));
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(&bytes[..], b"data:  x\r\n\r\n");
    let seen = server.last("tools/call");
    assert_eq!(seen.body, body);
    assert_eq!(seen.path, "/mcp");
    assert_eq!(seen.header("host"), server.authority());
    assert_eq!(seen.header("authorization"), "Bearer t");
    assert_eq!(seen.header("mcp-session-id"), "theirs");
    assert!(!seen.has("origin") && !seen.has("x-hop") && !seen.has("x-forwarded-for"));
}
