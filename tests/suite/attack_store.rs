//! What somebody gets who can write to Redis, and has no seal key: everything that a raincheck without a seal keeps of its
//! calls is put into the store of two replicas that seal.

use std::collections::BTreeMap;

use redis::aio::MultiplexedConnection;
use serde_json::{Value, json};

use crate::redis_server::RedisServer;
use crate::support::answer::Task;
use crate::support::pair::{Pair, SEAL_KEY, record_key};
use crate::support::session::{NEWEST, Session};
use crate::support::shape::assert_state;
use crate::support::{Client, Config, Era, PATIENCE, Proxy, Upstream, eventually, in_both_eras};

in_both_eras!(
    what_is_planted_in_the_clear_is_neither_read_nor_run,
    a_seal_is_turned_on_under_load,
);

fn sealing(seal: &str) -> String {
    format!("seal = {seal:?}\nseal_key = {SEAL_KEY:?}")
}

fn config(seal: &str) -> Config {
    Config::always()
        .terms("on_owner_lost = \"rerun\"")
        .section("upstream", "shared = true")
        .section("admin", "listen = \"127.0.0.1:0\"")
        .tool("join", "attach = true")
        .store(&sealing(seal))
}

async fn pair(era: Era, seal: &str) -> Pair {
    Pair::of(Upstream::start(era).await, config(seal)).await
}

/// What the dead replicas of an unsealed service left behind.
struct Loot {
    /// Every key but those of the namespace as a whole.
    keys: BTreeMap<String, Vec<u8>>,
    /// The incarnations, with the ends of their leases.
    dead: Vec<(String, f64)>,
    running: Task,
    ended: Task,
    large: Task,
    asking: Task,
    session: Option<Session>,
}

const KEY: &str = "4f0e7d62-79d5-4e0b-a0a3-7b4f5f5b6a11";

fn keyed(client: &Client) -> crate::support::client::Request {
    let call = client.calling("echo", json!({"text": "forged"}));
    call.header("idempotency-key", KEY)
}

async fn left_in_the_clear(era: Era) -> Loot {
    let mut pair = pair(era, "off").await;
    let client = pair.at_a();
    let running = client.call("held", json!({})).await.into_task();
    pair.upstream.until_started("held").await;
    let ended = keyed(&client).send().await.into_task();
    let text = "forged".repeat(4000);
    let large = client.call("echo", json!({"text": text})).await.into_task();
    let asking = client.call("ask", json!({})).await.into_task();
    client.until(&ended, "completed").await;
    client.until(&large, "completed").await;
    client.until(&asking, "input_required").await;
    // A session of ours is in the store only in front of a modern server.
    let session = match era {
        Era::Legacy => None,
        Era::Modern => Some(Session::open(pair.at_a(), NEWEST).await),
    };
    pair.a.kill();
    pair.b.kill();
    let mut redis = pair.connect().await;
    let names: Vec<String> = redis::cmd("KEYS")
        .arg("*")
        .query_async(&mut redis)
        .await
        .unwrap();
    let mut keys = BTreeMap::new();
    for name in names {
        let is_of_all = [":live}", ":meta}", ":log"]
            .iter()
            .any(|end| name.ends_with(end));
        if !is_of_all {
            let dump = redis::cmd("DUMP").arg(&name).query_async(&mut redis).await;
            keys.insert(name, dump.unwrap());
        }
    }
    let mut read = redis::cmd("ZRANGE");
    read.arg("{suite:live}").arg(0).arg(-1).arg("WITHSCORES");
    let dead = read.query_async(&mut redis).await.unwrap();
    Loot {
        keys,
        dead,
        running,
        ended,
        large,
        asking,
        session,
    }
}

