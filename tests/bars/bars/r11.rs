//! R11: answers given twice at two replicas, in part, to questions never asked, and too late. Exactly one reaches the
//! server.

use std::time::Instant;

use futures_util::stream::{self, StreamExt as _};
use serde_json::{Value, json};

use super::Call;
use crate::client::{Client, Heard};
use crate::eventually::try_eventually;
use crate::rig::follow::{follow, judge, look_again};
use crate::rig::{A, B, Plan, Rig, SLACK};
use crate::upstream::Flavour;
use crate::{Asked, Report};

const AT_ONCE: usize = 8;

pub(super) async fn run(mut asked: Asked, report: &mut Report) {
    let legacy = Flavour::ALL[usize::try_from(asked.seed.between(0, 2)).unwrap_or_default()];
    for flavour in [legacy, Flavour::Modern] {
        let mut rig = Plan::of(flavour).start().await;
        let all = stream::iter(0..asked.of(100, 12)).map(|n| one(&rig, flavour, n));
        let found: Vec<Report> = all.buffer_unordered(AT_ONCE).collect().await;
        for part in found {
            report.join(part);
        }
        rig.inspect(report);
    }
}

async fn one(rig: &Rig, flavour: Flavour, n: u32) -> Report {
    let mut report = Report::default();
    report.count("tasks", 1_u32);
    if let Err(why) = answered(rig, flavour, n).await {
        report.zero("state_errors", vec![format!("r11-{flavour:?}-{n}: {why}")]);
    }
    report
}

async fn answered(rig: &Rig, flavour: Flavour, n: u32) -> Result<(), String> {
    let (a, b) = (&rig.clients[A], &rig.clients[B]);
    let call = Call::work(format!("r11-{flavour:?}-{n}"), 50).asking(2);
    let heard = call.send(a).await;
    let id = heard
        .task()
        .ok_or_else(|| format!("not announced: {heard:?}"))?;
    let asked = until_asked(b, &id, 2).await?;
    let keys: Vec<String> = asked
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, _)| key.clone())
        .collect();
    // The answer to one of two questions, and an answer to a question that was not asked.
    let part = json!({&keys[0]: answer("first"), "never-asked": answer("stray")});
    acknowledged(&a.update(&id, part).await, "a partial update")?;
    let left = until_asked(b, &id, 1).await?;
    if left.get(&keys[0]).is_some() || left.get(&keys[1]).is_none() {
        return Err(format!("after the first of two answers it asks {left}"));
    }
    // The other, at both replicas at once, and the first once more.
    let left = json!({&keys[1]: answer("left"), &keys[0]: answer("again")});
    let right = json!({&keys[1]: answer("right")});
    let (left, right) = tokio::join!(a.update(&id, left), b.update(&id, right));
    acknowledged(&left, "one update")?;
    acknowledged(&right, "the other update")?;
    let mut seen = follow(&rig.clients, &id, Instant::now() + SLACK).await;
    acknowledged(
        &b.update(&id, json!({&keys[1]: answer("late")})).await,
        "a late update",
    )?;
    look_again(&rig.clients, &id, &mut seen).await;
    let entry = rig.book.of(&call.token);
    let mut answers = entry.answers.clone();
    answers.sort_unstable();
    let fair = [["first", "left"], ["first", "right"]]
        .iter()
        .any(|pair| answers == pair);
    let end = seen
        .end
        .as_ref()
        .map(|(end, _)| end.clone())
        .unwrap_or_default();
    if !fair || entry.runs != 1 || seen.status() != "completed" {
        return Err(format!("{seen:?}, the server knows {entry:?}"));
    }
    // The two answers of a legacy server may arrive in either order; its text tells them by question.
    let said = end["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_default();
    let judged = if flavour == Flavour::Modern {
        judge(&call.token, &end, &entry)
    } else {
        (!answers.iter().all(|answer| said.contains(answer))).then(|| format!("{end}, {entry:?}"))
    };
    let wrong: Vec<String> = seen
        .lost
        .into_iter()
        .chain(seen.wrong)
        .chain(judged)
        .collect();
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("; "))
    }
}

fn answer(name: &str) -> Value {
    json!({"action": "accept", "content": {"name": name}})
}

fn acknowledged(heard: &Heard, what: &str) -> Result<(), String> {
    if heard.is_acknowledged() {
        Ok(())
    } else {
        Err(format!("{what} was answered with {heard:?}"))
    }
}

/// Polls until the task asks so many questions.
pub(super) async fn until_asked(
    client: &Client,
    id: &str,
    questions: usize,
) -> Result<Value, String> {
    let asking = async || {
        let heard = client.get(id).await;
        if let Heard::Result(state) = &heard {
            let asked = &state["inputRequests"];
            let count = asked.as_object().map_or(0, serde_json::Map::len);
            if state["status"] == "input_required" && count == questions {
                return Ok(asked.clone());
            }
        }
        Err(format!("it does not ask {questions} questions: {heard:?}"))
    };
    try_eventually(SLACK, asking).await
}
