//! A task as its client sees it: polled in turns on all replicas, each answer held against the ones before.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::book::Entry;
use crate::client::{Client, Heard};
use crate::upstream::text_of;

/// Between the first polls of a client that waits, and between the last: many clients that wait for long must not be all
/// that the replicas are busy with.
const POLL: Duration = Duration::from_millis(60);
const POLL_MAX: Duration = Duration::from_millis(600);

/// What a client saw of one task.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Its state at the end, and when that was seen.
    pub(crate) end: Option<(Value, Instant)>,
    /// Polls that were answered with an outage or broke: the task was not judged by them.
    pub(crate) unanswered: u32,
    /// Answers by which an announced task does not exist.
    pub(crate) lost: Vec<String>,
    /// Answers that took back an earlier one, and those that no client can make sense of.
    pub(crate) wrong: Vec<String>,
    last: Option<Value>,
}

impl Seen {
    pub(crate) fn status(&self) -> &str {
        self.end
            .as_ref()
            .and_then(|(state, _)| state["status"].as_str())
            .unwrap_or("open")
    }

    pub(crate) fn take(&mut self, heard: &Heard) {
        let state = match heard {
            Heard::Result(state) => state,
            Heard::Error { .. } if heard.is_unknown() => {
                self.lost.push(format!("after {:?}: {heard:?}", self.last));
                return;
            }
            Heard::Error { .. } if !heard.is_outage() => {
                self.wrong
                    .push(format!("a poll was answered with {heard:?}"));
                return;
            }
            Heard::Error { .. } | Heard::Broken(_) => {
                self.unanswered += 1;
                return;
            }
        };
        if let Some(last) = &self.last {
            if is_terminal(last) && !same_end(last, state) {
                self.wrong
                    .push(format!("the end changed from {last} to {state}"));
            }
            if state["lastUpdatedAt"].as_str() < last["lastUpdatedAt"].as_str() {
                self.wrong.push(format!("went back from {last} to {state}"));
            }
        }
        if is_terminal(state) && self.end.is_none() {
            self.end = Some((state.clone(), Instant::now()));
        }
        self.last = Some(state.clone());
    }
}

/// Polls in turns until the task has ended or the deadline is over.
pub(crate) async fn follow(clients: &[Client], id: &str, deadline: Instant) -> Seen {
    let mut seen = Seen::default();
    let mut turns = clients.iter().cycle();
    let mut pause = POLL;
    while seen.end.is_none() && seen.lost.is_empty() {
        if let Some(client) = turns.next() {
            seen.take(&client.get(id).await);
        }
        if Instant::now() > deadline {
            break;
        }
        if seen.end.is_none() {
            tokio::time::sleep(pause).await;
            pause = (pause * 4 / 3).min(POLL_MAX);
        }
    }
    seen
}

/// Polls on once at each replica after the end: it must be the same everywhere.
pub(crate) async fn look_again(clients: &[Client], id: &str, seen: &mut Seen) {
    for client in clients {
        seen.take(&client.get(id).await);
    }
}

/// Why raincheck itself may end a call when replicas and Redis fail.
const REASONS: [&str; 6] = [
    "owner_lost",
    "shutdown",
    "deadline",
    "store_lost",
    "upstream_reset",
    "upstream_unreachable",
];

/// What is wrong with the end of a task that was not cancelled, judged by what the server knows of the call.
pub(crate) fn judge(token: &str, end: &Value, entry: &Entry) -> Option<String> {
    let evidence = || {
        Some(format!(
            "{token} ended {end}, and the server knows {entry:?}"
        ))
    };
    match end["status"].as_str() {
        Some("completed") => {
            let text = end["result"]["content"][0]["text"].as_str();
            let right = text_of(token, &entry.answers);
            if text != Some(&right) || entry.finished == 0 {
                return evidence();
            }
        }
        Some("failed") => {
            let data = &end["error"]["data"];
            let none = data["io.raincheck/effect"] == "none";
            let reason = data["io.raincheck/reason"].as_str().unwrap_or_default();
            if !REASONS.contains(&reason) || none && entry.runs > 0 {
                return evidence();
            }
        }
        _ => return evidence(),
    }
    None
}

pub(crate) fn is_terminal(state: &Value) -> bool {
    matches!(
        state["status"].as_str(),
        Some("completed" | "failed" | "cancelled")
    )
}

fn same_end(one: &Value, other: &Value) -> bool {
    ["status", "result", "error", "lastUpdatedAt"]
        .iter()
        .all(|field| one.get(field) == other.get(field))
}
