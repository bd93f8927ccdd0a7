//! What operators do with tasks, over the admin listener and on the command line: list, show, cancel, answer.

use hyper::Method;
use serde_json::{Value, json};
use tokio::process::Command;

use super::related::related;
use crate::support::client::{Answer, Task};
use crate::support::operator::{OperatorEvents, raincheck};
use crate::support::pair::Pair;
use crate::support::{Client, Config, Era, Proxy, Rig, in_both_eras};

in_both_eras!(
    tasks_are_listed_shown_and_cancelled,
    a_question_is_answered_at_another_replica,
    the_command_line_answers_a_question_and_cancels,
    several_tasks_are_cancelled_at_once,
    tasks_that_name_each_other_are_shown_and_cancelled_together,
    events_are_told_as_they_happen,
);

/// What no answer holds by default.
const SECRET: &str = "b4e1c0de-argument";

fn with_operators(config: Config, lines: &str) -> Config {
    let lines = format!("listen = \"127.0.0.1:0\"\n{lines}");
    config.section("admin", &lines)
}

async fn operators(proxy: &Proxy) -> Client {
    Client::of(proxy.operators().await)
}

async fn page(operators: &Client, path: &str) -> Value {
    operators.page(path).await.of_status(200).unwrap().json()
}

pub(crate) async fn post(operators: &Client, path: &str, body: Value) -> Answer {
    let request = operators.http(Method::POST, path);
    request.body(body.to_string()).send().await
}

fn ids(page: &Value) -> Vec<&str> {
    let tasks = page["tasks"].as_array().unwrap();
    tasks.iter().map(|it| it["id"].as_str().unwrap()).collect()
}

async fn tasks_are_listed_shown_and_cancelled(era: Era) {
    let rig = Rig::start(era, with_operators(Config::always(), "")).await;
    let client = rig.client();
    let done = client
        .call("echo", json!({"text": SECRET}))
        .await
        .into_task();
    client.until(&done, "completed").await;
    let held = client
        .call("held", json!({"nonce": SECRET}))
        .await
        .into_task();
    rig.upstream.until_started(SECRET).await;

    let operators = operators(&rig.proxy).await;
    let all = page(&operators, "/tasks").await;
    assert_eq!(ids(&all), [&*held.id, &*done.id], "the newest first: {all}");
    assert_eq!(all["counts"]["working"], 1, "{all}");
    assert_eq!(all["counts"]["completed"], 1, "{all}");
    // Nothing of a call in front of this server can be fetched by another process.
    assert_eq!(all["fail_if_lost"], 1, "{all}");
    let open = page(&operators, "/tasks?state=open&tool=held").await;
    assert_eq!(ids(&open), [&*held.id]);
    let none = page(&operators, "/tasks?state=open&tool=echo").await;
    assert_eq!(ids(&none), [""; 0]);
    let second = page(&operators, "/tasks?limit=1&offset=1").await;
    assert_eq!(
        (ids(&second), &second["total"]),
        (vec![&*done.id], &json!(2))
    );
    let wrong = operators.page("/tasks?state=busy").await;
    assert_eq!(wrong.status, 400);

    let beginning = &held.id[..8];
    let shown = page(&operators, &format!("/tasks/{beginning}..")).await;
    assert_eq!(
        (&shown["id"], &shown["state"]),
        (&json!(held.id), &json!("working"))
    );
    assert_eq!(shown["timeline"][0]["what"], "created");
    let ended = page(&operators, &format!("/tasks/{}", done.id)).await;
    for text in [all, shown, ended] {
        assert!(!text.to_string().contains(SECRET), "{text}");
    }

    let path = format!("/tasks/{}/cancel", held.id);
    assert_eq!(operators.page(&path).await.status, 405);
    let evil = operators.http(Method::POST, &path);
    let evil = evil.header("origin", "http://evil.example");
    assert_eq!(evil.send().await.status, 403);
    let cancelled = post(&operators, &path, json!({})).await;
    assert_eq!(cancelled.json()["state"], "cancelled");
    client.until(&held, "cancelled").await;
    assert_eq!(post(&operators, &path, json!({})).await.status, 409);
    let unknown = "/tasks/00000000-0000-4000-8000-000000000000/cancel";
    assert_eq!(post(&operators, unknown, json!({})).await.status, 404);
    let log = rig.proxy.log();
    assert_eq!(log.matches("an operator acted").count(), 1, "{log}");
    assert!(log.contains("action=\"cancel\""), "{log}");
    assert!(!log.contains(&held.id), "a task id is a handle: {log}");
}

