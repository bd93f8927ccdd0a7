//! A client of a session that makes a call again while it runs, without a sign that its clock ended: the calls are one if the
//! server says that the tool may be called again.

use std::time::Duration;

use serde_json::json;

use crate::held::{Session, primed, rest};
use crate::support::stream::Stream;
use crate::support::upstream::Tally;
use crate::support::{Config, Era, Rig, in_both_eras};

in_both_eras!(
    both_get_the_result_of_one_run,
    a_third_try_gets_what_has_ended_meanwhile_once,
    one_of_them_may_cancel,
    calls_that_raincheck_carries_are_joined,
    tools_with_effects_are_not_joined,
    calls_that_begin_together_are_not_joined,
    nothing_is_joined_where_the_operator_says_so,
    what_may_be_another_call_is_not_joined,
    a_call_in_between_ends_the_sharing,
    the_last_one_that_cancels_ends_the_call,
);

/// Longer than two calls are apart that a client wants both.
const CLOCK: Duration = Duration::from_millis(2_100);

/// A tool that the server calls read-only. "held" is the same without that.
const LOOK: &str = "look";

/// A call that waits, and its client.
async fn tries(session: &Session, tool: &str, id: u64) -> Stream {
    let call = session.calling(tool, json!({"nonce": "a"}));
    let call = call.edit(|message| message["id"] = json!(id));
    let mut stream = call.stream().await;
    primed(&mut stream).await;
    stream
}

/// The client's clock ends, which it keeps to itself.
async fn times_out(stream: &mut Stream) {
    let silent = tokio::time::timeout(CLOCK, stream.event());
    assert!(silent.await.is_err());
}

async fn assert_released(stream: &mut Stream, id: u64) {
    let answer = rest(stream).await.pop().unwrap().message;
    assert_eq!(answer["id"], id, "{answer}");
    assert_eq!(
        answer["result"]["content"][0]["text"], "released",
        "{answer}"
    );
}

async fn cancel(session: &Session, id: u64) {
    let params = json!({"requestId": id, "reason": "the user pressed escape"});
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
    assert_eq!(session.post(&cancel).send().await.status, 202);
}

async fn rig(era: Era, terms: &str) -> (Rig, Session) {
    let rig = Rig::start(era, Config::auto("20s").terms(terms)).await;
    let session = Session::open(rig.client()).await;
    (rig, session)
}

fn assert_runs(rig: &Rig, started: u32) {
    let tally = rig.upstream.tally("a");
    assert_eq!((tally.started, tally.cancelled), (started, 0));
}

async fn until_started(rig: &Rig, times: u32) {
    let again = |tally: Tally| tally.started == times;
    rig.upstream.until("a", "started again", again).await;
}

async fn both_get_the_result_of_one_run(era: Era) {
    let (rig, session) = rig(era, "").await;
    let mut first = tries(&session, LOOK, 10).await;
    times_out(&mut first).await;
    let mut second = tries(&session, LOOK, 11).await;
    times_out(&mut second).await;
    // The second one follows the record of the first.
    let mut third = tries(&session, LOOK, 12).await;
    rig.upstream.release("a");
    for (stream, id) in [(&mut first, 10), (&mut second, 11), (&mut third, 12)] {
        assert_released(stream, id).await;
    }
    assert_runs(&rig, 1);
}

async fn a_third_try_gets_what_has_ended_meanwhile_once(era: Era) {
    let (rig, session) = rig(era, "").await;
    let mut first = tries(&session, LOOK, 10).await;
    times_out(&mut first).await;
    let mut second = tries(&session, LOOK, 11).await;
    rig.upstream.release("a");
    assert_released(&mut first, 10).await;
    assert_released(&mut second, 11).await;
    let call = session.calling(LOOK, json!({"nonce": "a"}));
    let third = call.clone().send().await.json();
    assert_eq!(third["result"]["content"][0]["text"], "released");
    assert_runs(&rig, 1);
    // What is collected is not collected again.
    call.send().await;
    assert_eq!(rig.upstream.tally("a").started, 2);
}

