//! HTTP/2 to the server: what shares a connection, what ends with it, and what may be sent again.

use futures_util::future::join_all;
use h2::Reason;
use raincheck::tls::client::{self, Files};
use raincheck::upstream::Obstacle;
use rustls::version::TLS13;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::authority::Authority;
use crate::directory::TempDir;
use crate::http2_server::{Ending, Http2Server, Step};
use crate::relay::{Relay, terms};
use crate::scripted::Listening;

pub(crate) fn over_http2(url: String) -> Upstream {
    let settings = Settings {
        http2: true,
        ..settings(url)
    };
    Upstream::new(&settings, TaskTracker::new()).unwrap()
}

/// Calls that the server has and does not answer yet.
async fn open_calls(
    server: &Http2Server,
    upstream: &Upstream,
    count: usize,
) -> Vec<tokio::task::JoinHandle<String>> {
    let begin = |_| tokio::spawn(outcome_of(upstream.begin(Era::Modern, call("t"))));
    let calls = (0..count).map(begin).collect();
    server
        .until(|seen| seen.waiting.iter().sum::<usize>() == count)
        .await;
    calls
}

async fn outcomes(calls: Vec<tokio::task::JoinHandle<String>>) -> Vec<String> {
    let ended = join_all(calls).await.into_iter();
    ended.map(Result::unwrap).collect()
}

#[tokio::test]
async fn calls_share_a_connection_and_each_has_its_answer() {
    let server = Http2Server::start(1000, vec![Step::Wait; 100]).await;
    let upstream = over_http2(server.url());
    let calls = open_calls(&server, &upstream, 100).await;
    assert_eq!(server.seen().connections, 1);
    server.release();
    let all = outcomes(calls).await;
    assert!(all.iter().all(|outcome| outcome == "result {}"), "{all:?}");
    let (head, body) = server.seen().last.unwrap();
    assert_eq!(head.method, "POST");
    assert_eq!(head.uri.to_string(), server.url());
    assert!(!head.headers.contains_key("host"));
    assert_eq!(
        head.headers["content-length"].to_str().unwrap(),
        body.len().to_string()
    );
    assert_eq!(upstream.obstacle(), None);
}

/// As many calls wait on each connection as the server allows, and no more than raincheck's own limit.
#[tokio::test]
async fn further_calls_go_over_further_connections() {
    for (streams_max, calls, expected) in [(2, 5, 3), (1000, 129, 2)] {
        let server = Http2Server::start(streams_max, vec![Step::Wait; calls]).await;
        let upstream = over_http2(server.url());
        let waiting = open_calls(&server, &upstream, calls).await;
        let seen = server.seen();
        assert_eq!(seen.connections, expected, "{seen:?}");
        let limit = usize::try_from(streams_max).unwrap().min(128);
        assert!(seen.waiting.iter().all(|&calls| calls <= limit), "{seen:?}");
        server.release();
        let all = outcomes(waiting).await;
        assert!(all.iter().all(|outcome| outcome == "result {}"), "{all:?}");
        // What is free again is used again.
        for _ in 0..5 {
            assert_eq!(outcome(&upstream, Era::Modern).await, "result {}");
        }
        assert_eq!(server.seen().connections, expected);
    }
}

#[tokio::test]
async fn what_the_server_did_not_process_is_sent_again() {
    let refused = vec![Step::Reset(Reason::REFUSED_STREAM), Step::Answer("{}")];
    let server = Http2Server::start(100, refused).await;
    let upstream = over_http2(server.url());
    assert_eq!(outcome(&upstream, Era::Modern).await, "result {}");
    assert_eq!((server.seen().calls, server.seen().connections), (2, 1));

    let server = Http2Server::start(100, vec![]).await;
    server.end(&[Ending::GoAway { last: 0 }]);
    let upstream = over_http2(server.url());
    assert_eq!(outcome(&upstream, Era::Modern).await, "result {}");
    assert_eq!((server.seen().calls, server.seen().connections), (2, 2));
}

/// It is not sent for ever, and what is said of it is true.
#[tokio::test]
async fn what_the_server_never_processes_had_no_effect() {
    let server = Http2Server::start(100, vec![Step::Reset(Reason::REFUSED_STREAM); 9]).await;
    let upstream = over_http2(server.url());
    assert_eq!(outcome(&upstream, Era::Modern).await, "upstream_http none");
    assert_eq!(server.seen().calls, 3);

    let server = Http2Server::start(100, vec![]).await;
    server.end(&[Ending::GoAway { last: 0 }; 9]);
    let upstream = over_http2(server.url());
    assert_eq!(outcome(&upstream, Era::Modern).await, "upstream_http none");
    assert_eq!(server.seen().calls, 3);
}

