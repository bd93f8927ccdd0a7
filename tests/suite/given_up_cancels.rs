//! Clients that cancel at random times, with a person behind them: no cancel with a reason is held back, and of the connections
//! that close no more than by chance end like a clock. `GIVEN_UP_CALLS` sets how many calls there are, of each test the same.

use std::pin::pin;
use std::time::{Duration, Instant};

use futures_util::stream::{StreamExt as _, iter};
use serde_json::json;

use crate::counted::value;
use crate::given_up::{GAVE_UP, cancel};
use crate::held::{Session, rest};
use crate::support::operator::with_operators;
use crate::support::upstream::Tally;
use crate::support::{Config, Era, Rig, in_both_eras, within};

in_both_eras!(
    no_cancel_of_a_person_is_held_back,
    connections_that_close_at_random_times_are_seldom_held_back,
);

/// The calls of all tests together, where nothing else is said.
const CALLS: usize = 2_000;

const TESTS: usize = 4;

/// So many calls run at the same time.
const AT_ONCE: usize = 64;

/// No client waits longer.
const LONGEST: Duration = Duration::from_secs(3);

/// The time in which a cancel that nobody holds back is at the server, on a busy machine.
const AT_ONCE_AT_SERVER: Duration = Duration::from_secs(2);

/// What people, and programs that stop, give as a reason; `None`: nothing.
const REASONS: [Option<&str>; 10] = [
    None,
    Some(""),
    Some("the user pressed escape"),
    Some("User cancelled"),
    Some("AbortError: This operation was aborted"),
    Some("context canceled"),
    Some("no time left for this today"),
    Some("request 32001 is not needed any more"),
    Some("the deadline was moved to Monday"),
    Some("Das Zeitlimit ist egal"),
];

/// How many calls a test makes.
fn calls() -> usize {
    let all = std::env::var("GIVEN_UP_CALLS").ok();
    all.map_or(CALLS, |all| all.parse().unwrap()) / TESTS
}

/// Numbers that look random, the same in each run.
struct Chance(u64);

impl Chance {
    /// A time up to the longest.
    fn time(&mut self) -> Duration {
        // The generator of Knuth's MMIX; its high bits are the good ones.
        let next = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = next.wrapping_add(1_442_695_040_888_963_407);
        let high = u32::try_from(self.0 >> 32).unwrap();
        LONGEST.mul_f64(f64::from(high) / f64::from(u32::MAX))
    }

    fn times(count: usize) -> Vec<Duration> {
        let mut chance = Self(1);
        (0..count).map(|_| chance.time()).collect()
    }
}

async fn no_cancel_of_a_person_is_held_back(era: Era) {
    let rig = &Rig::start(era, with_operators(Config::auto("20s"))).await;
    let mut sessions = Vec::new();
    for _ in 0..8 {
        sessions.push(Session::open(rig.client()).await);
    }
    let times = Chance::times(calls());
    let cancelling = times.iter().enumerate().map(|(number, time)| {
        let session = &sessions[number % sessions.len()];
        let reason = REASONS[number % REASONS.len()];
        cancels(rig, session, (number, reason), *time)
    });
    let waited: Vec<_> = iter(cancelling).buffer_unordered(AT_ONCE).collect().await;
    let longest = waited.iter().max().unwrap();
    println!(
        "{era:?}: of {} cancels each was at the server within {longest:?}",
        waited.len()
    );
    assert!(*longest < AT_ONCE_AT_SERVER, "{longest:?}");
    assert_eq!(value(&rig.proxy, GAVE_UP).await, None);
    assert_eq!(rig.upstream.executions() as usize, times.len());
}

/// A client cancels its call after this time. Returns the time after which the server knows.
async fn cancels(
    rig: &Rig,
    session: &Session,
    (number, reason): (usize, Option<&str>),
    after: Duration,
) -> Duration {
    let nonce = format!("{number}");
    let call = session.calling("held", json!({"nonce": nonce}));
    let call = call.edit(|message| message["id"] = json!(number));
    let mut waiting = pin!(async { rest(&mut call.stream().await).await });
    let from = Instant::now();
    assert!(tokio::time::timeout(after, &mut waiting).await.is_err());
    let started = rig.upstream.until_started(&nonce);
    // The request is written only while its answer is waited for.
    tokio::select! {
        () = started => {}
        events = &mut waiting => panic!("after {:?}: {events:?}", from.elapsed()),
    }
    let mut message = cancel(number as u64, reason.unwrap_or_default());
    if reason.is_none() {
        message["params"].as_object_mut().unwrap().remove("reason");
    }
    let from = Instant::now();
    assert_eq!(session.post(&message).send().await.status, 202);
    let cancelled = |tally: Tally| tally.cancelled == 1;
    rig.upstream.until(&nonce, "cancelled", cancelled).await;
    from.elapsed()
}

/// Each call is of a client of its own, so that no clock is learned.
async fn connections_that_close_at_random_times_are_seldom_held_back(era: Era) {
    let config = with_operators(Config::auto("20s")).terms("give_up_window = \"1s\"");
    let rig = &Rig::start(era, config).await;
    rig.client().call("slow", json!({})).await.into_text();
    let times = Chance::times(calls());
    let closing = times.iter().enumerate().map(|(number, after)| async move {
        let nonce = format!("{number}");
        let client = rig.client().without_tasks();
        let client = client.named(format!("Bearer {number}"));
        let call = client.calling("held", json!({"nonce": nonce}));
        assert!(call.or_hang_up_after(*after).await.is_none());
        // The server may never have had the call.
        let from = Instant::now();
        let over = |tally: Tally| tally.running() == 0;
        rig.upstream.until(&nonce, "over", over).await;
        from.elapsed()
    });
    let waited: Vec<_> = iter(closing).buffer_unordered(AT_ONCE).collect().await;
    let longest = waited.iter().max().unwrap();
    within(LONGEST, "no call runs at the server", rig.upstream.idle()).await;
    let held_back = value(&rig.proxy, GAVE_UP).await.unwrap_or_default();
    let late = |time: &&Duration| **time >= Duration::from_millis(900);
    let late = times.iter().filter(late).count();
    let part = held_back / f64::from(u32::try_from(late).unwrap());
    println!(
        "{era:?}: of {} connections {late} closed after 0.9 s or more; {held_back} of their calls were held back \
         ({:.1} %), and each was cancelled within {longest:?}",
        times.len(),
        part * 100.0
    );
    // From 0.9 s to 3 s, the time is that of a clock for 0.42 s: a fifth. A connection that closes before is no clock.
    assert!((0.1..0.3).contains(&part), "{part}");
    assert!(*longest < Duration::from_secs(1) + AT_ONCE_AT_SERVER);
}
