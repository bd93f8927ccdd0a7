//! The same call again on legacy sessions: by a key, or because it is identical.

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::claims::until_unreachable;
use crate::held::{Session, assert_text, back_at, primed, rest};
use crate::redis_server::RedisServer;
use crate::support::client::{Client, Request};
use crate::support::stream::Stream;
use crate::support::{Config, Era, Rig, Upstream, in_both_eras};

// A modern server is modern only: raincheck has the sessions in front of it.
in_both_eras!(
    a_key_runs_once_on_any_session,
    the_server_does_not_see_the_key,
    nothing_is_sent_that_cannot_be_claimed,
    a_task_under_a_key_is_that_task,
    a_call_under_a_key_becomes_one_ticket,
    a_call_that_is_waited_for_becomes_the_task_that_is_wished_for,
    a_client_that_left_comes_back_with_its_key,
    a_request_that_is_sent_again_as_it_was_is_the_same_call,
    progress_comes_to_each_under_its_own_token,
    progress_of_one_task_comes_to_each_session_under_its_own_token,
    an_identical_call_of_one_session_is_attached,
    an_attached_call_that_nobody_waits_for_is_cancelled,
    an_attached_call_whose_connections_are_gone_is_cancelled,
    a_key_stands_for_one_call_of_one_caller,
    without_a_key_or_the_rule_each_call_is_its_own,
    a_question_under_a_key_is_put_to_everybody_and_answered_once,
    who_cannot_be_asked_does_not_end_a_question_for_others,
    what_did_not_run_may_run_under_its_key,
    what_wishes_for_no_task_is_a_call,
);

const IN_META: &str = "io.raincheck/idempotencyKey";

/// Many at once.
const MANY: u64 = 8;

async fn rig(era: Era, config: Config) -> (Rig, Session) {
    let rig = Rig::start(era, config).await;
    let session = Session::open(rig.client()).await;
    (rig, session)
}

fn keyed(session: &Session, tool: &str, arguments: Value) -> Request {
    session
        .calling(tool, arguments)
        .header("idempotency-key", "k")
}

/// As another request of its session.
fn again(request: &Request, id: u64) -> Request {
    request.clone().edit(|message| message["id"] = json!(id))
}

fn wishing(request: Request) -> Request {
    request.edit(|message| message["params"]["task"] = json!({}))
}

fn text(answer: &Value) -> &str {
    let text = answer["result"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("{answer}"))
}

async fn last(stream: &mut Stream) -> Value {
    rest(stream).await.pop().unwrap().message
}

fn accept(question: &Value, name: &str) -> Value {
    let result = json!({"action": "accept", "content": {"name": name}});
    json!({"jsonrpc": "2.0", "id": question["id"], "result": result})
}

fn cancel(id: u64) -> Value {
    let params = json!({"requestId": id});
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
}

async fn a_key_runs_once_on_any_session(era: Era) {
    let (rig, session) = rig(era, Config::never()).await;
    let other = Session::open(rig.client()).await;
    let here = keyed(&session, "held", json!({}));
    let calls: Vec<_> = (10..10 + MANY)
        .map(|id| again(&here, id))
        .chain([keyed(&other, "held", json!({}))])
        .collect();
    let calls = tokio::spawn(join_all(calls.into_iter().map(Request::send)));
    let modern = rig.client().without_tasks().calling("held", json!({}));
    let modern = tokio::spawn(modern.header("idempotency-key", "k").send());
    rig.upstream.until_started("held").await;
    rig.upstream.release("held");
    for answer in calls.await.unwrap() {
        let answer = answer.json();
        assert_eq!(text(&answer), "released");
        assert!(answer["result"].get("resultType").is_none(), "{answer}");
    }
    assert_eq!(modern.await.unwrap().into_text(), "released");
    assert_eq!(text(&again(&here, 3).send().await.json()), "released");
    let tally = rig.upstream.tally("held");
    assert_eq!((tally.started, tally.finished), (1, 1));
}

#[tokio::test]
async fn a_key_of_a_program_s_session_runs_once() {
    let proxy = Config::never().run("legacy").await;
    let session = Session::open(Client::of(proxy.address())).await;
    let held = keyed(&session, "hold", json!({"nonce": "a"}));
    let mut streams = Vec::new();
    for id in [10, 11] {
        let mut stream = again(&held, id).stream().await;
        primed(&mut stream).await;
        streams.push(stream);
    }
    let release = json!({"nonces": ["a"]});
    let release = session.calling("release", release).send().await;
    assert_eq!(release.json()["id"], 7);
    for mut stream in streams {
        assert_eq!(text(&last(&mut stream).await), "a");
    }
}

