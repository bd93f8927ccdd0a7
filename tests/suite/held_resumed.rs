//! Held calls at a server that keeps its events, but tells of it too late to be left alone: its own
//! stream breaks, and the replica that carries the call dies.

use serde_json::{Value, json};

use crate::held::{Session, assert_text, back_at, config, is_note, primed, reason, rest};
use crate::held_replicas::allow_bytes;
use crate::support::client::Client;
use crate::support::pair::{Pair, SEAL_KEY};
use crate::support::stream::Stream;
use crate::support::{Config, Era, PATIENCE, Proxy, Rig, Upstream, within};

async fn rig(config: Config) -> (Rig, Session) {
    let rig = Rig::start(Era::Legacy, config).await;
    rig.upstream.keep_events_and_tell_late();
    let session = Session::open(rig.client()).await;
    (rig, session)
}

/// Reads so many steps, and gives the id of the last.
async fn steps(stream: &mut Stream, expected: impl IntoIterator<Item = u64>) -> String {
    let mut last = None;
    for step in expected {
        let event = stream.event().await.unwrap();
        assert_eq!(event.message["params"]["progress"], step);
        last = event.id;
    }
    last.unwrap()
}

/// A call that has said two steps, and the id of the second.
async fn two_steps(replica: &Proxy) -> (Session, Stream, String) {
    let session = Session::open(Client::of(replica.address())).await;
    let mut stream = session.calling("steps", json!({"n": 2})).stream().await;
    primed(&mut stream).await;
    let second = steps(&mut stream, 1..=2).await;
    (session, stream, second)
}

/// The answer alone is left to hear.
async fn assert_stepped(stream: &mut Stream) {
    let events = within(PATIENCE, "the answer", rest(stream)).await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert_text(&events[0], "stepped");
}

fn assert_ran_once(upstream: &Upstream) {
    let tally = upstream.tally("steps");
    assert_eq!((tally.started, tally.cancelled), (1, 0));
}

#[tokio::test]
async fn a_server_that_breaks_off_is_come_back_to() {
    let (rig, session) = rig(config()).await;
    let mut stream = session.calling("steps", json!({"n": 3})).stream().await;
    primed(&mut stream).await;
    steps(&mut stream, 1..=3).await;
    for _ in 0..2 {
        let read = rig.upstream.resumed();
        rig.upstream.cut();
        rig.upstream.until_resumed(read + 1).await;
    }
    rig.upstream.release("steps");
    assert_stepped(&mut stream).await;
    assert_eq!(rig.upstream.tally("steps").started, 1);
}

/// What was come back to is there no more.
#[tokio::test]
async fn a_server_that_forgot_the_call_is_answered_for() {
    let (rig, session) = rig(config()).await;
    let mut stream = session.calling("steps", json!({"n": 2})).stream().await;
    primed(&mut stream).await;
    steps(&mut stream, 1..=2).await;
    rig.upstream.cut_and_forget();
    let events = rest(&mut stream).await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(reason(&events[0].message), "upstream_reset");
}

/// Answers to unknown requests, and errors that name no request, end nothing.
#[tokio::test]
async fn an_answer_to_another_request_ends_no_call() {
    let (rig, session) = rig(config()).await;
    let arguments = json!({"n": 1, "then": "stray"});
    let mut stream = session.calling("steps", arguments).stream().await;
    primed(&mut stream).await;
    steps(&mut stream, [1]).await;
    rig.upstream.release("steps");
    let events = rest(&mut stream).await;
    let ids: Vec<_> = events.iter().map(|event| &event.message["id"]).collect();
    assert_eq!(ids, [&json!("8"), &Value::Null, &json!(7)]);
    assert_text(&events[2], "stepped");
}

/// Two replicas that can read what the other sealed.
async fn pair() -> Pair {
    let upstream = Upstream::start(Era::Legacy).await;
    upstream.keep_events_and_tell_late();
    let config = config()
        .section("upstream", "shared = true")
        .section("drain", "grace = \"500ms\"")
        .store(&format!("seal_key = {SEAL_KEY:?}"));
    Pair::of(upstream, config).await
}

