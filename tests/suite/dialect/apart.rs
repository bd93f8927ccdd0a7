//! What one kind of server is enough for.

use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use super::{Front, RELATED, Session, assert_question, assert_task};
use crate::fleet::ask;
use crate::redis_server::RedisServer;
use crate::support::client::Client;
use crate::support::pair::Pair;
use crate::support::session::accept;
use crate::support::stream::Stream;
use crate::support::{Config, Era, PATIENCE, Rig, eventually};

#[tokio::test]
async fn only_what_speaks_of_tasks_is_changed_of_an_answer() {
    let rig = Rig::start(Era::Legacy, Config::always()).await;
    let session = Session::open(rig.client()).await;
    let direct = session.at(Client::of(rig.upstream.address()));
    let ours = session.ask("tools/list", json!({})).await.body;
    let theirs = direct.ask("tools/list", json!({})).await.body;
    let edit = r#"{"execution":{"taskSupport":"optional"},"#;
    assert!(ours.contains(edit));
    let own = edit.replace("optional", "required");
    assert_eq!(ours.replace(edit, "{"), theirs.replace(&own, "{"));
    // So it is on a stream, whose events keep their ids.
    rig.upstream.keep_events();
    let streamed = session.ask("tools/list", json!({})).await;
    assert!(streamed.text.contains(edit), "{}", streamed.body);
    for id in ["id: 0-0\n", "id: 0-1\n"] {
        assert!(streamed.body.contains(id), "{}", streamed.body);
    }
    // A call that is passed on keeps what no serializer would.
    let call = json!({"name": "echo", "arguments": {"text": "x"}});
    let ours = session.ask("tools/call", call.clone()).await.text;
    assert_eq!(ours, direct.ask("tools/call", call).await.text);
}

#[tokio::test]
async fn a_stream_of_the_session_hears_questions_and_changes() {
    let front = Front::program(Config::always()).await;
    let session = front.session().await;
    let mut news = session.listening().stream().await;
    let (task, _) = session.task("ask", json!({})).await;
    let asked = news.next_of("notifications/tasks/status").await;
    assert_task(&asked["params"], "input_required");
    let question = news.next().await;
    assert_question(&question, &task);
    // Where it is put there, it is not put on the stream of the result as well.
    let waiting = session.asking("tasks/result", json!({"taskId": task}));
    let mut waiting = waiting.stream().await;
    session.reply(&question, "result", accept("Ada")).await;
    assert_eq!(waiting.next().await["result"]["content"][0]["text"], "Ada");
    loop {
        let change = news.next_of("notifications/tasks/status").await;
        assert_eq!(change["params"]["taskId"], task);
        if change["params"]["status"] == "completed" {
            break;
        }
    }
}

#[tokio::test]
async fn a_question_waits_for_the_session_s_stream() {
    let front = Front::program(Config::always()).await;
    let session = front.session().await;
    let (task, _) = session.task("ask", json!({})).await;
    session.until(&task, "input_required").await;
    let mut news = session.listening().stream().await;
    let question = news.next_of("elicitation/create").await;
    // What was said on a stream that is gone is said on the next one.
    drop(news);
    let mut news = reopened(&session).await;
    assert_eq!(news.next_of("elicitation/create").await, question);
    session.reply(&question, "result", accept("Ada")).await;
    session.until(&task, "completed").await;
}

#[tokio::test]
async fn a_question_is_on_one_stream_at_a_time() {
    let rig = Rig::start(Era::Legacy, Config::always()).await;
    let session = Session::open(rig.client()).await;
    let (task, _) = session.task("ask", json!({})).await;
    let waiting = session.asking("tasks/result", json!({"taskId": task}));
    let mut waiting = waiting.stream().await;
    let question = waiting.next().await;
    assert_question(&question, &task);
    // The session's stream does not have it, too.
    let mut news = session.listening().stream().await;
    let (other, _) = session.task("ask", json!({})).await;
    let asked = news.next_of("elicitation/create").await;
    assert_question(&asked, &other);
    // Where it was is no more: it is said where there is a stream.
    drop(waiting);
    assert_eq!(news.next_of("elicitation/create").await, question);
    session.reply(&question, "result", accept("Ada")).await;
    session.until(&task, "completed").await;
}

