//! The MCP Events extension: who hears that a task has ended, or waits for an answer.

use serde_json::{Value, json};

use crate::support::client::Task;
use crate::support::pair::Pair;
use crate::support::upstream::own_events::{ALPHA, BETA, POLLED};
use crate::support::{Client, Config, Era, PATIENCE, Rig, Upstream, eventually, in_both_eras};

in_both_eras!(
    the_capability_is_said_in_both_forms_to_who_says_who_it_is,
    a_server_without_events_has_ours_alone,
    a_poll_tells_each_event_once_and_nothing_private,
    a_stream_tells_events_as_they_happen,
    another_caller_hears_nothing,
    a_question_and_an_end_are_two_events,
);

const NAME: &str = "raincheck.task.updated";
const EXTENSION: &str = "io.modelcontextprotocol/events";
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

fn on(config: Config) -> Config {
    config.section("events", "enabled = true")
}

/// A client that says who it is.
fn alice(rig: &Rig) -> Client {
    rig.client().named("Bearer alice")
}

/// What a poll says from this cursor on.
async fn poll(client: &Client, cursor: &Value) -> Value {
    polling(client, json!({"cursor": cursor})).await
}

async fn polling(client: &Client, mut params: Value) -> Value {
    params["name"] = json!(NAME);
    let result = client.request("events/poll", params).send().await;
    let result = result.into_result();
    assert_eq!(result["resultType"], "complete", "{result}");
    assert!(result["cursor"].is_string(), "{result}");
    assert!(result["nextPollMs"].is_u64(), "{result}");
    result
}

/// Polls on from this cursor until there are events.
async fn until_polled(client: &Client, cursor: &Value) -> Value {
    let what = format!("an event for {cursor}");
    eventually(PATIENCE, &what, async || {
        let polled = poll(client, cursor).await;
        let has_some = polled["events"].as_array().is_some_and(|it| !it.is_empty());
        has_some.then_some(polled.clone()).ok_or(polled)
    })
    .await
}

#[track_caller]
fn assert_told(event: &Value, task: &Task, status: &str) {
    assert_eq!(event["name"], NAME);
    assert!(event["eventId"].as_str().unwrap().starts_with("evt_"));
    assert!(event["timestamp"].is_string());
    assert_eq!(event["data"]["taskId"], task.id, "{event}");
    assert_eq!(event["data"]["status"], status, "{event}");
    for private in ["result", "error", "inputRequests", "arguments"] {
        assert!(event["data"].get(private).is_none(), "{event}");
    }
}

async fn ended(client: &Client, text: &str) -> Task {
    let task = client.call("echo", json!({"text": text})).await.into_task();
    client.until(&task, "completed").await;
    task
}

async fn the_capability_is_said_in_both_forms_to_who_says_who_it_is(era: Era) {
    let capabilities = async |client: Client| {
        let asked = client.request("server/discover", json!({})).send().await;
        asked.into_result()["capabilities"].take()
    };
    let rig = Rig::start(era, on(Config::always())).await;
    let known = capabilities(alice(&rig)).await;
    assert_eq!(known["events"], json!({}), "{known}");
    assert_eq!(known["extensions"][EXTENSION], json!({}), "{known}");
    let off = Rig::start(era, Config::always()).await;
    for nobody in [rig.client(), alice(&off)] {
        let known = capabilities(nobody).await;
        assert!(known.get("events").is_none(), "{known}");
        assert!(known["extensions"].get(EXTENSION).is_none(), "{known}");
    }
}

async fn a_server_without_events_has_ours_alone(era: Era) {
    let rig = Rig::start(era, on(Config::always())).await;
    let asked = alice(&rig).request("events/list", json!({})).send().await;
    let listed = asked.into_result();
    assert_eq!(listed["resultType"], "complete");
    assert!(listed["ttlMs"].is_u64() && listed["cacheScope"].is_string());
    let events = listed["events"].as_array().unwrap();
    assert_eq!(events.len(), 1, "{listed}");
    assert_eq!(events[0]["name"], NAME);
    assert_eq!(events[0]["delivery"], json!(["poll", "push"]));
    assert_eq!(events[0]["inputSchema"]["type"], "object");
    assert_eq!(events[0]["payloadSchema"]["type"], "object");
    let anonymous = rig.client().request("events/list", json!({})).send().await;
    assert_eq!(anonymous.refusal(), (404, -32601));
}