/// The client was there, or came back to nobody; two come back at once, and one carries it on.
#[tokio::test]
async fn a_call_whose_replica_died_is_carried_on_by_another() {
    let mut pair = pair().await;
    let secret = pair.at_a().named("Bearer a");
    let session = Session::open(secret).await;
    let mut stream = session.calling("steps", json!({"n": 4})).stream().await;
    let first = primed(&mut stream).await;
    let fourth = steps(&mut stream, 1..=4).await;
    pair.a.kill();
    let at_b = session.over(pair.at_b().named("Bearer a"));
    let mut stream = back_at(&at_b, &fourth).await;
    let mut other = back_at(&at_b, &first).await;
    steps(&mut other, 1..=4).await;
    pair.upstream.until_resumed(1).await;
    pair.upstream.release("steps");
    for stream in [&mut stream, &mut other] {
        assert_stepped(stream).await;
    }
    assert_ran_once(&pair.upstream);
    assert_eq!(pair.upstream.resumed(), 1, "two carried it on");
    let again = rest(&mut back_at(&at_b, &first).await).await;
    assert_eq!(again.len(), 5, "{again:?}");
}

/// Its successor has the call, so what the old owner hears now must not reach any client.
#[tokio::test]
async fn a_replica_that_slept_leaves_its_call_to_its_successor() {
    let pair = pair().await;
    let (session, mut stream, second) = two_steps(&pair.a).await;
    pair.a.freeze();
    let at_b = session.over(pair.at_b());
    let mut taken = back_at(&at_b, &second).await;
    pair.upstream.until_resumed(1).await;
    pair.a.thaw();
    // It ends the stream without a word, and does not cancel the call.
    assert_eq!(rest(&mut stream).await, []);
    pair.upstream.release("steps");
    assert_stepped(&mut taken).await;
    assert_stepped(&mut back_at(&session, &second).await).await;
    assert_ran_once(&pair.upstream);
}

/// A new version is rolled out: what a replica cannot end in time, another one carries on.
#[tokio::test]
async fn a_replica_that_is_told_to_stop_leaves_its_call_to_another() {
    let mut pair = pair().await;
    let (session, mut stream, second) = two_steps(&pair.a).await;
    assert!(pair.a.stop().await.success());
    assert_eq!(rest(&mut stream).await, []);
    let at_b = session.over(pair.at_b());
    let mut stream = back_at(&at_b, &second).await;
    pair.upstream.until_resumed(1).await;
    pair.upstream.release("steps");
    assert_stepped(&mut stream).await;
    assert_ran_once(&pair.upstream);
}

/// The second one goes before the server said once more where it can be come back to.
#[tokio::test]
async fn a_call_is_left_to_one_replica_after_the_other() {
    let mut pair = pair().await;
    let c = pair.another("c").await;
    let (session, _stream, second) = two_steps(&pair.a).await;
    assert!(pair.a.stop().await.success());
    let at_b = session.over(pair.at_b());
    let mut stream = back_at(&at_b, &second).await;
    pair.upstream.until_resumed(1).await;
    assert!(pair.b.stop().await.success());
    assert_eq!(rest(&mut stream).await, []);
    let at_c = session.over(Client::of(c.address()));
    let mut stream = back_at(&at_c, &second).await;
    pair.upstream.until_resumed(2).await;
    pair.upstream.release("steps");
    assert_stepped(&mut stream).await;
    assert_ran_once(&pair.upstream);
}

/// What the store did not take a moment ago it may take now.
#[tokio::test]
async fn a_store_that_was_full_before_the_stop_costs_no_call() {
    let mut pair = pair().await;
    let session = Session::open(pair.at_a()).await;
    let arguments = json!({"n": 2, "tick": 50});
    let mut stream = session.calling("steps", arguments).stream().await;
    primed(&mut stream).await;
    let second = steps(&mut stream, 1..=2).await;
    allow_bytes(&pair.redis, 1);
    let failed = "the store did not take the events of a resumable call";
    pair.a.until_said(failed, 1).await;
    allow_bytes(&pair.redis, 0);
    assert!(pair.a.stop().await.success());
    let events = rest(&mut stream).await;
    assert!(events.iter().all(is_note), "{:?}", events.last());
    let at_b = session.over(pair.at_b());
    let mut stream = back_at(&at_b, &second).await;
    pair.upstream.until_resumed(1).await;
    pair.upstream.release("steps");
    let events = rest(&mut stream).await;
    assert_text(events.last().unwrap(), "stepped");
    assert_eq!(pair.upstream.tally("steps").cancelled, 0);
}
