//! R9: any replica answers for any task, and a task is durable before its client hears of it.

use std::time::{Duration, Instant};

use super::{Call, create};
use crate::rig::follow::{Seen, follow};
use crate::rig::{A, B, LEASE, MAX_DURATION, Plan, SLACK};
use crate::upstream::Flavour;
use crate::{Asked, Report};

pub(super) async fn run(asked: Asked, report: &mut Report) {
    in_turns(asked, report).await;
    durable(asked, report).await;
}

/// Polls go round, as fast as they are answered.
async fn in_turns(mut asked: Asked, report: &mut Report) {
    let flavour = Flavour::ALL[usize::try_from(asked.seed.between(0, 3)).unwrap_or_default()];
    let mut rig = Plan::of(flavour).start().await;
    let n = asked.of(100, 20);
    let calls = (0..n).map(|n| Call::work(format!("r9-{n}"), 20 * u64::from(n % 50)));
    let (tasks, refused) = create(&rig.clients[A], calls.collect()).await;
    report.zero("not_announced", refused);
    let all = tasks.iter().map(|task| async {
        let mut seen = Seen::default();
        for turn in 0..10 {
            seen.take(&rig.clients[turn % 2].get(&task.id).await);
            tokio::time::sleep(Duration::from_millis(60)).await;
        }
        seen
    });
    for seen in futures_util::future::join_all(all).await {
        report.count("gets", 10_u32);
        report.at_most("gets_unanswered", seen.unanswered, 0);
        report.zero("not_found", seen.lost);
        report.zero("regressions", seen.wrong);
    }
    rig.inspect(report);
}

/// The replica is killed as soon as the announcement has arrived; the task is known to the other.
async fn durable(mut asked: Asked, report: &mut Report) {
    let flavour = Flavour::ALL[usize::try_from(asked.seed.between(0, 3)).unwrap_or_default()];
    let mut rig = Plan::of(flavour).start().await;
    let mut ids = Vec::new();
    for n in 0..asked.of(100, 10) {
        let place = if n % 2 == 0 { A } else { B };
        let heard = Call::work(format!("r9-durable-{n}"), 30_000)
            .send(&rig.clients[place])
            .await;
        rig.replicas[place].kill();
        let Some(id) = heard.task() else {
            report.zero("not_announced", vec![format!("{heard:?}")]);
            rig.replicas[place].restart().await;
            continue;
        };
        let found = rig.clients[1 - place].get(&id).await;
        let mut seen = Seen::default();
        seen.take(&found);
        report.count("announced", 1_u32);
        report.zero("not_durable", seen.lost);
        report.zero("not_durable", seen.wrong);
        report.at_most("gets_unanswered", seen.unanswered, 0);
        rig.replicas[place].restart().await;
        ids.push(id);
    }
    // The last tasks end, too, although no replica that carried them is left.
    let deadline = Instant::now() + MAX_DURATION + LEASE + SLACK;
    for id in ids.iter().rev().take(10) {
        let seen = follow(&rig.clients, id, deadline).await;
        report.zero(
            "open",
            seen.end
                .is_none()
                .then(|| format!("{seen:?}"))
                .into_iter()
                .collect(),
        );
    }
    rig.inspect(report);
}
