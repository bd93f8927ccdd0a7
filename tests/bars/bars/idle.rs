//! What ten thousand silent tasks, and as many listeners, cost Redis: nothing that grows with them.

use std::time::Duration;

use serde_json::json;

use super::{Call, create};
use crate::client::{Client, Stream};
use crate::rig::{A, Plan, Rig};
use crate::upstream::Flavour;
use crate::{Asked, Report};

/// Task ids on one stream.
const EACH: usize = 500;

pub(super) async fn run(asked: Asked, report: &mut Report) {
    // Every open call and every stream is two descriptors here.
    let open = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit {
        current: open.maximum,
        ..open
    };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, raised);
    let hour = Duration::from_hours(1);
    let mut rig = Plan::of(Flavour::Modern).lasting(hour, hour).start().await;
    // One replica carries all calls, and no other process sends commands to Redis.
    rig.replicas.truncate(1);
    let n = asked.of(10_000, 1_000);
    let calls = (0..n).map(|n| Call::work(format!("idle-{n}"), 3_600_000));
    let (tasks, refused) = create(&rig.clients[A], calls.collect()).await;
    report.zero("not_announced", refused);
    report.count("tasks", tasks.len());
    let seconds = u64::from(asked.of(60, 10));
    // A window whose both edges meet a beat has one more than it has seconds.
    let beats = seconds + 1;
    let calm = measure(&rig, seconds).await;
    report.at_most("redis_calls_silent", calm, rig.redis.idle_calls_max * beats);
    let ids: Vec<String> = tasks.into_iter().map(|task| task.id).collect();
    let mut streams = Vec::new();
    for ids in ids.chunks(EACH) {
        match listen(&rig.clients[A], ids).await {
            Ok(stream) => streams.push(stream),
            Err(why) => report.breaks(why),
        }
    }
    report.count("listened_to", ids.len());
    let heard = measure(&rig, seconds).await;
    report.at_most(
        "redis_calls_listening",
        heard,
        rig.redis.idle_calls_max * beats,
    );
    report.count("seconds_each", seconds);
    drop(streams);
    rig.inspect(report);
}

/// An open stream that has said which tasks it watches.
async fn listen(client: &Client, ids: &[String]) -> Result<Stream, String> {
    let params = json!({"notifications": {"taskIds": ids}});
    let mut stream = client.stream("subscriptions/listen", params).await?;
    let first = tokio::time::timeout(Duration::from_secs(30), stream.next()).await;
    let first = first.ok().flatten().unwrap_or_default();
    let watched = first["params"]["notifications"]["taskIds"]
        .as_array()
        .map(Vec::len);
    if watched == Some(ids.len()) {
        Ok(stream)
    } else {
        Err(format!(
            "a subscription to {} tasks began with {first}",
            ids.len()
        ))
    }
}

/// The commands that Redis was asked in so many seconds, without those of looking.
async fn measure(rig: &Rig, seconds: u64) -> u64 {
    // What the tasks' creation still had to do is done by then.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let first = rig.redis.calls().await;
    let before = rig.redis.calls().await;
    let looking = before.saturating_sub(first);
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let asked = rig.redis.calls().await.saturating_sub(before);
    asked.saturating_sub(looking)
}
