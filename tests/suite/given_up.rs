//! A client whose clock ends before the tool does: the same call again collects the first one, and the tool runs once.

use std::time::Duration;

use serde_json::{Value, json};

use crate::counted::until_at;
use crate::held::{Session, primed, rest};
use crate::stdio_front::{Launched, modern};
use crate::support::client::{Client, Request};
use crate::support::operator::with_operators;
use crate::support::pair::Pair;
use crate::support::stream::Stream;
use crate::support::upstream::Tally;
use crate::support::{Config, Era, PATIENCE, Rig, Upstream, eventually, in_both_eras};

in_both_eras!(
    the_next_try_of_a_session_gets_the_result,
    a_second_cancel_changes_nothing,
    the_next_try_gets_what_has_ended_meanwhile,
    a_third_try_gets_the_result_of_the_first,
    a_cancel_for_another_reason_is_passed_on_at_once,
    a_call_that_is_not_tried_again_is_cancelled,
    nothing_is_kept_where_the_operator_says_so,
    a_client_that_hangs_up_after_whole_seconds_gets_the_result,
    a_client_that_asked_for_progress_gets_the_result,
    the_next_try_over_a_pipe_gets_the_result,
    a_client_of_this_machine_needs_no_credentials,
    a_client_behind_a_proxy_or_with_another_header_is_another_client,
    a_client_that_hangs_up_at_another_time_cancels,
    two_tries_at_once_are_two_calls,
    no_other_client_and_no_other_call_collects_it,
    the_next_try_may_be_at_another_replica,
    what_has_ended_is_collected_after_a_restart,
    the_next_try_may_overtake_the_cancel,
    a_cancel_at_another_replica_ends_a_call_that_passes,
    the_next_try_is_told_that_the_replica_of_the_first_died,
    a_drain_waits_for_a_call_that_was_given_up,
);

/// A cancelled call ends at the server within this time.
const SOON: Duration = Duration::from_millis(300);

/// The shortest time that counts as the time of a clock.
const SECOND: Duration = Duration::from_secs(1);

pub(crate) const GAVE_UP: &str = "raincheck_calls_total{fate=\"gave_up\",tool=\"held\"}";

pub(crate) const TIMED_OUT: &str = "McpError: MCP error -32001: Request timed out";

pub(crate) fn cancel(id: u64, reason: &str) -> Value {
    let params = json!({"requestId": id, "reason": reason});
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
}

pub(crate) fn held(session: &Session, id: u64) -> Request {
    let call = session.calling("held", json!({"nonce": "a"}));
    call.edit(|message| message["id"] = json!(id))
}

/// The first try of a session, whose client gives up with this reason.
pub(crate) async fn gives_up(session: &Session, id: u64, reason: &str) -> Stream {
    let mut stream = held(session, id).stream().await;
    primed(&mut stream).await;
    let cancelled = session.post(&cancel(id, reason)).send().await;
    assert_eq!(cancelled.status, 202);
    stream
}

/// A try that waits, and its client.
pub(crate) async fn tries(session: &Session, id: u64) -> Stream {
    let mut stream = held(session, id).stream().await;
    primed(&mut stream).await;
    stream
}

pub(crate) async fn text(stream: &mut Stream) -> (Value, String) {
    let answer = rest(stream).await.pop().unwrap().message;
    let text = answer["result"]["content"][0]["text"].as_str();
    (answer["id"].clone(), text.unwrap_or_default().to_owned())
}

async fn session(rig: &Rig) -> Session {
    Session::open(rig.client()).await
}

/// The server runs one call of this nonce, which was started so many times.
pub(crate) fn assert_runs(upstream: &Upstream, nonce: &str, started: u32) {
    let tally = upstream.tally(nonce);
    assert_eq!((tally.started, tally.cancelled), (started, 0));
}

async fn the_next_try_of_a_session_gets_the_result(era: Era) {
    let rig = Rig::start(era, Config::auto("2s")).await;
    let session = session(&rig).await;
    let mut first = gives_up(&session, 10, TIMED_OUT).await;
    // Nothing more comes on the stream of the first try.
    assert!(rest(&mut first).await.is_empty());
    let mut second = tries(&session, 11).await;
    rig.upstream.release("a");
    assert_eq!(text(&mut second).await, (json!(11), "released".into()));
    assert_runs(&rig.upstream, "a", 1);
    // The next one is a call of its own.
    let third = tokio::spawn(held(&session, 12).send());
    let again = |tally: Tally| tally.started == 2;
    rig.upstream.until("a", "started again", again).await;
    rig.upstream.release("a");
    assert_eq!(third.await.unwrap().status, 200);
}

