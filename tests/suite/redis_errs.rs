//! A Redis that answers with errors: an idle replica asks it seldom, says why once, and goes on by
//! itself when it works again.

use std::future::ready;
use std::io::Write as _;
use std::os::unix::net::UnixStream;

use redis::{Connection, cmd};
use serde_json::json;

use crate::fleet::{Cluster, ask};
use crate::redis_server::RedisServer;
use crate::support::{Config, Era, PATIENCE, Rig, eventually, within};

/// What a replica's own scripts do inside, and what this test asks.
const NOT_COUNTED: [&str; 8] = [
    "time", "zadd", "zrange", "pexpire", "info", "acl", "wait", "cluster",
];

/// Seconds that are counted.
const COUNTED: f64 = 8.0;

#[tokio::test]
async fn all_rights_are_taken_away() {
    an_acl_changes("-@all", "+@all", "NOPERM").await;
}

#[tokio::test]
async fn the_right_to_one_command_is_taken_away() {
    an_acl_changes("-zrangebyscore", "+zrangebyscore", "NOPERM").await;
}

/// Polls have used up the warnings about an outage before the sweeps begin to fail.
#[tokio::test]
async fn sweeps_that_fail_are_told_of_although_polls_fail_too() {
    let (server, rig) = as_a_user().await;
    let client = rig.client();
    let task = client.call("held", json!({})).await.into_task();
    let mut admin = server.connect();
    user(&mut admin, &["-hmget"]);
    for _ in 0..20 {
        let answer = client.asking("tasks/get", &task).send().await;
        assert_eq!(answer.refusal(), (503, -32603));
    }
    rig.proxy.until_said("a request for a task", 1).await;
    user(&mut admin, &["-zrangebyscore"]);
    rig.proxy.until_said("a sweep failed", 1).await;
    is_quiet(&rig, &mut [admin], "NOPERM").await;
    user(&mut server.connect(), &["+hmget", "+zrangebyscore"]);
    rig.proxy.until_said("sweeps work again", 1).await;
}

/// No record holds the question, so the server hears that nobody answers it.
#[tokio::test]
async fn a_question_that_the_store_does_not_take_is_told_with_the_cause() {
    let (server, rig) = as_a_user().await;
    let arguments = json!({"n": 1, "nonce": "q", "then": "ask"});
    let task = rig.client().call("steps", arguments).await.into_task();
    rig.upstream.until_started("q").await;
    user(&mut server.connect(), &["-hset"]);
    rig.upstream.release("q");
    let told = "a question of the server was refused, because the store did not take it";
    rig.proxy.until_said(told, 1).await;
    let log = rig.proxy.log();
    let line = log.lines().find(|line| line.contains(told)).unwrap();
    assert!(line.contains("can't run this command"), "{line}");
    user(&mut server.connect(), &["+hset"]);
    let ended = |state: &serde_json::Value| state["status"] != "working";
    rig.client().until_it(&task, "ended", ended).await;
}

#[tokio::test]
async fn the_right_to_the_change_log_is_taken_away() {
    an_acl_changes("-xread", "+xread", "NOPERM").await;
}

#[tokio::test]
async fn the_keys_are_taken_away() {
    an_acl_changes("resetkeys", "~*", "NOPERM").await;
}

/// With its connections, as where a password changes.
#[tokio::test]
async fn the_user_is_taken_away() {
    let (server, rig) = as_a_user().await;
    let mut admin = server.connect();
    let _: i64 = ask(&mut admin, &["ACL", "DELUSER", "app"]);
    is_quiet(&rig, &mut [admin], "WRONGPASS").await;
    let mut admin = server.connect();
    user(&mut admin, &["on", ">pw", "~*", "&*", "+@all"]);
    works_again(&rig).await;
}

/// The change log says that a task changed, and the task cannot be read for longer than is waited.
#[tokio::test]
async fn a_listener_hears_what_could_not_be_read() {
    let (server, rig) = as_a_user().await;
    let client = rig.client();
    let task = client.call("held", json!({})).await.into_task();
    let mut stream = client.listen(&[&task]).await;
    stream.next_of("notifications/tasks").await;
    let mut admin = server.connect();
    user(&mut admin, &["-hmget"]);
    let changed = ["XADD", "{suite:00}:log", "*", "i", &*task.id, "r", "9"];
    let _: String = ask(&mut admin, &changed);
    // So often only where the read is begun again.
    let again = || {
        let reads = refused_reads(&mut admin);
        ready(if reads < 12 { Err(reads) } else { Ok(()) })
    };
    eventually(PATIENCE, "it is read again and again", again).await;
    user(&mut admin, &["+hmget"]);
    stream.next_of("notifications/tasks").await;
}