#[tokio::test]
async fn a_progress_token_is_good_for_as_long_as_the_task_runs() {
    let rig = Rig::start(Era::Legacy, Config::always()).await;
    let session = Session::open(rig.client()).await;
    let task = async |nonce: &str| {
        let params = json!({"name": "steps", "arguments": {"n": 2, "nonce": nonce}, "task": {},
            "_meta": {"progressToken": nonce}});
        let created = session.result_of("tools/call", params).await;
        created["task"]["taskId"].as_str().unwrap().to_owned()
    };
    let assert_told = |told: Value, task: &str, nonce: &str| {
        assert_eq!(told["params"]["progressToken"], nonce, "{told}");
        assert_eq!(told["params"]["total"], 2, "{told}");
        assert_eq!(told["params"]["_meta"][RELATED]["taskId"], task, "{told}");
    };
    let first = task("a").await;
    let mut waiting = session
        .asking("tasks/result", json!({"taskId": first}))
        .stream()
        .await;
    let told = waiting.next_of("notifications/progress").await;
    assert_told(told, &first, "a");
    rig.upstream.release("a");
    assert_eq!(waiting.next_of_answer().await["result"]["isError"], false);
    let mut news = session.listening().stream().await;
    let second = task("b").await;
    let told = news.next_of("notifications/progress").await;
    assert_told(told, &second, "b");
    rig.upstream.release("b");
}

/// The stream before is not gone the moment it is dropped.
async fn reopened(session: &Session) -> Stream {
    let opening = async || {
        let news = session.listening().stream().await;
        let status = news.status;
        (status == 200).then_some(news).ok_or(status)
    };
    eventually(PATIENCE, "the stream can be opened again", opening).await
}

#[tokio::test]
async fn an_error_of_the_call_is_the_result_s() {
    let rig = Rig::start(Era::Legacy, Config::always()).await;
    let session = Session::open(rig.client()).await;
    let (task, _) = session.task("error", json!({})).await;
    session.until(&task, "failed").await;
    let answer = session.ask("tasks/result", json!({"taskId": task})).await;
    assert_eq!(answer.status, 200);
    let error = r#""error":{"code":-32050,"message":"no such luck","data":{"z":1.10,"a":[]}}"#;
    assert!(answer.text.contains(error), "{}", answer.text);
    // What the tool itself calls an error is a result, which its client fetches.
    let (task, _) = session.task("fail", json!({})).await;
    session.until(&task, "completed").await;
    assert_eq!(session.result(&task).await["isError"], true);
    let (task, _) = session.task("big", json!({"bytes": 100_000})).await;
    let result = session.result(&task).await;
    assert_eq!(
        result["content"][0]["text"].as_str().unwrap().len(),
        100_000
    );
}

#[tokio::test]
async fn any_replica_reads_and_answers() {
    let pair = Pair::start(Era::Legacy, "").await;
    let at_a = Session::open(pair.at_a()).await;
    let at_b = at_a.at(pair.at_b());
    let (task, _) = at_a.task("ask", json!({})).await;
    at_b.until(&task, "input_required").await;
    let waiting = at_b.asking("tasks/result", json!({"taskId": task}));
    let mut waiting = waiting.stream().await;
    let question = waiting.next().await;
    assert_question(&question, &task);
    at_a.reply(&question, "result", accept("Ada")).await;
    assert_eq!(waiting.next().await["result"]["content"][0]["text"], "Ada");
    assert_eq!(at_b.result(&task).await["content"][0]["text"], "Ada");
    let (task, _) = at_b.task("held", json!({"nonce": "h"})).await;
    let cancelled = at_a.result_of("tasks/cancel", json!({"taskId": task}));
    assert_task(&cancelled.await, "cancelled");
}