async fn a_key_stands_for_one_call_of_one_caller(era: Era) {
    let (rig, session) = rig(era, Config::always()).await;
    let echo = |session: &Session, text: &str| keyed(session, "echo", json!({"text": text}));
    let first = echo(&session, "a").send().await.json();
    assert_eq!(echo(&session, "a").send().await.json(), first);
    assert_eq!(echo(&session, "b").send().await.refusal(), (200, -32602));
    let ann = Session::open(rig.client().named("Bearer ann")).await;
    assert_eq!(text(&echo(&ann, "b").send().await.json()), "b");
    assert_eq!(rig.upstream.tally("echo").started, 2);
    let in_meta = |key: Value| {
        session
            .calling("slow", json!({}))
            .edit(|message| message["params"]["_meta"][IN_META] = key)
    };
    for refused in [
        in_meta(json!(7)),
        in_meta(json!("")),
        in_meta(json!("a")).header("idempotency-key", "b"),
        wishing(in_meta(json!(7))),
    ] {
        assert_eq!(refused.send().await.refusal(), (200, -32602));
    }
    assert_eq!(rig.upstream.tally("slow").started, 0);
}

async fn the_server_does_not_see_the_key(era: Era) {
    let (rig, session) = rig(era, Config::always()).await;
    let call = |key: &str| {
        session
            .calling("slow", json!({}))
            .header("idempotency-key", key)
            .edit(|message| message["params"]["_meta"][IN_META] = json!(key))
    };
    assert_eq!(text(&call("secret-1").send().await.json()), "slept");
    let task = wishing(call("secret-2")).send().await.into_result();
    assert!(task["task"]["taskId"].is_string(), "{task}");
    rig.upstream
        .until("slow", "finished", |tally| tally.finished == 2)
        .await;
    for received in rig.upstream.requests("tools/call") {
        assert!(!received.text().contains("secret"), "{}", received.text());
        assert_eq!(received.header("idempotency-key"), None);
    }
}

async fn nothing_is_sent_that_cannot_be_claimed(era: Era) {
    let mut redis = RedisServer::start();
    let (rig, session) = rig(era, Config::always().redis(&redis.url())).await;
    redis.kill();
    let held = keyed(&session, "held", json!({}));
    assert_eq!(held.clone().send().await.refusal(), (503, -32603));
    assert_eq!(wishing(held).send().await.refusal(), (503, -32603));
    assert_eq!(rig.upstream.tally("held").started, 0);
}

async fn what_did_not_run_may_run_under_its_key(era: Era) {
    let (mut rig, session) = rig(era, Config::never()).await;
    session.calling("slow", json!({})).send().await;
    let echo = || keyed(&session, "echo", json!({"text": "a"}));
    let (address, proxy) = (rig.upstream.address(), rig.proxy.address());
    drop(rig.upstream);
    until_unreachable(&Client::of(proxy)).await;
    let failed = echo().send().await.json();
    let data = &failed["error"]["data"];
    assert_eq!(data["io.raincheck/effect"], "none", "{failed}");
    rig.upstream = Upstream::start_at(era, address).await;
    let session = Session::open(rig.client()).await;
    let echo = keyed(&session, "echo", json!({"text": "a"}));
    assert_eq!(text(&echo.send().await.json()), "a");
    assert_eq!(rig.upstream.tally("echo").started, 1);
}

async fn a_task_under_a_key_is_that_task(era: Era) {
    let (rig, session) = rig(era, Config::always()).await;
    let held = keyed(&session, "held", json!({}));
    let wish = wishing(held.clone());
    let task = wish.clone().send().await.into_result();
    let id = &task["task"]["taskId"];
    assert!(id.is_string(), "{task}");
    let other = wishing(keyed(&Session::open(rig.client()).await, "held", json!({})));
    assert_eq!(other.send().await.into_result()["task"]["taskId"], *id);
    // Who wishes for none waits for it.
    let mut waiting = again(&held, 8).stream().await;
    primed(&mut waiting).await;
    rig.upstream.release("held");
    assert_eq!(text(&last(&mut waiting).await), "released");
    let ended = wish.send().await.into_result();
    assert_eq!(ended["task"]["taskId"], *id);
    assert_eq!(ended["task"]["status"], "completed");
    assert_eq!(rig.upstream.tally("held").started, 1);
}

