//! R12: a call goes on where its stream was cut, where its owner died, and where nothing was in flight.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::r11::until_asked;
use super::{Call, Task, create, follow_all, tokens};
use crate::rig::follow::{Seen, judge};
use crate::rig::{A, B, LEASE, MAX_DURATION, Plan, Rig, SLACK};
use crate::upstream::Flavour;
use crate::{Asked, Report};

pub(super) async fn run(asked: Asked, report: &mut Report) {
    let found = futures_util::future::join3(cut(asked), adopted(asked), waiting(asked)).await;
    report.join(found.0);
    report.join(found.1);
    report.join(found.2);
}

/// The server closes streams of calls that run on; the owner reads on behind its last event.
async fn cut(mut asked: Asked) -> Report {
    let mut report = Report::default();
    let mut rig = Plan::of(Flavour::Resumable).start().await;
    let n = asked.of(60, 12);
    let calls = (0..n).map(|n| Call::work(format!("r12-cut-{n}"), 1_000 + 20 * u64::from(n)));
    let (tasks, refused) = create(&rig.clients[A], calls.collect()).await;
    report.zero("not_announced", refused);
    rig.book.all_begun(&tokens(&tasks), SLACK).await;
    for _ in 0..2 {
        tokio::time::sleep(asked.seed.millis(100, 400)).await;
        for task in &tasks {
            rig.upstreams[0].cut(&task.call.token);
        }
    }
    let seen = follow_all(&rig, &tasks, Instant::now() + MAX_DURATION + SLACK).await;
    let completed = judge_all(&rig, &tasks, seen, "cut", &mut report);
    report.at_least("cut_completed", completed, tasks.len() as u64);
    rig.inspect(&mut report);
    report
}

/// The owner is killed while the calls run at a server that keeps their events.
async fn adopted(mut asked: Asked) -> Report {
    let mut report = Report::default();
    let mut rig = Plan::of(Flavour::Resumable).start().await;
    rig.settle().await;
    let n = asked.of(60, 20);
    // Some end before anybody has adopted them, some after; some ask then.
    let calls = (0..n).map(|n| {
        let call = Call::work(
            format!("r12-adopted-{n}"),
            1_000 + 80 * u64::from(n * 60 / 60.max(n)),
        );
        call.asking(u32::from(n % 10 == 9))
    });
    let (tasks, refused) = create(&rig.clients[A], calls.collect()).await;
    report.zero("not_announced", refused);
    rig.book.all_begun(&tokens(&tasks), SLACK).await;
    tokio::time::sleep(asked.seed.millis(200, 700)).await;
    rig.replicas[A].kill();
    rig.clients.remove(A);
    // Any replica takes the answers, and they reach the server once the task has an owner again.
    for task in tasks.iter().filter(|task| task.call.ask > 0) {
        if let Err(why) = answer_all(&rig, &task.id).await {
            report.zero("adopted_questions_lost", vec![why]);
        }
    }
    let seen = follow_all(&rig, &tasks, Instant::now() + MAX_DURATION + SLACK).await;
    let completed = judge_all(&rig, &tasks, seen, "adopted", &mut report);
    report.at_least(
        "adopted_completed",
        completed,
        (tasks.len() as u64 * 9).div_ceil(10),
    );
    rig.inspect(&mut report);
    report
}

/// A modern server waits for answers: nothing is in flight, and the death of the owner does not matter.
async fn waiting(asked: Asked) -> Report {
    let mut report = Report::default();
    let mut rig = Plan::of(Flavour::Modern).start().await;
    rig.settle().await;
    let calls = (0..asked.of(60, 12))
        .map(|n| Call::work(format!("r12-waiting-{n}"), 100).asking(1 + n % 2));
    let (tasks, refused) = create(&rig.clients[A], calls.collect()).await;
    report.zero("not_announced", refused);
    for task in &tasks {
        if let Err(why) = until_asked(&rig.clients[B], &task.id, task.call.ask as usize).await {
            report.zero("waiting_lost", vec![why]);
        }
    }
    rig.replicas[A].kill();
    rig.clients.remove(A);
    // Half at once, half after the lease has ended.
    for (place, task) in tasks.iter().enumerate() {
        if place == tasks.len() / 2 {
            tokio::time::sleep(LEASE + Duration::from_millis(1_200)).await;
        }
        if let Err(why) = answer_all(&rig, &task.id).await {
            report.zero("waiting_lost", vec![why]);
        }
    }
    let seen = follow_all(&rig, &tasks, Instant::now() + MAX_DURATION).await;
    let completed = judge_all(&rig, &tasks, seen, "waiting", &mut report);
    report.at_least("waiting_completed", completed, tasks.len() as u64);
    rig.inspect(&mut report);
    report
}

/// Answers every question that the task asks, at the replica that is left.
async fn answer_all(rig: &Rig, id: &str) -> Result<(), String> {
    let heard = rig.clients[0].get(id).await;
    let crate::client::Heard::Result(state) = &heard else {
        return Err(format!("{id}: {heard:?}"));
    };
    let keys = state["inputRequests"].as_object().into_iter().flatten();
    let accept = json!({"action": "accept", "content": {"name": "x"}});
    let answers: Value = keys.map(|(key, _)| (key.clone(), accept.clone())).collect();
    let ack = rig.clients[0].update(id, answers).await;
    if ack.is_acknowledged() {
        Ok(())
    } else {
        Err(format!("{id}: {ack:?}"))
    }
}

/// How many completed; whatever became of the others, it is honest and was run once.
fn judge_all(rig: &Rig, tasks: &[Task], seen: Vec<Seen>, part: &str, report: &mut Report) -> usize {
    let mut completed = 0;
    for (task, seen) in tasks.iter().zip(seen) {
        let token = &task.call.token;
        let entry = rig.book.of(token);
        completed += usize::from(seen.status() == "completed");
        report.zero(&format!("{part}_lost"), seen.lost.clone());
        report.zero(&format!("{part}_wrong"), seen.wrong.clone());
        let Some((end, _)) = &seen.end else {
            let open = format!("{token}: {seen:?}, the server knows {entry:?}");
            report.zero(&format!("{part}_open"), vec![open]);
            continue;
        };
        let wrong = judge(token, end, &entry).into_iter().collect();
        report.zero(&format!("{part}_wrong"), wrong);
        if seen.status() != "completed" {
            report.count(&format!("{part}_not_completed"), 1_u32);
        }
        if entry.runs > 1 {
            report.zero(
                &format!("{part}_runs_too_many"),
                vec![format!("{token}: {entry:?}")],
            );
        }
    }
    completed
}
