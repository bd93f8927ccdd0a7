//! Calls that are given up and never collected: what they take is bounded, and all of it comes back. `GIVEN_UP_CALLS` sets how
//! many there are.

use std::ops::Range;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use serde_json::{Value, json};

use crate::counted::{until_at, value};
use crate::given_up::{GAVE_UP, TIMED_OUT, cancel, gives_up};
use crate::held::{Session, primed, reason};
use crate::memory::resident;
use crate::redis_server::RedisServer;
use crate::support::client::{Answer, Client};
use crate::support::operator::with_operators;
use crate::support::pair::Pair;
use crate::support::upstream::Tally;
use crate::support::{
    Config, Era, PATIENCE, Rig, Upstream, eventually, in_both_eras, try_eventually,
};

in_both_eras!(
    calls_that_nobody_collects_are_gone_from_redis_and_from_memory,
    a_given_up_call_keeps_its_place_among_the_calls_of_its_tool,
);

/// The calls, where nothing else is said.
const CALLS: u32 = 1_000;

/// So many are begun at the same time.
const AT_ONCE: u32 = 500;

/// The calls of one session: in front of a modern server it may have 256 at the same time.
const OF_A_SESSION: u32 = 50;

/// Another client waits no longer for an answer that its server gives at once.
const SERVED: Duration = Duration::from_secs(5);

/// The time in which a call is kept whose client has just given up.
const SOON: Duration = Duration::from_secs(1);

/// What one call may take of the memory of a debug build, all in all.
const BYTES_OF_A_CALL: u64 = 96 << 10;

fn calls() -> u32 {
    let all = std::env::var("GIVEN_UP_CALLS").ok();
    all.map_or(CALLS, |all| all.parse().unwrap())
}

/// The keys in Redis. Reading them all deletes those that have expired.
async fn keys(redis: &MultiplexedConnection) -> Vec<String> {
    let mut read = redis::cmd("KEYS");
    read.arg("*");
    read.query_async(&mut redis.clone()).await.unwrap()
}

/// The keys that never expire.
async fn lasting_keys(redis: &MultiplexedConnection) -> Vec<String> {
    let all = keys(redis).await;
    let mut read = redis::pipe();
    for key in &all {
        read.cmd("TTL").arg(key);
    }
    let left: Vec<i64> = read.query_async(&mut redis.clone()).await.unwrap();
    let lasting = all.into_iter().zip(left).filter(|(_, left)| *left == -1);
    lasting.map(|(key, _)| key).collect()
}

/// Makes a call on the session, and gives it up.
async fn give_up(rig: &Rig, session: &Session, number: u32) {
    let nonce = format!("{number}");
    let call = session.calling("held", json!({"nonce": nonce}));
    let call = call.edit(|message| message["id"] = json!(number));
    let mut stream = call.stream().await;
    primed(&mut stream).await;
    rig.upstream.until_started(&nonce).await;
    let told = session.post(&cancel(number.into(), TIMED_OUT)).send();
    assert_eq!(told.await.status, 202);
}

/// The sessions of so many calls.
async fn sessions(rig: &Rig, calls: u32) -> Vec<Session> {
    let mut sessions = Vec::new();
    for _ in 0..calls.div_ceil(OF_A_SESSION) {
        sessions.push(Session::open(rig.client()).await);
    }
    sessions
}

/// Makes the calls with these numbers at the same time, and gives them up.
async fn give_up_each(rig: &Rig, sessions: &[Session], numbers: Range<u32>) {
    let giving_up = numbers.map(|number| {
        let session = &sessions[number as usize % sessions.len()];
        give_up(rig, session, number)
    });
    join_all(giving_up).await;
}

/// Another client has its answer. Returns how long that took.
async fn served(rig: &Rig) -> Duration {
    let from = Instant::now();
    let client = rig.client().named("Bearer other");
    let answer = client.call("echo", json!({"text": "x"})).await;
    assert_eq!(answer.into_text(), "x");
    from.elapsed()
}

