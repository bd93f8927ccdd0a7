//! What a reader of the store learns, with and without `store.seal`.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::held;
use crate::redis_server::RedisServer;
use crate::restart::finished_tasks_survive;
use crate::support::client::{Client, Request, Task};
use crate::support::pair::{Pair, SEAL_KEY, record_key};
use crate::support::session::{NEWEST, Session, accept, initialize};
use crate::support::shape::assert_state;
use crate::support::{
    Config, Era, PATIENCE, Proxy, Rig, Upstream, base64, eventually, in_both_eras,
};

in_both_eras!(
    nothing_that_was_said_is_in_a_file,
    nothing_that_was_said_is_in_redis,
    a_sealed_file_is_read_after_a_restart,
    another_replica_carries_a_sealed_call_on,
    a_question_is_answered_at_another_replica,
);

/// What nobody may read.
const WORD: &str = "Kestrel9Zq7Marker";

const OTHER_KEY: &str = "4b5a69784b5a69781f2e3d4c5b6a79880f1e2d3c4b5a69781f2e3d4c5b6a7988";

fn sealing(key: &str) -> String {
    format!("seal = \"payloads\"\nseal_key = {key:?}")
}

/// The forms in which the word can be read in these bytes.
fn readable(bytes: &[u8]) -> BTreeSet<&'static str> {
    let contains = |part: &str| {
        bytes
            .windows(part.len())
            .any(|here| here == part.as_bytes())
    };
    let hex: Vec<String> = WORD.bytes().map(|byte| format!("{byte:02x}")).collect();
    let hex = hex.concat();
    let forms = [("as it is", WORD.to_owned()), ("as hex", hex)];
    let encoded = (0..3).map(|before| ("as base64", base64_from(before)));
    forms
        .into_iter()
        .chain(encoded)
        .filter(|(_, text)| contains(text))
        .map(|(form, _)| form)
        .collect()
}

/// What base64 makes of the word behind so many bytes, without what depends on its neighbours.
fn base64_from(before: usize) -> String {
    let text = [&vec![0; before][..], WORD.as_bytes()].concat();
    let whole = base64(&text[..text.len() / 3 * 3]);
    whole[if before == 0 { 0 } else { 4 }..].to_owned()
}

/// A call in which the client says the word wherever it can.
fn confiding(client: &Client, arguments: Value) -> Request {
    let call = client.calling("confide", arguments).edit(|message| {
        message["params"]["_meta"]["io.modelcontextprotocol/clientInfo"]["name"] = json!(WORD);
    });
    call.header("idempotency-key", &uuid::Uuid::new_v4().to_string())
}

/// Has the word said by client and server. Returns in which forms it was read in the store, which is looked at after each
/// step.
async fn say_everything(
    rig: &Rig,
    era: Era,
    store: impl Fn() -> Vec<u8>,
) -> BTreeSet<&'static str> {
    let client = rig.client().named(format!("Bearer {WORD}"));
    let mut read = BTreeSet::new();
    for (then, end) in [("", "completed"), ("error", "failed")] {
        let arguments = json!({"word": WORD, "then": then});
        let task = confiding(&client, arguments).send().await.into_task();
        let state = client.until(&task, "input_required").await;
        let key = state["inputRequests"]
            .as_object()
            .unwrap()
            .keys()
            .next()
            .unwrap();
        read.append(&mut readable(&store()));
        let answer = client.update(&task, json!({key: accept(WORD)})).await;
        answer.assert_acknowledged();
        let state = client.until(&task, end).await;
        assert!(
            state.to_string().contains(WORD),
            "the client reads it: {state}"
        );
        read.append(&mut readable(&store()));
    }
    let large = client
        .call("echo", json!({"text": WORD.repeat(4000)}))
        .await;
    client.until(&large.into_task(), "completed").await;
    read.append(&mut readable(&store()));
    match era {
        Era::Legacy => {
            let session = held::Session::open(client).await;
            let arguments = json!({"n": 1, "word": WORD});
            let mut stream = session.calling("steps", arguments).stream().await;
            held::primed(&mut stream).await;
            let step = stream.event().await.unwrap();
            assert!(step.message.to_string().contains(WORD));
            // Its client is gone, and the log of the call stays.
            drop(stream);
            read.append(&mut readable(&store()));
        }
        Era::Modern => {
            let mut hello = initialize(NEWEST, json!({"elicitation": {}}));
            hello["params"]["clientInfo"]["name"] = json!(WORD);
            let (_session, _) = Session::greeting(client, NEWEST, &hello).await;
            read.append(&mut readable(&store()));
        }
    }
    read
}

