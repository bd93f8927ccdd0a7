//! The table of bars, and what several of them do.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use serde_json::json;

use super::client::{Client, Heard};
use super::rig::Rig;
use super::rig::follow::{Seen, follow};
use super::{Bar, Report};

mod floods;
mod held;
mod idle;
mod r1;
mod r10;
mod r11;
mod r12;
mod r13;
mod r14;
mod r16;
mod r2;
mod r20;
mod r3;
mod r4;
mod r5;
mod r6;
mod r7;
mod r8;
mod r9;

/// Compares the history with the ends that clients saw.
fn judge_history(history: &HashSet<String>, seen: &[&Seen], report: &mut Report) {
    let ends = seen.iter().filter_map(|seen| seen.end.as_ref());
    let ids = ends.filter_map(|(state, _)| state["taskId"].as_str());
    let missing = ids.filter(|id| !history.contains(*id));
    report.zero("ends_without_entry", missing.map(str::to_owned).collect());
    report.count("entries", history.len());
}

const fn bar(
    name: &'static str,
    n: u32,
    limit_seconds: u64,
    run: for<'a> fn(super::Asked, &'a mut Report) -> futures_util::future::BoxFuture<'a, ()>,
) -> Bar {
    Bar {
        name,
        n,
        limit: Duration::from_secs(limit_seconds),
        run,
    }
}

/// Every bar, how many of what it does at full size, and when it is given up.
pub(crate) const ALL: &[Bar] = &[
    bar("r1", 240, 180, |asked, report| {
        Box::pin(r1::run(asked, report))
    }),
    bar("r2", 5_000, 400, |asked, report| {
        Box::pin(r2::run(asked, report))
    }),
    bar("r3", 100, 300, |asked, report| {
        Box::pin(r3::run(asked, report))
    }),
    bar("r4", 33, 180, |asked, report| {
        Box::pin(r4::run(asked, report))
    }),
    bar("r5", 20, 240, |asked, report| {
        Box::pin(r5::run(asked, report))
    }),
    bar("r6", 3, 180, |asked, report| {
        Box::pin(r6::run(asked, report))
    }),
    bar("r7", 3, 180, |asked, report| {
        Box::pin(r7::run(asked, report))
    }),
    bar("r8", 300, 240, |asked, report| {
        Box::pin(r8::run(asked, report))
    }),
    bar("r9", 1_000, 300, |asked, report| {
        Box::pin(r9::run(asked, report))
    }),
    bar("r10", 1_000, 240, |asked, report| {
        Box::pin(r10::run(asked, report))
    }),
    bar("r11", 200, 180, |asked, report| {
        Box::pin(r11::run(asked, report))
    }),
    bar("r12", 180, 240, |asked, report| {
        Box::pin(r12::run(asked, report))
    }),
    bar("r13", 121, 400, |asked, report| {
        Box::pin(r13::run(asked, report))
    }),
    bar("r14", 10_000, 900, |asked, report| {
        Box::pin(r14::run(asked, report))
    }),
    bar("r16", 5_000, 400, |asked, report| {
        Box::pin(r16::run(asked, report))
    }),
    bar("r20", 30, 400, |asked, report| {
        Box::pin(r20::run(asked, report))
    }),
    bar("idle", 10_000, 420, |asked, report| {
        Box::pin(idle::run(asked, report))
    }),
    bar("held", 60, 240, |asked, report| {
        Box::pin(held::run(asked, report))
    }),
    bar("floods", 5, 600, |asked, report| {
        Box::pin(floods::run(asked, report))
    }),
];

/// A call that the server can tell from every other.
#[derive(Debug, Clone)]
struct Call {
    tool: &'static str,
    token: String,
    ms: u64,
    ask: u32,
}

impl Call {
    /// Of the tool that changes something each time it runs.
    fn work(token: String, ms: u64) -> Self {
        Self {
            tool: "work",
            token,
            ms,
            ask: 0,
        }
    }

    /// Of the tool that may be run again.
    fn read(token: String, ms: u64) -> Self {
        Self {
            tool: "read",
            ..Self::work(token, ms)
        }
    }

    fn asking(mut self, questions: u32) -> Self {
        self.ask = questions;
        self
    }

    /// Sends it once.
    async fn send(&self, client: &Client) -> Heard {
        let arguments = json!({"token": self.token, "ms": self.ms, "ask": self.ask});
        client.call(self.tool, arguments).await
    }
}

/// A call that was announced as a task.
#[derive(Debug, Clone)]
struct Task {
    call: Call,
    id: String,
}

/// Makes these calls at one replica, a few at once; what was not announced is evidence.
async fn create(client: &Client, calls: Vec<Call>) -> (Vec<Task>, Vec<String>) {
    use futures_util::stream::{self, StreamExt as _};
    let made = stream::iter(calls).map(|call| async move {
        let heard = call.send(client).await;
        match heard.task() {
            Some(id) => Ok(Task { call, id }),
            None => Err(format!("{}: {heard:?}", call.token)),
        }
    });
    let made: Vec<_> = made.buffer_unordered(16).collect().await;
    let (mut tasks, mut refused) = (Vec::new(), Vec::new());
    for one in made {
        match one {
            Ok(task) => tasks.push(task),
            Err(why) => refused.push(why),
        }
    }
    (tasks, refused)
}

/// Follows all of them at once, by every replica in turns.
async fn follow_all(rig: &Rig, tasks: &[Task], deadline: Instant) -> Vec<Seen> {
    let seen = tasks
        .iter()
        .map(|task| follow(&rig.clients, &task.id, deadline));
    futures_util::future::join_all(seen).await
}

fn tokens(tasks: &[Task]) -> Vec<String> {
    tasks.iter().map(|task| task.call.token.clone()).collect()
}