#[tokio::test]
async fn a_question_on_the_session_s_stream_is_on_no_other_replica_s() {
    let mut pair = Pair::start(Era::Legacy, "").await;
    let at_a = Session::open(pair.at_a()).await;
    let at_b = at_a.at(pair.at_b());
    let mut news = at_a.listening().stream().await;
    let asked = async |news: &mut Stream| {
        let (task, _) = at_b.task("ask", json!({})).await;
        // A replica that was asked about the task tells of it.
        at_a.get(&task).await;
        let question = news.next_of("elicitation/create").await;
        assert_question(&question, &task);
        (task, question)
    };
    let (task, question) = asked(&mut news).await;
    let waiting = at_b.asking("tasks/result", json!({"taskId": task}));
    let mut waiting = waiting.stream().await;
    at_a.reply(&question, "result", accept("Ada")).await;
    assert_eq!(waiting.next().await["result"]["content"][0]["text"], "Ada");
    // What a replica has said that is no more is said by another.
    let (task, question) = asked(&mut news).await;
    pair.a.kill();
    let waiting = at_b.asking("tasks/result", json!({"taskId": task}));
    assert_eq!(waiting.stream().await.next().await, question);
}

#[tokio::test]
async fn a_question_where_the_result_is_waited_for_is_on_no_other_replica_s() {
    let pair = Pair::start(Era::Legacy, "").await;
    let at_a = Session::open(pair.at_a()).await;
    let at_b = at_a.at(pair.at_b());
    let (task, _) = at_b.task("ask", json!({})).await;
    let waiting = at_b.asking("tasks/result", json!({"taskId": task}));
    let mut waiting = waiting.stream().await;
    let question = waiting.next().await;
    assert_question(&question, &task);
    let mut news = at_a.listening().stream().await;
    at_a.get(&task).await;
    let (other, _) = at_b.task("ask", json!({})).await;
    at_a.get(&other).await;
    let asked = news.next_of("elicitation/create").await;
    assert_question(&asked, &other);
    at_b.reply(&question, "result", accept("Ada")).await;
    assert_eq!(waiting.next().await["result"]["content"][0]["text"], "Ada");
}

#[tokio::test]
async fn a_store_that_is_away_is_no_unknown_task() {
    let config = "read_patience = \"1s\"\ncreate_patience = \"1s\"";
    let pair = Pair::with(Era::Legacy, "", |c| c.store(config)).await;
    let session = Session::open(pair.at_a()).await;
    let (task, _) = session.task("held", json!({"nonce": "h"})).await;
    pair.redis.freeze();
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        let answer = session.ask(method, json!({"taskId": task})).await;
        assert_eq!(answer.refusal(), (503, -32603), "{method}");
    }
    let refused = session
        .call_as("echo", json!({"text": "x"}), json!({}))
        .await;
    assert_eq!(refused.refusal(), (503, -32603));
    pair.redis.thaw();
    session.until(&task, "cancelled").await;
}

#[tokio::test]
async fn a_drain_lets_go_of_who_waits() {
    let mut pair = Pair::start(Era::Legacy, "").await;
    let at_a = Session::open(pair.at_a()).await;
    let (task, _) = at_a.task("held", json!({"nonce": "h"})).await;
    let at_b = at_a.at(pair.at_b());
    let waiting = at_b.asking("tasks/result", json!({"taskId": task}));
    let mut waiting = waiting.stream().await;
    let stopping = Instant::now();
    pair.b.terminate();
    assert_eq!(waiting.next().await["error"]["code"], -32603);
    assert!(pair.b.ended().await.success());
    assert!(stopping.elapsed() < Duration::from_secs(15));
}

/// One place at A, which is taken, and nobody else to run what waits: the client may come again.
#[tokio::test]
async fn a_drain_lets_go_of_who_waits_for_what_was_left_to_others() {
    let config = |config: Config| {
        let drain = config.section("drain", "grace = \"6s\"");
        drain.section("upstream", "concurrency = 1\nshared = true")
    };
    let mut pair = Pair::with(Era::Modern, "", config).await;
    let at_a = Session::open(pair.at_a()).await;
    at_a.task("held", json!({"nonce": "h"})).await;
    pair.upstream.until_started("h").await;
    let params = json!({"name": "echo", "arguments": {"text": "x"}, "task": {}});
    let queued = at_a.result_of("tools/call", params).await;
    let task = queued["task"]["taskId"].as_str().unwrap().to_owned();
    let waiting = at_a.asking("tasks/result", json!({"taskId": task}));
    let mut waiting = waiting.stream().await;
    pair.b.kill();
    pair.a.terminate();
    assert_eq!(waiting.next_of_answer().await["error"]["code"], -32603);
}