async fn one_of_them_may_cancel(era: Era) {
    for cancelled in [10, 11] {
        let (rig, session) = rig(era, "").await;
        let mut first = tries(&session, LOOK, 10).await;
        times_out(&mut first).await;
        let mut second = tries(&session, LOOK, 11).await;
        cancel(&session, cancelled).await;
        let (gone, waits, id) = if cancelled == 10 {
            (&mut first, &mut second, 11)
        } else {
            (&mut second, &mut first, 10)
        };
        assert!(rest(gone).await.is_empty());
        rig.upstream.release("a");
        assert_released(waits, id).await;
        assert_runs(&rig, 1);
    }
}

async fn calls_that_raincheck_carries_are_joined(era: Era) {
    let (rig, session) = rig(era, "companion_tools = true").await;
    // A client that knows the companion tools.
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let listed = session.post(&list).send().await.json();
    assert!(listed.to_string().contains("task_result"), "{listed}");
    let mut first = tries(&session, LOOK, 10).await;
    times_out(&mut first).await;
    let mut second = tries(&session, LOOK, 11).await;
    rig.upstream.release("a");
    assert_released(&mut first, 10).await;
    assert_released(&mut second, 11).await;
    assert_runs(&rig, 1);
}

/// Both of two calls run.
async fn assert_two_runs(rig: &Rig, mut first: Stream, mut second: Stream) {
    until_started(rig, 2).await;
    rig.upstream.release("a");
    assert_released(&mut first, 10).await;
    assert_released(&mut second, 11).await;
}

async fn tools_with_effects_are_not_joined(era: Era) {
    let (rig, session) = rig(era, "").await;
    let mut first = tries(&session, "held", 10).await;
    times_out(&mut first).await;
    let second = tries(&session, "held", 11).await;
    assert_two_runs(&rig, first, second).await;
}

async fn calls_that_begin_together_are_not_joined(era: Era) {
    let (rig, session) = rig(era, "").await;
    let together = (tries(&session, LOOK, 10), tries(&session, LOOK, 11));
    let (first, second) = tokio::join!(together.0, together.1);
    assert_two_runs(&rig, first, second).await;
}

async fn nothing_is_joined_where_the_operator_says_so(era: Era) {
    let (rig, session) = rig(era, "give_up_window = \"0s\"").await;
    let mut first = tries(&session, LOOK, 10).await;
    times_out(&mut first).await;
    let second = tries(&session, LOOK, 11).await;
    assert_two_runs(&rig, first, second).await;
}

/// What the second one asks may be about another user, or about what has changed since.
async fn what_may_be_another_call_is_not_joined(era: Era) {
    let (rig, session) = rig(era, "").await;
    let mut first = tries(&session, LOOK, 10).await;
    times_out(&mut first).await;
    let call = session
        .calling(LOOK, json!({"nonce": "a"}))
        .edit(|message| {
            message["id"] = json!(11);
            message["params"]["_meta"] = json!({"com.example/user": "bob"});
        });
    let mut second = call.stream().await;
    primed(&mut second).await;
    assert_two_runs(&rig, first, second).await;
}

async fn a_call_in_between_ends_the_sharing(era: Era) {
    let (rig, session) = rig(era, "").await;
    let mut first = tries(&session, LOOK, 10).await;
    times_out(&mut first).await;
    session.calling("echo", json!({"text": "x"})).send().await;
    let second = tries(&session, LOOK, 11).await;
    assert_two_runs(&rig, first, second).await;
}

async fn the_last_one_that_cancels_ends_the_call(era: Era) {
    let (rig, session) = rig(era, "").await;
    let mut first = tries(&session, LOOK, 10).await;
    times_out(&mut first).await;
    let mut second = tries(&session, LOOK, 11).await;
    cancel(&session, 10).await;
    assert!(rest(&mut first).await.is_empty());
    cancel(&session, 11).await;
    assert!(rest(&mut second).await.is_empty());
    let cancelled = |tally: Tally| tally.cancelled == 1;
    rig.upstream.until("a", "cancelled", cancelled).await;
}
