//! Job tools: a tool that starts a job, and those that report on it, fetch its result and cancel it, as one call.

use serde_json::{Value, json};

use crate::held::Session;
use crate::support::answer::Task;
use crate::support::client::Client;
use crate::support::upstream::Tally;
use crate::support::{Config, Era, Rig, Upstream, in_both_eras};

in_both_eras!(
    a_job_becomes_a_task_and_its_result_the_result,
    a_result_may_take_longer_than_the_pause_between_checks,
    a_result_tool_may_fail_for_a_while,
    a_rule_without_its_tools_is_off,
    a_job_shows_its_progress,
    a_job_that_failed_is_a_tool_error_with_the_last_answer,
    a_client_without_tasks_waits_for_the_job,
    a_cancel_cancels_the_job_at_the_server,
    a_check_that_fails_is_not_the_end_of_the_job,
    a_job_that_nobody_knows_any_more_is_lost,
    a_job_that_gives_no_sign_is_lost,
    a_server_that_is_away_for_a_while_loses_no_job,
    a_busy_server_is_asked_again,
    a_job_is_checked_by_one_request_at_a_time,
    two_starts_may_name_one_job,
    a_job_that_takes_too_long_is_cancelled,
    an_answer_without_a_job_is_the_result,
    the_rule_sets_what_the_client_leaves_out,
    the_list_says_that_the_result_comes_by_itself,
);

/// The rule of all tests, but for what a test adds.
pub(crate) const RULE: &str = r#"
start = "job_start"
status = "job_status"
cancel = "job_cancel"
progress = "/done"
total = "/of"
message = "/message"
poll = { first = "500ms", max = "500ms", lost_after = "3s" }
"#;

pub(crate) fn config(more: &str) -> Config {
    Config::auto("20s").section("[jobs]", &format!("{RULE}{more}"))
}

async fn rig(era: Era, more: &str) -> Rig {
    let upstream = Upstream::with_jobs(era).await;
    let proxy = config(more).start(&upstream.url()).await;
    Rig { proxy, upstream }
}

/// Starts the job "a". The client has its task long before the grace window ends.
pub(crate) async fn start(client: &Client) -> Task {
    client
        .call("job_start", json!({"name": "a"}))
        .await
        .into_task()
}

pub(crate) fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}

async fn a_job_becomes_a_task_and_its_result_the_result(era: Era) {
    let rig = rig(era, "result = \"job_result\"").await;
    let client = rig.client();
    let task = start(&client).await;
    rig.upstream.until_started("job_status").await;
    assert_eq!(client.get(&task).await["status"], "working");
    rig.upstream.job_is("a", json!({"status": "Succeeded"}));
    let state = client.until(&task, "completed").await;
    assert_eq!(text(&state["result"]), "the result of a");
    assert_eq!(state["result"]["_meta"]["io.raincheck/job"], "a");
    assert_eq!(rig.upstream.tally("job_start").started, 1);
    assert_eq!(rig.upstream.tally("job_result").started, 1);
    assert_eq!(
        rig.upstream.last_arguments("job_status"),
        json!({"job_id": "a"})
    );
    rig.proxy.until_said("job=\"a\"", 1).await;
}

async fn a_result_may_take_longer_than_the_pause_between_checks(era: Era) {
    let rig = rig(era, "result = \"job_result\"").await;
    let client = rig.client();
    let task = start(&client).await;
    rig.upstream.job_is("result is held", json!(true));
    rig.upstream.job_is("a", json!({"status": "done"}));
    rig.upstream.until_started("job_result").await;
    // More checks follow, which say again that the job has ended.
    let before = rig.upstream.tally("job_status").started;
    let checked = |it: Tally| it.started > before + 1;
    rig.upstream.until("job_status", "started", checked).await;
    rig.upstream.release("job_result");
    let state = client.until(&task, "completed").await;
    assert_eq!(text(&state["result"]), "the result of a");
    assert_eq!(rig.upstream.tally("job_result").started, 1);
}

