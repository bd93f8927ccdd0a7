//! R8: every key but the named ones has an expiry, at any moment; when the tasks have expired only those are left.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{Call, create, follow_all};
use crate::rig::{A, B, Plan, SLACK};
use crate::upstream::Flavour;
use crate::{Asked, Report};

/// What stays: what is true of the namespace for good.
const FOR_GOOD: &[&str] = &["{bars:meta}"];
/// What a service that runs keeps alive, beside it: its leases, and one index of deadlines and one change log a bucket.
const WHILE_IT_RUNS: &[&str] = &["{bars:live}", "{bars:00}:due", "{bars:00}:log"];

/// The beginning of the key with the fingerprint of the seal key, which a service that runs keeps alive, too.
const FINGERPRINT: &str = "{bars:00}:n:f";

/// The beginning of the keys with how long the tasks of tools take, which stay for a month after the last of them.
const DURATIONS: &str = "{bars:00}:n:p";

/// The key may be without an expiry.
pub(super) fn is_fixed(key: &str) -> bool {
    FOR_GOOD.contains(&key)
}

pub(super) async fn run(asked: Asked, report: &mut Report) {
    // The defaults at full size, a tenth of them at a tenth of it.
    let small = asked.size < 0.5;
    let (most, retention) = if small { (4, 4) } else { (8, 32) };
    let ttl = Duration::from_secs(most + retention);
    let plans = Flavour::ALL.map(|flavour| {
        Plan::of(flavour).lasting(Duration::from_secs(most), Duration::from_secs(retention))
    });
    let trials = plans
        .into_iter()
        .enumerate()
        .map(|(place, plan)| trial(asked, place, plan, ttl));
    for part in futures_util::future::join_all(trials).await {
        report.join(part);
    }
}

async fn trial(asked: Asked, place: usize, plan: Plan, ttl: Duration) -> Report {
    let mut report = Report::default();
    let mut rig = plan.start().await;
    let calls = (0..asked.of(100, 20)).map(|n| {
        let call = Call::work(format!("r8-{place}-{n}"), 40 * u64::from(n % 100));
        // Some wait for answers that never come, some are cancelled below, the rest complete.
        call.asking(u32::from(n % 5 == 0))
    });
    let (tasks, refused) = create(&rig.clients[A], calls.collect()).await;
    report.zero("not_announced", refused);
    for task in tasks.iter().skip(1).step_by(5) {
        let _ = rig.clients[B].cancel(&task.id).await;
    }
    if let Some(task) = tasks.first() {
        let _ = rig.clients[B]
            .update(&task.id, json!({"unknown": {"action": "accept"}}))
            .await;
    }
    let watching = Instant::now();
    while watching.elapsed() < Duration::from_secs(3) {
        hygiene(&rig, &mut report).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // An owner dies with calls in flight: what it leaves behind expires, too.
    let calls = (0..10).map(|n| Call::work(format!("r8-{place}-dying-{n}"), 60_000));
    let (dying, refused) = create(&rig.clients[A], calls.collect()).await;
    report.zero("not_announced", refused);
    rig.replicas[A].kill();
    rig.clients.remove(A);
    let seen = follow_all(
        &rig,
        &dying,
        Instant::now() + Duration::from_secs(10) + SLACK,
    )
    .await;
    report.zero(
        "open",
        seen.iter()
            .filter(|seen| seen.end.is_none())
            .map(|seen| format!("{seen:?}"))
            .collect(),
    );
    hygiene(&rig, &mut report).await;
    let over = watching + ttl + Duration::from_secs(33);
    tokio::time::sleep_until(over.into()).await;
    let left: Vec<String> = rig.redis.ask(&["KEYS", "*"]).await;
    report.count("keys_at_the_end", left.len());
    let stray = left
        .into_iter()
        .filter(|key| !is_fixed(key) && !WHILE_IT_RUNS.contains(&key.as_str()))
        .filter(|key| !key.starts_with(FINGERPRINT) && !key.starts_with(DURATIONS));
    report.zero("keys_left_over", stray.collect());
    report.at_most("keys_for_good", rig.redis.eternal().await.len(), 6);
    rig.inspect(&mut report);
    report
}

async fn hygiene(rig: &crate::rig::Rig, report: &mut Report) {
    let keys: u64 = rig.redis.ask(&["DBSIZE"]).await;
    report.count("keys_seen", keys);
    let eternal = rig
        .redis
        .eternal()
        .await
        .into_iter()
        .filter(|key| !is_fixed(key));
    report.zero("eternal_keys", eternal.collect());
}
