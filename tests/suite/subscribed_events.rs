//! Webhook subscriptions of the MCP Events extension: who hears of the tasks of a caller, and who does not.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::auth_tokens::Tokens;
use crate::support::client::{Answer, Task};
use crate::support::pair::{Pair, SEAL_KEY};
use crate::support::receiver::{Receiver, Reply, SECRET, Webhook};
use crate::support::{Client, Config, Era, PATIENCE, Rig, Upstream, eventually, in_both_eras};

in_both_eras!(
    a_subscriber_hears_of_its_tasks_and_of_no_other,
    a_task_that_was_open_is_told_of,
    another_replica_tells_what_a_lost_owner_did_not,
);

const NAME: &str = "raincheck.task.updated";

/// Longer than an attempt and a claim together.
const LONG: Duration = Duration::from_secs(40);

/// More messages than one process sends to the receivers of subscriptions at the same time.
const HANGING: usize = 70;

/// Another secret than that of the receiver.
const OTHER_SECRET: &str = "whsec_QUJDREVGR0hJSktMTU5PUFFSU1RVVldY";

pub(crate) const ALICE: &str = "a-token-of-alice-that-is-long";
const BOB: &str = "a-token-of-bob-that-is-long-too";

pub(crate) struct Scene {
    _tokens: Tokens,
    pub(crate) rig: Rig,
}

impl Scene {
    pub(crate) async fn start(era: Era, config: Config) -> Self {
        let (tokens, config) = known(config);
        let rig = Rig::start(era, config).await;
        Self {
            _tokens: tokens,
            rig,
        }
    }

    pub(crate) fn alice(&self) -> Client {
        alice(self.rig.client())
    }

    pub(crate) fn bob(&self) -> Client {
        self.rig.client().named(format!("Bearer {BOB}"))
    }
}

/// A configuration in which clients can subscribe receivers of this machine.
fn known(config: Config) -> (Tokens, Config) {
    let tokens = Tokens::new(&[("alice", ALICE), ("bob", BOB)]);
    let config = tokens.wanted_by(config);
    (tokens, on(config, "anywhere"))
}

pub(crate) fn on(config: Config, webhooks: &str) -> Config {
    let lines = format!("enabled = true\nwebhooks = {webhooks:?}");
    config.section("events", &lines)
}

pub(crate) fn alice(client: Client) -> Client {
    client.named(format!("Bearer {ALICE}"))
}

/// The params of a subscription of this receiver, with further members.
pub(crate) fn params(receiver: &Receiver, more: Value) -> Value {
    let mut params = json!({
        "name": NAME,
        "delivery": {"mode": "webhook", "url": format!("{}/hook", receiver.url), "secret": SECRET},
        "cursor": null,
    });
    let more = more.as_object().unwrap().clone();
    params.as_object_mut().unwrap().extend(more);
    params
}

pub(crate) async fn subscribing(client: &Client, params: Value) -> Answer {
    client.request("events/subscribe", params).send().await
}

/// Subscribes, and gives the answer.
pub(crate) async fn subscribe(client: &Client, receiver: &Receiver, more: Value) -> Value {
    let result = subscribing(client, params(receiver, more)).await;
    let result = result.into_result();
    assert_eq!(result["resultType"], "complete", "{result}");
    assert!(result["id"].as_str().unwrap().starts_with("sub_"));
    assert!(result["refreshBefore"].is_string(), "{result}");
    result
}

/// The code of a refusal, and its data.
pub(crate) fn refused(answer: &Answer) -> (i64, Value) {
    let said: Value = serde_json::from_str(&answer.body).unwrap();
    let error = &said["error"];
    (error["code"].as_i64().unwrap(), error["data"].clone())
}

pub(crate) async fn ended(client: &Client, tool: &str) -> Task {
    let task = client.call(tool, json!({"text": "private"})).await;
    let task = task.into_task();
    let status = if tool == "error" {
        "failed"
    } else {
        "completed"
    };
    client.until(&task, status).await;
    task
}

/// Whom the receiver was told of this task as.
pub(crate) fn told_of(receiver: &Receiver, task: &Task) -> Vec<String> {
    let all = receiver.told();
    let own = all.iter().filter(|it| it.json["data"]["taskId"] == task.id);
    own.map(|it| it.subscription.clone().unwrap()).collect()
}

