//! A Redis that answers with errors: an idle replica asks it seldom, says why once, and goes on by
//! itself when it works again.

use redis::Connection;
use serde_json::json;

use crate::fleet::{Cluster, ask};
use crate::redis_server::RedisServer;
use crate::support::{Config, Era, PATIENCE, Rig, within};

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
    let again = async { while refused_reads(&mut admin) < 12 {} };
    within(PATIENCE, "it is read again and again", again).await;
    user(&mut admin, &["+hmget"]);
    stream.next_of("notifications/tasks").await;
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
    for node in &mut nodes {
        let _: String = ask(node, &["CLUSTER", "DELSLOTS", "16000"]);
    }
    let fails = async {
        for node in &mut nodes {
            while !ask::<String>(node, &["CLUSTER", "INFO"]).contains("cluster_state:fail") {}
        }
    };
    within(PATIENCE, "the cluster fails", fails).await;
    // Once every log was found to be refused.
    rig.proxy.until_said("a change log cannot be read", 1).await;
    is_quiet(&rig, &mut nodes, "CLUSTERDOWN").await;
    let _: String = ask(&mut nodes[2], &["CLUSTER", "ADDSLOTS", "16000"]);
    cluster.wait();
    works_again(&rig).await;
}

async fn as_a_user() -> (RedisServer, Rig) {
    let server = RedisServer::start();
    user(&mut server.connect(), &["on", ">pw", "~*", "&*", "+@all"]);
    let url = format!("{}&user=app&pass=pw", server.url());
    let config = Config::always().redis(&url);
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
        while client.call("echo", json!({"text": "x"})).await.status != 200 {}
        let task = client.call("echo", json!({"text": "x"})).await.into_task();
        client.until(&task, "completed").await;
    };
    within(PATIENCE, "tasks are made again", again).await;
}
