//! How it is found out that a server speaks the old transport.

use super::*;

fn unsaid(server: &SseServer) -> Upstream {
    run(&settings(server.url()))
}

#[tokio::test]
async fn a_server_that_refuses_posts_is_asked_for_its_endpoint() {
    let server = SseServer::start().await;
    let upstream = unsaid(&server);
    assert!(!upstream.is_decided());
    assert_eq!(upstream.era(None).await.unwrap(), LEGACY);
    assert!(upstream.is_decided() && !upstream.speaks_http());
    on(&upstream).await;
    assert_eq!(upstream.era(None).await.unwrap(), LEGACY);
    // One to find out, one to use.
    assert_eq!(server.opened(), 2);
}

#[tokio::test]
async fn whoever_wants_credentials_is_asked_by_the_next_who_has_some() {
    let server = SseServer::start().await;
    server.wants("Bearer mine");
    let upstream = unsaid(&server);
    assert!(matches!(
        upstream.era(None).await,
        Err(DiscoverError::Unauthorized(error)) if error.status == 401
    ));
    assert!(!upstream.is_decided());
    let mine = HeaderValue::from_static("Bearer mine");
    assert_eq!(upstream.era(Some(mine.into())).await.unwrap(), LEGACY);
    assert!(!upstream.speaks_http());
}

/// A gateway may answer for a server that is not there yet.
#[tokio::test]
async fn a_server_that_refuses_all_is_asked_again() {
    let server = SseServer::start().await;
    let upstream = run(&settings(format!("http://{}/nothing", server.address)));
    assert!(upstream.era(None).await.is_err());
    assert!(!upstream.is_decided() && upstream.look().await.is_err());
}

#[tokio::test]
async fn a_server_of_streamable_http_stays_one() {
    let server = Server::start(Reply::result(OK)).await;
    server.on_discover(Reply::json(405, "no"));
    let upstream = upstream(&server);
    assert_eq!(upstream.era(None).await.unwrap(), LEGACY);
    assert!(upstream.is_decided() && upstream.speaks_http());
    assert_eq!(server.count("GET"), 0);
    // The stream of the probe is closed, and serves no client.
    server.until(|server| server.count("DELETE") == 1).await;
    assert_eq!(outcome(&upstream, LEGACY).await, format!("result {OK}"));
    assert_eq!(server.count("initialize"), 2);
}

#[tokio::test]
async fn nothing_is_asked_where_it_is_said() {
    let server = SseServer::start().await;
    for transport in [Transport::StreamableHttp, Transport::Sse] {
        let said = Settings {
            transport,
            ..settings(server.url())
        };
        let upstream = run(&said);
        assert!(upstream.is_decided());
        assert_eq!(
            upstream.speaks_http(),
            transport == Transport::StreamableHttp
        );
    }
    assert_eq!(server.opened(), 0);
}