impl Loot {
    /// Puts everything into the store of these replicas, as if their own caller had made it.
    async fn plant(&self, pair: &Pair) {
        let mut redis = pair.connect().await;
        let own = pair
            .at_a()
            .call("echo", json!({"text": "own"}))
            .await
            .into_task();
        let caller = redis::cmd("HGET")
            .arg(record_key(&own))
            .arg("c")
            .query_async::<Vec<u8>>(&mut redis)
            .await
            .unwrap();
        for (key, dump) in &self.keys {
            let mut restore = redis::cmd("RESTORE");
            restore.arg(key).arg(600_000).arg(dump).arg("REPLACE");
            restore.exec_async(&mut redis).await.unwrap();
        }
        for task in [&self.running, &self.ended, &self.large, &self.asking] {
            self.take_over(&mut redis, task, &caller).await;
        }
        for (incarnation, until) in &self.dead {
            let mut add = redis::cmd("ZADD");
            add.arg("{suite:live}").arg(*until).arg(incarnation);
            add.exec_async(&mut redis).await.unwrap();
        }
    }

    async fn take_over(&self, redis: &mut MultiplexedConnection, task: &Task, caller: &[u8]) {
        let key = record_key(task);
        let mut read = redis::cmd("HGET");
        let record: String = read.arg(&key).arg("d").query_async(redis).await.unwrap();
        let (format, json) = record.split_once(' ').unwrap();
        let mut json: Value = serde_json::from_str(json).unwrap();
        json["caller"] = json!(caller);
        let record = format!("{format} {json}");
        let mut write = redis::cmd("HSET");
        write.arg(&key).arg("c").arg(caller).arg("d").arg(record);
        write.exec_async(redis).await.unwrap();
    }
}

/// How many values a replica refused, by this label.
async fn refused(proxy: &Proxy, labels: &str) -> u64 {
    let page = Client::of(proxy.operators().await)
        .page("/metrics")
        .await
        .body;
    let lines = page.lines().filter(|line| {
        line.starts_with("raincheck_store_refused_values_total{") && line.contains(labels)
    });
    let counts = lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap());
    counts.sum()
}

async fn what_is_planted_in_the_clear_is_neither_read_nor_run(era: Era) {
    let loot = left_in_the_clear(era).await;

    // The attack is a real one: replicas that still read what is in the clear run the call and show the result.
    let mixed = pair(era, "mixed").await;
    loot.plant(&mixed).await;
    mixed.upstream.until_started("held").await;
    let read = mixed.at_b().get(&loot.ended).await;
    assert_eq!(read["result"]["content"][0]["text"], "forged");
    drop(mixed);

    let pair = pair(era, "payloads").await;
    loot.plant(&pair).await;
    // Either of the two may find the call of the dead.
    let what = "the record of the dead is refused";
    let unread = format!("it stays until it expires task={}", &loot.running.id[..8]);
    eventually(PATIENCE, what, async || {
        let logs = [pair.a.log(), pair.b.log()].concat();
        if logs.contains(&unread) {
            Ok(())
        } else {
            Err(logs)
        }
    })
    .await;
    let client = pair.at_b();
    let was = refused(&pair.b, "why=\"clear\"").await;
    for task in [&loot.running, &loot.ended, &loot.large, &loot.asking] {
        for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
            let answer = client.asking(method, task);
            let answer = answer.edit(|it| it["params"]["inputResponses"] = json!({}));
            let answer = answer.send().await;
            assert_eq!(answer.refusal(), (200, -32603), "{method}: {}", answer.text);
        }
    }
    assert_eq!(
        refused(&pair.b, "why=\"clear\"").await,
        was + 12,
        "each one is counted"
    );
    assert!(refused(&pair.b, "what=\"record\"").await >= 12);
    // The key of a call that somebody else claimed, for a result of theirs.
    let answer = keyed(&client).send().await;
    assert!(!answer.text.contains("forged"), "{}", answer.text);
    if let Some(session) = &loot.session {
        let session = session.at(pair.at_a());
        let answer = session.request(2, "tools/list", json!({})).send().await;
        assert_eq!(answer.status, 404, "{}", answer.text);
    }
    assert_eq!(pair.upstream.tally("held").started, 0);
    assert_eq!(pair.upstream.tally("ask").asked, 0);
    let own = client
        .call("echo", json!({"text": "own"}))
        .await
        .into_task();
    assert_state(&client.until(&own, "completed").await, "completed");
}

