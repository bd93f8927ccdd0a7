//! R1: SIGKILL of the owner with calls in flight. Every task ends in time, nothing with side effects runs twice, what may
//! run again is run again.

use std::time::Instant;

use super::{Call, Task, create, follow_all, tokens};
use crate::rig::follow::{Seen, judge, look_again};
use crate::rig::{A, LEASE, MAX_DURATION, Plan, Rig, SLACK};
use crate::upstream::Flavour;
use crate::{Asked, Report};

/// Long enough to be in flight when the owner dies, short enough for a second run before the deadline.
const WORK_MS: u64 = 1_800;

pub(super) async fn run(asked: Asked, report: &mut Report) {
    let pair = Plan::of(Flavour::Plain).paired();
    let plans = Flavour::ALL.map(Plan::of).into_iter().chain([pair]);
    let (mut completed, mut missing) = (0_usize, Vec::new());
    // One after the other: how soon a task ends is measured.
    for (place, plan) in plans.enumerate() {
        let (mut rig, trial) = trial(asked, place, plan).await;
        report.zero("not_announced", trial.refused);
        let mut faults = Faults::default();
        for (task, seen) in trial.tasks.iter().zip(&trial.seen) {
            faults.of(&rig, task, seen, trial.killed);
            if task.call.tool == "read" {
                if seen.status() == "completed" {
                    completed += 1;
                } else {
                    let entry = rig.book.of(&task.call.token);
                    missing.push(format!("{}: {seen:?}, {entry:?}", task.call.token));
                }
            }
            report.count(&format!("{}_{}", task.call.tool, seen.status()), 1_u32);
        }
        faults.report(report);
        rig.inspect(report);
    }
    let readers = completed + missing.len();
    let least = (readers * 95).div_ceil(100) as u64;
    report.at_least_but("read_only_completed", completed, least, missing);
}

struct Trial {
    tasks: Vec<Task>,
    seen: Vec<Seen>,
    refused: Vec<String>,
    killed: Instant,
}

async fn trial(mut asked: Asked, place: usize, plan: Plan) -> (Rig, Trial) {
    let mut rig = plan.start().await;
    rig.settle().await;
    let n = asked.of(60, 12);
    let calls = (0..n).map(|n| {
        let token = format!("r1-{place}-{n}");
        if n % 2 == 0 {
            Call::work(token, WORK_MS)
        } else {
            Call::read(token, WORK_MS)
        }
    });
    let (tasks, refused) = create(&rig.clients[A], calls.collect()).await;
    rig.book.all_begun(&tokens(&tasks), SLACK).await;
    tokio::time::sleep(asked.seed.millis(0, 400)).await;
    rig.replicas[A].kill();
    let killed = Instant::now();
    if rig.upstreams.len() > 1 {
        // The pair comes back together, under the name that it had.
        rig.upstreams[A].kill_and_restart().await;
        rig.replicas[A].restart().await;
        rig.pair_up();
    }
    let mut seen = follow_all(&rig, &tasks, killed + MAX_DURATION + SLACK).await;
    for (task, seen) in tasks.iter().zip(&mut seen) {
        let standing = &rig.clients[1..];
        look_again(standing, &task.id, seen).await;
    }
    let trial = Trial {
        tasks,
        seen,
        refused,
        killed,
    };
    (rig, trial)
}

#[derive(Default)]
struct Faults {
    open: Vec<String>,
    late: Vec<String>,
    lost: Vec<String>,
    wrong: Vec<String>,
    twice: Vec<String>,
    often: Vec<String>,
}

impl Faults {
    fn of(&mut self, rig: &Rig, task: &Task, seen: &Seen, killed: Instant) {
        let token = &task.call.token;
        let entry = rig.book.of(token);
        self.lost.extend(seen.lost.iter().cloned());
        self.wrong.extend(seen.wrong.iter().cloned());
        let Some((end, at)) = &seen.end else {
            self.open
                .push(format!("{token}: {seen:?}, the server knows {entry:?}"));
            return;
        };
        self.wrong.extend(judge(token, end, &entry));
        let after = at.saturating_duration_since(killed);
        let reruns = task.call.tool == "read" && entry.runs > 1;
        if after > LEASE + SLACK && !reruns {
            self.late.push(format!(
                "{token} ended {} ms after the kill: {end}",
                after.as_millis()
            ));
        }
        if task.call.tool == "work" && entry.runs > 1 {
            self.twice.push(format!("{token}: {entry:?}"));
        }
        if entry.runs > 3 {
            self.often.push(format!("{token}: {entry:?}"));
        }
    }

    fn report(self, report: &mut Report) {
        report.zero("open", self.open);
        report.zero("late", self.late);
        report.zero("lost", self.lost);
        report.zero("wrong", self.wrong);
        report.zero("side_effects_twice", self.twice);
        report.zero("read_only_more_than_3", self.often);
    }
}
