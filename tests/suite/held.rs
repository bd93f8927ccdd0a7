//! Calls of legacy clients that are cut off and come back.

use std::ops::Deref;
use std::time::{Duration, Instant};

use hyper::Method;
use serde_json::{Value, json};

use crate::support::client::{Answer, Client, Request};
use crate::support::proxy::until_closed;
use crate::support::session::{self, NEWEST, SESSION};
use crate::support::stream::{Event, Stream};
use crate::support::{Config, Era, Rig};

/// A session whose calls all have the id 7, and come back to their streams.
#[derive(Debug, Clone)]
pub(crate) struct Session(session::Session);

impl Deref for Session {
    type Target = session::Session;

    fn deref(&self) -> &session::Session {
        &self.0
    }
}

impl Session {
    pub(crate) async fn open(client: Client) -> Self {
        Self::of_version(client, NEWEST).await
    }

    pub(crate) async fn of_version(client: Client, version: &'static str) -> Self {
        Self(session::Session::open(client, version).await)
    }

    pub(crate) async fn declaring(
        client: Client,
        version: &'static str,
        capabilities: Value,
    ) -> Self {
        Self(session::Session::declaring(client, version, capabilities).await)
    }

    pub(crate) fn calling(&self, tool: &str, arguments: Value) -> Request {
        self.0.calling(7, tool, arguments)
    }

    /// Waits for the answer no more.
    pub(crate) fn cancelling(&self) -> Request {
        let params = json!({"requestId": 7});
        self.post(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}))
    }

    pub(crate) fn back(&self, event: &str) -> Request {
        self.http(Method::GET).header("last-event-id", event)
    }

    /// The same client at another replica, or as another caller.
    pub(crate) fn over(&self, client: Client) -> Self {
        Self(self.at(client))
    }
}

async fn rig(config: Config) -> (Rig, Session) {
    let rig = Rig::start(Era::Legacy, config).await;
    let session = Session::open(rig.client()).await;
    (rig, session)
}

pub(crate) fn config() -> Config {
    Config::always()
}

/// The first event of a held call.
pub(crate) async fn primed(stream: &mut Stream) -> String {
    let event = stream.event().await.unwrap();
    assert_eq!(
        (event.message, event.retry.as_deref()),
        (Value::Null, Some("1000"))
    );
    let id = event.id.unwrap();
    assert!(id.starts_with("raincheck/") && id.ends_with("/0"), "{id}");
    id
}

/// The client comes back to where it was, and is told that place first: it may be cut again.
pub(crate) async fn back_at(session: &Session, id: &str) -> Stream {
    let mut stream = session.back(id).stream().await;
    let event = stream.event().await.unwrap();
    assert_eq!(
        (event.message, event.id.as_deref()),
        (Value::Null, Some(id))
    );
    stream
}

/// The rest of a stream, which ends with the answer.
pub(crate) async fn rest(stream: &mut Stream) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(event) = stream.event().await {
        events.push(event);
    }
    events
}

#[track_caller]
pub(crate) fn assert_text(event: &Event, text: &str) {
    assert_eq!(event.message["id"], 7, "{event:?}");
    assert_eq!(
        event.message["result"]["content"][0]["text"], text,
        "{event:?}"
    );
}

/// No answer, and no question.
pub(crate) fn is_note(event: &Event) -> bool {
    event.message["id"].is_null()
}

pub(crate) fn reason(message: &Value) -> &Value {
    &message["error"]["data"]["io.raincheck/reason"]
}

#[tokio::test]
async fn a_call_that_is_cut_five_times_gives_its_one_answer() {
    let (rig, session) = rig(config()).await;
    let mut stream = session.calling("steps", json!({"n": 4})).stream().await;
    let mut last = primed(&mut stream).await;
    for step in 1..=4 {
        drop(stream);
        stream = back_at(&session, &last).await;
        let event = stream.event().await.unwrap();
        assert_eq!(event.message["params"]["progress"], step);
        last = event.id.unwrap();
        assert!(last.ends_with(&format!("/{step}")), "{last}");
    }
    drop(stream);
    rig.upstream.release("steps");
    rig.upstream
        .until("steps", "finished", |tally| tally.finished == 1)
        .await;
    let mut stream = back_at(&session, &last).await;
    let events = rest(&mut stream).await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert_text(&events[0], "stepped");
    assert_eq!(rig.upstream.tally("steps").started, 1);
    // For who has the answer there is nothing more, and who has it not gets all of it again.
    let answered = events[0].id.clone().unwrap();
    assert_eq!(session.back(&answered).send().await.status, 405);
    let first = format!("{}/0", last.strip_suffix("/4").unwrap());
    assert_eq!(rest(&mut back_at(&session, &first).await).await.len(), 5);
}