async fn a_result_tool_may_fail_for_a_while(era: Era) {
    let rig = rig(era, "result = \"job_result\"").await;
    let client = rig.client();
    let task = start(&client).await;
    rig.upstream.job_is("a", json!({"status": "done"}));
    for (number, fault) in [Value::Null, json!("isError")].into_iter().enumerate() {
        rig.upstream.job_is("result fails", fault);
        let before = u32::try_from(number).unwrap();
        let asked = |it: Tally| it.started > before;
        rig.upstream.until("job_result", "started", asked).await;
        assert_eq!(client.get(&task).await["status"], "working");
    }
    rig.upstream.job_is("result fails", json!("no more"));
    let state = client.until(&task, "completed").await;
    assert_eq!(text(&state["result"]), "the result of a");
    assert!(state["result"]["isError"] != true);
}

async fn a_rule_without_its_tools_is_off(era: Era) {
    let rule = RULE.replace("job_cancel", "no_such_tool") + "hide = true";
    let upstream = Upstream::with_jobs(era).await;
    let config = Config::auto("20s").section("[jobs]", &rule);
    let proxy = config.start(&upstream.url()).await;
    let rig = Rig { proxy, upstream };
    let list = rig.client().request("tools/list", json!({})).send().await;
    let list = list.into_result();
    let tools = list["tools"].as_array().unwrap();
    let named = |name: &str| tools.iter().find(|tool| tool["name"] == name);
    assert!(named("job_start").unwrap()["description"].is_null());
    assert!(named("job_status").is_some());
    let answer = rig.client().call("job_start", json!({})).await;
    assert_eq!(answer.into_result()["structuredContent"]["job_id"], "a");
    rig.proxy.until_said("a rule of [[jobs]] is off", 1).await;
}

async fn a_job_shows_its_progress(era: Era) {
    let rig = rig(era, "").await;
    let client = rig.client();
    let task = start(&client).await;
    let half = json!({"status": "running", "done": 5, "of": 10, "message": "half"});
    rig.upstream.job_is("a", half);
    let shows = |state: &Value| {
        state["statusMessage"]
            .as_str()
            .is_some_and(|it| it.contains("half"))
    };
    let state = client.until_it(&task, "showing its progress", shows).await;
    assert_eq!(
        state["_meta"]["io.raincheck/progress"]["progress"].as_f64(),
        Some(5.0)
    );
    let end = json!({"status": "completed", "answer": 42});
    rig.upstream.job_is("a", end.clone());
    let state = client.until(&task, "completed").await;
    assert_eq!(state["result"]["structuredContent"], end);
    assert_eq!(state["result"]["isError"], false);
}

async fn a_job_that_failed_is_a_tool_error_with_the_last_answer(era: Era) {
    for word in ["FAILED", "cancelled"] {
        let rig = rig(era, "result = \"job_result\"").await;
        let client = rig.client();
        let task = start(&client).await;
        rig.upstream
            .job_is("a", json!({"status": word, "why": "no disk"}));
        let state = client.until(&task, "completed").await;
        assert_eq!(state["result"]["isError"], true);
        assert_eq!(state["result"]["structuredContent"]["why"], "no disk");
        assert_eq!(rig.upstream.tally("job_result").started, 0);
    }
}

async fn a_client_without_tasks_waits_for_the_job(era: Era) {
    let rig = rig(era, "").await;
    let client = rig.client().without_tasks();
    let modern = client.call("job_start", json!({"name": "a"}));
    let session = Session::open(rig.client()).await;
    let legacy = session.calling("job_start", json!({"name": "b"})).send();
    let ends = async {
        rig.upstream
            .until("job_status", "started", |it: Tally| it.started > 1)
            .await;
        for job in ["a", "b"] {
            rig.upstream
                .job_is(job, json!({"status": "done", "job": job}));
        }
    };
    let (modern, legacy, ()) = tokio::join!(modern, legacy, ends);
    assert_eq!(modern.into_result()["structuredContent"]["job"], "a");
    assert_eq!(legacy.into_result()["structuredContent"]["job"], "b");
}

async fn a_cancel_cancels_the_job_at_the_server(era: Era) {
    let rig = rig(era, "").await;
    let client = rig.client();
    let task = start(&client).await;
    rig.upstream.job_is("cancel", Value::Null);
    client.cancel(&task).await.assert_acknowledged();
    client.until(&task, "cancelled").await;
    rig.upstream.until_started("job_cancel").await;
    // The cancel tool did not take it, so it is called again.
    rig.upstream.job_is("cancel", json!(true));
    let again = |it: Tally| it.started == 2;
    rig.upstream
        .until("job_cancel", "started again", again)
        .await;
    assert_eq!(
        rig.upstream.last_arguments("job_cancel"),
        json!({"job_id": "a"})
    );
}

