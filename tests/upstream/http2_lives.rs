//! What ends an HTTP/2 connection to the server or its use, and what does not: others' calls are on it.

use super::*;
use crate::http2::over_http2;
use crate::http2_frames::{FrameServer, Manner};
use crate::http2_server::{Http2Server, Step};

const ORDINARY: Manner = Manner {
    waiting: 0,
    answers_pings: true,
    resets: usize::MAX,
};

fn begin(upstream: &Upstream) -> tokio::task::JoinHandle<String> {
    tokio::spawn(outcome_of(upstream.begin(Era::Modern, call("t"))))
}

/// Clients that do not read take a bounded amount of memory each, and no time of other calls on their connection,
/// however small the events are.
#[tokio::test]
async fn clients_that_do_not_read_hold_up_no_other() {
    const SLOW: usize = 100;
    const ANSWER: usize = 1 << 20;
    // How much of each answer may wait unread.
    const UNREAD: usize = 64 * 1024;
    for frame in [16 * 1024, 64] {
        let flood = Step::Flood {
            bytes: ANSWER,
            frame,
        };
        let server = Http2Server::start(1000, vec![flood; SLOW]).await;
        let upstream = over_http2(server.url());
        let mut unread = Vec::new();
        for id in 0..SLOW {
            let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call"}}"#);
            let (parts, ()) = Request::post("http://proxy/mcp")
                .body(())
                .unwrap()
                .into_parts();
            let passed = upstream
                .pass(Box::new(parts), RequestBody::json(body))
                .await;
            unread.push(passed.unwrap());
        }
        server.until(|seen| seen.flooded == SLOW * UNREAD).await;
        assert_eq!(outcome(&upstream, Era::Modern).await, "result {}");
        assert_eq!(server.seen().connections, 1);
        // A client that reads on gets the rest.
        let read = unread.pop().unwrap().into_body().collect().await.unwrap();
        assert_eq!(read.to_bytes().len(), ANSWER);
        assert_eq!(server.seen().flooded, (SLOW - 1) * UNREAD + ANSWER);
    }
}

/// The server goes on sending on all of the streams, more than a thousand frames.
#[tokio::test]
async fn many_cancels_at_once_end_no_other_call() {
    const CANCELLED: usize = 120;
    let mut server = FrameServer::start(Manner {
        waiting: 1 + CANCELLED,
        resets: CANCELLED,
        ..ORDINARY
    })
    .await;
    let upstream = over_http2(server.listening.url());
    let other = begin(&upstream);
    let cancelled: Vec<_> = (0..CANCELLED).map(|_| begin(&upstream)).collect();
    let wait = server.seen.wait_for(|seen| seen.waiting == 1 + CANCELLED);
    wait.await.unwrap();
    cancelled.iter().for_each(tokio::task::JoinHandle::abort);
    let wait = server.seen.wait_for(|seen| seen.resets == CANCELLED);
    wait.await.unwrap();
    // Its answer comes after what the server sent on the streams.
    assert_eq!(outcome(&upstream, Era::Modern).await, "result {}");
    server.released.cancel();
    assert_eq!(other.await.unwrap(), "result {}");
    assert_eq!(server.seen.borrow().connections, 1);
}

#[tokio::test]
async fn a_connection_takes_a_thousand_requests_and_ends_after_the_last() {
    let server = Http2Server::start(1000, vec![Step::Wait]).await;
    let upstream = over_http2(server.url());
    let first = begin(&upstream);
    server.until(|seen| seen.waiting == [1]).await;
    for _ in 1..1000 {
        assert_eq!(outcome(&upstream, Era::Modern).await, "result {}");
    }
    assert_eq!(server.seen().connections, 1);
    assert_eq!(outcome(&upstream, Era::Modern).await, "result {}");
    assert_eq!(server.seen().connections, 2);
    assert_eq!(
        (server.seen().waiting, server.seen().closed),
        (vec![1, 0], 0)
    );
    server.release();
    assert_eq!(first.await.unwrap(), "result {}");
    server.until(|seen| seen.closed >= 1).await;
}

#[tokio::test]
async fn an_idle_connection_is_closed_though_no_call_comes() {
    let server = Http2Server::start(1000, vec![]).await;
    let upstream = over_http2(server.url());
    assert_eq!(outcome(&upstream, Era::Modern).await, "result {}");
    server.until(|seen| seen.closed == 1).await;
    assert_eq!(outcome(&upstream, Era::Modern).await, "result {}");
    assert_eq!(server.seen().connections, 2);
}

/// A server that answers no PING may be gone: new calls go elsewhere, and a call that runs may still have its answer.
#[tokio::test]
async fn a_silent_connection_gets_no_new_calls() {
    let start = |answers_pings| {
        FrameServer::start(Manner {
            waiting: 1,
            answers_pings,
            ..ORDINARY
        })
    };
    let (mut silent, mut other) = (start(false).await, start(true).await);
    let (to_silent, to_other) = (
        over_http2(silent.listening.url()),
        over_http2(other.listening.url()),
    );
    let calls = [begin(&to_other), begin(&to_silent)];
    for server in [&mut silent, &mut other] {
        server
            .seen
            .wait_for(|seen| seen.waiting == 1)
            .await
            .unwrap();
    }
    // By the third PING to the other server, sent when the second was answered, the silent one is known.
    let wait = other.seen.wait_for(|seen| seen.pings == 3);
    wait.await.unwrap();
    assert_eq!(outcome(&to_other, Era::Modern).await, "result {}");
    assert_eq!(outcome(&to_silent, Era::Modern).await, "result {}");
    assert_eq!(silent.seen.borrow().connections, 2);
    assert_eq!(other.seen.borrow().connections, 1);
    for server in [&silent, &other] {
        server.released.cancel();
    }
    for call in calls {
        assert_eq!(call.await.unwrap(), "result {}");
    }
}