#[tokio::test]
async fn a_stream_that_nobody_cuts_is_whole_and_two_may_read_it() {
    let (rig, session) = rig(config()).await;
    let mut one = session
        .calling("steps", json!({"n": 2, "then": "ask"}))
        .stream()
        .await;
    let first = primed(&mut one).await;
    let mut other = back_at(&session, &first).await;
    rig.upstream.release("steps");
    for stream in [&mut one, &mut other] {
        assert_eq!(
            stream.event().await.unwrap().message["params"]["progress"],
            1
        );
        assert_eq!(
            stream.event().await.unwrap().message["params"]["progress"],
            2
        );
    }
    let question = one.event().await.unwrap().message;
    assert_eq!(question["method"], "elicitation/create");
    assert_eq!(other.event().await.unwrap().message, question);
    let result = json!({"action": "accept", "content": {"name": "Ada"}});
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": result});
    assert_eq!(session.post(&answer).send().await.status, 202);
    for stream in [&mut one, &mut other] {
        let events = rest(stream).await;
        assert_eq!(events.len(), 1, "{events:?}");
        assert_text(&events[0], "Ada");
    }
}

#[tokio::test]
async fn a_call_of_a_program_is_cut_and_come_back_to() {
    let proxy = config().run("dual").await;
    let session = Session::open(Client::of(proxy.address())).await;
    let mut stream = session
        .calling("progress", json!({"nonce": "a"}))
        .stream()
        .await;
    let mut last = primed(&mut stream).await;
    for step in [1, 3] {
        drop(stream);
        stream = back_at(&session, &last).await;
        let event = stream.event().await.unwrap();
        assert_eq!(event.message["params"]["progress"], step);
        last = event.id.unwrap();
    }
    for _ in 0..3 {
        drop(stream);
        stream = back_at(&session, &last).await;
    }
    let release = json!({"name": "release", "arguments": {"nonces": ["a"]}});
    let release = json!({"jsonrpc": "2.0", "id": 8, "method": "tools/call", "params": release});
    assert_eq!(session.post(&release).send().await.json()["id"], 8);
    let events = rest(&mut stream).await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert_text(&events[0], "a");
}

/// A client of before 2025-11-25 would take the first event for a message.
#[tokio::test]
async fn an_older_client_gets_ids_and_no_event_without_a_message() {
    let rig = Rig::start(Era::Legacy, config()).await;
    let session = Session::of_version(rig.client(), "2025-06-18").await;
    let mut stream = session.calling("steps", json!({"n": 1})).stream().await;
    let event = stream.event().await.unwrap();
    assert_eq!(event.message["params"]["progress"], 1);
    drop(stream);
    rig.upstream.release("steps");
    let mut stream = session.back(&event.id.unwrap()).stream().await;
    assert_text(&rest(&mut stream).await[0], "stepped");
}

#[tokio::test]
async fn what_can_be_come_back_to_at_the_server_is_left_alone() {
    let (rig, session) = rig(config()).await;
    rig.upstream.keep_events();
    let direct = Session::open(Client::of(rig.upstream.address())).await;
    rig.upstream.release("steps");
    let through = session.calling("steps", json!({"n": 2})).send().await;
    let directly = direct.calling("steps", json!({"n": 2})).send().await;
    assert!(through.body.contains("id: 0-0\r\n"), "{}", through.body);
    // But for the pause before coming back, which has to outlast a restart of ours.
    let patient = directly.body.replace("retry: 50\r", "retry: 1000\r");
    assert_ne!(patient, directly.body);
    assert_eq!(through.body, patient);
    // And it is the server that is come back to.
    let again = session.back("0-2").send().await;
    assert_eq!(again.json()["result"]["content"][0]["text"], "stepped");
}