#[tokio::test]
async fn a_result_that_is_lost_is_an_error_and_no_wait() {
    let pair = Pair::start(Era::Legacy, "").await;
    let session = Session::open(pair.at_a()).await;
    let (task, _) = session.task("big", json!({"bytes": 100_000})).await;
    session.until(&task, "completed").await;
    let mut store = pair.connect().await;
    let all: Vec<String> = redis::cmd("KEYS")
        .arg("*:x:*")
        .query_async(&mut store)
        .await
        .unwrap();
    assert_eq!(all.len(), 1, "{all:?}");
    let removed: u64 = redis::cmd("DEL")
        .arg(&all)
        .query_async(&mut store)
        .await
        .unwrap();
    assert_eq!(removed, 1);
    assert_eq!(
        session.code("tasks/result", json!({"taskId": task})).await,
        -32603
    );
}

#[tokio::test]
async fn a_tool_that_the_server_runs_as_a_task_only_is_like_any_other() {
    let config = Config::always().tool("o*", "mode = \"never\"");
    for (config, says) in [(Config::always(), "optional"), (config, "required")] {
        let rig = Rig::start(Era::Legacy, config).await;
        let session = Session::open(rig.client()).await;
        let tools = session.result_of("tools/list", json!({})).await;
        let tools = tools["tools"].as_array().unwrap();
        let only = tools.iter().find(|tool| tool["name"] == "only").unwrap();
        assert_eq!(only["execution"]["taskSupport"], says);
        let (task, _) = session.task("only", json!({})).await;
        let result = session.result(&task).await;
        assert_eq!(result["content"][0]["text"], "theirs");
        let plain = json!({"name": "only", "arguments": {}});
        let result = session.result_of("tools/call", plain).await;
        assert_eq!(result["content"][0]["text"], "theirs");
    }
}

#[tokio::test]
async fn such_a_tool_is_called_on_a_replica_that_showed_no_list() {
    let mut pair = Pair::start(Era::Legacy, "").await;
    let at_a = Session::open(pair.at_a()).await;
    at_a.ask("tools/list", json!({})).await;
    let plain = json!({"name": "only", "arguments": {}});
    let at_b = at_a.at(pair.at_b());
    let called = at_b.result_of("tools/call", plain.clone());
    assert_eq!(called.await["content"][0]["text"], "theirs");
    pair.a.kill();
    pair.a.restart().await;
    let back = at_a.at(pair.at_a());
    let called = back.result_of("tools/call", plain);
    assert_eq!(called.await["content"][0]["text"], "theirs");
}

#[tokio::test]
async fn a_server_s_own_tasks_are_the_client_s_where_the_operator_says_so() {
    let pass = Config::always().section("upstream", "native_tasks = \"pass\"");
    let rig = Rig::start(Era::Legacy, pass).await;
    let session = Session::open(rig.client()).await;
    let theirs = json!({"list": {}, "cancel": {}});
    assert_eq!(session.opened["capabilities"]["tasks"], theirs);
    let unknown = json!({"taskId": "theirs"});
    session.ask("tasks/get", unknown).await;
    assert_eq!(rig.upstream.requests("tasks/get").len(), 1);
    session.ask("tasks/list", json!({})).await;
    let named = Session::open(rig.client().named("Bearer ann")).await;
    named.ask("tasks/list", json!({})).await;
    named.task("echo", json!({"text": "x"})).await;
    let ours = named.result_of("tasks/list", json!({})).await;
    assert_eq!(ours["tasks"].as_array().unwrap().len(), 1);
    named.ask("tasks/list", json!({"cursor": "theirs"})).await;
    assert_eq!(rig.upstream.requests("tasks/list").len(), 3);
    let hidden = Rig::start(Era::Legacy, Config::always()).await;
    let session = Session::open(hidden.client()).await;
    session.code("tasks/get", json!({"taskId": "theirs"})).await;
    assert!(hidden.upstream.requests("tasks/get").is_empty());
}

