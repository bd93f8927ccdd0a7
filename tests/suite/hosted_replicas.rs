//! A legacy session in front of a modern server belongs to no replica.

use hyper::Method;
use serde_json::json;

use crate::hosted::{Session, question};
use crate::support::pair::Pair;
use crate::support::session::accept;
use crate::support::upstream::Upstream;
use crate::support::{Config, Era, PATIENCE, within};

#[tokio::test]
async fn a_session_is_served_and_its_questions_answered_by_any_replica() {
    let pair = Pair::start(Era::Modern, "").await;
    let at_a = Session::open(pair.at_a()).await;
    let at_b = at_a.at(pair.at_b());
    let echoed = at_b.calling(1, "echo", json!({"text": "x"})).send().await;
    assert_eq!(echoed.json()["result"]["content"][0]["text"], "x");
    let mut stream = at_a.calling(2, "ask", json!({})).stream().await;
    let asked = question(&mut stream).await;
    let accept = json!({"action": "accept", "content": {"name": "Ann"}});
    assert_eq!(at_b.reply(&asked, accept).await, 202);
    let answer = stream.next().await;
    assert_eq!(answer["result"]["content"][0]["text"], "Ann");
}

#[tokio::test]
async fn a_cancel_and_the_sessions_end_reach_every_replica() {
    let pair = Pair::start(Era::Modern, "").await;
    let at_a = Session::open(pair.at_a()).await;
    let at_b = at_a.at(pair.at_b());
    let mut stream = at_a.calling(5, "steps", json!({"n": 1})).stream().await;
    stream.next().await;
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": 5}});
    assert_eq!(at_b.post(&cancel).send().await.status, 202);
    let wanted = pair
        .upstream
        .until("steps", "cancelled", |t| t.cancelled == 1);
    wanted.await;
    assert_eq!(at_b.http(Method::DELETE).send().await.status, 200);
    let late = at_a.calling(6, "echo", json!({})).send().await;
    assert_eq!(late.status, 404);
}

/// A call that runs is not looked up again and again: its replica is told.
#[tokio::test]
async fn the_end_of_a_session_ends_its_calls_and_streams_on_every_replica() {
    let pair = Pair::start(Era::Modern, "").await;
    let at_a = Session::open(pair.at_a()).await;
    let at_b = at_a.at(pair.at_b());
    let mut call = at_a.calling(5, "steps", json!({"n": 1})).stream().await;
    call.next().await;
    let mut get = at_a.http(Method::GET).stream().await;
    assert_eq!(at_b.http(Method::DELETE).send().await.status, 200);
    let is_cancelled = pair
        .upstream
        .until("steps", "cancelled", |t| t.cancelled == 1);
    is_cancelled.await;
    let ended = async { while get.next_or_end().await.is_some() {} };
    within(PATIENCE, "the end of the stream", ended).await;
}

/// The client answered while it waited, and the record of its ticket came later: who runs the call again must have the
/// answer, too.
#[tokio::test]
async fn a_call_that_was_answered_before_its_ticket_is_run_again_with_the_answer() {
    let terms = "companion_tools = true\nfallback_after = \"1s\"\non_owner_lost = \"rerun\"";
    let upstream = Upstream::start(Era::Modern).await;
    let mut pair = Pair::of(upstream, Config::auto("10s").terms(terms)).await;
    let at_a = Session::open(pair.at_a()).await;
    let mut stream = at_a.calling(1, "ask_then_hold", json!({})).stream().await;
    let asked = question(&mut stream).await;
    assert_eq!(at_a.reply(&asked, accept("Ada")).await, 202);
    let given = stream.next_of_answer().await;
    let given = &given["result"]["structuredContent"];
    assert_eq!(given["state"], "working", "{given}");
    pair.a.kill();
    let tool = "ask_then_hold";
    // The leg that asked, the one with the answer, and that one again.
    pair.upstream
        .until(tool, "run again", |tally| tally.started == 3)
        .await;
    pair.upstream.release(tool);
    let at_b = at_a.at(pair.at_b());
    let ticket = json!({"ticket": given["ticket"]});
    let result = at_b.calling(2, "task_result", ticket).send().await.json();
    assert_eq!(result["result"]["content"][0]["text"], "Ada", "{result}");
    assert_eq!(pair.upstream.tally(tool).started, 3);
}