pub(crate) async fn until_told(receiver: &Receiver, task: &Task, subscription: &Value) {
    eventually(LONG, "the task is told of", async || {
        let told = told_of(receiver, task);
        let is_so = told.iter().any(|id| subscription["id"] == **id);
        is_so.then_some(()).ok_or_else(|| told.join(" "))
    })
    .await;
}

async fn a_subscriber_hears_of_its_tasks_and_of_no_other(era: Era) {
    let receiver = Receiver::start([]).await;
    let scene = Scene::start(era, Config::always()).await;
    let (alice, bob) = (scene.alice(), scene.bob());
    let listed = alice.request("events/list", json!({})).send().await;
    let delivery = listed.into_result()["events"][0]["delivery"].take();
    assert_eq!(delivery, json!(["poll", "push", "webhook"]));
    let polled = alice.request("events/poll", json!({"name": NAME, "cursor": null}));
    let cursor = polled.send().await.into_result()["cursor"].take();

    let subscription = subscribe(&alice, &receiver, json!({})).await;
    assert_eq!(subscription["truncated"], false);
    let challenge = receiver.got();
    assert_eq!(challenge.len(), 1);
    assert!(challenge[0].is_challenge() && challenge[0].id.starts_with("msg_verification_"));
    assert_eq!(
        challenge[0].subscription.as_deref(),
        subscription["id"].as_str()
    );

    ended(&bob, "echo").await;
    let task = ended(&alice, "echo").await;
    receiver.until_taken(PATIENCE, 1).await;
    let told = receiver.told();
    assert_eq!(told.len(), 1, "{told:#?}");
    let event = &told[0].json;
    assert_eq!(event["name"], NAME);
    assert_eq!(event["data"]["taskId"], task.id);
    assert_eq!(event["data"]["status"], "completed");
    assert!(event["cursor"].is_string(), "{event}");
    assert_eq!(event["eventId"], *told[0].id, "the id of the message");
    assert_eq!(told[0].subscription.as_deref(), subscription["id"].as_str());
    assert!(!told[0].text.contains("private"), "{event}");
    let params = json!({"name": NAME, "cursor": cursor});
    let polled = alice.request("events/poll", params).send().await;
    let polled = polled.into_result();
    assert_eq!(polled["events"][0]["eventId"], event["eventId"], "{polled}");

    // The subscription of another caller is another one, and ends nothing of hers.
    let foreign = crate::subscribed_events::params(&receiver, json!({}));
    let end = bob.request("events/unsubscribe", foreign).send().await;
    assert_eq!(refused(&end), (-32011, json!({"kind": "subscription"})));
    let his = subscribe(&bob, &receiver, json!({})).await;
    assert_ne!(his["id"], subscription["id"]);
    let task = ended(&bob, "echo").await;
    until_told(&receiver, &task, &his).await;
    assert_eq!(told_of(&receiver, &task).len(), 1, "only he hears of it");
}

async fn a_task_that_was_open_is_told_of(era: Era) {
    let receiver = Receiver::start([]).await;
    let scene = Scene::start(era, Config::always()).await;
    let alice = scene.alice();
    let open = alice.call("ask", json!({})).await.into_task();
    alice.until(&open, "input_required").await;
    let before = ended(&alice, "echo").await;
    let subscription = subscribe(&alice, &receiver, json!({})).await;
    alice.cancel(&open).await.assert_acknowledged();
    until_told(&receiver, &open, &subscription).await;
    let told = receiver.told();
    assert_eq!(told.len(), 1, "{told:#?}");
    assert_eq!(told[0].json["data"]["status"], "cancelled");
    assert!(told_of(&receiver, &before).is_empty(), "it begins now");
}