/// A call that may have run is never sent again.
#[tokio::test]
async fn what_the_server_may_have_processed_is_not_sent_again() {
    for reason in [
        Reason::CANCEL,
        Reason::INTERNAL_ERROR,
        Reason::NO_ERROR,
        Reason::ENHANCE_YOUR_CALM,
    ] {
        let server = Http2Server::start(100, vec![Step::Reset(reason)]).await;
        let upstream = over_http2(server.url());
        let said = outcome(&upstream, Era::Modern).await;
        assert_eq!(said, "upstream_reset unknown", "{reason:?}");
        assert_eq!(server.seen().calls, 1, "{reason:?}");
    }
    // A server names the last stream that it may have processed.
    for ending in [
        Ending::GoAway { last: 1 },
        Ending::GoAway { last: 0x7fff_ffff },
        Ending::Close,
    ] {
        let server = Http2Server::start(100, vec![]).await;
        server.end(&[ending]);
        let upstream = over_http2(server.url());
        let said = outcome(&upstream, Era::Modern).await;
        assert_eq!(said, "upstream_reset unknown", "{ending:?}");
        assert_eq!(server.seen().calls, 1, "{ending:?}");
        // The next call has a connection of its own.
        assert_eq!(outcome(&upstream, Era::Modern).await, "result {}");
    }
}

#[tokio::test]
async fn the_end_of_a_connection_ends_all_its_calls_once() {
    let server = Http2Server::start(100, vec![Step::Wait; 20]).await;
    let upstream = over_http2(server.url());
    let calls = open_calls(&server, &upstream, 20).await;
    server.close_connections();
    let all = outcomes(calls).await;
    let is_reset = |outcome: &String| outcome == "upstream_reset unknown";
    assert!(all.iter().all(is_reset), "{all:?}");
    assert_eq!(server.seen().calls, 20);
}

#[tokio::test]
async fn a_call_that_is_dropped_ends_its_own_stream_only() {
    let server = Http2Server::start(100, vec![Step::Wait; 2]).await;
    let upstream = over_http2(server.url());
    let mut calls = open_calls(&server, &upstream, 2).await;
    calls.pop().unwrap().abort();
    server.until(|seen| seen.cancelled == 1).await;
    server.release();
    assert_eq!(outcomes(calls).await, ["result {}"]);
    let seen = server.seen();
    assert_eq!((seen.cancelled, seen.connections), (1, 1));
}

/// Such a server takes the first bytes for a request that it does not know.
#[tokio::test]
async fn a_server_without_http2_is_named() {
    let server = Listening::start(async |mut stream| {
        let mut preface = [0; 24];
        stream.read_exact(&mut preface).await.unwrap();
        let refusal = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
        stream.write_all(refusal).await.unwrap();
    });
    let server = server.await;
    let upstream = over_http2(server.url());
    let said = outcome(&upstream, Era::Modern).await;
    assert_eq!(said, "upstream_unreachable none");
    assert_eq!(upstream.obstacle(), Some(Obstacle::NoHttp2));
}

/// A server that starts or ends closes connections, too.
#[tokio::test]
async fn a_connection_that_ends_early_is_not_called_a_server_without_http2() {
    for resets in [false, true] {
        let server = Listening::start(move |stream| {
            if resets {
                stream.set_zero_linger().unwrap();
            }
            std::future::ready(())
        });
        let server = server.await;
        let upstream = over_http2(server.url());
        let said = outcome(&upstream, Era::Modern).await;
        assert_eq!(said, "upstream_unreachable none");
        let obstacle = upstream.obstacle();
        assert!(
            matches!(obstacle, Some(Obstacle::NoConnection(_))),
            "{obstacle:?}"
        );
    }
}

/// Over TLS the protocol is agreed on first: a server that chooses no HTTP/2 gets no byte of it.
#[tokio::test]
async fn over_tls_the_server_must_choose_http2() {
    let authority = Authority::new();
    let folder = TempDir::new();
    let server = Http2Server::start(100, vec![]).await;
    let address = server.url()["http://".len()..].replace("/mcp", "");
    for (offered, expected) in [
        (&["h2", "http/1.1"][..], "result {}"),
        (&["http/1.1"], "upstream_unreachable none"),
        (&[], "upstream_unreachable none"),
    ] {
        let mut terms = terms(authority.issue(), None, &TLS13);
        terms.alpn_protocols = offered
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        let relay = Relay::over_tls(terms, address.parse().unwrap()).await;
        let files = Files {
            roots: Some(folder.file("roots", &authority.roots())),
            http2: true,
            ..Files::default()
        };
        let settings = Settings {
            tls: Some(client::client(files).unwrap()),
            http2: true,
            ..settings(relay.url("localhost"))
        };
        let upstream = Upstream::new(&settings, TaskTracker::new()).unwrap();
        let said = outcome(&upstream, Era::Modern).await;
        assert_eq!(said, expected, "{offered:?}");
        let obstacle = (said != "result {}").then_some(Obstacle::NoHttp2);
        assert_eq!(upstream.obstacle(), obstacle, "{offered:?}");
    }
    let (head, _) = server.seen().last.unwrap();
    assert_eq!(head.uri.scheme_str(), Some("https"));
    assert_eq!(server.seen().calls, 1);
}