/// The task ends while no record can be read.
#[tokio::test]
async fn a_stream_of_events_tells_what_it_could_not_read() {
    let config = Config::always().section("events", "enabled = true");
    let (server, rig) = as_a_user_with(config.section("telemetry", "log = \"debug\"")).await;
    let alice = rig.client().named("Bearer alice");
    let held = alice.call("held", json!({"nonce": "away"})).await;
    let task = held.into_task();
    rig.upstream.until_started("away").await;
    let asked = alice.request("events/stream", json!({"name": "raincheck.task.updated"}));
    let mut stream = asked.stream().await;
    assert_eq!(stream.next().await["method"], "notifications/events/active");
    let mut admin = server.connect();
    user(&mut admin, &["-hmget"]);
    rig.upstream.release("away");
    let looks = "a stream of events looks again";
    rig.proxy.until_said(looks, 1).await;
    user(&mut admin, &["+hmget"]);
    let told = stream.next_of("notifications/events/event").await;
    assert_eq!(told["params"]["data"]["taskId"], task.id, "{told}");
    assert_eq!(told["params"]["data"]["status"], "completed", "{told}");
}

/// Redis hangs, and the look that asks it is given a minute.
#[tokio::test]
async fn a_stream_of_events_beats_while_it_waits_for_the_store() {
    let server = RedisServer::start();
    let config = Config::always().redis(&server.url());
    let config = config.store("read_patience = \"60s\"");
    let config = config.section("events", "enabled = true");
    let rig = Rig::start(Era::Legacy, config).await;
    let alice = rig.client().named("Bearer alice");
    let asked = alice.request("events/stream", json!({"name": "raincheck.task.updated"}));
    let mut stream = asked.stream().await;
    assert_eq!(stream.next().await["method"], "notifications/events/active");
    server.freeze();
    // A beat is due 15 seconds after the last one.
    let beat = within(PATIENCE * 3 / 2, "a heartbeat", stream.next_or_end()).await;
    assert_eq!(beat.unwrap()["method"], "notifications/events/heartbeat");
    server.thaw();
}

/// Reads of a record that were refused.
fn refused_reads(server: &mut Connection) -> u64 {
    let stats: String = ask(server, &["INFO", "commandstats"]);
    let line = stats.lines().find(|line| line.starts_with("cmdstat_hmget"));
    let refused = line.and_then(|line| line.split_once("rejected_calls="));
    let refused = refused.and_then(|(_, rest)| rest.split(',').next());
    refused.map_or(0, |refused| refused.parse().unwrap())
}

/// All of the cluster refuses then, as Redis has it unless it is told otherwise.
#[tokio::test]
async fn a_slot_is_served_by_nobody() {
    let cluster = Cluster::start();
    let rig = Rig::start(Era::Legacy, Config::always().redis(&cluster.url())).await;
    let mut nodes: Vec<Connection> = cluster.nodes.iter().map(RedisServer::connect).collect();
    // The owner first. A node that still has word of the owner's from before takes the slot to be served again, and keeps to it.
    let fails = || {
        for node in nodes.iter_mut().rev() {
            let _ = cmd("CLUSTER").arg(&["DELSLOTS", "16000"]).exec(node);
        }
        let mut infos = nodes
            .iter_mut()
            .map(|node| ask::<String>(node, &["CLUSTER", "INFO"]));
        let serving = infos.find(|info| !info.contains("cluster_state:fail"));
        ready(serving.map_or(Ok(()), Err))
    };
    eventually(PATIENCE, "the cluster fails", fails).await;
    // Once every log was found to be refused.
    rig.proxy.until_said("a change log cannot be read", 1).await;
    is_quiet(&rig, &mut nodes, "CLUSTERDOWN").await;
    let _: String = ask(&mut nodes[2], &["CLUSTER", "ADDSLOTS", "16000"]);
    cluster.wait();
    works_again(&rig).await;
}

