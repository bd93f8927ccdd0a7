//! R10: cancel races completion. One of them wins, for good; the server is told in time that no client waits.

use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt as _};

use super::Call;
use crate::rig::follow::{Seen, follow, judge, look_again};
use crate::rig::{A, B, Plan, Rig};
use crate::upstream::Flavour;
use crate::{Asked, Report};

/// Races at once.
const AT_ONCE: usize = 8;
const ENDED_IN: Duration = Duration::from_secs(5);
const TOLD_IN: Duration = Duration::from_secs(2);

pub(super) async fn run(mut asked: Asked, report: &mut Report) {
    let legacy = Flavour::ALL[usize::try_from(asked.seed.between(0, 2)).unwrap_or_default()];
    for flavour in [legacy, Flavour::Modern] {
        let mut rig = Plan::of(flavour).start().await;
        let races = asked.of(450, 45);
        let hopeless = asked.of(50, 10);
        let all: Vec<_> = (0..races + hopeless)
            .map(|n| {
                // A call that cannot win: the server must be told.
                let ms = if n < races {
                    asked.seed.between(0, 60)
                } else {
                    60_000
                };
                (n, ms, asked.seed.millis(0, 70))
            })
            .collect();
        let found = stream::iter(all).map(|(n, ms, wait)| race(&rig, flavour, n, ms, wait));
        let found: Vec<Report> = found.buffer_unordered(AT_ONCE).collect().await;
        for part in found {
            report.join(part);
        }
        rig.inspect(report);
    }
}

async fn race(rig: &Rig, flavour: Flavour, n: u32, ms: u64, wait: Duration) -> Report {
    let mut report = Report::default();
    let call = Call::work(format!("r10-{flavour:?}-{n}"), ms);
    let token = call.token.clone();
    // Made at one replica, cancelled at either.
    let heard = call.send(&rig.clients[A]).await;
    let Some(id) = heard.task() else {
        report.zero("not_announced", vec![format!("{token}: {heard:?}")]);
        return report;
    };
    tokio::time::sleep(wait).await;
    let cancelled = Instant::now();
    let ack = rig.clients[if n.is_multiple_of(2) { A } else { B }]
        .cancel(&id)
        .await;
    if !ack.is_acknowledged() {
        report.zero("not_acknowledged", vec![format!("{token}: {ack:?}")]);
    }
    let mut seen: Seen = follow(&rig.clients, &id, cancelled + ENDED_IN).await;
    let told = async {
        let over = |entry: &crate::book::Entry| entry.cancelled.is_some() || entry.finished > 0;
        rig.book
            .until(&token, TOLD_IN.saturating_sub(cancelled.elapsed()), over)
            .await
    };
    let told = told.await;
    look_again(&rig.clients, &id, &mut seen).await;
    let entry = rig.book.of(&token);
    report.count("races", 1_u32);
    report.count(seen.status(), 1_u32);
    if seen.end.is_none() {
        report.zero("open", vec![format!("{token}: {seen:?}")]);
    }
    let end = seen
        .end
        .as_ref()
        .map(|(end, _)| end.clone())
        .unwrap_or_default();
    report.zero("flips", std::mem::take(&mut seen.wrong));
    report.zero("lost", std::mem::take(&mut seen.lost));
    // Here the client cancels.
    let wrong = judge(&token, &end, &entry).filter(|_| seen.status() != "cancelled");
    report.zero("wrong", wrong.into_iter().collect());
    if seen.status() == "cancelled" && entry.runs > 0 {
        report.count("cancelled_while_running", u32::from(entry.finished == 0));
        if !told {
            report.zero("not_told", vec![format!("{token}: {entry:?}")]);
        }
    }
    if entry.runs > 1 {
        report.zero("side_effects_twice", vec![format!("{token}: {entry:?}")]);
    }
    report
}
