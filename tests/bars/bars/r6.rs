//! R6: Redis is frozen, or gone for a while. Everything that needs it is answered in time and honestly, everything else
//! does not notice, and no result of that time is lost.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{Call, Task, create, follow_all};
use crate::client::{Client, Heard};
use crate::rig::follow::{judge, look_again};
use crate::rig::{A, Plan, Rig, SLACK};
use crate::upstream::Flavour;
use crate::{Asked, Report};

/// Store commands are waited for so long, by the settings, before a refusal.
const GET_MAX: Duration = Duration::from_secs(6);
const CREATE_MAX: Duration = Duration::from_secs(3);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outage {
    Frozen(u64),
    Gone(u64),
}

pub(super) async fn run(asked: Asked, report: &mut Report) {
    let mut outages = vec![Outage::Frozen(6), Outage::Gone(6)];
    if asked.size > 0.5 {
        outages.push(Outage::Gone(30));
    }
    // One after the other: how long the rest of the traffic takes is measured.
    for (place, outage) in outages.into_iter().enumerate() {
        let flavour =
            Flavour::ALL[(place + usize::try_from(asked.seed.first() % 3).unwrap_or(0)) % 3];
        trial(outage, flavour, asked, report).await;
    }
}

async fn trial(outage: Outage, flavour: Flavour, asked: Asked, report: &mut Report) {
    let (Outage::Frozen(seconds) | Outage::Gone(seconds)) = outage;
    let length = Duration::from_secs(seconds);
    // The calls outlast the outage's end, or their results would have no time to be stored.
    let plan = Plan::of(flavour).lasting(length + Duration::from_secs(14), Duration::from_secs(32));
    let mut rig = plan.start().await;
    let name = format!("r6-{outage:?}-{flavour:?}");
    rig.settle().await;
    // They end evenly over the outage and shortly after.
    let n = asked.of(60, 20);
    let step = length / n;
    let running = (0..n).map(|n| {
        let lasts = Duration::from_millis(3_500) + step * n;
        let ms = u64::try_from(lasts.as_millis()).unwrap_or_default();
        Call::work(format!("{name}-{n}"), ms)
    });
    let (tasks, refused) = create(&rig.clients[A], running.collect()).await;
    report.zero("not_announced", refused);
    let control = rig.control(flavour).await;
    let unaffected = control.client();
    match outage {
        Outage::Frozen(_) => rig.redis.freeze(),
        Outage::Gone(_) => rig.redis.kill(),
    }
    let over = Instant::now() + length;
    let during = {
        let polls = polls(&rig.clients, &tasks, over);
        let creates = creates(&rig.clients, &name, over);
        let beside = beside(
            &rig,
            &unaffected,
            length.saturating_sub(Duration::from_millis(300)),
        );
        futures_util::future::join3(polls, creates, beside).await
    };
    tokio::time::sleep_until(over.into()).await;
    match outage {
        Outage::Frozen(_) => rig.redis.thaw(),
        Outage::Gone(_) => rig.redis.restart().await,
    }
    let (polls, created, beside) = during;
    polls.tell("poll", GET_MAX, report);
    let announced = created.tell("create", CREATE_MAX, report);
    latency(beside, asked, &name, report);
    after(&rig, &tasks, &announced, report).await;
    refused_never_ran(&rig, &created, report).await;
    rig.inspect(report);
}

/// Answers of an outage, and how long each took.
#[derive(Default)]
struct Answers(Vec<(String, Heard, Duration)>);

impl Answers {
    /// Tells what was wrong with them; what was announced all the same is returned.
    fn tell(&self, what: &str, most: Duration, report: &mut Report) -> Vec<Task> {
        let (mut late, mut denied, mut other) = (Vec::new(), Vec::new(), Vec::new());
        let mut announced = Vec::new();
        for (token, heard, took) in &self.0 {
            report.count(&format!("{what}s"), 1_u32);
            if *took >= most {
                late.push(format!("{token} after {} ms: {heard:?}", took.as_millis()));
            }
            if heard.is_unknown() {
                denied.push(format!("{token}: {heard:?}"));
            } else if !heard.is_outage() && !matches!(heard, Heard::Result(_)) {
                other.push(format!("{token}: {heard:?}"));
            }
            if let Some(id) = heard.task().filter(|_| what == "create") {
                let call = Call::work(token.clone(), 0);
                announced.push(Task { call, id });
            }
        }
        report.zero(&format!("{what}_late"), late);
        report.zero(&format!("{what}_denied"), denied);
        report.zero(&format!("{what}_otherwise"), other);
        announced
    }
}