#[tokio::test]
async fn a_question_and_an_end_are_told_in_order_and_again_until_they_are_taken() {
    let replies = [Reply::Status(200), Reply::Status(500)];
    let receiver = Receiver::start(replies).await;
    let scene = Scene::start(Era::Modern, Config::always()).await;
    let alice = scene.alice();
    subscribe(&alice, &receiver, json!({"arguments": {"tool": "ask"}})).await;
    ended(&alice, "echo").await;
    let asked = alice.call("ask", json!({})).await.into_task();
    alice.until(&asked, "input_required").await;
    receiver.until_taken(LONG, 1).await;
    alice.cancel(&asked).await.assert_acknowledged();
    receiver.until_taken(LONG, 2).await;
    let told = receiver.told();
    let states: Vec<_> = told
        .iter()
        .map(|it| it.json["data"]["status"].as_str().unwrap())
        .collect();
    let question = "input_required";
    assert_eq!(states, [question, question, "cancelled"], "{told:#?}");
    assert!(told[0].id == told[1].id && told[1].id != told[2].id);
    assert!(told.iter().all(|it| it.json["data"]["tool"] == "ask"));
}

#[tokio::test]
async fn what_ended_since_a_cursor_is_told() {
    let receiver = Receiver::start([]).await;
    let scene = Scene::start(Era::Modern, Config::always()).await;
    let alice = scene.alice();
    let polled = alice.request("events/poll", json!({"name": NAME, "cursor": null}));
    let cursor = polled.send().await.into_result()["cursor"].take();
    let task = ended(&alice, "echo").await;
    let subscription = subscribe(&alice, &receiver, json!({"cursor": cursor})).await;
    until_told(&receiver, &task, &subscription).await;
    // Renewed with the same cursor, it is not told again.
    let renewed = subscribe(&alice, &receiver, json!({"cursor": cursor})).await;
    assert_eq!(renewed["id"], subscription["id"]);
    let next = ended(&alice, "echo").await;
    until_told(&receiver, &next, &subscription).await;
    assert_eq!(receiver.told().len(), 2, "{:#?}", receiver.told());
    let unreadable = subscribe(
        &alice,
        &receiver,
        json!({"cursor": "x", "arguments": {"tool": "x"}}),
    );
    assert_eq!(unreadable.await["truncated"], true);
}

#[tokio::test]
async fn what_ends_while_the_receiver_is_asked_is_told() {
    let answers = Arc::new(tokio::sync::Notify::new());
    let receiver = Receiver::start([Reply::After(Arc::clone(&answers))]).await;
    let scene = Scene::start(Era::Modern, Config::always()).await;
    let alice = scene.alice();
    let open = alice.call("ask", json!({})).await.into_task();
    alice.until(&open, "input_required").await;
    let before = ended(&alice, "echo").await;
    let ends_meanwhile = async {
        receiver.until_asked(PATIENCE, 1).await;
        alice.cancel(&open).await.assert_acknowledged();
        let new = ended(&alice, "echo").await;
        answers.notify_one();
        new
    };
    let subscribing = subscribe(&alice, &receiver, json!({}));
    let (subscription, new) = tokio::join!(subscribing, ends_meanwhile);
    until_told(&receiver, &open, &subscription).await;
    until_told(&receiver, &new, &subscription).await;
    assert!(
        told_of(&receiver, &before).is_empty(),
        "it begins with the request"
    );
}

#[tokio::test]
async fn the_first_event_behind_a_page_is_told() {
    let receiver = Receiver::start([]).await;
    let scene = Scene::start(Era::Modern, Config::always()).await;
    let alice = scene.alice();
    let poll = async |cursor: Value| {
        let params = json!({"name": NAME, "cursor": cursor, "maxEvents": 1});
        let polled = alice.request("events/poll", params).send().await;
        polled.into_result()
    };
    let begins = poll(Value::Null).await["cursor"].take();
    let first = ended(&alice, "echo").await;
    let second = ended(&alice, "echo").await;
    let mut page = poll(begins).await;
    assert_eq!(page["hasMore"], true, "{page}");
    assert_eq!(page["events"][0]["data"]["taskId"], first.id);
    let cursor = json!({"cursor": page["cursor"].take()});
    let subscription = subscribe(&alice, &receiver, cursor).await;
    until_told(&receiver, &second, &subscription).await;
    assert!(told_of(&receiver, &first).is_empty());
}