/// Redis was started again and still reads its file: it answers everything with LOADING.
#[tokio::test]
async fn the_file_is_still_read() {
    // Few bytes and a pause after each key, so that it answers meanwhile and takes its time.
    let slowly = [
        "--loading-process-events-interval-bytes",
        "1024",
        "--key-load-delay",
        "5000",
    ];
    let mut server = RedisServer::with(&slowly);
    let fill = "for i = 1, 20000 do redis.call('SET', 'other:' .. i, 'x') end return 'OK'";
    let _: String = ask(&mut server.connect(), &["EVAL", fill, "0"]);
    let config = Config::always().redis(&server.url());
    let config = config.tool("echo", "mode = \"never\"");
    let patience = "read_patience = \"300ms\"\ncreate_patience = \"300ms\"";
    let rig = Rig::start(Era::Legacy, config.store(patience)).await;
    let client = rig.client();
    let task = client
        .call("held", json!({"nonce": "before"}))
        .await
        .into_task();
    rig.upstream.until_started("before").await;
    let _: String = ask(&mut server.connect(), &["SAVE"]);
    server.kill();
    server.restart();
    rig.proxy.until_said("LOADING", 1).await;
    for _ in 0..4 {
        let (told, refused, passed) = tokio::join!(
            client.asking("tasks/get", &task).send(),
            client.call("held", json!({"nonce": "meanwhile"})),
            client.call("echo", json!({"text": "x"})),
        );
        assert_eq!(told.refusal(), (503, -32603));
        assert_eq!(refused.refusal(), (503, -32603));
        assert_eq!(passed.into_text(), "x");
    }
    assert_eq!(rig.upstream.tally("meanwhile").started, 0);
    let log = rig.proxy.log();
    // By the heartbeat and by the reader of the change log, however often they ask.
    let causes = log.lines().filter(|line| line.contains("LOADING"));
    let mut causes: Vec<_> = causes
        .filter_map(|line| line.split("WARN").nth(1))
        .collect();
    causes.sort_unstable();
    let told = causes.len();
    causes.dedup();
    assert!(told == causes.len() && told <= 3, "{log}");
    // Not by a client, which would wait until the file was read.
    let mut admin = UnixStream::connect(server.socket()).unwrap();
    admin.write_all(b"CONFIG SET key-load-delay 0\r\n").unwrap();
    rig.upstream.release("before");
    let answered = || async {
        let status = client.asking("tasks/get", &task).send().await.status;
        if status == 200 { Ok(()) } else { Err(status) }
    };
    eventually(PATIENCE, "the file is read", answered).await;
    client.until(&task, "completed").await;
    let again = client.call("slow", json!({"ms": 1})).await.into_task();
    client.until(&again, "completed").await;
    assert_eq!(rig.upstream.tally("before").started, 1);
}

async fn as_a_user() -> (RedisServer, Rig) {
    as_a_user_with(Config::always()).await
}

async fn as_a_user_with(config: Config) -> (RedisServer, Rig) {
    let server = RedisServer::start();
    user(&mut server.connect(), &["on", ">pw", "~*", "&*", "+@all"]);
    let url = format!("{}&user=app&pass=pw", server.url());
    let config = config.redis(&url);
    let config = config.store("read_patience = \"200ms\"");
    let rig = Rig::start(Era::Legacy, config).await;
    (server, rig)
}

fn user(admin: &mut Connection, rules: &[&str]) {
    let words: Vec<&str> = ["ACL", "SETUSER", "app"]
        .iter()
        .chain(rules)
        .copied()
        .collect();
    let _: String = ask(admin, &words);
}

async fn an_acl_changes(away: &str, back: &str, code: &str) {
    let (server, rig) = as_a_user().await;
    user(&mut server.connect(), &[away]);
    is_quiet(&rig, &mut [server.connect()], code).await;
    user(&mut server.connect(), &[back]);
    works_again(&rig).await;
}

/// Few commands and few lines, with the cause.
async fn is_quiet(rig: &Rig, servers: &mut [Connection], code: &str) {
    rig.proxy.until_said(code, 1).await;
    let before: u64 = servers.iter_mut().map(commands).sum();
    // By the server's clock: there is no replica that could answer sooner.
    let milliseconds = format!("{:.0}", COUNTED * 1000.0);
    let _: i64 = ask(&mut servers[0], &["WAIT", "1", &milliseconds]);
    let sent = servers.iter_mut().map(commands).sum::<u64>() - before;
    #[expect(clippy::cast_precision_loss, reason = "few")]
    let each_second = sent as f64 / COUNTED;
    println!("{each_second} commands a second");
    assert!(each_second <= 5.0, "{each_second} commands a second");
    let log = rig.proxy.log();
    let lines = log.lines().filter(|line| line.contains("WARN")).count();
    assert!(lines <= 3, "{log}");
}

/// All that it was sent, executed or not.
fn commands(server: &mut Connection) -> u64 {
    let stats: String = ask(server, &["INFO", "commandstats"]);
    let lines = stats
        .lines()
        .filter_map(|line| line.strip_prefix("cmdstat_"));
    let ours = lines.filter(|line| {
        let name = line.split(['|', ':']).next().unwrap_or_default();
        !NOT_COUNTED.contains(&name) || line.starts_with("cluster|slots")
    });
    let numbers = ours.flat_map(|line| line.split([',', ':']));
    let numbers = numbers.filter_map(|field| {
        let (name, number) = field.split_once('=')?;
        let counts = name == "calls" || name == "rejected_calls";
        counts.then(|| number.parse::<u64>().unwrap())
    });
    numbers.sum()
}

async fn works_again(rig: &Rig) {
    let client = rig.client();
    let again = async {
        let call = async || {
            let answer = client.call("echo", json!({"text": "x"})).await;
            answer.of_status(200)
        };
        eventually(PATIENCE, "a call is answered", call).await;
        let task = client.call("echo", json!({"text": "x"})).await.into_task();
        client.until(&task, "completed").await;
    };
    within(PATIENCE, "tasks are made again", again).await;
}
