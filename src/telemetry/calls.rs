//! Metrics for operators about calls whose clients wait for them, and a log line for each such call that raincheck
//! fails.

use std::collections::BTreeMap;
use std::time::Duration;

use tracing::{debug, info};

use super::limits::{self, LimitHit};
use super::metrics::METRICS;
use super::tool::{with_label, with_label_of};
use crate::mcp::error::{Failure, Reason, SideEffect};

/// The answer that the client of a call received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Plain,
    Task,
    Ticket,
    Question,
    Joined,
    /// The client's clock ended, and the call runs on for the same call to collect it.
    GaveUp,
    /// An error shortly before its clock ends: the call runs on for the same call to collect it.
    StillRunning,
    Refused,
}

impl Fate {
    fn word(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Task => "task",
            Self::Ticket => "ticket",
            Self::Question => "question",
            Self::Joined => "joined",
            Self::GaveUp => "gave_up",
            Self::StillRunning => "still_running",
            Self::Refused => "refused",
        }
    }
}

/// Reports a call that was refused before anything of it was stored or sent. `tool` is `None` for another request than
/// a call of a tool.
pub fn refused(tool: Option<&str>, reason: Reason) {
    // Behind `Reason::Busy` are several limits: the part that asks them counts their refusals.
    if reason == Reason::Paused {
        limits::refused(LimitHit::Paused);
    } else if reason == Reason::QueueFull {
        limits::refused(LimitHit::Queue);
    } else if reason == Reason::Quota {
        limits::refused(LimitHit::Tasks);
    }
    if let Some(tool) = tool {
        became(tool, Fate::Refused);
        debug!(tool, reason = reason.word(), "call refused");
    }
}

/// Returns `true` if the reason is a limit.
fn is_of_a_limit(reason: Reason) -> bool {
    [
        Reason::Busy,
        Reason::QueueFull,
        Reason::Paused,
        Reason::Quota,
    ]
    .contains(&reason)
}

/// Counts what the client of a call got.
pub fn became(tool: &str, fate: Fate) {
    let calls = &METRICS.calls.fates;
    with_label(tool, |tool| {
        calls.with_label_values(&[tool, fate.word()]).inc();
    });
}

/// Reports the tools whose calls a client is known to give up, and after how long.
pub fn clocks_known(known: &BTreeMap<&str, Duration>) {
    let mut shortest = BTreeMap::new();
    for (tool, waited) in known {
        // Several tools may have one label.
        with_label(tool, |label| {
            let known = shortest.entry(label.to_owned()).or_insert(*waited);
            *known = *waited.min(known);
        });
    }
    let clocks = &METRICS.calls.clocks;
    clocks.reset();
    for (label, waited) in shortest {
        // Clients' clocks are set to whole seconds.
        let seconds = i64::try_from((waited.as_millis() + 500) / 1_000).unwrap_or(i64::MAX);
        clocks.with_label_values(&[&label]).set(seconds);
    }
}

/// The end of a call whose client received a plain answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlainEnd {
    Completed,
    ToolError,
    /// A JSON-RPC error of the server.
    Error,
    Failed(Failure),
}

/// Reports a plain answer.
pub fn answered(tool: &str, end: PlainEnd, after: Duration) {
    // Nothing was sent, so the call counts as refused and not as failed.
    if let PlainEnd::Failed(failure) = &end
        && failure.effect == SideEffect::None
        && is_of_a_limit(failure.reason)
    {
        return refused(Some(tool), failure.reason);
    }
    let metrics = &METRICS.calls;
    let outcome = match &end {
        PlainEnd::Completed => "completed",
        PlainEnd::ToolError => "tool_error",
        PlainEnd::Error | PlainEnd::Failed(_) => "failed",
    };
    // A good answer makes the tool a label here, so that `became` counts under it, too.
    with_label_of(tool, end == PlainEnd::Completed, |tool| {
        let durations = &metrics.duration;
        durations
            .with_label_values(&[tool, outcome])
            .observe(after.as_secs_f64());
    });
    became(tool, Fate::Plain);
    if let PlainEnd::Failed(why) = end {
        failed(tool, &why, after);
    }
}

/// Reports that raincheck itself answered a call, with a failure.
pub fn failed(tool: &str, failure: &Failure, after: Duration) {
    let (reason, effect) = (failure.reason.word(), effect(failure.effect));
    with_label(tool, |tool| {
        let failed = &METRICS.calls.failed;
        failed.with_label_values(&[tool, reason, effect]).inc();
    });
    let seconds = after.as_secs_f64();
    let detail = failure.detail.as_ref().map(ToString::to_string);
    let detail = detail.unwrap_or_default();
    info!(tool, reason, effect, seconds, detail, "call failed");
}

fn effect(effect: SideEffect) -> &'static str {
    match effect {
        SideEffect::None => "none",
        SideEffect::Unknown => "unknown",
    }
}