#[tokio::test]
async fn a_subscription_that_ended_or_expired_hears_nothing_more() {
    let receiver = Receiver::start([]).await;
    let scene = Scene::start(Era::Modern, Config::always()).await;
    let alice = scene.alice();
    let open = alice.call("ask", json!({})).await.into_task();
    alice.until(&open, "input_required").await;
    let (ends, expires) = (json!({"arguments": {"tool": "echo"}}), json!({"ttlMs": 0}));
    let ends_id = subscribe(&alice, &receiver, ends.clone()).await;
    let expires_id = subscribe(&alice, &receiver, expires.clone()).await;
    // The others are seen to hear nothing when this one has heard.
    let args = json!({"arguments": {"tool": "error"}});
    let stays = subscribe(&alice, &receiver, args).await;
    // This one is on the record of a task that ends after it.
    let left = json!({"arguments": {"tool": "ask"}});
    subscribe(&alice, &receiver, left.clone()).await;
    let end = alice.request("events/unsubscribe", params(&receiver, left));
    end.send().await.into_result();
    alice.cancel(&open).await.assert_acknowledged();
    let end = alice.request("events/unsubscribe", params(&receiver, ends.clone()));
    end.send().await.into_result();
    let again = alice.request("events/unsubscribe", params(&receiver, ends));
    assert_eq!(refused(&again.send().await).0, -32011);
    let echoed = ended(&alice, "echo").await;
    until_told(&receiver, &echoed, &expires_id).await;
    assert_eq!(told_of(&receiver, &echoed).len(), 1, "not {ends_id}");
    until_told(&receiver, &open, &expires_id).await;

    // It was told of tasks until it expired. What it missed then is told when it is renewed with its cursor.
    let until = expires_id["refreshBefore"].as_str().unwrap();
    let missed = eventually(LONG, "the subscription expired", async || {
        let task = ended(&alice, "error").await;
        until_told(&receiver, &task, &stays).await;
        let all = receiver.told();
        let last = all.iter().find(|it| it.json["data"]["taskId"] == task.id);
        let created = last.unwrap().json["data"]["createdAt"].as_str().unwrap();
        // Both are written alike, so the later one is the greater one.
        let is_over = created > until;
        is_over.then_some(task).ok_or_else(|| created.to_owned())
    })
    .await;
    let after = ended(&alice, "error").await;
    until_told(&receiver, &after, &stays).await;
    assert_eq!(told_of(&receiver, &missed).len(), 1);
    let cursor = json!({"cursor": expires_id["cursor"]});
    let renewed = subscribe(&alice, &receiver, cursor).await;
    assert_eq!(renewed["id"], expires_id["id"]);
    until_told(&receiver, &missed, &renewed).await;
    let told = told_of(&receiver, &open);
    assert!(told.iter().all(|id| expires_id["id"] == **id), "{told:?}");
}

#[tokio::test]
async fn a_renewed_secret_signs_beside_the_one_before() {
    let receiver = Receiver::start([]).await;
    let scene = Scene::start(Era::Modern, Config::always()).await;
    let alice = scene.alice();
    let first = subscribe(&alice, &receiver, json!({})).await;
    let mut renewed = params(&receiver, json!({}));
    renewed["delivery"]["secret"] = json!(OTHER_SECRET);
    let renewed = subscribing(&alice, renewed).await.into_result();
    assert_eq!(renewed["id"], first["id"]);
    ended(&alice, "echo").await;
    // The receiver verifies the signature of the first secret.
    receiver.until_taken(PATIENCE, 1).await;
    assert_eq!(receiver.told()[0].signatures, 2);
    let challenges = receiver.got();
    let challenges = challenges.iter().filter(|it| it.is_challenge());
    assert_eq!(challenges.count(), 1, "an address is asked once");
}

#[tokio::test]
async fn a_receiver_that_is_gone_ends_its_subscription() {
    let gone = vec![Reply::Status(410); 1000];
    let receiver = Receiver::start([Reply::Status(200)].into_iter().chain(gone)).await;
    let scene = Scene::start(Era::Modern, Config::always()).await;
    let alice = scene.alice();
    subscribe(&alice, &receiver, json!({})).await;
    // Only an address without a subscription is asked again. A subscription that is renewed before raincheck has read the
    // 410 stays, and the next message ends it.
    eventually(PATIENCE, "the subscription ended", async || {
        let asked = receiver.got().len();
        ended(&alice, "echo").await;
        receiver.until_asked(PATIENCE, asked + 1).await;
        subscribing(&alice, params(&receiver, json!({}))).await;
        let asked = receiver.got();
        let challenges = asked.iter().filter(|it| it.is_challenge()).count();
        (challenges == 2).then_some(()).ok_or(challenges)
    })
    .await;
}

