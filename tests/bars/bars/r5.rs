//! R5: Redis is killed and started again under load. What was announced is still there, and what the server answered
//! reaches the task.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::Call;
use crate::book::Book;
use crate::client::{Client, Heard};
use crate::rig::follow::{Seen, follow, judge, look_again};
use crate::rig::{MAX_DURATION, Plan, SLACK};
use crate::seed::Seed;
use crate::upstream::Flavour;
use crate::{Asked, Report};

const PACE: Duration = Duration::from_millis(25);

pub(super) async fn run(mut asked: Asked, report: &mut Report) {
    let flavour = Flavour::ALL[usize::try_from(asked.seed.between(0, 3)).unwrap_or_default()];
    let mut rig = Plan::of(flavour).remembering().start().await;
    let clients: Arc<[Client]> = rig.clients.clone().into();
    let over = Arc::new(AtomicBool::new(false));
    let creating = create(
        Arc::clone(&over),
        asked.seed,
        Arc::clone(&clients),
        rig.book.clone(),
    );
    let creating = tokio::spawn(creating);
    for _ in 0..asked.of(20, 4) {
        tokio::time::sleep(asked.seed.millis(500, 1_800)).await;
        rig.redis.kill();
        tokio::time::sleep(asked.seed.millis(0, 700)).await;
        rig.redis.restart().await;
        report.count("kills", 1_u32);
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    over.store(true, Ordering::Relaxed);
    let lives = creating.await.expect("the creator");
    tell(&lives, &rig.book, report);
    let ends: Vec<_> = lives.iter().filter_map(|life| life.seen.as_ref()).collect();
    super::judge_history(&rig.history().await, &ends, report);
    rig.inspect(report);
}

struct Life {
    token: String,
    heard: Heard,
    seen: Option<Seen>,
}

async fn create(
    over: Arc<AtomicBool>,
    mut seed: Seed,
    clients: Arc<[Client]>,
    book: Book,
) -> Vec<Life> {
    let mut lives = JoinSet::new();
    let mut pace = tokio::time::interval(PACE);
    let mut n = 0_usize;
    while !over.load(Ordering::Relaxed) {
        pace.tick().await;
        n += 1;
        let call = Call::work(format!("r5-{n}"), seed.between(0, 600));
        let (clients, book) = (Arc::clone(&clients), book.clone());
        lives.spawn(async move { live(call, n, &clients, &book).await });
    }
    lives.join_all().await
}

async fn live(call: Call, turn: usize, clients: &[Client], book: &Book) -> Life {
    let heard = call.send(&clients[turn % clients.len()]).await;
    let mut seen = None;
    if let Some(id) = heard.task() {
        let deadline = Instant::now() + MAX_DURATION + SLACK * 2;
        let mut all = follow(clients, &id, deadline).await;
        look_again(clients, &id, &mut all).await;
        if let Some((end, _)) = &all.end {
            all.wrong
                .extend(judge(&call.token, end, &book.of(&call.token)));
        }
        seen = Some(all);
    }
    Life {
        token: call.token,
        heard,
        seen,
    }
}

fn tell(lives: &[Life], book: &Book, report: &mut Report) {
    let (mut open, mut lost, mut wrong, mut twice, mut refused) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut answered, mut completed, mut missed) = (0_u64, 0_u64, Vec::new());
    for Life { token, heard, seen } in lives {
        let entry = book.of(token);
        if entry.runs > 1 {
            twice.push(format!("{token}: {entry:?}"));
        }
        let Some(seen) = seen else {
            report.count("refused", 1_u32);
            if entry.runs > 0 || !heard.is_outage() {
                refused.push(format!("{token}: {heard:?}, the server knows {entry:?}"));
            }
            continue;
        };
        report.count("acknowledged", 1_u32);
        report.count(seen.status(), 1_u32);
        report.count("polls_unanswered", seen.unanswered);
        lost.extend(seen.lost.iter().map(|how| format!("{token}: {how}")));
        wrong.extend(seen.wrong.iter().map(|how| format!("{token}: {how}")));
        if seen.end.is_none() {
            open.push(format!("{token}: {seen:?}, the server knows {entry:?}"));
        }
        if entry.finished > 0 {
            answered += 1;
            if seen.status() == "completed" {
                completed += 1;
            } else {
                missed.push(format!(
                    "{token}: {:?}, the server knows {entry:?}",
                    seen.end
                ));
            }
        }
    }
    report.count("answered", answered);
    let least = (answered * 99).div_ceil(100);
    report.at_least("answered_completed", completed, least);
    if completed < least {
        report.zero("answered_not_completed", missed);
    }
    report.zero("open", open);
    report.zero("lost", lost);
    report.zero("wrong", wrong);
    report.zero("runs_too_many", twice);
    report.zero("refused_otherwise_or_run", refused);
}
