//! R7: Redis is emptied, full, or has lost the end of its file. No crash, no key that stays for ever, nothing sent that
//! could not be kept, and all is well again without a restart.

use std::time::{Duration, Instant};

use super::{Call, Task, create, follow_all};
use crate::client::Heard;
use crate::eventually::try_eventually;
use crate::rig::follow::judge;
use crate::rig::{A, B, MAX_DURATION, Plan, Rig, SLACK};
use crate::upstream::Flavour;
use crate::{Asked, Report};

pub(super) async fn run(asked: Asked, report: &mut Report) {
    let flavour =
        |place: u64| Flavour::ALL[usize::try_from((asked.seed.first() + place) % 3).unwrap_or(0)];
    emptied(asked, flavour(0), report).await;
    full(asked, flavour(1), report).await;
    cut(asked, flavour(2), report).await;
}

async fn emptied(mut asked: Asked, flavour: Flavour, report: &mut Report) {
    let mut rig = Plan::of(flavour).start().await;
    rig.settle().await;
    for round in 0..asked.of(5, 2) {
        let calls = (0..20).map(|n| Call::work(format!("r7-empty-{round}-{n}"), 100 * n));
        let (tasks, refused) = create(&rig.clients[A], calls.collect()).await;
        report.zero("not_announced", refused);
        tokio::time::sleep(asked.seed.millis(100, 1_200)).await;
        let _: String = rig.redis.ask(&["FLUSHALL"]).await;
        // What ends now must not bring a part of a record back.
        tokio::time::sleep(Duration::from_secs(2)).await;
        eternal(&rig, "emptied", report).await;
        for task in &tasks {
            let heard = rig.clients[B].get(&task.id).await;
            let fair = heard.is_unknown() || matches!(heard, Heard::Result(_));
            report.zero(
                "emptied_otherwise",
                (!fair).then(|| format!("{heard:?}")).into_iter().collect(),
            );
            let runs = rig.book.of(&task.call.token).runs;
            report.zero(
                "runs_too_many",
                (runs > 1)
                    .then(|| task.call.token.clone())
                    .into_iter()
                    .collect(),
            );
        }
        recovers(&rig, &format!("r7-empty-{round}-after"), report).await;
    }
    rig.inspect(report);
}

async fn full(asked: Asked, flavour: Flavour, report: &mut Report) {
    let mut rig = Plan::of(flavour).start().await;
    rig.settle().await;
    let running = (0..asked.of(40, 10)).map(|n| Call::work(format!("r7-full-{n}"), 1_500));
    let (tasks, refused) = create(&rig.clients[A], running.collect()).await;
    report.zero("not_announced", refused);
    let used = rig.redis.info("memory", "used_memory").await;
    // Well below what is used: nothing that is freed meanwhile makes room.
    let most = (used / 2).to_string();
    let _: String = rig.redis.ask(&["CONFIG", "SET", "maxmemory", &most]).await;
    let calls = (0..20_u32).map(|n| Call::work(format!("r7-refused-{n}"), 0));
    let (announced, refused) = create(&rig.clients[B], calls.collect()).await;
    report.at_least("full_refused", refused.len(), 20);
    report.zero(
        "full_announced",
        announced
            .iter()
            .map(|task| task.call.token.clone())
            .collect(),
    );
    let other = refused
        .into_iter()
        .filter(|why| !(why.contains("503") && why.contains("-32603")));
    report.zero("full_refused_otherwise", other.collect());
    for task in &tasks {
        let heard = rig.clients[B].get(&task.id).await;
        let fair = matches!(heard, Heard::Result(_));
        report.zero(
            "full_unreadable",
            (!fair).then(|| format!("{heard:?}")).into_iter().collect(),
        );
    }
    // The calls end while there is no room for their results.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let _: String = rig.redis.ask(&["CONFIG", "SET", "maxmemory", "0"]).await;
    let seen = follow_all(&rig, &tasks, Instant::now() + MAX_DURATION + SLACK).await;
    for (task, seen) in tasks.iter().zip(seen) {
        ended(&rig, task, &seen, report);
    }
    let ran = (0..20_u32).map(|n| format!("r7-refused-{n}"));
    let ran = ran.filter(|token| rig.book.of(token).runs > 0);
    report.zero("refused_but_run", ran.collect());
    eternal(&rig, "full", report).await;
    recovers(&rig, "r7-full-after", report).await;
    rig.inspect(report);
}