/// opencode cancels twice, for two reasons.
async fn a_second_cancel_changes_nothing(era: Era) {
    let rig = Rig::start(era, Config::auto("2s")).await;
    let session = session(&rig).await;
    let mut first = gives_up(&session, 10, TIMED_OUT).await;
    assert!(rest(&mut first).await.is_empty());
    let aborted = cancel(10, "AbortError: The operation was aborted.");
    assert_eq!(session.post(&aborted).send().await.status, 202);
    let mut second = tries(&session, 11).await;
    rig.upstream.release("a");
    assert_eq!(text(&mut second).await, (json!(11), "released".into()));
    assert_runs(&rig.upstream, "a", 1);
}

async fn the_next_try_gets_what_has_ended_meanwhile(era: Era) {
    let rig = Rig::start(era, Config::auto("2s")).await;
    let session = session(&rig).await;
    gives_up(&session, 10, TIMED_OUT).await;
    rig.upstream.release("a");
    let finished = |tally: Tally| tally.finished == 1;
    rig.upstream.until("a", "finished", finished).await;
    let second = held(&session, 11).send().await.json();
    assert_eq!(second["id"], 11);
    assert_eq!(second["result"]["content"][0]["text"], "released");
    assert_runs(&rig.upstream, "a", 1);
}

async fn a_third_try_gets_the_result_of_the_first(era: Era) {
    let rig = Rig::start(era, Config::auto("2s")).await;
    let session = session(&rig).await;
    for id in 10..13 {
        gives_up(&session, id, TIMED_OUT).await;
    }
    let mut last = tries(&session, 13).await;
    rig.upstream.release("a");
    assert_eq!(text(&mut last).await, (json!(13), "released".into()));
    assert_runs(&rig.upstream, "a", 1);
}

async fn a_cancel_for_another_reason_is_passed_on_at_once(era: Era) {
    let rig = Rig::start(era, Config::auto("2s")).await;
    let session = session(&rig).await;
    let cancelled = |tally: Tally| tally.cancelled == 1;
    let _first = gives_up(&session, 10, "the user pressed escape").await;
    rig.upstream.until("a", "cancelled", cancelled).await;
    // So it is after a try that was given up.
    let rig = Rig::start(era, Config::auto("2s")).await;
    let session = self::session(&rig).await;
    gives_up(&session, 10, TIMED_OUT).await;
    let _second = gives_up(&session, 11, "the user pressed escape").await;
    rig.upstream.until("a", "cancelled", cancelled).await;
    assert_eq!(rig.upstream.tally("a").started, 1);
}

async fn a_call_that_is_not_tried_again_is_cancelled(era: Era) {
    let rig = Rig::start(era, Config::auto("2s").terms("give_up_window = \"300ms\"")).await;
    let session = session(&rig).await;
    gives_up(&session, 10, TIMED_OUT).await;
    let cancelled = |tally: Tally| tally.cancelled == 1;
    rig.upstream.until("a", "cancelled", cancelled).await;
}

async fn nothing_is_kept_where_the_operator_says_so(era: Era) {
    let rig = Rig::start(era, Config::auto("2s").terms("give_up_window = \"0s\"")).await;
    let session = session(&rig).await;
    let _first = gives_up(&session, 10, TIMED_OUT).await;
    let cancelled = |tally: Tally| tally.cancelled == 1;
    rig.upstream.until("a", "cancelled", cancelled).await;
}

/// A client of 2026 without Tasks.
fn ann(client: &Client) -> Client {
    client.clone().without_tasks().named("Bearer ann")
}

/// A client of this machine that shows nobody who it is.
fn nobody(client: &Client) -> Client {
    client.clone().without_tasks()
}

/// The call of a modern client that may hang up.
fn call(client: &Client, tool: &str, nonce: &str) -> Request {
    client.calling(tool, json!({"nonce": nonce, "n": 1}))
}

