//! Metrics for operators about tasks, and a log line for each end. All of it follows from the commits.

use tracing::{debug, info, warn};

use super::events;
use super::log::TaskEndRecord;
use super::metrics::METRICS;
use super::seconds::seconds;
use super::tool::{with_label, with_label_of};
use super::traces;
use crate::task::change::{TaskChange, changes};
use crate::task::input_rule::AnsweredBy;
use crate::task::state::{Outcome, Task};

/// Reports what a commit of this replica changed. `before` is `None` for a new record.
pub fn committed(before: Option<&Task>, after: &Task) {
    for change in changes(before, after) {
        let ending = after
            .outcome
            .as_ref()
            .filter(|_| change == TaskChange::Ended);
        events::happened(
            change,
            after,
            ending.map(Outcome::words).map(<[&str; 3]>::from),
        );
        report(change, before, after);
    }
}

fn report(change: TaskChange, before: Option<&Task>, task: &Task) {
    let metrics = &METRICS.tasks;
    match change {
        TaskChange::Created => debug!(task = ?task.id, tool = %task.name, "task recorded"),
        TaskChange::Announced => {
            with_label(&task.name, |tool| {
                metrics.announced.with_label_values(&[tool]).inc();
            });
            debug!(task = ?task.id, tool = %task.name, "a client heard of the task");
        }
        TaskChange::Dispatched => debug!(task = ?task.id, leg = ?task.leg, "sent to the server"),
        TaskChange::Asked(number) => {
            metrics
                .questions
                .with_label_values(&["asked"])
                .inc_by(number as u64);
            debug!(task = ?task.id, number, "the server asks its client");
        }
        TaskChange::Answered(number, by) => {
            metrics
                .questions
                .with_label_values(&["answered"])
                .inc_by(number as u64);
            debug!(task = ?task.id, number, by = by.word(), "questions were answered");
            if by == AnsweredBy::Rule {
                metrics
                    .questions
                    .with_label_values(&["by_rule"])
                    .inc_by(number as u64);
                info!(task = ?task.id, tool = %task.name, "no answer came in time: the rule answered");
            }
        }
        TaskChange::Reminded => {
            metrics.questions.with_label_values(&["reminded"]).inc();
            let asked_ms = task.open_questions().map(|(q, _)| q.asked_ms).min();
            let waited_ms = task
                .updated_ms
                .saturating_sub(asked_ms.unwrap_or(task.updated_ms));
            warn!(
                task = ?task.id,
                tool = %task.name,
                seconds = seconds(waited_ms),
                caller = task.label.as_deref().unwrap_or_default(),
                caller_hash = task.caller.short(),
                "a question of the server still waits for an answer"
            );
        }
        // Only those who look at the events hear of it: it may come every second.
        TaskChange::Progressed => {}
        TaskChange::Released => {
            metrics.releases.inc();
            info!(task = ?task.id, tool = %task.name, "left to other replicas");
        }
        TaskChange::TakenOver => {
            metrics.takeovers.inc();
            traces::tasks::taken_over(task);
        }
        TaskChange::Ended => ended(before, task),
    }
}

fn ended(before: Option<&Task>, task: &Task) {
    let Some(outcome) = &task.outcome else { return };
    let (word, reason, effect) = outcome.words();
    traces::tasks::ended(before, task, [word, reason, effect]);
    // The metric counts the life of the task, which its clients poll; the line says how long the call took.
    let life = seconds(task.updated_ms.saturating_sub(task.created_ms));
    // A task that was never sent was in the queue until its end.
    let sent_ms = task.sent_ms.unwrap_or(task.updated_ms);
    let queue_ms = sent_ms.saturating_sub(task.created_ms);
    // A record that no client heard of is a call that its client waited for.
    if task.announced {
        super::polls::ended(task);
        let metrics = &METRICS.tasks;
        with_label_of(&task.name, word == "completed", |tool| {
            let ended = [tool, word, reason, effect];
            metrics.ended.with_label_values(&ended).inc();
            let durations = &metrics.duration;
            durations.with_label_values(&[tool, word]).observe(life);
            metrics
                .queue
                .with_label_values(&[tool])
                .observe(seconds(queue_ms));
            if task.input_wait_ms > 0 {
                metrics
                    .input
                    .with_label_values(&[tool])
                    .observe(seconds(task.input_wait_ms));
            }
        });
    }
    let replica = task.owner.as_ref().map_or("", |owner| owner.replica());
    let trace = task.trace.as_deref().map(|trace| trace.trace.to_string());
    let line = TaskEndRecord {
        task: task.id,
        tool: &task.name,
        outcome: word,
        reason,
        effect,
        took_ms: task.call_took_ms(task.updated_ms),
        queue_ms,
        input_ms: task.input_wait_ms,
        replica,
        caller: task.label.as_deref().unwrap_or_default(),
        caller_hash: &task.caller.short(),
        trace: trace.as_deref().unwrap_or_default(),
        job: task.job.as_deref().unwrap_or_default(),
        announced: task.announced,
    };
    line.write();
}