async fn a_question_is_answered_at_another_replica(era: Era) {
    let pair = Pair::with(era, "", |config| {
        let config = with_operators(config, "");
        config.section("upstream", "shared = true")
    })
    .await;
    let client = pair.at_a();
    let task = client.call("ask", json!({})).await.into_task();
    client.until(&task, "input_required").await;
    let operators = operators(&pair.b).await;
    let stuck = page(&operators, "/tasks?state=input_required&sort=stuck").await;
    assert_eq!(ids(&stuck), [&*task.id], "another replica carries it");
    let shown = page(&operators, &format!("/tasks/{}", task.id)).await;
    let question = &shown["open_questions"][0];
    assert_eq!(question["request"]["params"]["message"], "Your name?");
    let key = question["key"].as_str().unwrap();
    let path = format!("/tasks/{}/answer", task.id);
    let wrong = post(&operators, &path, json!({"nope": {"action": "decline"}})).await;
    assert_eq!(wrong.status, 409, "{}", wrong.body);
    let shapeless = post(&operators, &path, json!({ key: {"no": "action"} })).await;
    assert_eq!(shapeless.status, 400, "{}", shapeless.body);
    let answer = json!({ key: {"action": "accept", "content": {"name": "Ada"}} });
    assert_eq!(post(&operators, &path, answer).await.status, 200);
    let state = client.until(&task, "completed").await;
    assert_eq!(state["result"]["content"][0]["text"], "Ada");
    assert!(pair.b.log().contains("action=\"answer\""));
}

async fn held_about(client: &Client, named: &Task) -> Task {
    let call = related(client.calling("held", json!({})), &json!([named.id]));
    call.send().await.into_task()
}

async fn tasks_that_name_each_other_are_shown_and_cancelled_together(era: Era) {
    let rig = Rig::start(era, with_operators(Config::always(), "")).await;
    let (client, operators) = (rig.client(), operators(&rig.proxy).await);
    let eve = client.clone().named("Bearer eve");
    let first = client.call("held", json!({})).await.into_task();
    let second = held_about(&client, &first).await;
    let third = held_about(&client, &second).await;
    let foreign = held_about(&eve, &first).await;
    let shown = async |task: &Task| {
        let path = format!("/tasks/{}?tree=true", task.id);
        let shown = page(&operators, &path).await;
        let ids = |key: &str| {
            let others = shown[key].as_array().unwrap().iter();
            let ids = others.map(|other| other["id"].as_str().unwrap().to_owned());
            ids.collect::<Vec<_>>()
        };
        (ids("related"), ids("named_by"))
    };
    let (none, id) = (Vec::new(), |task: &Task| vec![task.id.clone()]);
    assert_eq!(shown(&first).await, (none.clone(), id(&second)));
    assert_eq!(shown(&second).await, (id(&first), id(&third)));
    assert_eq!(shown(&foreign).await, (none.clone(), none));
    let told_of = told(&rig.proxy, &["tasks", "show", &second.id]).await;
    for (name, other) in [("related to", &first), ("named by", &third)] {
        let line = format!("{} working held", &other.id[..8]);
        assert!(
            told_of.contains(name) && told_of.contains(&line),
            "{told_of}"
        );
    }

    // Without the word only the one ends; what names it is found when it has ended, too.
    let alone = client.call("held", json!({})).await.into_task();
    let left = held_about(&client, &alone).await;
    let path = format!("/tasks/{}/cancel", alone.id);
    assert_eq!(post(&operators, &path, json!({})).await.status, 200);
    assert_eq!(client.get(&left).await["status"], "working");
    let path = format!("{path}?tree=true");
    let rest = post(&operators, &path, json!({})).await.json();
    assert_eq!(
        (ids(&rest), &rest["partial"]),
        (vec![&*left.id], &json!(false))
    );
    assert_eq!(post(&operators, &path, json!({})).await.status, 409);

    let said = told(&rig.proxy, &["tasks", "cancel", &first.id, "--tree"]).await;
    for task in [&first, &second, &third] {
        assert!(
            said.contains(&format!("{} is cancelled", task.id)),
            "{said}"
        );
        client.until(task, "cancelled").await;
    }
    assert_eq!(said.lines().count(), 3, "{said}");
    assert_eq!(eve.get(&foreign).await["status"], "working");
    rig.proxy.until_said("an operator acted", 5).await;
    let log = rig.proxy.log();
    assert_eq!(log.matches("an operator acted").count(), 5, "{log}");
    assert!(!log.contains(&second.id), "a task id is a handle: {log}");
}