#[tokio::test]
async fn what_is_answered_at_once_passes_byte_for_byte() {
    let (rig, session) = rig(config()).await;
    let direct = Session::open(Client::of(rig.upstream.address())).await;
    for json in [false, true] {
        if json {
            rig.upstream.answer_json();
        }
        for tool in ["echo", "error"] {
            let through: Answer = session.calling(tool, json!({"text": "x"})).send().await;
            let directly = direct.calling(tool, json!({"text": "x"})).send().await;
            assert_eq!(
                (through.status, &through.body),
                (directly.status, &directly.body)
            );
            let kind = &through.headers["content-type"];
            assert_eq!(kind, directly.headers["content-type"]);
            assert_eq!(kind == "application/json", json);
        }
    }
    // A refusal rides its own status.
    let lost = Session(session.named("lost"));
    let refused = lost.calling("echo", json!({})).send().await;
    assert_eq!(refused.refusal(), (404, -32600));
}

#[tokio::test]
async fn a_late_body_becomes_the_answer_of_a_held_call() {
    let (rig, session) = rig(config()).await;
    rig.upstream.answer_json();
    for (nonce, then) in [("good", "nothing"), ("bad", "break")] {
        let arguments = json!({"n": 0, "nonce": nonce, "then": then});
        let mut stream = session.calling("steps", arguments).stream().await;
        let first = primed(&mut stream).await;
        drop(stream);
        let mut stream = back_at(&session, &first).await;
        rig.upstream.release(nonce);
        let events = rest(&mut stream).await;
        assert_eq!(events.len(), 1, "{events:?}");
        if nonce == "good" {
            assert_text(&events[0], "stepped");
        } else {
            assert_eq!(events[0].message["id"], 7);
            assert_eq!(reason(&events[0].message), "upstream_http");
        }
    }
}

#[tokio::test]
async fn a_server_that_breaks_off_is_answered_for() {
    let (rig, session) = rig(config()).await;
    let arguments = json!({"n": 1, "then": "break"});
    let mut stream = session.calling("steps", arguments).stream().await;
    let first = primed(&mut stream).await;
    rig.upstream.release("steps");
    let events = rest(&mut stream).await;
    let last = events.last().unwrap();
    assert_eq!((events.len(), &last.message["id"]), (2, &json!(7)));
    assert_eq!(reason(&last.message), "upstream_reset");
    let again = rest(&mut back_at(&session, &first).await).await;
    assert_eq!(again, events);
}

#[tokio::test]
async fn nobody_else_comes_back_to_a_call() {
    let rig = Rig::start(Era::Legacy, config()).await;
    let session = Session::open(rig.client().named("Bearer a")).await;
    let mut stream = session.calling("steps", json!({"n": 1})).stream().await;
    let first = primed(&mut stream).await;
    let other_session = Session(session.named("other"));
    for foreign in [
        session.over(rig.client().named("Bearer b")).back(&first),
        session.over(rig.client()).back(&first),
        other_session.back(&first),
        session.back(&first).without(SESSION),
        session.back("raincheck/0"),
        session.back("raincheck/x/0"),
        session.back(&first.replace("/0", "/x")),
    ] {
        assert_eq!(foreign.send().await.status, 405);
    }
    rig.upstream.release("steps");
    assert_eq!(rest(&mut back_at(&session, &first).await).await.len(), 2);
}

/// What it says is bounded in bytes: the oldest goes, and the answer never.
#[tokio::test]
async fn a_call_that_says_much_keeps_the_newest_and_its_answer() {
    let (rig, session) = rig(config()).await;
    let arguments = json!({"n": 20, "padding": 400_000});
    let mut stream = session.calling("steps", arguments).stream().await;
    let first = primed(&mut stream).await;
    rig.upstream.release("steps");
    let heard = rest(&mut stream).await;
    assert_text(heard.last().unwrap(), "stepped");
    let kept = rest(&mut back_at(&session, &first).await).await;
    assert!((6..=11).contains(&kept.len()), "{} of 21", kept.len());
    let steps = kept[..kept.len() - 1].iter().rev();
    for (event, step) in steps.zip((1..=20).rev()) {
        assert_eq!(event.message["params"]["progress"], step);
    }
    assert_text(kept.last().unwrap(), "stepped");
}

