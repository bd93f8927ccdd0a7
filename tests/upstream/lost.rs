//! Sessions that a server has lost, in all the ways in which servers say so, and what only looks like it.

use super::*;

const MODES: [SessionMode; 2] = [SessionMode::Pool, SessionMode::Caller];

fn of_mode(server: &Server, session: SessionMode) -> Upstream {
    let settings = Settings {
        session,
        ..settings(server.url())
    };
    Upstream::new(&settings, TaskTracker::new()).unwrap()
}

/// Refusals that prove nothing by themselves: a tool could have said the same.
fn refusals() -> Vec<Reply> {
    let in_words = [
        r#"{"code":-32000,"message":"Session expired"}"#,
        r#"{"code":-32001,"message":"Session not found"}"#,
        r#"{"code":-32602,"message":"Invalid session"}"#,
        r#"{"code":-32603,"message":"session terminated"}"#,
        r#"{"code":-32002,"message":"Server not initialized"}"#,
    ];
    let statuses = [200, 401, 403, 409, 410, 422, 500];
    let errors = statuses
        .into_iter()
        .flat_map(|status| in_words.map(|error| Reply::error(status, error)));
    let texts = [
        Reply::json(410, ""),
        Reply::json(401, "unknown session"),
        Reply::json(500, r#"{"detail":"Session not found"}"#),
        Reply::json(500, "KeyError: no such session").header("content-type", "text/plain"),
        Reply::events(&[r#"{"id":ID,"error":{"code":-32000,"message":"Session expired"}}"#]),
        Reply::sse(
            "id: 1\ndata: \n\ndata: {\"id\":null,\"error\":{\"code\":-32000,\"message\":\"no session\"}}\n\n",
        ),
    ];
    errors.chain(texts).collect()
}

#[tokio::test]
async fn a_call_whose_session_is_lost_is_sent_once_more_on_a_new_one() {
    for lost in refusals() {
        for mode in MODES {
            let server = Server::start(Reply::result(OK)).await;
            let upstream = of_mode(&server, mode);
            assert!(outcome(&upstream, Era::Legacy).await.starts_with("result"));
            server.first(vec![lost.clone()]);
            server.on_method("ping", vec![lost.clone()]);
            for _ in 0..2 {
                let said = outcome(&upstream, Era::Legacy).await;
                assert_eq!(said, format!("result {OK}"), "{mode:?} {lost:?}");
            }
            assert_eq!(server.calls(), 4, "{lost:?}");
            assert_eq!(server.count("initialize"), 2, "{lost:?}");
            assert_eq!(server.last("tools/call").header("mcp-session-id"), "s2");
        }
    }
}

/// The session lives, so the words are the tool's, which has run.
#[tokio::test]
async fn words_of_a_tool_about_a_session_end_its_call_and_nothing_else() {
    // "Gone" about a session is no tool's word.
    for said in refusals().into_iter().filter(|it| it.status != 410) {
        for mode in MODES {
            let server = Server::start(Reply::result(OK)).await;
            server.first(vec![said.clone()]);
            server.on_method("ping", vec![Reply::result("{}")]);
            let upstream = of_mode(&server, mode);
            let ended = outcome(&upstream, Era::Legacy).await;
            assert!(!ended.starts_with("result"), "{said:?}");
            assert_eq!(server.calls(), 1, "{said:?}");
            let next = outcome(&upstream, Era::Legacy).await;
            assert_eq!(next, format!("result {OK}"), "{said:?}");
        }
    }
}

/// Something was said about the call before: it has run, and the session is lost all the same.
#[tokio::test]
async fn a_call_that_has_begun_is_never_sent_again() {
    const LOST: &str = r#"{"id":ID,"error":{"code":-32000,"message":"Session expired"}}"#;
    for before in [
        r#"{"method":"notifications/progress","params":{"progressToken":ID,"progress":1}}"#,
        r#"{"method":"notifications/message","params":{"level":"info","data":"x"}}"#,
        r#"{"id":9,"method":"ping"}"#,
    ] {
        for mode in MODES {
            let server = Server::start(Reply::result(OK)).await;
            server.first(vec![Reply::events(&[before, LOST])]);
            let refused = Reply::error(200, r#"{"code":-32000,"message":"Session expired"}"#);
            server.on_method("ping", vec![refused]);
            let upstream = of_mode(&server, mode);
            let said = outcome(&upstream, Era::Legacy).await;
            assert_eq!(
                said,
                r#"error 200 {"code":-32000,"message":"Session expired"}"#
            );
            assert_eq!((server.calls(), server.count("initialize")), (1, 1));
            // The session is not used again.
            let next = outcome(&upstream, Era::Legacy).await;
            assert_eq!(next, format!("result {OK}"), "{before}");
            assert_eq!(server.last("tools/call").header("mcp-session-id"), "s2");
        }
    }
}

/// A ping that is refused in other words proves nothing about the call.
#[tokio::test]
async fn a_call_is_not_sent_again_for_a_session_that_is_lost_otherwise() {
    for mode in MODES {
        let server = Server::start(Reply::result(OK)).await;
        let said = r#"{"code":-32000,"message":"the database session expired"}"#;
        server.first(vec![Reply::error(500, said)]);
        server.on_method("ping", vec![Reply::json(404, "")]);
        let upstream = of_mode(&server, mode);
        let ended = outcome(&upstream, Era::Legacy).await;
        assert_eq!(ended, format!("error 500 {said}"));
        assert_eq!((server.calls(), server.count("initialize")), (1, 1));
        assert!(outcome(&upstream, Era::Legacy).await.starts_with("result"));
        assert_eq!(server.last("tools/call").header("mcp-session-id"), "s2");
    }
}

/// The server says nothing that names a session: whether it lives is asked before the next call.
#[tokio::test]
async fn a_session_that_failed_is_used_again_only_if_it_lives() {
    for failed in [
        Reply::error(500, r#"{"code":-32603,"message":"Internal error"}"#),
        Reply::error(401, r#"{"code":-32000,"message":"Unauthorized"}"#),
        Reply::json(500, "oops"),
        Reply::json(403, ""),
        Reply::json(200, "<html>").header("content-type", "text/html"),
    ] {
        for mode in MODES {
            for lives in [true, false] {
                let server = Server::start(Reply::result(OK)).await;
                server.first(vec![failed.clone()]);
                let pong = if lives {
                    Reply::result("{}")
                } else {
                    failed.clone()
                };
                server.on_method("ping", vec![pong]);
                let upstream = of_mode(&server, mode);
                outcome(&upstream, Era::Legacy).await;
                assert_eq!(server.calls(), 1, "{failed:?}");
                let next = outcome(&upstream, Era::Legacy).await;
                assert_eq!(next, format!("result {OK}"), "{failed:?}");
                // A shared session may hold state, so one that lives stays.
                if lives && mode == SessionMode::Caller {
                    assert_eq!(server.count("initialize"), 1, "{failed:?}");
                }
                if !lives {
                    assert_eq!(server.count("initialize"), 2, "{failed:?}");
                }
            }
        }
    }
}

/// What the server refuses on every session is said once, in its own words.
#[tokio::test]
async fn a_server_that_refuses_every_session_is_asked_twice() {
    let error = r#"{"code":-32000,"message":"Session expired"}"#;
    for status in [200, 404, 500] {
        let refused = Reply::error(status, error);
        let server = Server::start(refused.clone()).await;
        server.on_method("ping", vec![refused]);
        let said = outcome(&upstream(&server), Era::Legacy).await;
        assert_eq!(said, format!("error {status} {error}"));
        assert_eq!((server.calls(), server.count("initialize")), (2, 2));
    }
}

/// The client's own session is not raincheck's to begin anew, so the client hears that it is lost.
#[tokio::test]
async fn a_lost_session_of_a_client_is_said_to_the_client() {
    for lost in [
        Reply::error(410, r#"{"code":-32000,"message":"Session expired"}"#),
        Reply::error(500, r#"{"code":-32000,"message":"Session expired"}"#),
        Reply::json(500, "unknown session"),
    ] {
        let server = Server::start(lost.clone()).await;
        server.on_method("ping", vec![lost.clone()]);
        let upstream = upstream(&server);
        let session = borrowed::borrowed(&upstream);
        let exchange = upstream.begin(Era::Legacy, borrowed::on(&session, "t"));
        assert_eq!(
            outcome_of(exchange).await,
            "upstream_reset none",
            "{lost:?}"
        );
        assert_eq!((server.calls(), server.count("initialize")), (1, 0));
    }
}
