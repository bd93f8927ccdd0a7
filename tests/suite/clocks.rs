//! A client whose clock is known: it has an answer before its clock ends, and the same call again gets the result.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::counted::until_at;
use crate::held::{Session, rest};
use crate::learned_polls::check;
use crate::support::client::{Client, Request};
use crate::support::operator::with_operators;
use crate::support::pair::Pair;
use crate::support::{Config, Era, Rig, Upstream, in_both_eras};

in_both_eras!(
    a_client_that_says_that_its_clock_ended_has_an_answer_before_it,
    a_client_that_hung_up_twice_after_the_same_time_has_an_answer_before_it,
    another_replica_knows_the_clock,
    a_ticket_comes_before_the_clock_ends,
    no_clock_is_learned_of_a_client_that_is_sent_progress,
);

/// The clock of these clients, which is the shortest that counts.
const CLOCK: Duration = Duration::from_secs(2);

/// The clock of clients with a session: their calls survive the end of their connection once they have a stream.
const LONGER: Duration = Duration::from_secs(3);

fn ann(client: Client) -> Client {
    client.without_tasks().named("Bearer ann")
}

fn held(client: &Client, nonce: &str) -> Request {
    client.calling("held", json!({"nonce": nonce}))
}

/// The client's clock ends before it has an answer.
async fn hangs_up(call: Request) {
    assert!(tokio::time::timeout(CLOCK, call.send()).await.is_err());
}

/// The answer that a client has before its clock ends.
async fn before_the_clock(call: Request) -> Value {
    before(CLOCK, call).await
}

async fn before(clock: Duration, call: Request) -> Value {
    let from = Instant::now();
    let answer = tokio::time::timeout(clock, call.send()).await;
    let waited = from.elapsed();
    let answer = answer.expect("an answer before the clock ends").json();
    assert!(waited >= clock / 2, "after {waited:?}: {answer}");
    answer
}

fn assert_still_running(answer: &Value) {
    let error = &answer["error"];
    assert_eq!(error["code"], -32001, "{answer}");
    assert_eq!(
        error["message"],
        "Request timed out: held is still running. Call held again with the same arguments to wait \
         for its result"
    );
    assert_eq!(error["data"]["io.raincheck/reason"], "still_running");
}

async fn a_client_that_says_that_its_clock_ended_has_an_answer_before_it(era: Era) {
    let rig = Rig::start(era, Config::auto("20s")).await;
    let session = Session::open(rig.client()).await;
    let held = |id: u64, nonce: &str| {
        let call = session.calling("held", json!({"nonce": nonce}));
        call.edit(|message| {
            message["id"] = json!(id);
            message["params"]["_meta"] = json!({});
        })
    };
    for id in 1..3 {
        let waiting = async { rest(&mut held(id, "a").stream().await).await };
        assert!(tokio::time::timeout(LONGER, waiting).await.is_err());
        let params = json!({"requestId": id, "reason": "Request timed out"});
        let cancel =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
        assert_eq!(session.post(&cancel).send().await.status, 202);
    }
    // The same call, and another call of the tool.
    for (id, nonce) in [(3, "a"), (4, "b")] {
        let answer = before(LONGER, held(id, nonce)).await;
        assert_eq!(answer["id"], id);
        assert_still_running(&answer);
    }
    for (id, nonce) in [(5, "a"), (6, "b")] {
        rig.upstream.release(nonce);
        let answer = held(id, nonce).send().await.json();
        assert_eq!(
            answer["result"]["content"][0]["text"], "released",
            "{answer}"
        );
        let tally = rig.upstream.tally(nonce);
        assert_eq!((tally.started, tally.cancelled), (1, 0), "{nonce}");
    }
}

/// This client hangs up until its clock is known. On a busy machine some of its clocks ring late.
async fn learns(client: &Client) {
    for number in 0..6 {
        let call = held(client, &format!("lesson {number}"));
        if tokio::time::timeout(CLOCK, call.send()).await.is_ok() {
            return;
        }
    }
    panic!("the clock is not known");
}

async fn a_client_that_hung_up_twice_after_the_same_time_has_an_answer_before_it(era: Era) {
    let rig = Rig::start(era, Config::auto("20s")).await;
    rig.client().call("slow", json!({})).await.into_text();
    let ann = ann(rig.client());
    hangs_up(held(&ann, "a")).await;
    hangs_up(held(&ann, "a")).await;
    for nonce in ["a", "b"] {
        assert_still_running(&before_the_clock(held(&ann, nonce)).await);
        // It is answered in time each time, until there is a result.
        assert_still_running(&before_the_clock(held(&ann, nonce)).await);
        let again = tokio::spawn(held(&ann, nonce).send());
        rig.upstream.release(nonce);
        assert_eq!(again.await.unwrap().into_text(), "released");
        assert_eq!(rig.upstream.tally(nonce).started, 1, "{nonce}");
    }
    // Nothing was learned of others, of another program with the same credential, and of another tool.
    let bob = rig.client().without_tasks().named("Bearer bob");
    let another_program = held(&ann, "c").edit(|message| {
        let info = "io.modelcontextprotocol/clientInfo";
        message["params"]["_meta"][info] = json!({"name": "another", "version": "1"});
    });
    let another_tool = ann.calling("never", json!({"nonce": "c"}));
    tokio::join!(
        hangs_up(held(&bob, "c")),
        hangs_up(another_program),
        hangs_up(another_tool)
    );
}

async fn another_replica_knows_the_clock(era: Era) {
    let upstream = Upstream::start(era).await;
    let pair = Pair::of(upstream, with_operators(Config::auto("20s"))).await;
    pair.at_a().call("slow", json!({})).await.into_text();
    learns(&ann(pair.at_a())).await;
    let at_b = ann(pair.at_b());
    // The second clock may not have reached it yet.
    let metric = r#"raincheck_client_clock_seconds{tool="held"}"#;
    until_at(&pair.b, metric, CLOCK.as_secs_f64()).await;
    assert_still_running(&before_the_clock(held(&at_b, "a")).await);
    let report = check(&pair, "clocks").await;
    assert!(
        report.contains("held: a client gives up after "),
        "{report}"
    );
    // The first one collects it.
    let at_a = tokio::spawn(held(&ann(pair.at_a()), "a").send());
    pair.upstream.release("a");
    assert_eq!(at_a.await.unwrap().into_text(), "released");
    assert_eq!(pair.upstream.tally("a").started, 1);
}

async fn a_ticket_comes_before_the_clock_ends(era: Era) {
    let config = Config::auto("20s").terms("companion_tools = true");
    let rig = Rig::start(era, config).await;
    let ann = ann(rig.client());
    ann.call("slow", json!({})).await.into_text();
    learns(&ann).await;
    let answer = before_the_clock(held(&ann, "a")).await;
    let ticket = &answer["result"]["structuredContent"]["ticket"];
    assert!(ticket.is_string(), "{answer}");
}

async fn no_clock_is_learned_of_a_client_that_is_sent_progress(era: Era) {
    let rig = Rig::start(era, Config::auto("20s")).await;
    rig.client().call("slow", json!({})).await.into_text();
    let ann = ann(rig.client());
    let asking = |nonce: &str| {
        let call = held(&ann, nonce);
        call.edit(|message| message["params"]["_meta"]["progressToken"] = json!("t"))
    };
    hangs_up(asking("a")).await;
    hangs_up(asking("a")).await;
    hangs_up(held(&ann, "b")).await;
    hangs_up(held(&ann, "b")).await;
    // By now the clock is known, and such calls are left alone all the same.
    hangs_up(asking("c")).await;
}
