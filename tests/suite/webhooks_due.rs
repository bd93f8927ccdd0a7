//! Thousands of webhooks that a dead receiver does not take keep no task from its deadline.

use std::time::Duration;

use serde_json::{Value, json};

use crate::fleet::ask;
use crate::redis_server::RedisServer;
use crate::support::answer::Task;
use crate::support::pair::record_key;
use crate::support::receiver::SECRET;
use crate::support::{Config, Era, Rig};

const DUE: &str = "{suite:00}:due";

/// How many webhooks wait.
const WAITING: usize = 5_000;

/// How much later than its deadline the task may end. A sweep comes each second.
const LATE: Duration = Duration::from_secs(5);

/// Copies the record of an ended task under many ids, each with a webhook that is overdue by a minute, and the record of
/// an open task under one more id. Its deadline comes in 3 seconds, and no replica carries it.
const FILL: &str = r#"
local now = redis.call('TIME')
now = now[1] * 1000
local function copy(from, number, key, value, due)
  local old = string.sub(from, -36)
  local id = string.sub(old, 1, 24) .. string.format('%012x', number)
  local to = string.gsub(from, '[^:]+$', '') .. id
  local record, found = string.gsub(redis.call('HGET', from, 'd'), '"' .. key .. '":%d+', '"' .. key .. '":' .. value)
  assert(found == 1, key)
  record = string.gsub(record, string.gsub(old, '%-', '%%-'), id)
  local all = redis.call('HMGET', from, 'r', 'w', 'c')
  redis.call('HSET', to, 'd', record, 'r', all[1], 'w', all[2], 'c', all[3])
  redis.call('PEXPIRE', to, 600000)
  redis.call('ZADD', KEYS[3], due, id)
  return id
end
for i = 1, tonumber(ARGV[1]) do
  local due = string.format('%.0f', now - 60000 + i)
  copy(KEYS[1], i, 'look_ms', due, due)
end
local due = string.format('%.0f', now + 3000)
return {copy(KEYS[2], 1, 'deadline_ms', due, due), due}
"#;

#[tokio::test]
async fn a_deadline_is_met_although_thousands_of_webhooks_are_due() {
    let redis = RedisServer::start();
    let notify = format!(
        "url = \"http://127.0.0.1:1/hook\"\nsecret = {SECRET:?}\nallow_private = true\n\
         states = [\"completed\"]"
    );
    let config = Config::always().redis(&redis.url());
    let rig = Rig::start(Era::Legacy, config.section("[notify]", &notify)).await;
    let client = rig.client();
    let ended = client.call("echo", json!({"text": "x"})).await.into_task();
    client.until(&ended, "completed").await;
    let open = client.call("never", json!({})).await.into_task();
    rig.upstream.until_started("never").await;
    let mut admin = redis.connect();
    let (ended, copied, waiting) = (record_key(&ended), record_key(&open), WAITING.to_string());
    let fill = ["EVAL", FILL, "3", &ended, &copied, DUE, &waiting];
    let (id, deadline_ms): (String, u64) = ask(&mut admin, &fill);
    let task = Task { id, ..open };
    let state = client.until(&task, "failed").await;
    let data = &state["error"]["data"];
    assert_eq!(data["io.raincheck/reason"], "deadline", "{state}");
    let record: String = ask(&mut admin, &["HGET", &record_key(&task), "d"]);
    let (_format, record) = record.split_once(' ').unwrap();
    let record: Value = serde_json::from_str(record).unwrap();
    let late_ms = record["updated_ms"].as_u64().unwrap() - deadline_ms;
    println!("the task ended {late_ms} ms after its deadline");
    assert!(u128::from(late_ms) <= LATE.as_millis(), "{late_ms} ms late");
    let left: usize = ask(&mut admin, &["ZCARD", DUE]);
    assert!(left > WAITING / 2, "the webhooks wait: {left}");
}