pub(crate) fn files_of(directory: &Path) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.append(&mut files_of(&path));
        } else if !path.ends_with("log") {
            all.append(&mut std::fs::read(&path).unwrap());
        }
    }
    all
}

async fn nothing_that_was_said_is_in_a_file(era: Era) {
    for (line, is_readable) in [("", true), ("seal = \"payloads\"", false)] {
        let rig = Rig::start(era, Config::always().embedded().store(line)).await;
        let directory = rig.proxy.directory.path();
        let read = say_everything(&rig, era, || files_of(directory)).await;
        assert_eq!(!read.is_empty(), is_readable, "{line:?}: {read:?}");
        assert!(!rig.proxy.log().contains(WORD));
    }
}

async fn nothing_that_was_said_is_in_redis(era: Era) {
    for (line, is_readable) in [(String::new(), true), (sealing(SEAL_KEY), false)] {
        let redis = RedisServer::with(&["--rdbcompression", "no"]);
        let mut connection = connection(&redis);
        let config = Config::always().redis(&redis.url()).store(&line);
        let rig = Rig::start(era, config).await;
        let dump = redis.socket().with_file_name("dump.rdb");
        let connection = std::cell::RefCell::new(&mut connection);
        let everything = || {
            redis::cmd("SAVE")
                .exec(&mut **connection.borrow_mut())
                .unwrap();
            std::fs::read(&dump).unwrap()
        };
        let read = say_everything(&rig, era, everything).await;
        assert_eq!(!read.is_empty(), is_readable, "{line:?}: {read:?}");
        assert!(!rig.proxy.log().contains(WORD));
    }
}

fn connection(redis: &RedisServer) -> redis::Connection {
    let client = redis::Client::open(redis.url()).unwrap();
    client.get_connection().unwrap()
}

async fn a_sealed_file_is_read_after_a_restart(era: Era) {
    let config = Config::always().embedded();
    finished_tasks_survive(era, config.clone().store("seal = \"payloads\"")).await;
    finished_tasks_survive(era, config.store(&sealing(SEAL_KEY))).await;
}

async fn sealed_pair(era: Era) -> Pair {
    Pair::with(era, "on_owner_lost = \"rerun\"", |config| {
        config
            .section("upstream", "shared = true")
            .store(&sealing(SEAL_KEY))
    })
    .await
}

async fn another_replica_carries_a_sealed_call_on(era: Era) {
    let mut pair = sealed_pair(era).await;
    let task = pair.at_a().call("held", json!({})).await.into_task();
    pair.upstream
        .until("held", "running", |tally| tally.started == 1)
        .await;
    pair.a.kill();
    pair.upstream.release("held");
    let state = pair.at_b().until(&task, "completed").await;
    assert_state(&state, "completed");
}

async fn a_question_is_answered_at_another_replica(era: Era) {
    let pair = sealed_pair(era).await;
    let task = pair.at_a().call("ask", json!({})).await.into_task();
    let state = pair.at_b().until(&task, "input_required").await;
    let key = state["inputRequests"]
        .as_object()
        .unwrap()
        .keys()
        .next()
        .unwrap();
    let answer = pair.at_b().update(&task, json!({key: accept("Ada")})).await;
    answer.assert_acknowledged();
    let state = pair.at_a().until(&task, "completed").await;
    assert_eq!(state["result"]["content"][0]["text"], "Ada");
}