async fn cut(asked: Asked, flavour: Flavour, report: &mut Report) {
    let mut rig = Plan::of(flavour).start().await;
    rig.settle().await;
    // None ends before the cut: what is cut off are the last tasks themselves.
    let ms = |n| 1_000 + 20 * u64::from(n);
    let calls = (0..asked.of(60, 20)).map(|n| Call::work(format!("r7-cut-{n}"), ms(n)));
    let (tasks, refused) = create(&rig.clients[A], calls.collect()).await;
    report.zero("not_announced", refused);
    rig.redis.kill();
    rig.redis.cut_tail(5_000);
    rig.redis.restart().await;
    // What the lost bytes said is unknown now; what was kept ends.
    let seen = follow_all(&rig, &tasks, Instant::now() + MAX_DURATION + SLACK).await;
    let cut_off = seen.iter().filter(|seen| !seen.lost.is_empty()).count();
    report.at_least("cut_off", cut_off, 1);
    for (task, seen) in tasks.iter().zip(seen) {
        if seen.lost.is_empty() {
            ended(&rig, task, &seen, report);
        }
        let runs = rig.book.of(&task.call.token).runs;
        report.zero(
            "runs_too_many",
            (runs > 1)
                .then(|| task.call.token.clone())
                .into_iter()
                .collect(),
        );
    }
    eternal(&rig, "cut", report).await;
    recovers(&rig, "r7-cut-after", report).await;
    rig.inspect(report);
}

fn ended(rig: &Rig, task: &Task, seen: &crate::rig::follow::Seen, report: &mut Report) {
    let token = &task.call.token;
    let entry = rig.book.of(token);
    report.count(seen.status(), 1_u32);
    report.zero("wrong", seen.wrong.clone());
    match &seen.end {
        Some((end, _)) => report.zero("wrong", judge(token, end, &entry).into_iter().collect()),
        None => report.zero(
            "open",
            vec![format!("{token}: {seen:?}, the server knows {entry:?}")],
        ),
    }
}

/// Only what is named may stay for ever.
async fn eternal(rig: &Rig, when: &str, report: &mut Report) {
    let keys = rig.redis.eternal().await;
    let others = keys.into_iter().filter(|key| !super::r8::is_fixed(key));
    report.zero(
        "eternal_keys",
        others.map(|key| format!("{when}: {key}")).collect(),
    );
}

/// Both replicas take a call, carry it to its end and tell each other of it.
async fn recovers(rig: &Rig, name: &str, report: &mut Report) {
    for (place, client) in rig.clients.iter().enumerate() {
        let mut n = 0;
        let taken = || {
            let call = Call::work(format!("{name}-{place}-{n}"), 50);
            n += 1;
            async move {
                let heard = call.send(client).await;
                heard.task().ok_or_else(|| format!("{heard:?}"))
            }
        };
        let id = match try_eventually(SLACK, taken).await {
            Ok(id) => id,
            Err(heard) => {
                report.breaks(format!("{name}: replica {place} did not recover: {heard}"));
                continue;
            }
        };
        let seen = crate::rig::follow::follow(&rig.clients, &id, Instant::now() + SLACK).await;
        report.count("recovered", 1_u32);
        if seen.status() != "completed" {
            report.breaks(format!("{name}: replica {place} did not recover: {seen:?}"));
        }
    }
}