/// One setting after the other, one replica after the other, while clients call at both.
async fn a_seal_is_turned_on_under_load(era: Era) {
    let redis = RedisServer::start();
    let upstream = Upstream::start(era).await;
    let replica = async |seal: &str, id: &str| -> Proxy {
        let replica = format!("lease = \"3s\"\nid = {id:?}");
        let config = config(seal)
            .section("replica", &replica)
            .redis(&redis.url());
        config.start(&upstream.url()).await
    };
    let mut replicas = [replica("off", "a").await, replica("off", "b").await];
    let mut calls = 0;
    for seal in ["mixed", "payloads"] {
        for number in [0, 1] {
            // The calls are made at both replicas, and read at the one that takes the place of the first.
            let (mut made, round) = (Vec::new(), format!("{seal} {number}"));
            for proxy in &replicas {
                for _ in 0..10 {
                    let client = Client::of(proxy.address());
                    let text = format!("call {calls}");
                    calls += 1;
                    let arguments = json!({"text": text});
                    made.push((client.call("echo", arguments).await.into_task(), text));
                    let slow = client
                        .call("held", json!({"nonce": round}))
                        .await
                        .into_task();
                    made.push((slow, String::new()));
                }
            }
            let id = ["a", "b"][number];
            let next = replica(seal, id).await;
            replicas[number].terminate();
            let client = Client::of(next.address());
            let own = client.call("echo", json!({"text": "next"})).await;
            made.push((own.into_task(), "next".to_owned()));
            upstream.release(&round);
            replicas[number].ended().await;
            replicas[number] = next;
            for (task, text) in made {
                for proxy in &replicas {
                    let client = Client::of(proxy.address());
                    let state = client.until(&task, "completed").await;
                    if !text.is_empty() {
                        assert_eq!(state["result"]["content"][0]["text"], *text);
                    }
                }
            }
        }
    }
    for proxy in &replicas {
        assert_eq!(refused(proxy, "why").await, 0);
    }
}

/// Whoever can read the store has no key to try the tokens of a dictionary with.
#[tokio::test]
async fn the_key_of_callers_is_not_in_the_clear() {
    let redis = RedisServer::start();
    let upstream = Upstream::start(Era::Modern).await;
    let client = redis::Client::open(redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut is_clear = async || {
        let mut read = redis::cmd("HEXISTS");
        read.arg("{suite:meta}").arg("caller_key");
        read.query_async::<bool>(&mut connection).await.unwrap()
    };
    let start = async |seal: &str| {
        config(seal)
            .redis(&redis.url())
            .start(&upstream.url())
            .await
    };
    let caller = |proxy: &Proxy| Client::of(proxy.address()).named("Bearer password1");

    let mut off = start("off").await;
    let task = caller(&off)
        .call("echo", json!({"text": "x"}))
        .await
        .into_task();
    caller(&off).until(&task, "completed").await;
    assert!(is_clear().await);
    assert!(off.stop().await.success());
    let mut mixed = start("mixed").await;
    assert_state(&caller(&mixed).get(&task).await, "completed");
    let sealed = caller(&mixed)
        .call("echo", json!({"text": "x"}))
        .await
        .into_task();
    caller(&mixed).until(&sealed, "completed").await;
    assert!(is_clear().await, "replicas that do not seal may need it");
    assert!(mixed.stop().await.success());
    let payloads = start("payloads").await;
    assert!(!is_clear().await);
    assert_state(&caller(&payloads).get(&sealed).await, "completed");
}