/// The client of a call hangs up after this time. Returns `true` if its call runs on.
async fn hangs_up(rig: &Rig, call: Request, nonce: &str, after: Duration) -> bool {
    let first = tokio::time::timeout(after, call.send());
    assert!(first.await.is_err());
    let cancelled = rig
        .upstream
        .until(nonce, "cancelled", |tally| tally.cancelled == 1);
    tokio::time::timeout(SOON, cancelled).await.is_err()
}

/// A client hangs up after this time, so that its call is kept. Returns the nonce of the call.
async fn is_kept(
    rig: &Rig,
    (tool, after): (&str, Duration),
    call: impl Fn(&str, &str) -> Request,
) -> String {
    // On a busy machine the client may be late.
    for number in 0..10 {
        let nonce = format!("{tool} {after:?} {number}");
        if hangs_up(rig, call(tool, &nonce), &nonce, after).await {
            return nonce;
        }
    }
    panic!("no call was kept");
}

/// A client hangs up after this time and makes its call again, which gets the result.
async fn gets_it_later(
    rig: &Rig,
    (tool, after): (&str, Duration),
    call: impl Fn(&str, &str) -> Request,
) {
    let nonce = is_kept(rig, (tool, after), &call).await;
    let again = tokio::spawn(call(tool, &nonce).send());
    rig.upstream.release(&nonce);
    let text = again.await.unwrap().into_text();
    assert!(["released", "stepped"].contains(&&*text), "{text}");
    assert_runs(&rig.upstream, &nonce, 1);
}

async fn a_client_that_hangs_up_after_whole_seconds_gets_the_result(era: Era) {
    let rig = Rig::start(era, Config::auto("2s")).await;
    rig.client().call("slow", json!({})).await.into_text();
    let ann = ann(&rig.client());
    let trying = |tool: &str, nonce: &str| call(&ann, tool, nonce);
    gets_it_later(&rig, ("held", SECOND), trying).await;
}

/// The client hangs up before the head of the response, on a stream that the server began, and on one that raincheck
/// began to send progress.
async fn a_client_that_asked_for_progress_gets_the_result(era: Era) {
    let rig = Rig::start(era, Config::auto("20s")).await;
    rig.client().call("slow", json!({})).await.into_text();
    let ann = ann(&rig.client());
    let asking = |tool: &str, nonce: &str| {
        let call = call(&ann, tool, nonce);
        call.edit(|message| message["params"]["_meta"]["progressToken"] = json!(1))
    };
    for (tool, seconds) in [("held", 1), ("steps", 1), ("held", 9)] {
        gets_it_later(&rig, (tool, SECOND * seconds), asking).await;
    }
}

/// Clients on a pipe cancel in both eras.
async fn the_next_try_over_a_pipe_gets_the_result(era: Era) {
    let upstream = Upstream::start(era).await;
    let mut client = Launched::new(Config::auto("20s"), &upstream);
    let capabilities = "io.modelcontextprotocol/clientCapabilities";
    let mut held = modern(json!({"name": "held", "arguments": {"nonce": "a"}}));
    held["_meta"][capabilities] = json!({});
    let call = |id: u64, held: &Value| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": held});
    client.say(call(1, &held)).await;
    upstream.until_started("a").await;
    client.say(cancel(1, TIMED_OUT)).await;
    client.say(call(2, &held)).await;
    eventually(PATIENCE, "the call is kept", async || {
        let log = client.log();
        log.contains("the client's clock ended")
            .then_some(())
            .ok_or(log)
    })
    .await;
    upstream.release("a");
    let answer = client.answer(json!(2)).await;
    assert_eq!(
        answer["result"]["content"][0]["text"], "released",
        "{answer}"
    );
    assert_runs(&upstream, "a", 1);
    // Nothing is kept after another reason.
    held["arguments"]["nonce"] = json!("b");
    client.say(call(3, &held)).await;
    upstream.until_started("b").await;
    client.say(cancel(3, "the user pressed escape")).await;
    let cancelled = |tally: Tally| tally.cancelled == 1;
    upstream.until("b", "cancelled", cancelled).await;
}

async fn a_client_of_this_machine_needs_no_credentials(era: Era) {
    let rig = Rig::start(era, Config::auto("2s")).await;
    rig.client().call("slow", json!({})).await.into_text();
    let nobody = nobody(&rig.client());
    let number = std::cell::Cell::new(0);
    gets_it_later(&rig, ("held", SECOND), |tool, nonce| {
        number.set(number.get() + 1);
        // Each request may have another trace.
        let request_id = number.get().to_string();
        call(&nobody, tool, nonce).header("x-request-id", &request_id)
    })
    .await;
}