/// The replicas get the new key one by one, and lose the old one when its tasks are gone.
#[tokio::test]
async fn a_key_is_changed_while_replicas_run() {
    let redis = RedisServer::start();
    let upstream = Upstream::start(Era::Modern).await;
    let replica = async |lines: String| -> Proxy {
        let config = Config::always().redis(&redis.url()).store(&lines);
        config.start(&upstream.url()).await
    };
    let echoed = async |proxy: &Proxy| -> Task {
        let client = Client::of(proxy.address());
        let task = client.call("echo", json!({"text": "x"})).await.into_task();
        client.until(&task, "completed").await;
        task
    };
    let get = async |proxy: &Proxy, task: &Task| {
        let client = Client::of(proxy.address());
        client.asking("tasks/get", task).send().await
    };
    let first = replica(sealing(SEAL_KEY)).await;
    let early = echoed(&first).await;
    let previous = format!("\nseal_key_previous = {SEAL_KEY:?}");
    let both = replica(sealing(OTHER_KEY) + &previous).await;
    let late = echoed(&both).await;
    let second = replica(sealing(OTHER_KEY)).await;
    for (proxy, task) in [
        (&first, &early),
        (&both, &early),
        (&both, &late),
        (&second, &late),
    ] {
        assert_state(&get(proxy, task).await.into_result(), "completed");
    }
    // Another replica may be able to answer.
    for (proxy, task) in [(&first, &late), (&second, &early)] {
        assert_eq!(get(proxy, task).await.refusal(), (503, -32603));
        let said = "sealed under a key that this replica does not have";
        proxy.until_said(said, 1).await;
    }
}

/// Whoever can write to the store cannot make a caller believe what raincheck did not write.
#[tokio::test]
async fn what_somebody_else_wrote_is_not_believed() {
    let mut pair = sealed_pair(Era::Modern).await;
    let client = pair.at_a().named("Bearer a");
    let mut tasks = Vec::new();
    for text in ["one", "two", "three", "four", "five"] {
        let task = client.call("echo", json!({"text": text})).await.into_task();
        client.until(&task, "completed").await;
        tasks.push(task);
    }
    let mut redis = connection(&pair.redis);
    let mut record = |task: &Task| -> Vec<u8> {
        let mut read = redis::cmd("HGET");
        read.arg(record_key(task)).arg("d");
        read.query(&mut redis).unwrap()
    };
    let (moved, mut altered) = (record(&tasks[0]), record(&tasks[2]));
    let last = altered.len() - 1;
    altered[last] ^= 1;
    let cut = altered[..40].to_vec();
    let plain = b"1 {}".to_vec();
    for (task, record) in [
        (&tasks[1], moved),
        (&tasks[2], altered),
        (&tasks[3], cut),
        (&tasks[4], plain),
    ] {
        let mut write = redis::cmd("HSET");
        write.arg(record_key(task)).arg("d").arg(record);
        write.exec(&mut redis).unwrap();
        let answer = client.asking("tasks/get", task).send().await;
        assert_eq!(answer.refusal(), (200, -32603));
        assert!(
            answer.text.contains("The task cannot be read"),
            "{}",
            answer.text
        );
    }
    pair.a
        .until_said("altered or moved after it was sealed", 3)
        .await;
    pair.a
        .until_said("something in the store is not sealed", 1)
        .await;
    assert_state(&client.get(&tasks[0]).await, "completed");
    assert!(pair.a.is_running());
}

/// `raincheck check` compares the key with that of the replicas that run.
#[tokio::test]
async fn the_check_says_whether_the_replicas_have_one_key() {
    let pair = sealed_pair(Era::Modern).await;
    for (key, said) in [
        (
            SEAL_KEY,
            "payloads, under store.seal_key, which the other replicas have, too",
        ),
        (OTHER_KEY, "another replica has another store.seal_key"),
    ] {
        eventually(PATIENCE, said, async || {
            let report = check(&pair, key).await;
            report.contains(said).then_some(()).ok_or(report)
        })
        .await;
    }
}

async fn check(pair: &Pair, key: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_raincheck"));
    command
        .args(["check", "--upstream", &pair.upstream.url()])
        .args(["--store", &pair.redis.url(), "--namespace", "suite"])
        .env("RAINCHECK_STORE__SEAL", "payloads")
        .env("RAINCHECK_STORE__SEAL_KEY", key);
    // The server that is asked runs on this thread.
    let checking = tokio::task::spawn_blocking(move || command.output());
    let checked = checking.await.unwrap().unwrap();
    String::from_utf8(checked.stdout).unwrap()
}
