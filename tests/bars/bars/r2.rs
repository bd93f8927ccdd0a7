//! R2: the replicas are killed in turns while tasks are created without pause. No announced task is lost, run twice or
//! given a wrong result.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::Call;
use crate::book::{Book, Entry};
use crate::client::{Client, Heard};
use crate::rig::follow::{Seen, follow, judge, look_again};
use crate::rig::replica;
use crate::rig::{LEASE, MAX_DURATION, Plan, SLACK};
use crate::seed::Seed;
use crate::upstream::Flavour;
use crate::{Asked, Report};

/// Between two creations.
const PACE: Duration = Duration::from_millis(11);

/// Tasks followed at once: what a kill leaves open for a while must not let the load grow without bound.
const OPEN_MAX: usize = 200;

pub(super) async fn run(asked: Asked, report: &mut Report) {
    kill_in_turns(asked, report, &[replica::program()]).await;
}

/// Each replica that was killed comes back as one of these programs, at random.
pub(super) async fn kill_in_turns(mut asked: Asked, report: &mut Report, programs: &[PathBuf]) {
    let flavour = Flavour::ALL[usize::try_from(asked.seed.between(0, 3)).unwrap_or_default()];
    let mut rig = Plan::of(flavour).remembering().start().await;
    rig.settle().await;
    let clients: Arc<[Client]> = rig.clients.clone().into();
    let progress = Arc::new(Progress::default());
    let creating = create(
        Arc::clone(&progress),
        asked.seed,
        Arc::clone(&clients),
        rig.book.clone(),
    );
    let creating = tokio::spawn(creating);
    let (kills, tasks) = (asked.of(50, 5), asked.of(5_000, 500));
    let mut turn = 0;
    while turn < kills || progress.acknowledged.load(Ordering::Relaxed) < tasks {
        tokio::time::sleep(asked.seed.millis(300, 2_200)).await;
        let replica = &mut rig.replicas[turn as usize % 2];
        replica.kill();
        tokio::time::sleep(asked.seed.millis(0, 300)).await;
        let program = asked.seed.between(0, programs.len() as u64);
        let program = usize::try_from(program).unwrap_or_default();
        replica.set_program(programs[program].clone());
        report.count(&format!("starts_of_program_{program}"), 1_u32);
        replica.restart().await;
        turn += 1;
    }
    report.count("kills", turn);
    progress.over.store(true, Ordering::Relaxed);
    let lives = creating.await.expect("the creator");
    tell(&lives, &rig.book, report);
    // A program of before the history keeps none of the ends that it commits.
    if programs.len() == 1 {
        let ends: Vec<_> = lives.iter().filter_map(|life| life.seen.as_ref()).collect();
        super::judge_history(&rig.history().await, &ends, report);
    }
    rig.inspect(report);
}

/// One call from its request to its end.
struct Life {
    call: Call,
    heard: Heard,
    seen: Option<Seen>,
    entry: Entry,
}

#[derive(Default)]
struct Progress {
    over: AtomicBool,
    acknowledged: AtomicU32,
}

async fn create(
    progress: Arc<Progress>,
    mut seed: Seed,
    clients: Arc<[Client]>,
    book: Book,
) -> Vec<Life> {
    let mut lives = JoinSet::new();
    let open = Arc::new(Semaphore::new(OPEN_MAX));
    let mut pace = tokio::time::interval(PACE);
    let mut n = 0_usize;
    while !progress.over.load(Ordering::Relaxed) {
        pace.tick().await;
        n += 1;
        let ms = seed.between(0, 250);
        let call = match seed.between(0, 4) {
            0 => Call::read(format!("r2-{n}"), ms),
            _ => Call::work(format!("r2-{n}"), ms),
        };
        let permit = Arc::clone(&open).acquire_owned().await;
        let (progress, clients, book) = (Arc::clone(&progress), Arc::clone(&clients), book.clone());
        lives.spawn(async move {
            let life = live(call, n, &clients, &book, &progress).await;
            drop(permit);
            life
        });
    }
    lives.join_all().await
}

async fn live(
    call: Call,
    turn: usize,
    clients: &[Client],
    book: &Book,
    progress: &Progress,
) -> Life {
    let heard = call.send(&clients[turn % clients.len()]).await;
    let mut seen = None;
    if let Some(id) = heard.task() {
        progress.acknowledged.fetch_add(1, Ordering::Relaxed);
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