/// However many there are.
#[tokio::test]
async fn a_page_of_the_list_reads_no_more_than_it_shows() {
    const TASKS: usize = 260;
    let redis = RedisServer::start();
    let rig = Rig::start(Era::Legacy, Config::always().redis(&redis.url())).await;
    let ann = Session::open(rig.client().named("Bearer ann")).await;
    let mut made = Vec::new();
    for _ in 0..TASKS {
        made.push(ann.task("echo", json!({"text": "x"})).await.0);
    }
    for task in &made {
        ann.until(task, "completed").await;
    }
    let reads = || -> usize {
        let mut asking = std::process::Command::new("redis-cli");
        asking.arg("-s").arg(redis.socket());
        let said = asking.args(["info", "commandstats"]).output().unwrap();
        let said = String::from_utf8(said.stdout).unwrap();
        let (_, rest) = said.split_once("cmdstat_hmget:calls=").unwrap();
        rest.split_once(',').unwrap().0.parse().unwrap()
    };
    let before = reads();
    let page = ann.result_of("tasks/list", json!({})).await;
    assert_eq!(page["tasks"].as_array().unwrap().len(), 100);
    let read = reads() - before;
    assert!(read < 150, "{read} records were read for one page");
    let (mut listed, mut cursor) = (Vec::new(), json!({}));
    loop {
        let page = ann.result_of("tasks/list", cursor).await;
        let tasks = page["tasks"].as_array().unwrap().iter();
        listed.extend(tasks.map(|task| task["taskId"].as_str().unwrap().to_owned()));
        let Some(next) = page.get("nextCursor") else {
            break;
        };
        cursor = json!({"cursor": next});
    }
    listed.sort();
    made.sort();
    assert_eq!(listed, made, "each once");
}

/// Of one task that cannot be read the others are told all the same.
#[tokio::test]
async fn a_task_that_cannot_be_read_is_left_out_of_the_list() {
    let redis = RedisServer::start();
    let rig = Rig::start(Era::Legacy, Config::always().redis(&redis.url())).await;
    let ann = Session::open(rig.client().named("Bearer ann")).await;
    let mut made = Vec::new();
    for _ in 0..3 {
        made.push(ann.task("echo", json!({"text": "x"})).await.0);
    }
    for task in &made {
        ann.until(task, "completed").await;
    }
    let broken = format!("{{suite:00}}:t:{}", made[1]);
    let _: i64 = ask(&mut redis.connect(), &["HSET", &broken, "d", "1 {"]);
    let page = ann.result_of("tasks/list", json!({})).await;
    let tasks = page["tasks"].as_array().unwrap().iter();
    let mut listed: Vec<_> = tasks.map(|task| task["taskId"].as_str().unwrap()).collect();
    listed.sort_unstable();
    let mut readable = [&*made[0], &*made[2]];
    readable.sort_unstable();
    assert_eq!(listed, readable);
}

/// Only the replica that heard `initialize` knows the version of a session whose client leaves the header out. What no other
/// version has says it, too.
#[tokio::test]
async fn a_replica_that_did_not_hear_the_version_takes_a_wish_for_a_task() {
    let pair = Pair::start(Era::Legacy, "").await;
    let at_a = Session::open(pair.at_a()).await;
    let at_b = at_a.at(pair.at_b());
    let unversioned = |method: &str, params: Value| {
        let request = at_b.asking(method, params);
        request.without("mcp-protocol-version").send()
    };
    let call = json!({"name": "echo", "arguments": {"text": "x"}, "task": {}});
    let made = unversioned("tools/call", call).await.into_result();
    let task = made["task"]["taskId"]
        .as_str()
        .unwrap_or_else(|| panic!("{made}"));
    let waited = json!({"taskId": task});
    let result = unversioned("tasks/result", waited.clone())
        .await
        .into_result();
    assert_eq!(result["content"][0]["text"], "x");
    let told = unversioned("tasks/get", waited).await.into_result();
    assert_eq!(told["status"], "completed");
    // Without such a word the server decides, as ever.
    let plain = json!({"name": "echo", "arguments": {"text": "y"}});
    let passed = unversioned("tools/call", plain).await.into_result();
    assert_eq!(passed["content"][0]["text"], "y");
}