async fn a_check_that_fails_is_not_the_end_of_the_job(era: Era) {
    let rig = rig(era, "retry = [\"backing off\"]").await;
    let client = rig.client();
    let task = start(&client).await;
    // An error of JSON-RPC, an error of the tool, a word of `retry`, a word that is not known, and answers without a state.
    for answer in [
        Value::Null,
        json!({"isError": true, "status": "failed"}),
        json!({"status": "Backing Off"}),
        json!({"status": "glowing"}),
        json!({}),
        json!("no structure at all"),
    ] {
        let before = rig.upstream.tally("job_status").started;
        rig.upstream.job_is("a", answer);
        let checked = |it: Tally| it.started > before + 1;
        rig.upstream.until("job_status", "started", checked).await;
        assert_eq!(client.get(&task).await["status"], "working");
        rig.upstream.job_is("a", json!({"status": "running"}));
        let checked = |it: Tally| it.started > before + 3;
        rig.upstream.until("job_status", "started", checked).await;
    }
    rig.upstream.job_is("a", json!({"status": "done"}));
    client.until(&task, "completed").await;
}

async fn a_job_that_nobody_knows_any_more_is_lost(era: Era) {
    let patient = RULE.replace("3s", "10m") + "gone = \"not_found\"";
    let upstream = Upstream::with_jobs(era).await;
    let config = Config::auto("20s").section("[jobs]", &patient);
    let rig = Rig {
        proxy: config.start(&upstream.url()).await,
        upstream,
    };
    let client = rig.client();
    let task = start(&client).await;
    rig.upstream.job_is("a", json!({"status": "not_found"}));
    assert_lost(&client.until(&task, "failed").await);
}

async fn a_job_that_gives_no_sign_is_lost(era: Era) {
    let rig = rig(era, "").await;
    let client = rig.client();
    let task = start(&client).await;
    rig.upstream.job_is("a", Value::Null);
    assert_lost(&client.until(&task, "failed").await);
    // The job may go on well.
    assert_eq!(rig.upstream.tally("job_cancel").started, 0);
}

fn assert_lost(state: &Value) {
    let error = &state["error"];
    assert_eq!(error["data"]["io.raincheck/reason"], "job_lost", "{error}");
    assert_eq!(error["data"]["io.raincheck/effect"], "unknown");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("job a"), "{message}");
}