async fn polls(clients: &[Client], tasks: &[Task], over: Instant) -> Answers {
    let mut answers = Answers::default();
    let mut turn = 0;
    // Answers that came only because the outage was over tell nothing of it.
    while Instant::now() + GET_MAX < over + Duration::from_secs(1) && turn < tasks.len() {
        let some = tasks[turn..]
            .iter()
            .take(8)
            .enumerate()
            .map(|(place, task)| async move {
                let began = Instant::now();
                let heard = clients[place % clients.len()].get(&task.id).await;
                (task.call.token.clone(), heard, began.elapsed())
            });
        answers.0.extend(futures_util::future::join_all(some).await);
        turn += 8;
    }
    answers
}

async fn creates(clients: &[Client], name: &str, over: Instant) -> Answers {
    let mut answers = Answers::default();
    while Instant::now() + CREATE_MAX < over + Duration::from_millis(500) {
        let round = answers.0.len();
        let some = (0..6).map(|n| async move {
            let call = Call::work(format!("{name}-during-{}", round + n), 0);
            let began = Instant::now();
            let heard = call.send(&clients[n % clients.len()]).await;
            (call.token, heard, began.elapsed())
        });
        answers.0.extend(futures_util::future::join_all(some).await);
    }
    answers
}

/// How long calls that need no task took, through the replica and through one that no outage reaches, in turns: what else
/// the machine does slows both.
#[derive(Default)]
struct Beside {
    through: Vec<u64>,
    control: Vec<u64>,
    failed: Vec<String>,
}

async fn beside(rig: &Rig, control: &Client, length: Duration) -> Beside {
    let until = Instant::now() + length;
    let mut found = Beside::default();
    let params = || json!({"name": "plain", "arguments": {"token": "beside", "ms": 0}});
    while Instant::now() < until {
        for (client, is_control) in [(control, true), (&rig.clients[A], false)] {
            let began = Instant::now();
            let heard = client.ask("tools/call", Some("plain"), params()).await;
            let took = began.elapsed().as_micros().try_into().unwrap_or(u64::MAX);
            if is_control {
                found.control.push(took);
            } else {
                found.through.push(took);
                if !matches!(heard, Heard::Result(_)) {
                    found.failed.push(format!("{heard:?}"));
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    found
}

fn latency(beside: Beside, asked: Asked, name: &str, report: &mut Report) {
    // A tenth has too few samples for the last one of a hundred.
    let percent = if asked.size > 0.5 { 99 } else { 95 };
    let slowest = |mut all: Vec<u64>| {
        all.sort_unstable();
        all.get(all.len() * percent / 100)
            .copied()
            .unwrap_or(u64::MAX)
    };
    report.count("beside", beside.through.len());
    let more = slowest(beside.through).saturating_sub(slowest(beside.control));
    if more > 10_000 {
        report.breaks(format!(
            "{name}: other traffic, p{percent}, grew by {more} us"
        ));
    }
    report.at_most("beside_more_us", more, 10_000);
    report.zero("beside_failed", beside.failed);
}

/// Every result of that time is stored, and was made once.
async fn after(rig: &Rig, tasks: &[Task], announced: &[Task], report: &mut Report) {
    let all: Vec<Task> = tasks.iter().chain(announced).cloned().collect();
    let mut seen = follow_all(rig, &all, Instant::now() + Duration::from_secs(12)).await;
    for (task, seen) in all.iter().zip(&mut seen) {
        look_again(&rig.clients, &task.id, seen).await;
        let token = &task.call.token;
        let entry = rig.book.of(token);
        report.count(seen.status(), 1_u32);
        report.zero("lost", std::mem::take(&mut seen.lost));
        report.zero("wrong", std::mem::take(&mut seen.wrong));
        let end = seen
            .end
            .as_ref()
            .map(|(end, _)| end.clone())
            .unwrap_or_default();
        report.zero("wrong", judge(token, &end, &entry).into_iter().collect());
        if seen.status() != "completed" {
            report.zero(
                "result_not_stored",
                vec![format!("{token}: {end}, the server knows {entry:?}")],
            );
        }
        if entry.runs > 1 {
            report.zero("reruns", vec![format!("{token}: {entry:?}")]);
        }
    }
}

/// What was refused was not begun, then or later.
async fn refused_never_ran(rig: &Rig, created: &Answers, report: &mut Report) {
    tokio::time::sleep(SLACK).await;
    let refused = created
        .0
        .iter()
        .filter(|(_, heard, _)| heard.task().is_none());
    let ran = refused.filter(|(token, ..)| rig.book.of(token).runs > 0);
    let ran = ran.map(|(token, heard, _)| format!("{token}: {heard:?}"));
    report.zero("refused_but_run", ran.collect());
}
