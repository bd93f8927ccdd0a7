//! Held calls on two replicas, one of which may die, and over a store that may be away.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::held::{Session, assert_text, back_at, config, is_note, primed, reason, rest};
use crate::redis_server::RedisServer;
use crate::support::pair::Pair;
use crate::support::{Config, Era, PATIENCE, Upstream, eventually, within};

/// Two replicas in front of a server that keeps no events.
async fn pair(config: Config) -> Pair {
    Pair::of(Upstream::start(Era::Legacy).await, config).await
}

/// What the store may hold; 0: as much as it likes.
pub(crate) fn allow_bytes(redis: &RedisServer, bytes: u64) {
    let mut redis = UnixStream::connect(redis.socket()).unwrap();
    write!(redis, "CONFIG SET maxmemory {bytes}\r\n").unwrap();
    let mut answer = [0; 5];
    redis.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+OK\r\n");
}

/// Also by calls that are the first thing that a replica hears of their session and its server.
#[tokio::test]
async fn a_session_that_began_elsewhere_has_its_calls_held() {
    let pair = pair(config()).await;
    let at_a = Session::open(pair.at_a()).await;
    let at_b = at_a.over(pair.at_b());
    let mut stream = at_b.calling("steps", json!({"n": 1})).stream().await;
    let first = primed(&mut stream).await;
    drop(stream);
    let mut stream = back_at(&at_a, &first).await;
    stream.event().await.unwrap();
    pair.upstream.release("steps");
    assert_text(&rest(&mut stream).await[0], "stepped");
}