#[tokio::test]
async fn the_events_of_the_server_pass_as_they_are() {
    let upstream = Upstream::start(Era::Modern).await;
    upstream.have_events();
    let proxy = on(Config::always()).start(&upstream.url()).await;
    let rig = Rig { proxy, upstream };
    let alice = alice(&rig);
    let discovered = alice.request("server/discover", json!({})).send().await;
    let known = discovered.into_result()["capabilities"].take();
    assert_eq!(known["events"], json!({"listChanged": true}));
    assert_eq!(known["extensions"][EXTENSION], json!({"listChanged": true}));

    let first = alice.request("events/list", json!({})).send().await;
    assert!(
        first
            .text
            .contains(&format!(r#""events":[{ALPHA}],"nextCursor":"2""#))
    );
    assert!(!first.text.contains(NAME), "ours is on the last page");
    let last = alice
        .request("events/list", json!({"cursor": "2"}))
        .send()
        .await;
    assert!(
        last.text
            .contains(&format!(r#""events":[{BETA},{{"name":"{NAME}""#))
    );
    let anonymous = rig.client().request("events/list", json!({"cursor": "2"}));
    let anonymous = anonymous.send().await;
    assert!(anonymous.text.contains(&format!(r#""events":[{BETA}]"#)));

    for client in [alice, rig.client()] {
        let polled = client.request("events/poll", json!({"name": "alpha.changed"}));
        let polled = polled.send().await;
        assert!(polled.text.contains(POLLED), "{}", polled.text);
    }
}

async fn a_poll_tells_each_event_once_and_nothing_private(era: Era) {
    let rig = Rig::start(era, on(Config::always())).await;
    let alice = alice(&rig);
    ended(&alice, "before").await;
    let first = poll(&alice, &Value::Null).await;
    assert_eq!(first["events"], json!([]), "null begins now");
    assert_eq!(first["truncated"], false);
    let running = alice.call("held", json!({})).await.into_task();
    let tasks = [
        ended(&alice, "private").await,
        ended(&alice, "private").await,
    ];
    let polled = until_polled(&alice, &first["cursor"]).await;
    assert!(!polled.to_string().contains("private"), "{polled}");
    assert_eq!(polled["hasMore"], false);
    let events = polled["events"].as_array().unwrap();
    assert_eq!(events.len(), 2, "{polled}");
    for (event, task) in events.iter().zip(&tasks) {
        assert_told(event, task, "completed");
    }
    let again = poll(&alice, &polled["cursor"]).await;
    assert_eq!(again["events"], json!([]), "each is told once");
    // One by one, and for one task only.
    let one = polling(&alice, json!({"cursor": first["cursor"], "maxEvents": 1})).await;
    assert_eq!(one["hasMore"], true);
    assert_eq!(one["events"], json!([events[0]]), "an event keeps its id");
    let next = poll(&alice, &one["cursor"]).await;
    assert_eq!(
        (&next["events"], &next["hasMore"]),
        (&json!([events[1]]), &json!(false))
    );
    for (arguments, wanted) in [
        (json!({"taskId": tasks[1].id}), json!([events[1]])),
        (
            json!({"tool": "echo", "taskId": tasks[0].id}),
            json!([events[0]]),
        ),
        (json!({"taskId": running.id}), json!([])),
        (json!({"taskId": "nonsense"}), json!([])),
        (json!({"tool": "other"}), json!([])),
    ] {
        let params = json!({"cursor": first["cursor"], "arguments": arguments});
        assert_eq!(
            polling(&alice, params).await["events"],
            wanted,
            "{arguments}"
        );
    }
    let lost = poll(&alice, &json!("AAAA")).await;
    assert_eq!(
        (&lost["events"], &lost["truncated"]),
        (&json!([]), &json!(true))
    );
}

async fn a_question_and_an_end_are_two_events(era: Era) {
    let rig = Rig::start(era, on(Config::always())).await;
    let alice = alice(&rig);
    let begin = poll(&alice, &Value::Null).await;
    let task = alice.call("ask", json!({})).await.into_task();
    let state = alice.until(&task, "input_required").await;
    let asked = until_polled(&alice, &begin["cursor"]).await;
    assert_told(&asked["events"][0], &task, "input_required");
    let key = state["inputRequests"].as_object().unwrap().keys().next();
    let answer = json!({key.unwrap(): {"action": "accept", "content": {"name": "Ada"}}});
    alice.update(&task, answer).await.assert_acknowledged();
    let done = until_polled(&alice, &asked["cursor"]).await;
    assert_eq!(done["events"].as_array().unwrap().len(), 1, "{done}");
    assert_told(&done["events"][0], &task, "completed");
    assert_ne!(done["events"][0]["eventId"], asked["events"][0]["eventId"]);
    assert!(!done.to_string().contains("Ada"));
}

async fn another_caller_hears_nothing(era: Era) {
    let rig = Rig::start(era, on(Config::always())).await;
    let (alice, bob) = (alice(&rig), rig.client().named("Bearer bob"));
    let begin = poll(&bob, &Value::Null).await["cursor"].take();
    let task = ended(&alice, "x").await;
    let theirs = poll(&alice, &begin).await;
    assert_told(&theirs["events"][0], &task, "completed");
    for params in [json!({}), json!({"arguments": {"taskId": task.id}})] {
        let mut params = params;
        params["cursor"] = begin.clone();
        assert_eq!(polling(&bob, params).await["events"], json!([]));
    }
    let mut stream = streaming(&bob, json!({"cursor": begin})).stream().await;
    assert_eq!(stream.next().await["method"], "notifications/events/active");
    let own = ended(&bob, "y").await;
    let heard = stream.next_of("notifications/events/event").await;
    assert_told(&heard["params"], &own, "completed");
}

#[tokio::test]
async fn a_task_that_is_named_is_told_behind_a_thousand_others() {
    let rig = Rig::start(Era::Modern, on(Config::always())).await;
    let alice = alice(&rig);
    let oldest = alice.call("held", json!({})).await.into_task();
    let named = json!({"taskId": oldest.id});
    let begin = poll(&alice, &Value::Null).await["cursor"].take();
    let params = json!({"cursor": begin, "arguments": named});
    let mut stream = streaming(&alice, params.clone()).stream().await;
    assert_eq!(stream.next().await["method"], "notifications/events/active");
    for _ in 0..20 {
        let calls = (0..50).map(|_| alice.call("echo", json!({"text": "x"})));
        let made = futures_util::future::join_all(calls).await;
        for answer in made {
            answer.into_task();
        }
    }
    alice.cancel(&oldest).await.assert_acknowledged();
    let heard = stream.next().await;
    assert_told(&heard["params"], &oldest, "cancelled");
    let polled = polling(&alice, params).await;
    assert_eq!(polled["truncated"], false, "{polled}");
    assert_eq!(polled["events"].as_array().unwrap().len(), 1, "{polled}");
    assert_told(&polled["events"][0], &oldest, "cancelled");
    // The list has one task more than a look reads: the oldest.
    let cut = polling(&alice, json!({"cursor": begin, "maxEvents": 100})).await;
    assert_eq!(cut["truncated"], true, "{cut}");
}

#[tokio::test]
async fn a_long_request_id_opens_no_stream() {
    let rig = Rig::start(Era::Modern, on(Config::always())).await;
    let alice = alice(&rig);
    let with_id = |length: usize| {
        streaming(&alice, json!({})).edit(move |message| message["id"] = json!("x".repeat(length)))
    };
    let refused = with_id(1023).send().await;
    assert_eq!(refused.json()["error"]["code"], -32600, "{}", refused.text);
    let mut stream = with_id(1022).stream().await;
    assert_eq!(stream.next().await["method"], "notifications/events/active");
}

fn streaming(client: &Client, mut params: Value) -> crate::support::client::Request {
    params["name"] = json!(NAME);
    client.request("events/stream", params)
}

async fn a_stream_tells_events_as_they_happen(era: Era) {
    let mut rig = Rig::start(era, on(Config::always())).await;
    let alice = alice(&rig);
    let known = alice.call("held", json!({})).await.into_task();
    ended(&alice, "before").await;
    let mut stream = streaming(&alice, json!({}))
        .edit(|message| message["id"] = json!("mine"))
        .stream()
        .await;
    assert_eq!(stream.status, 200);
    let active = stream.next().await;
    assert_eq!(active["method"], "notifications/events/active");
    assert_eq!(active["params"]["truncated"], false);
    // A task that was there, and one that comes later.
    alice.cancel(&known).await.assert_acknowledged();
    let cancelled = stream.next_of("notifications/events/event").await;
    assert_told(&cancelled["params"], &known, "cancelled");
    let later = ended(&alice, "private").await;
    let told = stream.next_of("notifications/events/event").await;
    assert_told(&told["params"], &later, "completed");
    for message in [&active, &cancelled, &told] {
        assert_eq!(
            message["params"]["_meta"][SUBSCRIPTION], "mine",
            "{message}"
        );
        assert!(message["params"]["cursor"].is_string(), "{message}");
    }
    assert!(!told.to_string().contains("private"));
    // What a client missed comes from its cursor on, also by poll.
    let again = poll(&alice, &cancelled["params"]["cursor"]).await;
    assert_eq!(again["events"].as_array().unwrap().len(), 1, "{again}");
    assert_eq!(again["events"][0]["eventId"], told["params"]["eventId"]);
    let from = json!({"cursor": active["params"]["cursor"]});
    let mut missed = streaming(&alice, from).stream().await;
    assert_eq!(missed.next().await["method"], "notifications/events/active");
    for event in [&cancelled, &told] {
        let heard = missed.next().await;
        assert_eq!(heard["params"]["eventId"], event["params"]["eventId"]);
    }
    drop(missed);
    let stopping = rig.proxy.stop();
    let (_, last) = tokio::join!(stopping, stream.next_of_answer());
    assert_eq!(last["id"], "mine");
    assert!(last["result"].is_object(), "{last}");
}

#[tokio::test]
async fn what_is_not_offered_is_refused_with_the_code_of_the_draft() {
    let rig = Rig::start(Era::Modern, on(Config::always())).await;
    let webhook =
        json!({"name": NAME, "delivery": {"mode": "webhook", "url": "https://a.example/"}});
    let alice = alice(&rig);
    for (client, method, params, code) in [
        (rig.client(), "events/poll", json!({"name": NAME}), -32012),
        (rig.client(), "events/stream", json!({"name": NAME}), -32012),
        (rig.client(), "events/subscribe", webhook.clone(), -32012),
        (alice.clone(), "events/subscribe", webhook.clone(), -32014),
        (alice.clone(), "events/unsubscribe", webhook, -32011),
        (
            alice.clone(),
            "events/poll",
            json!({"name": NAME, "arguments": {"x": 1}}),
            -32602,
        ),
        (
            alice.clone(),
            "events/stream",
            json!({"name": NAME, "cursor": 7}),
            -32602,
        ),
        (
            alice.clone(),
            "events/poll",
            json!({"name": "other"}),
            -32601,
        ),
    ] {
        let answer = client.request(method, params).send().await;
        assert_eq!(
            answer.json()["error"]["code"],
            code,
            "{method}: {}",
            answer.text
        );
    }
    let asked = rig.upstream.received();
    let methods = asked.iter().filter_map(|it| it.header("mcp-method"));
    let events: Vec<_> = methods.filter(|it| it.starts_with("events/")).collect();
    assert_eq!(events, ["events/poll"], "only what names no event of ours");
}

#[tokio::test]
async fn one_caller_has_so_many_streams() {
    let rig = Rig::start(Era::Modern, on(Config::always())).await;
    let alice = alice(&rig);
    let mut open = Vec::new();
    for _ in 0..64 {
        let mut stream = streaming(&alice, json!({})).stream().await;
        assert_eq!(stream.next().await["method"], "notifications/events/active");
        open.push(stream);
    }
    let refused = streaming(&alice, json!({})).send().await;
    assert_eq!(refused.json()["error"]["code"], -32013, "{}", refused.text);
    assert_eq!(refused.json()["error"]["data"]["limit"], "streams");
    let bob = rig.client().named("Bearer bob");
    let mut stream = streaming(&bob, json!({})).stream().await;
    assert_eq!(stream.next().await["method"], "notifications/events/active");
    drop(open);
    eventually(PATIENCE, "a place is free again", async || {
        let mut stream = streaming(&alice, json!({})).stream().await;
        let first = stream.next().await;
        (first["method"] == "notifications/events/active")
            .then_some(())
            .ok_or(first)
    })
    .await;
}

#[tokio::test]
async fn a_cursor_of_one_replica_counts_on_another_and_after_the_owner_died() {
    let upstream = Upstream::start(Era::Modern).await;
    let mut pair = Pair::of(upstream, on(Config::always())).await;
    let (at_a, at_b) = (
        pair.at_a().named("Bearer alice"),
        pair.at_b().named("Bearer alice"),
    );
    let begin = poll(&at_a, &Value::Null).await["cursor"].take();
    let task = ended(&at_a, "x").await;
    let told = until_polled(&at_b, &begin).await;
    assert_told(&told["events"][0], &task, "completed");
    let mut stream = streaming(&at_b, json!({"cursor": told["cursor"]}))
        .stream()
        .await;
    assert_eq!(stream.next().await["method"], "notifications/events/active");
    let lost = at_a.call("held", json!({})).await.into_task();
    pair.a.kill();
    let heard = stream.next_of("notifications/events/event").await;
    assert_told(&heard["params"], &lost, "failed");
    let polled = poll(&at_b, &told["cursor"]).await;
    assert_eq!(polled["events"].as_array().unwrap().len(), 1, "{polled}");
    assert_eq!(polled["events"][0]["eventId"], heard["params"]["eventId"]);
}

#[tokio::test]
async fn a_cursor_counts_after_a_restart() {
    let mut rig = Rig::start(Era::Modern, on(Config::always().embedded())).await;
    let before = alice(&rig);
    let begin = poll(&before, &Value::Null).await["cursor"].take();
    let task = ended(&before, "x").await;
    rig.proxy.kill();
    rig.proxy.restart().await;
    let after = alice(&rig);
    let told = poll(&after, &begin).await;
    assert_told(&told["events"][0], &task, "completed");
    let again = poll(&after, &told["cursor"]).await;
    assert_eq!(again["events"], json!([]));
}