async fn a_client_behind_a_proxy_or_with_another_header_is_another_client(era: Era) {
    let rig = Rig::start(era, Config::auto("2s")).await;
    rig.client().call("slow", json!({})).await.into_text();
    let nobody = nobody(&rig.client());
    for (name, value) in [("x-forwarded-for", "192.0.2.1"), ("via", "1.1 proxy")] {
        let passed_on = call(&nobody, "held", name).header(name, value);
        assert!(!hangs_up(&rig, passed_on, name, SECOND).await, "{name}");
    }
    let kept = is_kept(&rig, ("held", SECOND), |tool, nonce| {
        call(&nobody, tool, nonce)
    })
    .await;
    let others = [
        call(&nobody, "held", &kept).header("x-api-key", "theirs"),
        call(&nobody, "held", &kept).header("mcp-api-key", "theirs"),
        call(&nobody, "held", &kept).edit(|message| {
            let info = "io.modelcontextprotocol/clientInfo";
            message["params"]["_meta"][info] = json!({"name": "theirs", "version": "1"});
        }),
        call(&ann(&rig.client()), "held", &kept),
    ];
    let others = others.map(|call| tokio::spawn(call.send()));
    let all = |tally: Tally| tally.started == 5;
    rig.upstream.until(&kept, "started", all).await;
    rig.upstream.release(&kept);
    for answer in others {
        assert_eq!(answer.await.unwrap().into_text(), "released");
    }
}

async fn a_client_that_hangs_up_at_another_time_cancels(era: Era) {
    let rig = Rig::start(era, Config::auto("2s")).await;
    rig.client().call("slow", json!({})).await.into_text();
    let held = call(&ann(&rig.client()), "held", "a");
    assert!(!hangs_up(&rig, held, "a", Duration::from_millis(500)).await);
}

async fn two_tries_at_once_are_two_calls(era: Era) {
    let rig = Rig::start(era, Config::auto("2s")).await;
    let session = session(&rig).await;
    gives_up(&session, 10, TIMED_OUT).await;
    let tries = [11, 12].map(|id| tokio::spawn(held(&session, id).send()));
    let again = |tally: Tally| tally.started == 2;
    rig.upstream.until("a", "started again", again).await;
    rig.upstream.release("a");
    for answer in tries {
        assert_eq!(answer.await.unwrap().status, 200);
    }
    assert_runs(&rig.upstream, "a", 2);
}

async fn no_other_client_and_no_other_call_collects_it(era: Era) {
    let rig = Rig::start(era, Config::auto("2s")).await;
    // Two sessions of one caller may have other states at the server.
    let open = || Session::open(rig.client().named("Bearer ann"));
    let (mine, theirs) = (open().await, open().await);
    gives_up(&mine, 10, TIMED_OUT).await;
    let other = |session: &Session, arguments: Value| {
        tokio::spawn(session.calling("held", arguments).send())
    };
    let calls = [
        other(&theirs, json!({"nonce": "a"})),
        other(&mine, json!({"nonce": "a", "other": true})),
    ];
    let all = |tally: Tally| tally.started == 3;
    rig.upstream.until("a", "started", all).await;
    rig.upstream.release("a");
    for answer in calls {
        assert_eq!(answer.await.unwrap().status, 200);
    }
}

async fn the_next_try_may_be_at_another_replica(era: Era) {
    let upstream = Upstream::start(era).await;
    let pair = Pair::of(upstream, with_operators(Config::auto("2s"))).await;
    let at_a = Session::open(pair.at_a()).await;
    let at_b = at_a.over(pair.at_b());
    gives_up(&at_a, 10, TIMED_OUT).await;
    until_at(&pair.a, GAVE_UP, 1.0).await;
    // The cancel may come to another replica than the call, too.
    let mut second = held(&at_b, 11).stream().await;
    primed(&mut second).await;
    assert_eq!(at_a.post(&cancel(11, TIMED_OUT)).send().await.status, 202);
    let more = rest(&mut second).await;
    assert!(more.is_empty(), "{more:?}");
    until_at(&pair.b, GAVE_UP, 1.0).await;
    let mut third = tries(&at_a, 12).await;
    pair.upstream.release("a");
    assert_eq!(text(&mut third).await, (json!(12), "released".into()));
    assert_runs(&pair.upstream, "a", 1);
}

