//! R3: an owner that is stopped for longer than its lease wakes up among tasks that others have ended. What has ended
//! stays as it is.

use std::time::{Duration, Instant};

use super::{Call, create, follow_all, tokens};
use crate::rig::follow::{judge, look_again};
use crate::rig::{A, B, LEASE, Plan, SLACK};
use crate::upstream::Flavour;
use crate::{Asked, Report};

/// Tasks that one zombie carries.
const EACH: u32 = 10;

pub(super) async fn run(asked: Asked, report: &mut Report) {
    let rounds = asked.of(10, 3);
    // A round waits for leases most of the time: some at once.
    let mut all: Vec<u32> = (0..rounds).collect();
    while !all.is_empty() {
        let some = all.split_off(all.len().saturating_sub(5));
        let found =
            futures_util::future::join_all(some.into_iter().map(|round| trial(asked, round)));
        for one in found.await {
            report.count("repeats", EACH);
            one.into_report(report);
        }
    }
}

async fn trial(mut asked: Asked, round: u32) -> Found {
    let flavour = Flavour::ALL[round as usize % 3];
    let mut found = Found::default();
    let mut rig = Plan::of(flavour).start().await;
    rig.settle().await;
    // Some end while their owner is stopped, some just when it wakes, some long after.
    let calls = (0..EACH).map(|n| {
        let token = format!("r3-{round}-{n}");
        Call::work(token, [900, 6_300, 6_700, 7_400][n as usize % 4])
    });
    let (tasks, refused) = create(&rig.clients[A], calls.collect()).await;
    found.refused = refused;
    rig.book.all_begun(&tokens(&tasks), SLACK).await;
    tokio::time::sleep(asked.seed.millis(0, 300)).await;
    rig.replicas[A].freeze();
    let frozen = Instant::now();
    let standing = [rig.clients[B].clone()];
    rig.clients = standing.to_vec();
    let mut seen = follow_all(&rig, &tasks, frozen + LEASE + SLACK).await;
    tokio::time::sleep_until((frozen + LEASE + SLACK).into()).await;
    rig.replicas[A].thaw();
    let both = [rig.replicas[A].client(), rig.replicas[B].client()];
    // Until after the last of the calls: the zombie hears of every one of them.
    let until = Instant::now() + Duration::from_millis(2_500);
    while Instant::now() < until {
        for (task, seen) in tasks.iter().zip(&mut seen) {
            look_again(&both, &task.id, seen).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for (task, seen) in tasks.iter().zip(&seen) {
        let token = &task.call.token;
        let entry = rig.book.of(token);
        found.flips.extend(seen.wrong.iter().cloned());
        found.lost.extend(seen.lost.iter().cloned());
        found.flips.extend(
            seen.end
                .as_ref()
                .and_then(|(end, _)| judge(token, end, &entry)),
        );
        if seen.end.is_none() {
            found.open.push(format!("{token}: {seen:?}"));
        }
        if entry.runs > 1 {
            found.twice.push(format!("{token}: {entry:?}"));
        }
        found.ends.push(seen.status().to_owned());
    }
    rig.inspect(&mut found.rest);
    found
}

/// What one round found.
#[derive(Default)]
struct Found {
    refused: Vec<String>,
    flips: Vec<String>,
    lost: Vec<String>,
    open: Vec<String>,
    twice: Vec<String>,
    ends: Vec<String>,
    rest: Report,
}

impl Found {
    fn into_report(self, report: &mut Report) {
        report.zero("not_announced", self.refused);
        report.zero("terminal_changed_or_wrong", self.flips);
        report.zero("lost", self.lost);
        report.zero("open", self.open);
        report.zero("side_effects_twice", self.twice);
        for end in self.ends {
            report.count(&end, 1_u32);
        }
        report.join(self.rest);
    }
}
