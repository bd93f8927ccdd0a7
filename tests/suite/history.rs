//! What operators find of tasks that have ended: on every replica, after restarts, and when the records are gone.

use serde_json::{Value, json};

use crate::operators_tasks::post;
use crate::support::client::{Answer, Task};
use crate::support::operator::{raincheck, with_operators};
use crate::support::pair::Pair;
use crate::support::{Client, Config, Era, PATIENCE, Proxy, Rig, eventually, in_both_eras};

in_both_eras!(
    ends_are_found_on_every_replica_and_after_all_have_died,
    an_end_is_found_when_its_record_is_gone,
    a_file_keeps_the_history,
    a_failure_stays_in_view_until_somebody_has_looked,
    a_call_is_run_again_as_a_new_task_of_the_same_caller,
    what_only_its_client_can_call_again_is_refused,
);

/// What no entry holds.
const SECRET: &str = "b4e1c0de-argument";

async fn page(proxy: &Proxy, path: &str) -> Value {
    let operators = Client::of(proxy.operators().await);
    operators.page(path).await.of_status(200).unwrap().json()
}

async fn told(proxy: &Proxy, arguments: &[&str]) -> String {
    let output = raincheck(proxy, arguments).await;
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn ids(page: &Value) -> Vec<&str> {
    let tasks = page["tasks"].as_array().unwrap();
    tasks.iter().map(|it| it["id"].as_str().unwrap()).collect()
}

/// Calls a tool and waits for its end.
async fn echoed(client: &Client) -> Task {
    let answer = client.call("echo", json!({"text": SECRET})).await;
    let task = answer.into_task();
    client.until(&task, "completed").await;
    task
}

/// One call of `held` failed, and one of `echo` completed.
async fn are_counted_by_tool(proxy: &Proxy) {
    let stats = page(proxy, "/tools/stats?since=3600").await;
    let counts = |tool: &str| {
        let mut tools = stats["tools"].as_array().unwrap().iter();
        let line = tools.find(|line| line["tool"] == tool).unwrap();
        ["ended", "completed", "failed", "running"].map(|key| line[key].as_u64().unwrap())
    };
    assert_eq!(counts("held"), [1, 0, 1, 0], "{stats}");
    assert_eq!(counts("echo"), [1, 1, 0, 0], "{stats}");
    let steps = stats["steps"].as_array().unwrap();
    let sum = |key: &str| {
        steps
            .iter()
            .map(|step| step[key].as_u64().unwrap())
            .sum::<u64>()
    };
    assert_eq!(["began", "ended"].map(sum), [2, 2], "{stats}");
    let by_tool = told(proxy, &["tools", "stats", "--since", "1h"]).await;
    assert!(
        by_tool.contains("held") && by_tool.contains("median over time"),
        "{by_tool}"
    );
    let over_time = told(proxy, &["tools", "stats", "echo"]).await;
    assert_eq!(
        over_time.lines().count(),
        2,
        "a head and one step: {over_time}"
    );
}

async fn ends_are_found_on_every_replica_and_after_all_have_died(era: Era) {
    let more = |config: Config| with_operators(config.section("upstream", "shared = false"));
    let mut pair = Pair::with(era, "", more).await;
    let lost = pair.at_a().call("held", json!({"nonce": SECRET})).await;
    let lost = lost.into_task();
    pair.upstream.until_started(SECRET).await;
    let done = echoed(&pair.at_b()).await;
    pair.a.kill();
    pair.at_b().until(&lost, "failed").await;
    let both = [&*lost.id, &*done.id];
    assert_eq!(ids(&page(&pair.b, "/tasks?state=ended").await), both);

    pair.b.kill();
    let late = pair.another("c").await;
    let ended = page(&late, "/tasks?state=ended").await;
    assert_eq!(ids(&ended), both, "{ended}");
    assert_eq!(ended["next"], Value::Null, "{ended}");
    let [of_lost, of_done] = [&ended["tasks"][0], &ended["tasks"][1]];
    assert_eq!(of_lost["reason"], "owner_lost", "{of_lost}");
    assert_eq!(
        (&of_lost["state"], &of_lost["effect"]),
        (&json!("failed"), &json!("unknown"))
    );
    assert_eq!(
        (&of_done["tool"], &of_done["replica"]),
        (&json!("echo"), &json!("b"))
    );
    let all = page(&late, "/tasks").await;
    assert_eq!(
        (ids(&all).len(), &all["more_ended"]),
        (2, &json!(false)),
        "{all}"
    );

    // Page by page, as the answer leads.
    let first = page(&late, "/tasks?state=ended&limit=1").await;
    let next = first["next"].as_str().unwrap();
    let second = page(&late, &format!("/tasks?state=ended&limit=1&after={next}")).await;
    assert_eq!([ids(&first), ids(&second)].concat(), both);
    assert_eq!(second["next"], Value::Null, "{second}");
    let list = told(
        &late,
        &["tasks", "list", "--state", "ended", "--limit", "1"],
    )
    .await;
    assert!(list.contains(&format!("--after {next}")), "{list}");

    are_found_by_their_words(&late, &lost, &done).await;
    are_counted_by_tool(&late).await;
    let exported = told(&late, &["tasks", "export"]).await;
    let exported = exported
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let exported: Vec<Value> = exported.collect();
    assert_eq!(exported, *ended["tasks"].as_array().unwrap());

    let mut read = redis::cmd("XRANGE");
    read.arg("{suite:00}:ended").arg("-").arg("+");
    let entries: redis::Value = read.query_async(&mut pair.connect().await).await.unwrap();
    let entries = format!("{entries:?}");
    assert!(
        entries.contains("owner_lost") && !entries.contains(SECRET),
        "{entries}"
    );
}

async fn are_found_by_their_words(late: &Proxy, lost: &Task, done: &Task) {
    for (filters, found) in [
        (&["--failed", "--since", "24h"][..], &lost.id),
        (&["--effect", "unknown"], &lost.id),
        (&["--reason", "owner_lost"], &lost.id),
        (&["--outcome", "completed"], &done.id),
        (&["--state", "ended", "--tool", "e*"], &done.id),
        (
            &["--state", "ended", "--replica", "b", "--tool", "echo"],
            &done.id,
        ),
        (&["--state", "ended", "--id", &done.id[..9]], &done.id),
    ] {
        let words = [&["tasks", "list", "--json"], filters].concat();
        let list: Value = serde_json::from_str(&told(late, &words).await).unwrap();
        assert_eq!(ids(&list), [found], "{filters:?}: {list}");
    }
}

async fn an_end_is_found_when_its_record_is_gone(era: Era) {
    let config =
        with_operators(Config::always().terms("max_duration = \"2s\"\nretention = \"1s\""));
    let rig = Rig::start(era, config).await;
    let task = echoed(&rig.client()).await;
    eventually(PATIENCE, "the record is gone", async || {
        let answer = rig.client().asking("tasks/get", &task).send().await;
        let is_gone = answer.json()["error"]["code"] == -32602;
        if is_gone { Ok(()) } else { Err(answer.body) }
    })
    .await;
    let shown = page(&rig.proxy, &format!("/tasks/{}", &task.id[..8])).await;
    assert_eq!(
        (&shown["id"], &shown["state"]),
        (&json!(task.id), &json!("completed"))
    );
    assert!(
        shown["kept"].is_string() && shown["took_ms"].is_u64(),
        "{shown}"
    );
    let shown = told(&rig.proxy, &["tasks", "show", &task.id]).await;
    assert!(shown.contains("in the history only"), "{shown}");
    // Nothing can be done about it any more.
    let cancelled = raincheck(&rig.proxy, &["tasks", "cancel", &task.id]).await;
    assert_eq!(cancelled.status.code(), Some(1));
}

async fn a_file_keeps_the_history(era: Era) {
    let mut rig = Rig::start(era, with_operators(Config::always()).embedded()).await;
    let task = echoed(&rig.client()).await;
    rig.proxy.kill();
    rig.proxy.restart().await;
    rig.proxy.until_said("answering operators", 2).await;
    assert_eq!(
        ids(&page(&rig.proxy, "/tasks?state=ended").await),
        [&*task.id]
    );
    let counts = &page(&rig.proxy, "/tasks").await["counts"];
    assert_eq!(counts["completed"], 1, "{counts}");
}

/// Waits until this replica counts so many failures.
async fn until_counted(proxy: &Proxy, count: u64) {
    eventually(PATIENCE, "the failures are counted", async || {
        let about = page(proxy, "/about").await;
        let is_so = about["unacknowledged"] == count;
        if is_so { Ok(()) } else { Err(about) }
    })
    .await;
}

async fn failed(client: &Client) -> Task {
    let task = client.call("error", json!({})).await.into_task();
    client.until(&task, "failed").await;
    task
}

/// The failures that nobody has acknowledged, as this replica lists them.
async fn open(proxy: &Proxy) -> Vec<String> {
    let list = told(proxy, &["tasks", "list", "--unacknowledged", "--json"]).await;
    let list: Value = serde_json::from_str(&list).unwrap();
    ids(&list).into_iter().map(str::to_owned).collect()
}

/// Acknowledges the one failure that is left by filters, and not what has not failed.
async fn filters_find_failures(pair: &Pair, done: &Task) {
    let refused = raincheck(&pair.a, &["tasks", "ack", &done.id]).await;
    let complaint = String::from_utf8_lossy(&refused.stderr);
    assert!(
        complaint.contains("the task has not failed: completed"),
        "{complaint}"
    );
    let found = raincheck(&pair.a, &["tasks", "ack", "--tool", "err*"]).await;
    assert_eq!(found.status.code(), Some(2));
    let complaint = String::from_utf8_lossy(&found.stderr);
    assert!(
        complaint.contains("with --yes, these 1 tasks are"),
        "{complaint}"
    );
    let other = [
        "tasks", "ack", "--tool", "err*", "--reason", "deadline", "--yes",
    ];
    let none = told(&pair.a, &other).await;
    assert!(
        none.contains("failures that nobody has acknowledged"),
        "{none}"
    );
    assert_eq!(open(&pair.b).await.len(), 1);
    told(&pair.a, &["tasks", "ack", "--tool", "err*", "--yes"]).await;
    assert_eq!(open(&pair.b).await, [""; 0]);
    until_counted(&pair.a, 0).await;
}

async fn a_failure_stays_in_view_until_somebody_has_looked(era: Era) {
    let pair = Pair::with(era, "", with_operators).await;
    let (a, b) = (pair.at_a(), pair.at_b());
    let first = failed(&a).await;
    let second = failed(&b).await;
    let done = echoed(&a).await;
    assert_eq!(open(&pair.b).await, [&*second.id, &*first.id]);

    let said = told(
        &pair.a,
        &[
            "tasks",
            "ack",
            &first.id[..8],
            "--note",
            "ran\tonce",
            "--by",
            "ada",
        ],
    )
    .await;
    assert_eq!(said, format!("{} is acknowledged\n", first.id));
    assert_eq!(open(&pair.b).await, [&*second.id]);
    until_counted(&pair.a, 1).await;
    let shown = page(&pair.b, &format!("/tasks/{}", first.id)).await;
    let ack = &shown["acknowledged"];
    assert_eq!(
        (&ack["by"], &ack["note"]),
        (&json!("ada"), &json!("ran once")),
        "{shown}"
    );
    // The last one counts, at every replica.
    told(&pair.b, &["tasks", "ack", &first.id, "--by", "bob"]).await;
    let list = page(&pair.a, "/tasks?state=failed").await;
    let ack = &list["tasks"][1]["acknowledged"];
    assert_eq!(
        (&ack["by"], &ack["note"]),
        (&json!("bob"), &json!("")),
        "{list}"
    );
    let shown = told(&pair.a, &["tasks", "show", &first.id]).await;
    assert!(shown.contains(" by bob"), "{shown}");
    let log = pair.a.log();
    assert!(
        log.contains("action=\"acknowledge\"") && !log.contains(&first.id),
        "{log}"
    );

    filters_find_failures(&pair, &done).await;
}

/// The task with this id.
fn named(id: &Value) -> Task {
    Task {
        id: id.as_str().unwrap().to_owned(),
        created: Value::Null,
    }
}

/// Runs the call of a task again, through this replica.
async fn again(proxy: &Proxy, task: &Task, body: Value) -> Answer {
    let operators = Client::of(proxy.operators().await);
    post(&operators, &format!("/tasks/{}/rerun", task.id), body).await
}

async fn a_call_is_run_again_as_a_new_task_of_the_same_caller(era: Era) {
    let more = |config: Config| {
        let config = config.section("upstream", "shared = false");
        config.section("admin", "listen = \"127.0.0.1:0\"\nshow_payloads = true")
    };
    let mut pair = Pair::with(era, "", more).await;
    let (a, b) = (pair.at_a(), pair.at_b());
    let done = echoed(&a).await;
    let refused = again(&pair.b, &done, json!({})).await;
    assert_eq!(refused.status, 409, "it ran: {}", refused.body);
    let words = ["tasks", "rerun", &done.id[..8], "--may-run-twice", "--json"];
    let said = told(&pair.b, &words).await;
    let begun: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(begun["rerun_of"], *done.id);
    let new = named(&begun["id"]);
    let state = a.until(&new, "completed").await;
    assert_eq!(
        state["result"]["content"][0]["text"], SECRET,
        "the same arguments"
    );
    let shown = page(&pair.a, &format!("/tasks/{}?tree=true", new.id)).await;
    assert_eq!(shown["related"][0]["id"], *done.id, "{shown}");
    assert!(pair.b.log().contains("action=\"rerun\""));

    // Two clicks, at two replicas, run it once.
    let error = failed(&a).await;
    let both = tokio::join!(
        again(&pair.a, &error, json!({"may_run_twice": true})),
        again(&pair.b, &error, json!({"may_run_twice": true, "by": "ada"}))
    );
    let (one, other) = (both.0.json(), both.1.json());
    assert!(
        one["id"].is_string() && one["id"] == other["id"],
        "{one} {other}"
    );
    a.until(&named(&one["id"]), "failed").await;
    assert_eq!(pair.upstream.calls_of("error"), 2);
    let shown = page(&pair.a, &format!("/tasks/{}", error.id)).await;
    let note = shown["acknowledged"]["note"].as_str().unwrap();
    assert_eq!(
        note,
        format!("run again as {}", one["id"].as_str().unwrap())
    );

    // Nobody knows whether it ran.
    let lost = a.call("held", json!({"nonce": "lost"})).await.into_task();
    let open = again(&pair.b, &lost, json!({})).await;
    assert!(
        open.status == 409 && open.body.contains("has not ended"),
        "{}",
        open.body
    );
    pair.upstream.until_started("lost").await;
    pair.a.kill();
    b.until(&lost, "failed").await;
    let refused = again(&pair.b, &lost, json!({})).await;
    assert_eq!(refused.status, 409, "{}", refused.body);
    assert!(refused.body.contains("--may-run-twice"), "{}", refused.body);
    told(&pair.b, &["tasks", "ack", &lost.id, "--note", "looked"]).await;
    let said = told(&pair.b, &["tasks", "rerun", &lost.id, "--may-run-twice"]).await;
    // Asked again, it needs no confirmation, and begins nothing.
    assert_eq!(told(&pair.b, &["tasks", "rerun", &lost.id]).await, said);
    let shown = told(&pair.b, &["tasks", "show", &lost.id]).await;
    assert!(shown.contains(": looked; run again as "), "{shown}");
    assert!(
        said.starts_with(&format!("{} runs again as ", lost.id)),
        "{said}"
    );
    pair.upstream
        .until("lost", "it runs again", |tally| tally.started == 2)
        .await;
}

async fn what_only_its_client_can_call_again_is_refused(era: Era) {
    let config =
        Config::always().section("admin", "listen = \"127.0.0.1:0\"\nshow_payloads = true");
    let rig = Rig::start(era, config).await;
    let task = echoed(&rig.client().named("Bearer alice")).await;
    let refused = again(&rig.proxy, &task, json!({})).await;
    assert_eq!(refused.status, 409, "{}", refused.body);
    assert!(
        refused.body.contains("only the client can call again"),
        "{}",
        refused.body
    );
    assert!(!refused.body.contains("alice"), "{}", refused.body);

    let without = Rig::start(era, with_operators(Config::always())).await;
    let task = echoed(&without.client()).await;
    let refused = again(&without.proxy, &task, json!({})).await;
    assert_eq!(refused.status, 409, "{}", refused.body);
    assert!(
        refused.body.contains("admin.show_payloads = true"),
        "{}",
        refused.body
    );
    assert_eq!(without.upstream.calls_of("echo"), 1);
}

#[tokio::test]
async fn nothing_is_kept_where_nobody_could_read_it() {
    for (admin, history) in [("", ""), ("listen = \"127.0.0.1:0\"", "keep = \"0s\"")] {
        let more = |config: Config| config.section("admin", admin).section("history", history);
        let pair = Pair::with(Era::Modern, "", more).await;
        echoed(&pair.at_a()).await;
        let mut read = redis::cmd("EXISTS");
        read.arg("{suite:00}:ended");
        let exists: u8 = read.query_async(&mut pair.connect().await).await.unwrap();
        assert_eq!(exists, 0, "{admin} {history}");
    }
}