#[tokio::test]
async fn a_cancelled_call_ends() {
    let (rig, session) = rig(config()).await;
    let mut stream = session.calling("steps", json!({"n": 1})).stream().await;
    let first = primed(&mut stream).await;
    assert_eq!(session.cancelling().send().await.status, 202);
    rig.upstream
        .until("steps", "cancelled", |tally| tally.cancelled == 1)
        .await;
    let events = rest(&mut stream).await;
    assert_eq!(events.last().unwrap().message["error"]["code"], 0);
    assert_eq!(rest(&mut back_at(&session, &first).await).await, events);
}

#[tokio::test]
async fn a_call_has_its_time() {
    let (rig, session) = rig(config().terms("max_duration = \"1s\"")).await;
    let mut stream = session.calling("steps", json!({"n": 1})).stream().await;
    let first = primed(&mut stream).await;
    drop(stream);
    rig.upstream
        .until("steps", "cancelled", |tally| tally.cancelled == 1)
        .await;
    let events = rest(&mut back_at(&session, &first).await).await;
    assert_eq!(events.len(), 2, "{events:?}");
    assert_eq!(reason(&events[1].message), "deadline");
}

/// This holds also without a client to hear it, and whether or not the call ends in time.
#[tokio::test]
async fn a_drain_waits_for_held_calls_and_ends_them() {
    for ends in [true, false] {
        let grace = if ends { "20s" } else { "3s" };
        let (mut rig, session) = rig(config()
            .http2()
            .section("drain", &format!("grace = {grace:?}")))
        .await;
        let away = session.calling("steps", json!({"n": 0, "nonce": "away"}));
        let mut away = away.edit(|message| message["id"] = json!(8)).stream().await;
        primed(&mut away).await;
        drop(away);
        let mut stream = session.calling("held", json!({})).stream().await;
        primed(&mut stream).await;
        let from = Instant::now();
        rig.proxy.terminate();
        until_closed(rig.proxy.address()).await;
        if ends {
            rig.upstream.release("held");
        }
        let events = rest(&mut stream).await;
        assert_eq!(events.len(), 1, "{events:?}");
        if ends {
            assert_text(&events[0], "released");
            assert!(rig.proxy.is_running(), "one more is waited for");
            rig.upstream.release("away");
        } else {
            assert_eq!(reason(&events[0].message), "shutdown");
        }
        assert!(rig.proxy.ended().await.success());
        assert!(
            from.elapsed() < Duration::from_secs(10),
            "{:?}",
            from.elapsed()
        );
    }
}

/// The clock of a client that waits begins anew with progress, in both worlds.
#[tokio::test]
async fn a_silent_server_is_heard_to_run_where_the_rule_says_so() {
    let config = config().tool("steps", "heartbeat = true\nmode = \"never\"");
    let rig = Rig::start(Era::Legacy, config).await;
    let session = Session::open(rig.client()).await;
    let mut legacy = session.calling("steps", json!({"n": 2})).stream().await;
    let modern = rig
        .client()
        .calling("steps", json!({"n": 2, "nonce": "modern"}));
    let modern = modern.edit(|message| message["params"]["_meta"]["progressToken"] = json!("t"));
    let mut modern = modern.stream().await;
    for stream in [&mut legacy, &mut modern] {
        let mut last = 0.0;
        for expected in ["step 1", "step 2", "still running"] {
            let note = stream.next_of("notifications/progress").await;
            let params = &note["params"];
            assert_eq!(
                (&params["progressToken"], &params["message"]),
                (&json!("t"), &json!(expected))
            );
            let progress = params["progress"].as_f64().unwrap();
            assert!(progress > last, "{progress} after {last}");
            last = progress;
        }
    }
    rig.upstream.release("steps");
    rig.upstream.release("modern");
    for stream in [&mut legacy, &mut modern] {
        assert_eq!(
            stream.next().await["result"]["content"][0]["text"],
            "stepped"
        );
    }
}
