//! Every way in which an answer can be wrong, and the word for it.

use super::*;

#[tokio::test]
async fn answers_come_as_json_or_as_events() {
    for era in BOTH {
        for (reply, expected) in [
            (Reply::result(OK), format!("result {OK}")),
            (
                Reply::error(200, r#"{"code":-32603,"message":"m"}"#),
                r#"error 200 {"code":-32603,"message":"m"}"#.into(),
            ),
            (
                Reply::error(400, r#"{"code":-32021,"message":"m"}"#),
                r#"error 400 {"code":-32021,"message":"m"}"#.into(),
            ),
            (
                Reply::events(&[r#"{"id":ID,"result":{"a":1}}"#]),
                r#"result {"a":1}"#.into(),
            ),
            (
                Reply::sse(
                    "id: 1\r\ndata: \r\n\r\n: c\r\n\r\ndata: {\"id\":ID,\r\ndata: \"result\":{}}\r\n\r\n",
                ),
                "result {}".into(),
            ),
            // Without an empty line behind the last event.
            (
                Reply::sse("data: {\"id\":ID,\"result\":{}}"),
                "result {}".into(),
            ),
            (
                Reply::events(&[
                    r#"{"method":"notifications/tools/list_changed"}"#,
                    "junk",
                    r#"{"id":"other","result":{}}"#,
                    r#"{"id":"server-error","error":{"code":-32600}}"#,
                ]),
                r#"error 200 {"code":-32600}"#.into(),
            ),
            (
                Reply::json(400, r#"{"jsonrpc":"2.0","id":null,"error":{"code":1}}"#),
                r#"error 400 {"code":1}"#.into(),
            ),
        ] {
            let server = Server::start(reply).await;
            assert_eq!(outcome(&upstream(&server), era).await, expected, "{era:?}");
            assert_eq!(server.calls(), 1);
        }
    }
}

#[tokio::test]
async fn every_fault_has_its_word() {
    for era in BOTH {
        for (reply, expected) in [
            (Reply::json(404, "not found"), "upstream_http none"),
            (Reply::json(413, "{}"), "upstream_http none"),
            (Reply::json(429, "{}"), "upstream_http none"),
            // The handler may have run for as long as the gateway waited.
            (Reply::json(408, ""), "upstream_http unknown"),
            (Reply::json(499, ""), "upstream_http unknown"),
            (Reply::json(409, ""), "upstream_http unknown"),
            (Reply::json(422, "{}"), "upstream_http unknown"),
            (Reply::json(500, "oops"), "upstream_http unknown"),
            (Reply::json(503, "oops"), "upstream_http unknown"),
            // What a form does after a POST that was performed.
            (Reply::json(303, "").header("location", "/mcp"), "upstream_http unknown"),
            (Reply::json(307, "").header("location", "/mcp"), "upstream_http unknown"),
            (Reply::json(202, ""), "upstream_invalid unknown"),
            (Reply::json(200, ""), "upstream_invalid unknown"),
            (Reply::json(200, "{\"id\":"), "upstream_invalid unknown"),
            (Reply::json(200, r#"{"id":77777,"result":{}}"#), "upstream_invalid unknown"),
            (Reply::json(200, &"[".repeat(100)), "upstream_invalid unknown"),
            (Reply::json(200, &"[".repeat(5000)), "upstream_too_deep unknown"),
            (
                Reply::json(200, "{}").header("content-type", "text/html"),
                "upstream_invalid unknown",
            ),
            (
                Reply::result(OK).header("content-encoding", "gzip"),
                "upstream_invalid unknown",
            ),
            (Reply::sse(""), "upstream_reset unknown"),
            (Reply::sse("data: {\"id\":ID,\"result\":{}"), "upstream_reset unknown"),
            (
                Reply::raw(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 99\r\n\r\ndata: {}"),
                "upstream_reset unknown",
            ),
            (Reply::events(&["junk"]), "upstream_invalid unknown"),
            // Where it could be come back to, nothing better comes.
            (
                Reply::sse("id: 1\ndata: {\"id\":ID,\"result\":{},\"error\":{}}\n\n"),
                "upstream_invalid unknown",
            ),
            (Reply::raw(b"junk\r\n\r\n"), "upstream_invalid unknown"),
            (Reply::raw(b""), "upstream_reset unknown"),
            (
                Reply::raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{"),
                "upstream_reset unknown",
            ),
            (
                Reply::raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{"),
                "upstream_invalid unknown",
            ),
            (
                Reply::raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
                "upstream_invalid unknown",
            ),
            (
                Reply::raw(&[b"HTTP/1.1 200 OK\r\nx: ", "y".repeat(80_000).as_bytes()].concat()),
                "upstream_too_large unknown",
            ),
        ] {
            let server = Server::start(reply.clone()).await;
            // A 404 on a session is a lost session, which is another story.
            server.without_sessions();
            // Where the session has a stream, an answer may come there.
            server.on_method("GET", vec![Reply::json(405, "")]);
            assert_eq!(outcome(&upstream(&server), era).await, expected, "{era:?} {reply:?}");
            assert_eq!(server.calls(), 1, "never sent twice");
        }
    }
}

/// The tool has run: what clients can be helped to read is no fault.
#[tokio::test]
async fn a_result_is_not_lost_for_how_it_is_written() {
    let deep = format!("{}{}", "[".repeat(4000), "]".repeat(4000));
    let deep = format!(r#"{{"content":{deep}}}"#);
    for era in BOTH {
        for (said, expected) in [
            (r#"{"a":"\ud83d"}"#, r#"{"a":"\ufffd"}"#),
            (
                r#"{"\uDE00":"\ud83d\ude00"}"#,
                r#"{"\ufffd":"\ud83d\ude00"}"#,
            ),
            (&*deep, &*deep),
        ] {
            let message = format!(r#"{{"id":ID,"result":{said}}}"#);
            for reply in [
                Reply::json(200, &message),
                Reply::json(200, &format!("\u{feff}{message}")),
                Reply::events(&[&message]),
            ] {
                let server = Server::start(reply).await;
                let said = outcome(&upstream(&server), era).await;
                assert!(said == format!("result {expected}"), "{era:?} {said:.99}");
            }
        }
        let error = r#"{"code":-32050,"message":"\ud83d"}"#;
        let server = Server::start(Reply::error(400, error)).await;
        let expected = r#"error 400 {"code":-32050,"message":"\ufffd"}"#;
        assert_eq!(outcome(&upstream(&server), era).await, expected);
    }
}

#[tokio::test]
async fn sizes_are_limited() {
    for era in BOTH {
        let long = "x".repeat(3000);
        for reply in [
            Reply::result(&format!(r#"{{"a":"{long}"}}"#)),
            Reply::events(&[&format!(r#"{{"id":ID,"result":{{"a":"{long}"}}}}"#)]),
        ] {
            let server = Server::start(reply).await;
            let mut settings = settings(server.url());
            settings.message_bytes_max = 2000;
            let upstream = Upstream::new(&settings, TaskTracker::new()).unwrap();
            assert_eq!(outcome(&upstream, era).await, "upstream_too_large unknown");
        }
    }
}

#[tokio::test]
async fn an_answer_counts_though_what_follows_in_its_frame_is_too_large() {
    for era in BOTH {
        let long = "x".repeat(3000);
        let frame = format!("data: {{\"id\":ID,\"result\":{{}}}}\n\ndata: {long}\n\n");
        let server = Server::start(Reply::sse(&frame)).await;
        let mut settings = settings(server.url());
        settings.message_bytes_max = 2000;
        let upstream = Upstream::new(&settings, TaskTracker::new()).unwrap();
        assert_eq!(outcome(&upstream, era).await, "result {}", "{era:?}");
    }
}

#[tokio::test]
async fn nobody_there_has_no_effect() {
    for era in BOTH {
        let upstream = Upstream::new(&settings("http://127.0.0.1:9"), TaskTracker::new()).unwrap();
        assert_eq!(outcome(&upstream, era).await, "upstream_unreachable none");
        assert!(matches!(
            upstream.era(None).await,
            Err(DiscoverError::Failed(_))
        ));
        assert_eq!(upstream.known_era(), None);
    }
}

#[tokio::test]
async fn a_busy_server_is_asked_again() {
    for era in BOTH {
        let busy = Reply::json(429, "").header("retry-after", "0");
        let server = Server::start(Reply::result(OK)).await;
        server.first(vec![busy.clone(), busy.clone()]);
        assert_eq!(
            outcome(&upstream(&server), era).await,
            format!("result {OK}")
        );
        assert_eq!(server.calls(), 3);

        let server = Server::start(Reply::json(503, "").header("retry-after", "0")).await;
        assert_eq!(outcome(&upstream(&server), era).await, "upstream_http none");
        assert_eq!(server.calls(), 3);
    }
}

#[tokio::test]
async fn a_challenge_reaches_the_client() {
    for era in BOTH {
        let reply = Reply::json(401, "no").header("www-authenticate", "Bearer x");
        let server = Server::start(reply).await;
        let mut exchange = upstream(&server).begin(era, call("t"));
        match next(&mut exchange).await {
            Event::Error(error) => {
                assert_eq!(error.status, 401);
                assert_eq!(error.www_authenticate.unwrap(), "Bearer x");
                assert!(error.error.get().contains("upstream_unauthorized"));
            }
            other @ (Event::Sent
            | Event::Progress(_)
            | Event::Log(_)
            | Event::Question(_)
            | Event::Job(_)
            | Event::Resumable(_)
            | Event::CredentialsRefused
            | Event::Later(_)
            | Event::Result(_)
            | Event::Failed(_)) => panic!("{other:?}"),
        }
    }
}