async fn calls_that_nobody_collects_are_gone_from_redis_and_from_memory(era: Era) {
    let calls = calls();
    let redis = RedisServer::start();
    let connecting = redis::Client::open(redis.url()).unwrap();
    let connection = connecting.get_multiplexed_async_connection();
    let connection = connection.await.unwrap();
    // All of them are given up before the first is cancelled: with more calls each takes longer.
    let window = Duration::from_secs(20 + u64::from(calls.saturating_sub(CALLS)) / 40);
    let longest_call = window * 6 / 5;
    // The record of a call stays for its longest time and the retention.
    let terms = format!(
        "give_up_window = \"{}s\"\nmax_duration = \"{}s\"\nretention = \"1s\"",
        window.as_secs(),
        longest_call.as_secs()
    );
    let config = with_operators(Config::auto("5s"))
        .terms(&terms)
        .tool("echo", "mode = \"never\"");
    let rig = &Rig::start(era, config.redis(&redis.url())).await;
    let sessions = sessions(rig, calls).await;
    let pid = rig.proxy.pid();
    let mut longest = served(rig).await;
    let before = (resident(pid), keys(&connection).await.len());
    let began = Instant::now();
    for first in (0..calls).step_by(AT_ONCE as usize) {
        give_up_each(rig, &sessions, first..calls.min(first + AT_ONCE)).await;
        longest = longest.max(served(rig).await);
    }
    until_at(&rig.proxy, GAVE_UP, f64::from(calls)).await;
    let took = began.elapsed();
    let most = (resident(pid), keys(&connection).await.len());
    assert_eq!(value(&rig.proxy, RUNNING).await, Some(f64::from(calls)));
    until_all_gone(rig, longest_call, &mut longest).await;
    let gone = began.elapsed();
    // The log of a call, by which its client could come back to its stream, is kept for ten minutes more. The history of ended
    // tasks is a stream, a head, and two keys for each 512 tasks.
    let history = 2 + 2 * (calls as usize / 512);
    let few = before.1 + calls as usize + 5 + history;
    let patience = longest_call.saturating_sub(window) + PATIENCE * 3;
    eventually(patience, "the claims and records expire", async || {
        let left = keys(&connection).await.len();
        if left <= few { Ok(()) } else { Err(left) }
    })
    .await;
    assert_eq!(lasting_keys(&connection).await, ["{suite:meta}"]);
    let after = (resident(pid), keys(&connection).await.len());
    println!(
        "{era:?}: {calls} calls given up in {took:?}, gone after {gone:?}; memory {} KiB, at most {} KiB, then {} KiB; \
         keys {}, at most {}, then {}; another client was served within {longest:?}",
        before.0 >> 10,
        most.0 >> 10,
        after.0 >> 10,
        before.1,
        most.1,
        after.1
    );
    assert!(most.0 - before.0 < BYTES_OF_A_CALL * u64::from(calls));
    assert!(longest < SERVED, "{longest:?}");
    assert_no_panic(rig);
}

const RUNNING: &str = "raincheck_calls_running";

/// Each call is cancelled at the server, while others are served: at the end of its window, or, if the store was too busy then, at
/// the end of its time.
async fn until_all_gone(rig: &Rig, longest_call: Duration, longest: &mut Duration) {
    let over = Instant::now() + longest_call + PATIENCE;
    loop {
        *longest = (*longest).max(served(rig).await);
        let left = value(&rig.proxy, RUNNING).await.unwrap();
        if left == 0.0 {
            break;
        }
        assert!(
            Instant::now() < over,
            "{left} calls run on after their time"
        );
        let soon = tokio::time::timeout(Duration::from_secs(1), rig.upstream.idle());
        let _ = soon.await;
    }
    rig.upstream.until_idle().await;
}

fn assert_no_panic(rig: &Rig) {
    let log = rig.proxy.log();
    assert!(!log.contains("panicked"), "{log}");
}

fn assert_refused(answer: &Answer, why: &str) {
    assert_eq!(answer.status, 503, "{}", answer.body);
    let message: Value = answer.json();
    assert_eq!(reason(&message), why, "{message}");
    assert_eq!(message["error"]["data"]["io.raincheck/effect"], "none");
}

/// A new call is refused, until the window of the given-up one is over.
async fn a_given_up_call_keeps_its_place_among_the_calls_of_its_tool(era: Era) {
    let config = with_operators(Config::auto("20s"))
        .terms("give_up_window = \"2s\"")
        .tool("held", "concurrency = 1\nqueue = 0");
    let rig = Rig::start(era, config).await;
    let session = Session::open(rig.client()).await;
    gives_up(&session, 10, TIMED_OUT).await;
    until_at(&rig.proxy, GAVE_UP, 1.0).await;
    let another = session.calling("held", json!({"nonce": "b"}));
    assert_refused(&another.clone().send().await, "queue_full");
    let cancelled = |tally: Tally| tally.cancelled == 1;
    rig.upstream.until("a", "cancelled", cancelled).await;
    rig.upstream.release("b");
    let runs = async || another.clone().send().await.of_status(200);
    eventually(PATIENCE, "the place is free", runs).await;
    assert_eq!(rig.upstream.peak(), 1);
    assert_no_panic(&rig);
}

