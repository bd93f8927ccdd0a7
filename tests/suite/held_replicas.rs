//! Held calls on two replicas, one of which may die, and over a store that may be away.

use serde_json::json;

use crate::held::{Session, assert_text, back_at, config, primed, reason, rest};
use crate::redis_server::RedisServer;
use crate::support::client::Client;
use crate::support::{Era, PATIENCE, Proxy, Upstream, within};

/// Two replicas in front of a server that keeps no events.
struct Pair {
    a: Proxy,
    b: Proxy,
    upstream: Upstream,
    redis: RedisServer,
}

impl Pair {
    async fn start() -> Self {
        let redis = RedisServer::start();
        let upstream = Upstream::start(Era::Legacy).await;
        let start = |id: &str| {
            let replica = format!("lease = \"3s\"\nid = {id:?}");
            let config = config().redis(&redis.url()).section("replica", &replica);
            let url = upstream.url();
            async move { config.start(&url).await }
        };
        let (a, b) = (start("a").await, start("b").await);
        Self {
            a,
            b,
            upstream,
            redis,
        }
    }
}

#[tokio::test]
async fn a_call_is_come_back_to_on_any_replica() {
    let pair = Pair::start().await;
    let at_a = Session::open(Client::of(pair.a.address())).await;
    let at_b = at_a.over(Client::of(pair.b.address()));
    let mut stream = at_a.calling("steps", json!({"n": 3})).stream().await;
    let mut last = primed(&mut stream).await;
    for (step, session) in [(1, &at_b), (2, &at_a), (3, &at_b)] {
        drop(stream);
        stream = back_at(session, &last).await;
        let event = stream.event().await.unwrap();
        assert_eq!(event.message["params"]["progress"], step);
        last = event.id.unwrap();
    }
    // It follows what is written elsewhere.
    pair.upstream.release("steps");
    let events = rest(&mut stream).await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert_text(&events[0], "stepped");
    for session in [at_a, at_b] {
        assert_eq!(rest(&mut back_at(&session, &last).await).await, events);
    }
    assert_eq!(pair.upstream.tally("steps").started, 1);
}

#[tokio::test]
async fn a_call_whose_replica_died_is_answered_for() {
    let mut pair = Pair::start().await;
    let session = Session::open(Client::of(pair.a.address())).await;
    let mut stream = session.calling("steps", json!({"n": 1})).stream().await;
    let first = primed(&mut stream).await;
    // What the client saw is in the log.
    stream.event().await.unwrap();
    pair.a.kill();
    let at_b = session.over(Client::of(pair.b.address()));
    let mut stream = back_at(&at_b, &first).await;
    let events = within(PATIENCE, "the end of a lost call", rest(&mut stream)).await;
    let last = events.last().unwrap();
    assert_eq!((events.len(), &last.message["id"]), (2, &json!(7)));
    assert_eq!(reason(&last.message), "owner_lost");
}

/// What the store could not take is kept here, and written when it is back.
#[tokio::test]
async fn a_call_goes_on_while_the_store_is_away() {
    let pair = Pair::start().await;
    let session = Session::open(Client::of(pair.a.address())).await;
    pair.redis.freeze();
    let mut stream = session.calling("steps", json!({"n": 2})).stream().await;
    let first = primed(&mut stream).await;
    drop(stream);
    let mut stream = back_at(&session, &first).await;
    pair.upstream.release("steps");
    let events = rest(&mut stream).await;
    assert_eq!(events.len(), 3, "{events:?}");
    assert_text(&events[2], "stepped");
    pair.redis.thaw();
    let at_b = session.over(Client::of(pair.b.address()));
    let kept = async {
        loop {
            let answer = at_b.back(&first).send().await;
            if answer.status == 200 {
                return answer.body;
            }
        }
    };
    let body = within(PATIENCE, "the log is written", kept).await;
    assert!(body.contains("stepped"), "{body}");
}
