//! R4: SIGTERM with short calls and a long one. The short ones complete, the long one fails honestly, nothing is left
//! working, and whoever listened is told that it is over.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{Call, create, tokens};
use crate::client::Client;
use crate::rig::follow::{Seen, judge, look_again};
use crate::rig::{A, B, Plan, SLACK};
use crate::upstream::Flavour;
use crate::{Asked, Report};

const GRACE: Duration = Duration::from_secs(5);
const SHORT: u32 = 10;

pub(super) async fn run(asked: Asked, report: &mut Report) {
    for round in 0..asked.of(3, 1) {
        // What can be resumed elsewhere is released, not failed: these two cannot.
        for flavour in [Flavour::Plain, Flavour::Modern] {
            trial(asked, round, flavour, report).await;
        }
    }
}

async fn trial(mut asked: Asked, round: u32, flavour: Flavour, report: &mut Report) {
    let drain = format!("[drain]\ngrace = \"{}s\"\n", GRACE.as_secs());
    let plan = Plan::of(flavour).section(&drain);
    let mut rig = plan
        .lasting(Duration::from_mins(1), Duration::from_secs(32))
        .start()
        .await;
    let name = format!("r4-{round}-{flavour:?}");
    let short = (0..SHORT).map(|n| Call::work(format!("{name}-{n}"), 300 + 60 * u64::from(n)));
    let long = Call::work(format!("{name}-long"), 50_000);
    let (tasks, refused) = create(&rig.clients[A], short.chain([long]).collect()).await;
    report.zero("not_announced", refused);
    rig.book.all_begun(&tokens(&tasks), SLACK).await;
    let ids: Vec<String> = tasks.iter().map(|task| task.id.clone()).collect();
    let listening = tokio::spawn(listen(rig.clients[A].clone(), ids));
    tokio::time::sleep(asked.seed.millis(50, 250)).await;
    let told = Instant::now();
    let status = rig.replicas[A].stop(GRACE * 3).await;
    let took = told.elapsed();
    if !status.is_some_and(|status| status.success()) {
        report.breaks(format!(
            "{name}: ended with {status:?}, {}",
            rig.replicas[A].log()
        ));
    }
    report.at_most(
        "stop_ms",
        took.as_millis(),
        u64::try_from(GRACE.as_millis()).unwrap_or(0),
    );
    for task in &tasks {
        let (token, mut seen) = (&task.call.token, Seen::default());
        look_again(&rig.clients[B..], &task.id, &mut seen).await;
        let wanted = if token.ends_with("long") {
            "failed"
        } else {
            "completed"
        };
        report.count(seen.status(), 1_u32);
        let end = seen
            .end
            .as_ref()
            .map(|(end, _)| end.clone())
            .unwrap_or_default();
        let entry = rig.book.of(token);
        let honest =
            wanted == "completed" || end["error"]["data"]["io.raincheck/reason"] == "shutdown";
        if seen.status() != wanted || !honest {
            report.breaks(format!("{token}: {seen:?}, the server knows {entry:?}"));
        }
        report.zero("wrong", judge(token, &end, &entry).into_iter().collect());
        if token.ends_with("long")
            && !rig
                .book
                .until(token, SLACK, |entry| entry.cancelled.is_some())
                .await
        {
            report.breaks(format!("{token}: the server was never told"));
        }
    }
    let last = tokio::time::timeout(SLACK, listening).await;
    match last {
        Ok(Ok(true)) => report.count("listeners_told", 1_u32),
        other => report.breaks(format!(
            "{name}: a listener was not told of the end: {other:?}"
        )),
    }
    rig.inspect(report);
}

/// Whether the stream ended with the cancellation and the result that the specification wants.
async fn listen(client: Client, ids: Vec<String>) -> bool {
    let params = json!({"notifications": {"taskIds": ids}});
    let Ok(mut stream) = client.stream("subscriptions/listen", params).await else {
        return false;
    };
    let (mut cancelled, mut completed) = (false, false);
    while let Some(message) = stream.next().await {
        cancelled |= message["method"] == "notifications/cancelled";
        completed = cancelled && message["result"]["resultType"] == "complete";
    }
    completed
}