async fn a_call_that_is_waited_for_becomes_the_task_that_is_wished_for(era: Era) {
    let (rig, session) = rig(era, Config::always()).await;
    let held = keyed(&session, "held", json!({}));
    let mut waiting = held.clone().stream().await;
    primed(&mut waiting).await;
    let task = wishing(again(&held, 8)).send().await.into_result();
    assert_eq!(task["task"]["status"], "working", "{task}");
    rig.upstream.release("held");
    assert_eq!(text(&last(&mut waiting).await), "released");
    // What was never a task, and has ended, is answered as the call that it was.
    let slow = keyed(&session, "slow", json!({})).header("idempotency-key", "l");
    assert_eq!(text(&slow.clone().send().await.json()), "slept");
    assert_eq!(text(&wishing(slow).send().await.json()), "slept");
    assert_eq!(rig.upstream.tally("slow").started, 1);
}

async fn a_question_under_a_key_is_put_to_everybody_and_answered_once(era: Era) {
    for version in ["2025-06-18", "2025-11-25"] {
        let rig = Rig::start(era, Config::never()).await;
        let session = Session::of_version(rig.client(), version).await;
        let ask = keyed(&session, "ask_twice", json!({"nonce": "n"}));
        let mut streams = [
            again(&ask, 10).stream().await,
            again(&ask, 11).stream().await,
        ];
        for name in ["Ada", "Bob"] {
            let mut asked = Vec::new();
            for stream in &mut streams {
                let question = stream.next_of("elicitation/create").await;
                assert_eq!(question["params"]["message"], "Your name?");
                assert!(question["params"].get("_meta").is_none(), "{question}");
                asked.push(question);
            }
            assert_eq!(asked[0], asked[1]);
            let answered = session.post(&accept(&asked[0], name)).send().await;
            assert_eq!(answered.status, 202);
        }
        for mut stream in streams {
            assert_eq!(text(&last(&mut stream).await), "Ada and Bob");
        }
        // A modern server's legs end with their questions.
        let legs = if era == Era::Modern { 3 } else { 1 };
        assert_eq!(rig.upstream.tally("n").started, legs);
    }
}

async fn who_cannot_be_asked_does_not_end_a_question_for_others(era: Era) {
    let (rig, asked) = rig(era, Config::never()).await;
    let mute = Session::declaring(rig.client(), "2025-11-25", json!({})).await;
    let mut waiting = keyed(&asked, "ask", json!({})).stream().await;
    let question = waiting.next_of("elicitation/create").await;
    let mut joined = keyed(&mute, "ask", json!({})).stream().await;
    primed(&mut joined).await;
    // What a server's own session can do raincheck does not know.
    if era == Era::Legacy {
        let same = joined.next_of("elicitation/create").await;
        let error = json!({"code": -32601, "message": "Method not found"});
        let refusal = json!({"jsonrpc": "2.0", "id": same["id"], "error": error});
        assert_eq!(mute.post(&refusal).send().await.status, 202);
    }
    let answered = asked.post(&accept(&question, "Ada")).send().await;
    assert_eq!(answered.status, 202);
    assert_eq!(text(&last(&mut waiting).await), "Ada");
    let told = rest(&mut joined).await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(text(&told[0].message), "Ada");
}

/// By its place on the stream, or by its key; and a client that waits no more cancels nothing.
async fn a_client_that_left_comes_back_with_its_key(era: Era) {
    let (rig, session) = rig(era, Config::never()).await;
    let held = keyed(&session, "held", json!({}));
    let mut stream = held.clone().stream().await;
    let first = primed(&mut stream).await;
    drop(stream);
    let mut stream = back_at(&session, &first).await;
    let mut given_up = again(&held, 8).stream().await;
    primed(&mut given_up).await;
    assert_eq!(session.post(&cancel(8)).send().await.status, 202);
    assert!(given_up.event().await.is_none(), "no answer");
    let mut other = again(&held, 9).stream().await;
    primed(&mut other).await;
    rig.upstream.release("held");
    let events = rest(&mut stream).await;
    assert_text(&events[0], "released");
    assert_eq!(text(&last(&mut other).await), "released");
    let tally = rig.upstream.tally("held");
    assert_eq!((tally.started, tally.cancelled), (1, 0));
}