/// They are carried here: a new call is refused, and the same call is not.
#[tokio::test]
async fn given_up_calls_count_against_the_limit_of_calls() {
    let config = with_operators(Config::auto("20s"))
        .terms("give_up_window = \"5s\"")
        .section("limits", "calls = 4");
    let rig = Rig::start(Era::Modern, config).await;
    let session = Session::open(rig.client()).await;
    join_all((0..4).map(|number| give_up(&rig, &session, number))).await;
    until_at(&rig.proxy, GAVE_UP, 4.0).await;
    let new = session.calling("held", json!({"nonce": "new"}));
    assert_refused(&new.send().await, "busy");
    assert_eq!(rig.upstream.tally("new").started, 0);
    // It takes no place: its call has one.
    let same = session.calling("held", json!({"nonce": "0"}));
    let mut same = same.stream().await;
    primed(&mut same).await;
    rig.upstream.release("0");
    let answer = same.next_of_answer().await;
    assert_eq!(answer["result"]["content"][0]["text"], "released");
    for number in 1..4 {
        let cancelled = |tally: Tally| tally.cancelled == 1;
        let nonce = format!("{number}");
        rig.upstream.until(&nonce, "cancelled", cancelled).await;
    }
    until_at(&rig.proxy, RUNNING, 0.0).await;
    assert_no_panic(&rig);
}

/// Calls that pass take no place before they are given up. One that finds none is cancelled.
#[tokio::test]
async fn a_call_that_passed_is_cancelled_where_no_place_is_left() {
    let config = with_operators(Config::auto("20s")).section("limits", "calls = 4");
    let rig = Rig::start(Era::Legacy, config).await;
    let session = Session::open(rig.client()).await;
    join_all((0..4).map(|number| give_up(&rig, &session, number))).await;
    until_at(&rig.proxy, GAVE_UP, 4.0).await;
    give_up(&rig, &session, 4).await;
    let cancelled = |tally: Tally| tally.cancelled == 1;
    rig.upstream.until("4", "cancelled", cancelled).await;
    assert_eq!(value(&rig.proxy, GAVE_UP).await, Some(4.0));
    assert_no_panic(&rig);
}

/// A call may take an hour. Its client left, so it ends much sooner, however many such calls there are.
#[tokio::test]
async fn each_of_many_calls_is_cancelled_at_the_end_of_its_window() {
    const MANY: u32 = 1_100;
    let config = with_operators(Config::auto("20s")).terms("give_up_window = \"5s\"");
    let rig = Rig::start(Era::Legacy, config).await;
    let sessions = sessions(&rig, MANY).await;
    for first in (0..MANY).step_by(AT_ONCE as usize) {
        give_up_each(&rig, &sessions, first..MANY.min(first + AT_ONCE)).await;
    }
    until_at(&rig.proxy, GAVE_UP, f64::from(MANY)).await;
    until_at(&rig.proxy, RUNNING, 0.0).await;
    rig.upstream.until_idle().await;
}

/// The replica that carried the call dies, and another one runs the tool again: for nobody, as it turns out.
#[tokio::test]
async fn a_call_that_another_replica_runs_again_ends_with_its_window() {
    let terms = "give_up_window = \"3s\"\non_owner_lost = \"rerun\"";
    let config = with_operators(Config::auto("20s")).terms(terms);
    let config = config.section("upstream", "shared = true");
    let mut pair = Pair::of(Upstream::start(Era::Legacy).await, config).await;
    let client = pair.at_a().without_tasks();
    client.call("slow", json!({})).await.into_text();
    let nonce = kept(&pair, &client).await;
    pair.a.kill();
    let again = |tally: Tally| tally.started == 2;
    pair.upstream.until(&nonce, "started again", again).await;
    let cancelled = |tally: Tally| tally.cancelled == 1;
    pair.upstream.until(&nonce, "cancelled", cancelled).await;
}

/// A call that the client gave up. Returns its nonce. On a busy machine the client may be late.
async fn kept(pair: &Pair, client: &Client) -> String {
    for number in 0..5 {
        let nonce = format!("{number}");
        let call = client.calling("held", json!({"nonce": nonce}));
        let answer = call.or_hang_up_after(Duration::from_millis(980)).await;
        assert!(answer.is_none());
        let is_kept = async || value(&pair.a, GAVE_UP).await == Some(1.0);
        if try_eventually(SOON, is_kept).await.is_ok() {
            return nonce;
        }
    }
    panic!("no call was kept");
}