async fn what_has_ended_is_collected_after_a_restart(era: Era) {
    let mut rig = Rig::start(era, Config::auto("2s").embedded()).await;
    let before = session(&rig).await;
    gives_up(&before, 10, TIMED_OUT).await;
    rig.upstream.release("a");
    let finished = |tally: Tally| tally.finished == 1;
    rig.upstream.until("a", "finished", finished).await;
    rig.proxy.stop().await;
    rig.proxy.restart().await;
    let after = before.over(rig.client().at(rig.proxy.address()));
    let second = held(&after, 11).send().await.json();
    assert_eq!(
        second["result"]["content"][0]["text"], "released",
        "{second}"
    );
    assert_runs(&rig.upstream, "a", 1);
}

async fn the_next_try_is_told_that_the_replica_of_the_first_died(era: Era) {
    let upstream = Upstream::start(era).await;
    let config = with_operators(Config::auto("2s")).section("upstream", "shared = true");
    let mut pair = Pair::of(upstream, config).await;
    let at_a = Session::open(pair.at_a()).await;
    let at_b = at_a.over(pair.at_b());
    gives_up(&at_a, 10, TIMED_OUT).await;
    until_at(&pair.a, GAVE_UP, 1.0).await;
    pair.a.kill();
    let second = rest(&mut held(&at_b, 11).stream().await).await;
    let error = &second.last().unwrap().message["error"];
    assert_eq!(
        error["data"]["io.raincheck/reason"], "owner_lost",
        "{error}"
    );
    assert_eq!(pair.upstream.tally("a").started, 1);
}

/// The two go over two connections.
async fn the_next_try_may_overtake_the_cancel(era: Era) {
    let rig = Rig::start(era, Config::auto("2s")).await;
    let session = session(&rig).await;
    let mut first = held(&session, 10).stream().await;
    primed(&mut first).await;
    let mut second = tokio::spawn(held(&session, 11).stream());
    let early = tokio::time::timeout(Duration::from_millis(10), &mut second);
    assert!(early.await.is_err());
    assert_eq!(
        session.post(&cancel(10, TIMED_OUT)).send().await.status,
        202
    );
    let mut second = second.await.unwrap();
    primed(&mut second).await;
    rig.upstream.release("a");
    assert_eq!(text(&mut second).await, (json!(11), "released".into()));
    assert_runs(&rig.upstream, "a", 1);
}

/// That replica passes it to the server, which has the call under the client's id.
async fn a_cancel_at_another_replica_ends_a_call_that_passes(era: Era) {
    let upstream = Upstream::start(era).await;
    let pair = Pair::of(upstream, Config::auto("2s")).await;
    let at_a = Session::open(pair.at_a()).await;
    let at_b = at_a.over(pair.at_b());
    let mut first = held(&at_a, 10).stream().await;
    primed(&mut first).await;
    assert_eq!(at_b.post(&cancel(10, TIMED_OUT)).send().await.status, 202);
    let mut second = tries(&at_a, 11).await;
    pair.upstream.release("a");
    // By the first call, which is kept, or by a call of its own.
    assert_eq!(text(&mut second).await, (json!(11), "released".into()));
}

async fn a_drain_waits_for_a_call_that_was_given_up(era: Era) {
    let upstream = Upstream::start(era).await;
    let config = with_operators(Config::auto("2s")).section("drain", "grace = \"20s\"");
    let mut pair = Pair::of(upstream, config).await;
    let at_a = Session::open(pair.at_a()).await;
    let at_b = at_a.over(pair.at_b());
    gives_up(&at_a, 10, TIMED_OUT).await;
    until_at(&pair.a, GAVE_UP, 1.0).await;
    let upstream = &pair.upstream;
    let trying = async {
        let mut second = tries(&at_b, 11).await;
        upstream.release("a");
        text(&mut second).await
    };
    let (_ended, answer) = tokio::join!(pair.a.stop(), trying);
    assert_eq!(answer, (json!(11), "released".into()));
    assert_runs(&pair.upstream, "a", 1);
}