/// The session is raincheck's own. The call itself belongs to any client that brings its key.
#[tokio::test]
async fn a_session_that_ends_waits_for_no_call() {
    let (rig, session) = rig(Era::Modern, Config::never()).await;
    let mut stream = keyed(&session, "held", json!({})).stream().await;
    primed(&mut stream).await;
    assert_eq!(session.ending().send().await.status, 200);
    assert!(stream.event().await.is_none(), "no answer");
    let session = Session::open(rig.client()).await;
    let mut stream = keyed(&session, "held", json!({})).stream().await;
    primed(&mut stream).await;
    rig.upstream.release("held");
    assert_eq!(text(&last(&mut stream).await), "released");
    assert_eq!(rig.upstream.tally("held").started, 1);
}

/// With its id, as HTTP clients repeat a POST: whether or not the first connection is still there.
async fn a_request_that_is_sent_again_as_it_was_is_the_same_call(era: Era) {
    let (rig, session) = rig(era, Config::never()).await;
    let held = keyed(&session, "held", json!({}));
    let mut first = held.clone().stream().await;
    primed(&mut first).await;
    let mut gone = held.clone().stream().await;
    primed(&mut gone).await;
    drop(gone);
    let mut last_one = held.stream().await;
    primed(&mut last_one).await;
    rig.upstream.release("held");
    for stream in [&mut first, &mut last_one] {
        assert_text(rest(stream).await.last().unwrap(), "released");
    }
    let again = session.calling("slow", json!({})).send().await;
    assert_eq!(text(&again.json()), "slept", "the id is free");
    assert_eq!(rig.upstream.tally("held").started, 1);
}

async fn progress_comes_to_each_under_its_own_token(era: Era) {
    let (rig, session) = rig(era, Config::never()).await;
    let steps = keyed(&session, "steps", json!({"n": 2}));
    let mut streams = Vec::new();
    for (id, token) in [(10, "one"), (11, "two")] {
        let call = again(&steps, id)
            .edit(|message| message["params"]["_meta"]["progressToken"] = json!(token));
        let mut stream = call.stream().await;
        let note = stream.next_of("notifications/progress").await;
        assert_eq!(note["params"]["progressToken"], token);
        streams.push(stream);
    }
    rig.upstream.release("steps");
    for mut stream in streams {
        assert_eq!(text(&last(&mut stream).await), "stepped");
    }
}

async fn progress_of_one_task_comes_to_each_session_under_its_own_token(era: Era) {
    let (rig, one) = rig(era, Config::always()).await;
    let two = Session::open(rig.client()).await;
    let sessions = [(&one, "one"), (&two, "two")];
    let mut tasks = Vec::new();
    for (session, token) in sessions {
        let call = wishing(keyed(session, "steps", json!({"n": 1})))
            .edit(|message| message["params"]["_meta"]["progressToken"] = json!(token));
        tasks.push(call.send().await.into_result()["task"]["taskId"].take());
    }
    assert_eq!(tasks[0], tasks[1]);
    for (session, token) in sessions {
        let params = json!({"taskId": tasks[0]});
        let wait = json!({"jsonrpc": "2.0", "id": 8, "method": "tasks/result", "params": params});
        let mut stream = session.post(&wait).stream().await;
        let note = stream.next_of("notifications/progress").await;
        assert_eq!(note["params"]["progressToken"], token);
    }
}

async fn a_call_under_a_key_becomes_one_ticket(era: Era) {
    let terms = "companion_tools = true\nfallback_after = \"200ms\"";
    let (rig, session) = rig(era, Config::auto("10s").terms(terms)).await;
    let held = keyed(&session, "held", json!({}));
    let mut tickets = Vec::new();
    for id in [10, 11] {
        let result = again(&held, id).send().await.into_result();
        let ticket = result["structuredContent"]["ticket"].as_str();
        tickets.push(ticket.unwrap_or_else(|| panic!("{result}")).to_owned());
    }
    assert_eq!(tickets[0], tickets[1]);
    rig.upstream.release("held");
    let ticket = json!({"ticket": tickets[0]});
    let result = session.calling("task_result", ticket).send().await;
    assert_eq!(text(&result.json()), "released");
    assert_eq!(text(&again(&held, 12).send().await.json()), "released");
    assert_eq!(rig.upstream.tally("held").started, 1);
}