#[tokio::test]
async fn a_subscriber_that_hangs_holds_up_neither_operators_nor_others() {
    let hangs = Receiver::start(
        [Reply::Status(200)]
            .into_iter()
            .chain(vec![Reply::Hang; 100]),
    )
    .await;
    let (receiver, operators) = (Receiver::start([]).await, Receiver::start([]).await);
    let config = operators.of(Config::always(), "");
    let scene = Scene::start(Era::Modern, config).await;
    let (alice, bob) = (scene.alice(), scene.bob());
    subscribe(&alice, &hangs, json!({})).await;
    subscribe(&bob, &receiver, json!({})).await;
    // More than are sent at the same time to all receivers.
    let all = (0..HANGING).map(|_| ended(&alice, "echo"));
    join_all(all).await;
    ended(&bob, "echo").await;
    operators.until_taken(PATIENCE, HANGING + 1).await;
    receiver.until_taken(PATIENCE, 1).await;
}

async fn another_replica_tells_what_a_lost_owner_did_not(era: Era) {
    // The receiver holds the first message, so that its sender is killed between the end and the delivery.
    let receiver = Receiver::start([Reply::Status(200), Reply::Hang]).await;
    let upstream = Upstream::start(era).await;
    let (_tokens, config) = known(Config::always());
    let config = config
        .section("upstream", "shared = true")
        .store(&format!("seal = \"payloads\"\nseal_key = {SEAL_KEY:?}"));
    let mut pair = Pair::of(upstream, config).await;
    let (at_a, at_b) = (alice(pair.at_a()), alice(pair.at_b()));
    // Subscribed at one replica, it counts at the other.
    let subscription = subscribe(&at_b, &receiver, json!({})).await;
    let task = ended(&at_a, "echo").await;
    receiver.until_asked(PATIENCE, 2).await;
    pair.a.kill();
    receiver.until_taken(LONG, 1).await;
    let told = receiver.told();
    assert!(told.len() == 2 && told[0].id == told[1].id, "{told:#?}");
    assert_eq!(told_of(&receiver, &task)[1], subscription["id"]);
    for (key, value) in everything(&pair).await {
        for secret in [SECRET, "/hook", &receiver.url] {
            let is_there = value
                .windows(secret.len())
                .any(|it| it == secret.as_bytes());
            assert!(!is_there, "{secret} is in {key}");
        }
    }
    let end = at_b.request("events/unsubscribe", params(&receiver, json!({})));
    end.send().await.into_result();
}

/// Every string of the store.
async fn everything(pair: &Pair) -> Vec<(String, Vec<u8>)> {
    let mut redis = pair.connect().await;
    let keys: Vec<String> = redis::cmd("KEYS")
        .arg("*")
        .query_async(&mut redis)
        .await
        .unwrap();
    let mut all = Vec::new();
    for key in keys {
        let dumped: redis::RedisResult<Vec<u8>> =
            redis::cmd("GET").arg(&key).query_async(&mut redis).await;
        let hash: redis::RedisResult<Vec<Vec<u8>>> =
            redis::cmd("HVALS").arg(&key).query_async(&mut redis).await;
        all.extend(dumped.into_iter().map(|value| (key.clone(), value)));
        let values = hash.unwrap_or_default().into_iter();
        all.extend(values.map(|value| (key.clone(), value)));
    }
    assert!(all.len() > 2, "{all:?}");
    all
}

#[tokio::test]
async fn a_subscription_outlives_its_process() {
    let replies = [Reply::Status(200), Reply::Hang];
    let receiver = Receiver::start(replies).await;
    let mut scene = Scene::start(Era::Modern, Config::always().embedded()).await;
    let subscription = subscribe(&scene.alice(), &receiver, json!({})).await;
    let first = ended(&scene.alice(), "echo").await;
    receiver.until_asked(PATIENCE, 2).await;
    scene.rig.proxy.kill();
    scene.rig.proxy.restart().await;
    let second = ended(&scene.alice(), "echo").await;
    until_told(&receiver, &second, &subscription).await;
    receiver.until_taken(LONG, 2).await;
    let told: Vec<Webhook> = receiver.told();
    assert_eq!(told_of(&receiver, &first).len(), 2, "{told:#?}");
}