#[tokio::test]
async fn a_call_is_come_back_to_on_any_replica() {
    let pair = pair(config()).await;
    let at_a = Session::open(pair.at_a()).await;
    let at_b = at_a.over(pair.at_b());
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

/// Also of a call that raincheck carries, and whose name at the server is no client's.
#[tokio::test]
async fn a_call_is_cancelled_at_any_replica() {
    let carried = Config::auto("10s").terms("companion_tools = true\nfallback_after = \"60s\"");
    let pair = pair(carried).await;
    let at_a = Session::open(pair.at_a()).await;
    let at_b = at_a.over(pair.at_b());
    let mut stream = at_a.calling("steps", json!({"n": 1})).stream().await;
    let first = primed(&mut stream).await;
    drop(stream);
    let mut stream = back_at(&at_b, &first).await;
    assert_eq!(
        stream.event().await.unwrap().message["params"]["progress"],
        1
    );
    let params = json!({"requestId": 7});
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
    assert_eq!(at_b.post(&cancel).send().await.status, 202);
    pair.upstream
        .until("steps", "cancelled", |tally| tally.cancelled == 1)
        .await;
    assert_eq!(rest(&mut stream).await, [], "and no answer");
}

/// What it becomes does not ask for the answer once more.
#[tokio::test]
async fn a_question_of_a_carried_call_is_answered_at_any_replica() {
    let carried = Config::auto("10s").terms("companion_tools = true\nfallback_after = \"4s\"");
    let pair = pair(carried).await;
    let at_a = Session::open(pair.at_a()).await;
    let at_b = at_a.over(pair.at_b());
    let mut stream = at_a.calling("ask_then_hold", json!({})).stream().await;
    let question = stream.next_of("elicitation/create").await;
    let accept = json!({"action": "accept", "content": {"name": "Ada"}});
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": accept});
    assert_eq!(at_b.post(&answer).send().await.status, 202);
    let given = stream.next_of_answer().await;
    let given = &given["result"]["structuredContent"];
    assert_eq!(given["state"], "working", "{given}");
    pair.upstream.release("ask_then_hold");
    let ticket = json!({"ticket": given["ticket"]});
    let result = at_b.calling("task_result", ticket).send().await;
    assert_eq!(result.into_result()["content"][0]["text"], "Ada");
}

#[tokio::test]
async fn a_call_whose_replica_died_is_answered_for() {
    let mut pair = pair(config()).await;
    let session = Session::open(pair.at_a()).await;
    let mut stream = session.calling("steps", json!({"n": 1})).stream().await;
    let first = primed(&mut stream).await;
    // What the client saw is in the log.
    stream.event().await.unwrap();
    pair.a.kill();
    let at_b = session.over(pair.at_b());
    let mut stream = back_at(&at_b, &first).await;
    let events = within(PATIENCE, "the end of a lost call", rest(&mut stream)).await;
    let last = events.last().unwrap();
    assert_eq!((events.len(), &last.message["id"]), (2, &json!(7)));
    assert_eq!(reason(&last.message), "owner_lost");
}

/// What the store could not take is kept here, and written when it is back.
#[tokio::test]
async fn a_call_goes_on_while_the_store_is_away() {
    let pair = pair(config()).await;
    let session = Session::open(pair.at_a()).await;
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
    let at_b = session.over(pair.at_b());
    let kept = async || at_b.back(&first).send().await.of_status(200);
    let body = eventually(PATIENCE, "the log is written", kept).await.body;
    assert!(body.contains("stepped"), "{body}");
}

/// A call over its time is answered for, and one that was cancelled is not.
#[tokio::test]
async fn a_cancel_finds_its_call_on_any_replica() {
    let pair = pair(config().terms("max_duration = \"4s\"")).await;
    let at_a = Session::open(pair.at_a()).await;
    let at_b = at_a.over(pair.at_b());
    let arguments = json!({"n": 1, "deaf": true});
    let mut stream = at_a.calling("steps", arguments).stream().await;
    primed(&mut stream).await;
    stream.event().await.unwrap();
    assert_eq!(at_b.cancelling().send().await.status, 202);
    let events = within(PATIENCE, "the end of a cancelled call", rest(&mut stream)).await;
    assert_eq!(events, []);
}

/// Also while its server does not stop talking.
#[tokio::test]
async fn a_cancel_finds_a_call_that_is_never_silent() {
    let pair = pair(config().terms("max_duration = \"6s\"")).await;
    let at_a = Session::open(pair.at_a()).await;
    let at_b = at_a.over(pair.at_b());
    let arguments = json!({"n": 1, "deaf": true, "tick": 100});
    let mut stream = at_a.calling("steps", arguments).stream().await;
    primed(&mut stream).await;
    stream.event().await.unwrap();
    assert_eq!(at_b.cancelling().send().await.status, 202);
    let events = within(PATIENCE, "the end of a cancelled call", rest(&mut stream)).await;
    assert!(events.iter().all(is_note), "{:?}", events.last());
}

/// Each event when it is there, and the store is not asked for events meanwhile.
#[tokio::test]
async fn a_reader_elsewhere_is_told_of_each_event() {
    let pair = pair(config()).await;
    let at_a = Session::open(pair.at_a()).await;
    let at_b = at_a.over(pair.at_b());
    let arguments = json!({"n": 1, "tick": 400});
    let mut stream = at_a.calling("steps", arguments).stream().await;
    let first = primed(&mut stream).await;
    let mut elsewhere = back_at(&at_b, &first).await;
    elsewhere.event().await.unwrap();
    let mut apart = 0;
    let mut last = Instant::now();
    for _ in 0..12 {
        assert!(is_note(&elsewhere.event().await.unwrap()));
        let now = Instant::now();
        apart += u32::from(now - last > Duration::from_millis(150));
        last = now;
    }
    // Read once a second, they would come two or three at a time.
    assert!(apart >= 8, "{apart} of 12 events came by themselves");
}

#[tokio::test]
async fn a_silent_call_is_not_read_again_and_again_elsewhere() {
    let pair = pair(config()).await;
    let at_a = Session::open(pair.at_a()).await;
    let at_b = at_a.over(pair.at_b());
    let mut stream = at_a.calling("steps", json!({"n": 1})).stream().await;
    let first = primed(&mut stream).await;
    let mut elsewhere = back_at(&at_b, &first).await;
    elsewhere.event().await.unwrap();
    let reads = times_run(&pair.redis, "hkeys");
    // Each of the two replicas asks for the time once a second.
    let before = times_run(&pair.redis, "time");
    let passed = async || times_run(&pair.redis, "time") >= before + 12;
    eventually(PATIENCE, "six seconds pass", passed).await;
    let reads = times_run(&pair.redis, "hkeys") - reads;
    assert!(reads <= 2, "{reads} reads of a log without an event");
    pair.upstream.release("steps");
    assert_text(&rest(&mut elsewhere).await[0], "stepped");
}

/// How often the store ran this command, by itself or in a script.
fn times_run(redis: &RedisServer, command: &str) -> u64 {
    let client = redis::Client::open(redis.url()).unwrap();
    let mut connection = client.get_connection().unwrap();
    let stats: String = redis::cmd("INFO")
        .arg("commandstats")
        .query(&mut connection)
        .unwrap();
    let head = format!("cmdstat_{command}:calls=");
    let calls = stats.lines().find_map(|line| line.strip_prefix(&*head));
    let calls = calls.and_then(|rest| rest.split(',').next());
    calls.map_or(0, |calls| calls.parse().unwrap())
}

/// The store was full for longer than the answer is kept in memory: those who wait elsewhere hear that
/// it is lost when there is room again.
#[tokio::test]
async fn an_answer_that_could_not_be_kept_is_answered_for() {
    let pair = pair(config().terms("retention = \"2s\"")).await;
    let at_a = Session::open(pair.at_a()).await;
    let at_b = at_a.over(pair.at_b());
    let mut stream = at_a.calling("steps", json!({"n": 1})).stream().await;
    let first = primed(&mut stream).await;
    stream.event().await.unwrap();
    let mut elsewhere = back_at(&at_b, &first).await;
    elsewhere.event().await.unwrap();
    allow_bytes(&pair.redis, 1);
    pair.upstream.release("steps");
    assert_text(&rest(&mut stream).await[0], "stepped");
    let given_up = "an answer that the store did not take is kept no longer";
    pair.a.until_said(given_up, 1).await;
    allow_bytes(&pair.redis, 0);
    let events = rest(&mut elsewhere);
    let events = within(PATIENCE, "the end of a lost answer", events).await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0].message["id"], 7);
    assert_eq!(reason(&events[0].message), "store_lost");
}