/// A client that relies on its key so that nothing runs twice must hear if the key has no effect.
#[tokio::test]
async fn what_no_key_can_stand_for_is_refused() {
    let config = Config::always().section("limits", "body_bytes_max = \"64KiB\"");
    let config = config.section("upstream", "native_tasks = \"pass\"");
    let (rig, session) = rig(Era::Legacy, config).await;
    let large = json!({"nonce": "x".repeat(100 * 1024)});
    let large = session
        .calling("held", large)
        .header("idempotency-key", "k");
    assert_eq!(large.send().await.status, 413);
    // That would be a task of the server's own.
    let wish = wishing(keyed(&session, "only", json!({})));
    assert_eq!(wish.send().await.refusal(), (200, -32602));
    let started = ["held", "only"].map(|tool| rig.upstream.tally(tool).started);
    assert_eq!(started, [0, 0]);
}

/// Nothing is an object there, or the revision knows no tasks: the call is one like any other.
async fn what_wishes_for_no_task_is_a_call(era: Era) {
    let (rig, session) = rig(era, Config::always()).await;
    let older = Session::of_version(rig.client(), "2025-06-18").await;
    let null = |request: Request| request.edit(|message| message["params"]["task"] = json!(null));
    for _ in 0..2 {
        let called = null(keyed(&session, "echo", json!({"text": "x"})));
        assert_eq!(text(&called.send().await.json()), "x");
        let hinted = wishing(keyed(&older, "echo", json!({"text": "x"})));
        assert_eq!(text(&hinted.send().await.json()), "x");
    }
    assert_eq!(rig.upstream.tally("echo").started, 1);
}

fn attaching(window: &str) -> Config {
    Config::never().terms(&format!("attach = true\nattach_window = {window:?}"))
}

async fn an_identical_call_of_one_session_is_attached(era: Era) {
    let (rig, session) = rig(era, attaching("60s")).await;
    let slow = |session: &Session, ms: u64| session.calling("slow", json!({"ms": ms}));
    let calls = (10..10 + MANY).map(|id| again(&slow(&session, 50), id).send());
    for answer in join_all(calls).await {
        assert_eq!(text(&answer.json()), "slept");
    }
    assert_eq!(rig.upstream.tally("slow").started, 1);
    // Whether another session is another client is unknown, unless its client has credentials.
    let other = Session::open(rig.client()).await;
    assert_eq!(text(&slow(&other, 50).send().await.json()), "slept");
    assert_eq!(text(&slow(&other, 51).send().await.json()), "slept");
    assert_eq!(rig.upstream.tally("slow").started, 3);
    for _ in 0..2 {
        let ann = Session::open(rig.client().named("Bearer ann")).await;
        assert_eq!(text(&slow(&ann, 50).send().await.json()), "slept");
    }
    assert_eq!(rig.upstream.tally("slow").started, 4);
}

async fn an_attached_call_that_nobody_waits_for_is_cancelled(era: Era) {
    let (rig, session) = rig(era, attaching("300ms")).await;
    let held = |id: u64| again(&session.calling("held", json!({})), id);
    let mut streams = Vec::new();
    for id in [10, 11] {
        let mut stream = held(id).stream().await;
        primed(&mut stream).await;
        streams.push(stream);
    }
    for id in [10, 11] {
        assert_eq!(rig.upstream.tally("held").cancelled, 0);
        assert_eq!(session.post(&cancel(id)).send().await.status, 202);
    }
    rig.upstream
        .until("held", "cancelled", |tally| tally.cancelled == 1)
        .await;
    let mut next = held(12).stream().await;
    primed(&mut next).await;
    rig.upstream.release("held");
    assert_eq!(text(&last(&mut next).await), "released");
    assert_eq!(rig.upstream.tally("held").started, 2);
}

/// Those of clients that read no streams: nothing is held for them to come back to.
async fn an_attached_call_whose_connections_are_gone_is_cancelled(era: Era) {
    let (rig, session) = rig(era, attaching("300ms")).await;
    let held = |id: u64| {
        let call = again(&session.calling("held", json!({})), id);
        call.header("accept", "application/json")
    };
    let gone = tokio::spawn(held(10).send());
    rig.upstream.until_started("held").await;
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    rig.upstream
        .until("held", "cancelled", |tally| tally.cancelled == 1)
        .await;
}

async fn without_a_key_or_the_rule_each_call_is_its_own(era: Era) {
    let (rig, session) = rig(era, Config::never()).await;
    for _ in 0..2 {
        session.calling("slow", json!({})).send().await;
    }
    assert_eq!(rig.upstream.tally("slow").started, 2);
}