async fn events_are_told_as_they_happen(era: Era) {
    let rig = Rig::start(era, with_operators(Config::always(), "")).await;
    let mut events = OperatorEvents::of(&rig.proxy).await;
    events.until(":\n\n").await;
    assert!(events.seen.contains("text/event-stream"));

    let client = rig.client();
    let task = asked(&client).await;
    let key = client.get(&task).await["inputRequests"]
        .as_object()
        .unwrap()
        .keys()
        .next()
        .cloned();
    let answer = json!({"action": "accept", "content": {"name": SECRET}});
    client.update(&task, json!({ key.unwrap(): answer })).await;
    events.until("event: ended").await;
    events.until(r#""outcome":"completed""#).await;
    let seen = events.seen;
    let order = ["created", "dispatched", "asked", "answered", "ended"];
    let places = order.map(|word| seen.find(&format!("event: {word}\n")));
    assert!(places.iter().all(Option::is_some), "{seen}");
    assert!(places.is_sorted(), "in order: {seen}");
    assert!(
        seen.contains(&task.id) && seen.contains(r#""tool":"ask""#),
        "{seen}"
    );
    assert!(!seen.contains(SECRET), "{seen}");
}

async fn told(proxy: &Proxy, arguments: &[&str]) -> String {
    let output = raincheck(proxy, arguments).await;
    let said = String::from_utf8(output.stdout).unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {complaint}{said}");
    said
}

async fn asked(client: &Client) -> Task {
    let task = client.call("ask", json!({})).await.into_task();
    client.until(&task, "input_required").await;
    task
}

async fn the_command_line_answers_a_question_and_cancels(era: Era) {
    let rig = Rig::start(era, with_operators(Config::always(), "")).await;
    let (client, proxy) = (rig.client(), &rig.proxy);
    let task = asked(&client).await;
    let list = told(proxy, &["tasks", "list", "--state", "open"]).await;
    assert!(list.contains("input_required  ask"), "{list}");
    assert!(list.contains("asks a question"), "{list}");
    let shown = told(proxy, &["tasks", "show", &task.id[..8]]).await;
    assert!(shown.contains("Your name?"), "{shown}");
    let silent = raincheck(proxy, &["tasks", "answer", &task.id]).await;
    assert_eq!(silent.status.code(), Some(2));
    let misspelt = raincheck(proxy, &["tasks", "answer", &task.id, r#"{"nme":"Ada"}"#]).await;
    assert_eq!(misspelt.status.code(), Some(1));
    let said = String::from_utf8(misspelt.stderr).unwrap();
    let wrong = "has \"nme\", which is no field of the form: name";
    assert!(said.contains(wrong), "{said}");
    told(proxy, &["tasks", "answer", &task.id, r#"{"name":"Ada"}"#]).await;
    let state = client.until(&task, "completed").await;
    assert_eq!(state["result"]["content"][0]["text"], "Ada");
    let watched = told(proxy, &["tasks", "watch", &task.id]).await;
    assert!(watched.contains("completed"), "{watched}");

    let task = asked(&client).await;
    told(proxy, &["tasks", "cancel", &task.id]).await;
    client.until(&task, "cancelled").await;
    let json: Value =
        serde_json::from_str(&told(proxy, &["tasks", "list", "--json"]).await).unwrap();
    assert_eq!(json["counts"]["cancelled"], 1, "{json}");
    let list = told(
        proxy,
        &["tasks", "list", "--outcome", "cancelled", "--since", "1h"],
    )
    .await;
    assert!(list.contains(&task.id[..8]), "{list}");
    for nothing in [
        &["--failed"][..],
        &["--effect", "unknown"],
        &["--until", "1h"],
    ] {
        let list = told(proxy, &[&["tasks", "list"], nothing].concat()).await;
        assert!(list.contains("no tasks"), "{nothing:?}: {list}");
    }
    let ready = told(proxy, &["health"]).await;
    assert!(ready.contains("\"ready\":true"), "{ready}");
}

async fn several_tasks_are_cancelled_at_once(era: Era) {
    let rig = Rig::start(era, with_operators(Config::always(), "")).await;
    let (client, proxy) = (rig.client(), &rig.proxy);
    let (first, second) = (asked(&client).await, asked(&client).await);
    let refused = async |words: &[&str], said: &str| {
        let output = raincheck(proxy, &[&["tasks", "cancel"], words].concat()).await;
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {complaint}");
        assert!(complaint.contains(said), "{words:?}: {complaint}");
        String::from_utf8(output.stdout).unwrap()
    };
    refused(&[], "name the tasks").await;
    refused(&[&first.id, "--tool", "ask"], "either ids or filters").await;
    refused(&["--tool", "ask", "--tree"], "--tree needs").await;
    let found = refused(&["--tool", "a*k"], "with --yes, these 2 tasks are").await;
    assert!(
        found.contains(&first.id[..8]) && found.contains(&second.id[..8]),
        "{found}"
    );
    let none = told(proxy, &["tasks", "cancel", "--tool", "other", "--yes"]).await;
    assert!(none.contains("no tasks"), "{none}");
    refused(&["--replica", "", "--yes"], "a value is required").await;
    let third = asked(&client).await;
    told(proxy, &["tasks", "cancel", &first.id[..8], &second.id]).await;
    client.until(&first, "cancelled").await;
    client.until(&second, "cancelled").await;
    // Those that have ended do not stop the others.
    let output = raincheck(proxy, &["tasks", "cancel", &first.id, &third.id]).await;
    assert_eq!(output.status.code(), Some(1));
    client.until(&third, "cancelled").await;
    let last = asked(&client).await;
    told(proxy, &["tasks", "cancel", "--tool", "a*", "--yes"]).await;
    client.until(&last, "cancelled").await;
}

#[tokio::test]
async fn payloads_are_shown_where_the_operator_wants_them() {
    let config = with_operators(Config::always(), "show_payloads = true");
    let rig = Rig::start(Era::Modern, config).await;
    let client = rig.client();
    let task = client
        .call("echo", json!({"text": SECRET}))
        .await
        .into_task();
    client.until(&task, "completed").await;
    let operators = operators(&rig.proxy).await;
    let shown = page(&operators, &format!("/tasks/{}", task.id)).await;
    assert_eq!(shown["arguments"]["text"], SECRET, "{shown}");
    assert!(shown["result"].to_string().contains(SECRET), "{shown}");
}

#[tokio::test]
async fn the_level_changes_while_it_runs_and_the_settings_are_shown_without_secrets() {
    let token = "correct-horse-battery-staple";
    let config = with_operators(Config::always(), &format!("token = {token:?}"));
    let rig = Rig::start(Era::Modern, config).await;
    let operators = operators(&rig.proxy).await.named(format!("Bearer {token}"));
    assert_eq!(page(&operators, "/level").await["level"], "info");
    let wrong = post(&operators, "/level", json!({"level": "loud"})).await;
    assert_eq!(wrong.status, 400, "{}", wrong.body);
    let set = post(&operators, "/level", json!({"level": "debug"})).await;
    assert_eq!(set.json()["before"], "info", "{}", set.body);
    rig.client().call("echo", json!({})).await.into_task();
    rig.proxy.until_said("DEBUG", 1).await;

    let shown = page(&operators, "/config").await;
    assert_eq!(shown["tasks"]["mode"], "always", "{shown}");
    assert_eq!(shown["admin"]["token"], "[secret]", "{shown}");
    assert_eq!(shown["limits"]["calls"], 16384, "a default: {shown}");
    assert!(!shown.to_string().contains(token), "{shown}");
    assert!(!rig.proxy.log().contains(token));
}

#[tokio::test]
async fn an_operator_drains() {
    let mut rig = Rig::start(Era::Modern, with_operators(Config::always(), "")).await;
    let operators = operators(&rig.proxy).await;
    let asked = post(&operators, "/drain", json!({})).await;
    assert_eq!(asked.status, 202, "{}", asked.body);
    rig.proxy.until_said("draining", 1).await;
    assert_eq!(page_status(&operators, "/readyz").await, 503);
    assert!(rig.proxy.stop().await.success());
}

async fn page_status(operators: &Client, path: &str) -> u16 {
    operators.page(path).await.status
}

#[tokio::test]
async fn nobody_there_is_one_line() {
    let output = Command::new(env!("CARGO_BIN_EXE_raincheck"))
        .args(["tasks", "list", "--admin", "127.0.0.1:1"])
        .env_clear()
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.starts_with("raincheck: no raincheck answers at 127.0.0.1:1: Connection refused"),
        "{said}"
    );
    assert_eq!(output.status.code(), Some(1));
}

#[tokio::test]
async fn a_reload_takes_the_level_names_the_rest_and_refuses_mistakes() {
    let config = with_operators(Config::always(), "");
    let rig = Rig::start(Era::Modern, config.clone()).await;
    let operators = operators(&rig.proxy).await;
    let write = |config: &Config| rig.proxy.directory.file("raincheck.toml", &config.text());
    let reload = async || post(&operators, "/reload", json!({})).await;
    let nothing = reload().await;
    assert_eq!(
        nothing.json()["after_restart"],
        json!([]),
        "{}",
        nothing.body
    );

    write(
        &config
            .clone()
            .section("telemetry", "log = \"debug\"")
            .section("drain", "grace = \"7s\"")
            .terms("retention = \"2h\""),
    );
    let changed = reload().await.json();
    assert_eq!(changed["after_restart"], json!(["drain.grace"]));
    assert_eq!(changed["changed"][0]["setting"], "tasks.retention");
    assert_eq!(changed["changed"][1]["setting"], "telemetry.log");
    assert_eq!(page(&operators, "/level").await["level"], "debug");

    write(
        &config
            .section("telemetry", "log = \"warn\"")
            .terms("retention = \"soon\""),
    );
    let refused = reload().await;
    assert_eq!(refused.status, 409);
    assert!(refused.body.contains("tasks.retention"), "{}", refused.body);
    assert_eq!(page(&operators, "/level").await["level"], "debug");
    rig.proxy.hang_up();
    rig.proxy.until_said("the settings have a mistake", 2).await;
}

#[tokio::test]
async fn unequal_seal_keys_are_told_of() {
    let redis = crate::redis_server::RedisServer::start();
    let with_key = |digit: &str| {
        let key = format!("{}{}", digit.repeat(32), "1f".repeat(16));
        let config = Config::always().redis(&redis.url());
        config.store(&format!("seal_key = {key:?}"))
    };
    let said = "another replica has another store.seal_key";
    let one = Rig::start(Era::Modern, with_key("a")).await;
    let other = with_key("b").start(&one.upstream.url()).await;
    other.until_said(said, 1).await;
    assert!(!one.proxy.log().contains(said));
}
