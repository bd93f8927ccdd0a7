//! R2: the replicas are killed in turns while tasks are created without pause. No announced task is lost, run twice or
//! given a wrong result.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::Call;
use crate::book::{Book, Entry};
use crate::client::{Client, Heard};
use crate::rig::follow::{Seen, follow, judge, look_again};
use crate::rig::{LEASE, MAX_DURATION, Plan, SLACK};
use crate::seed::Seed;
use crate::upstream::Flavour;
use crate::{Asked, Report};

/// Between two creations.
const PACE: Duration = Duration::from_millis(11);

pub(super) async fn run(mut asked: Asked, report: &mut Report) {
    let flavour = Flavour::ALL[usize::try_from(asked.seed.between(0, 3)).unwrap_or_default()];
    let mut rig = Plan::of(flavour).start().await;
    rig.settle().await;
    let clients: Arc<[Client]> = rig.clients.clone().into();
    let creating = create(
        asked.of(7_000, 700),
        asked.seed,
        Arc::clone(&clients),
        rig.book.clone(),
    );
    let mut creating = tokio::spawn(creating);
    let mut kills = 0_u32;
    for turn in 0..asked.of(50, 5) {
        tokio::time::sleep(asked.seed.millis(300, 2_200)).await;
        let replica = &mut rig.replicas[turn as usize % 2];
        replica.kill();
        tokio::time::sleep(asked.seed.millis(0, 300)).await;
        replica.restart().await;
        kills += 1;
    }
    report.count("kills", kills);
    let lives = (&mut creating).await.expect("the creator");
    tell(&lives, &rig.book, report);
    // Of those that were asked for, some met a replica that was down.
    let acknowledged = lives.iter().filter(|life| life.seen.is_some()).count();
    report.at_least("tasks", acknowledged, u64::from(asked.of(5_000, 500)));
    rig.inspect(report);
}

/// One call from its request to its end.
struct Life {
    call: Call,
    heard: Heard,
    seen: Option<Seen>,
    entry: Entry,
}

async fn create(n: u32, mut seed: Seed, clients: Arc<[Client]>, book: Book) -> Vec<Life> {
    let mut lives = JoinSet::new();
    let mut pace = tokio::time::interval(PACE);
    for n in 0..n {
        pace.tick().await;
        let ms = seed.between(0, 250);
        let call = match seed.between(0, 4) {
            0 => Call::read(format!("r2-{n}"), ms),
            _ => Call::work(format!("r2-{n}"), ms),
        };
        let (clients, book) = (Arc::clone(&clients), book.clone());
        lives.spawn(async move { live(call, n as usize, &clients, &book).await });
    }
    lives.join_all().await
}

async fn live(call: Call, turn: usize, clients: &[Client], book: &Book) -> Life {
    let heard = call.send(&clients[turn % clients.len()]).await;
    let mut seen = None;
    if let Some(id) = heard.task() {
        // Its owner, and who looked for it, may both have been killed: the deadline ends it then.
        let deadline = Instant::now() + MAX_DURATION + LEASE + SLACK * 2;
        let mut all = follow(clients, &id, deadline).await;
        look_again(clients, &id, &mut all).await;
        seen = Some(all);
    }
    let entry = book.of(&call.token);
    Life {
        call,
        heard,
        seen,
        entry,
    }
}

fn tell(lives: &[Life], book: &Book, report: &mut Report) {
    let (mut open, mut lost, mut wrong, mut twice, mut refused) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for life in lives {
        let token = &life.call.token;
        let entry = book.of(token);
        let most = if life.call.tool == "work" { 1 } else { 3 };
        if entry.runs > most {
            twice.push(format!("{token} ({}): {entry:?}", life.call.tool));
        }
        let Some(seen) = &life.seen else {
            let fair = matches!(life.heard, Heard::Broken(_)) || life.heard.is_outage();
            report.count("refused", 1_u32);
            if !fair {
                refused.push(format!("{token}: {:?}", life.heard));
            }
            continue;
        };
        report.count("acknowledged", 1_u32);
        report.count(seen.status(), 1_u32);
        lost.extend(seen.lost.iter().map(|how| format!("{token}: {how}")));
        wrong.extend(seen.wrong.iter().map(|how| format!("{token}: {how}")));
        match &seen.end {
            Some((end, _)) => wrong.extend(judge(token, end, &life.entry)),
            None => open.push(format!("{token}: {seen:?}, the server knows {entry:?}")),
        }
    }
    report.zero("open", open);
    report.zero("lost", lost);
    report.zero("wrong", wrong);
    report.zero("runs_too_many", twice);
    report.zero("refused_otherwise", refused);
}