/// A rule with all the patience of the defaults.
async fn patient(era: Era) -> Rig {
    let upstream = Upstream::with_jobs(era).await;
    let rule = RULE.replace(r#", lost_after = "3s""#, "");
    let config = Config::auto("20s").section("[jobs]", &rule);
    let proxy = config.start(&upstream.url()).await;
    Rig { proxy, upstream }
}

async fn a_server_that_is_away_for_a_while_loses_no_job(era: Era) {
    let rig = patient(era).await;
    let client = rig.client();
    let task = start(&client).await;
    rig.upstream.until_started("job_status").await;
    let address = rig.upstream.address();
    drop(rig.upstream);
    rig.proxy.until_said("Connection refused", 1).await;
    assert_eq!(client.get(&task).await["status"], "working");
    let upstream = Upstream::with_jobs_at(era, address).await;
    upstream.job_is("a", json!({"status": "done", "answer": 42}));
    let state = client.until(&task, "completed").await;
    assert_eq!(state["result"]["structuredContent"]["answer"], 42);
}

async fn a_busy_server_is_asked_again(era: Era) {
    let rig = patient(era).await;
    let client = rig.client();
    let task = start(&client).await;
    rig.upstream.until_started("job_status").await;
    let before = rig.upstream.tally("job_status").started;
    rig.upstream.end_calls_with(429);
    // More often than one check asks a busy server.
    let asked = |it: Tally| it.started > before + 3;
    rig.upstream.until("job_status", "asked", asked).await;
    assert_eq!(client.get(&task).await["status"], "working");
    rig.upstream.end_calls_with(0);
    rig.upstream.job_is("a", json!({"status": "done"}));
    client.until(&task, "completed").await;
    assert_eq!(rig.upstream.tally("job_start").started, 1);
}

async fn a_job_is_checked_by_one_request_at_a_time(era: Era) {
    let rig = patient(era).await;
    let client = rig.client();
    rig.upstream.job_is("status is held", json!("a"));
    let slow = start(&client).await;
    rig.upstream.until_started("job_status").await;
    let quick = client.call("job_start", json!({"name": "b"})).await;
    let quick = quick.into_task();
    let checked = |it: Tally| it.started > 4;
    rig.upstream.until("job_status", "started", checked).await;
    rig.upstream.job_is("b", json!({"status": "done"}));
    client.until(&quick, "completed").await;
    let checks = rig.upstream.all_arguments("job_status");
    let slow_checks = checks.iter().filter(|it| it["job_id"] == "a").count();
    assert_eq!(slow_checks, 1);
    rig.upstream.job_is("a", json!({"status": "done"}));
    rig.upstream.release("job_status");
    client.until(&slow, "completed").await;
}

async fn two_starts_may_name_one_job(era: Era) {
    let rig = rig(era, "").await;
    let client = rig.client();
    let (one, other) = (start(&client).await, start(&client).await);
    assert_ne!(one.id, other.id);
    rig.upstream.job_is("a", json!({"status": "done"}));
    for task in [one, other] {
        client.until(&task, "completed").await;
    }
}

async fn a_job_that_takes_too_long_is_cancelled(era: Era) {
    let upstream = Upstream::with_jobs(era).await;
    let config = Config::auto("1s").terms("max_duration = \"2s\"");
    let proxy = config.section("[jobs]", RULE).start(&upstream.url()).await;
    let rig = Rig { proxy, upstream };
    let client = rig.client();
    let task = start(&client).await;
    let error = &client.until(&task, "failed").await["error"];
    assert_eq!(error["data"]["io.raincheck/reason"], "deadline", "{error}");
    rig.upstream.until_started("job_cancel").await;
    assert_eq!(
        rig.upstream.last_arguments("job_cancel"),
        json!({"job_id": "a"})
    );
}

async fn an_answer_without_a_job_is_the_result(era: Era) {
    let rig = rig(era, "").await;
    let client = rig.client();
    for answer in [
        json!({"error": "no room"}),
        json!({"job_id": "", "status": "queued"}),
        json!({"job_id": "a\nb", "status": "queued"}),
        json!({"job_id": {"a": 1}}),
        json!({"job_id": "a", "isError": true, "status": "queued"}),
        json!({"job_id": "a", "status": "completed"}),
    ] {
        rig.upstream.job_is("start", answer.clone());
        let result = client.call("job_start", json!({})).await.into_result();
        assert_eq!(result["structuredContent"], answer);
    }
    assert_eq!(rig.upstream.tally("job_status").started, 0);
}

async fn the_rule_sets_what_the_client_leaves_out(era: Era) {
    let more = r#"set = { wait = false, region = "north" }"#;
    let rig = rig(era, more).await;
    let given = json!({"name": "a", "wait": true});
    let task = rig.client().call("job_start", given).await.into_task();
    let started = rig.upstream.last_arguments("job_start");
    assert_eq!(
        started,
        json!({"name": "a", "wait": true, "region": "north"})
    );
    rig.client().cancel(&task).await.assert_acknowledged();
    // What the start and the check have in common is repeated.
    let given = json!({"name": "b", "region": "south"});
    rig.client().call("job_start", given).await.into_task();
    rig.upstream.until_started("job_status").await;
    let checked = rig.upstream.last_arguments("job_status");
    assert_eq!(checked, json!({"job_id": "b", "region": "south"}));
}

async fn the_list_says_that_the_result_comes_by_itself(era: Era) {
    let rig = rig(era, "hide = true").await;
    let session = Session::open(rig.client()).await;
    let list = json!({"jsonrpc": "2.0", "id": "list", "method": "tools/list"});
    for answer in [
        rig.client().request("tools/list", json!({})).send().await,
        session.post(&list).send().await,
    ] {
        let result = answer.into_result();
        let tools = result["tools"].as_array().unwrap();
        let named = |name: &str| tools.iter().find(|tool| tool["name"] == name);
        let start = named("job_start").unwrap()["description"].as_str().unwrap();
        assert!(start.starts_with("The result comes by itself"), "{start}");
        assert!(named("job_status").is_none() && named("job_cancel").is_none());
        assert!(named("echo").unwrap()["description"].is_null());
    }
    // A model that knows the tool from before can still call it.
    let status = rig
        .client()
        .call("job_status", json!({"job_id": "a"}))
        .await;
    assert_eq!(
        status.into_result()["structuredContent"]["status"],
        "running"
    );
}
