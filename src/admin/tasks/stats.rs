//! The answer to `GET /tools/stats`: what ended in a period, by tool and over time. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use super::words::seconds;
use crate::base::utc::rfc3339;
use crate::task::history::{EndSums, PeriodEnds, ToolEnds};
use crate::task::pauses::Pauses;
use crate::task::state::Task;
use crate::task::tool_pattern::ToolPattern;

/// The most tools in one answer. Those with the most ends come first.
const TOOLS_MAX: usize = 100;

const DAY: u64 = 24 * 3_600;

/// The longest period: what a history keeps is rarely older.
const LONGEST: u64 = 70 * DAY;

/// Which period, and which tools.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StatsQuery {
    pub(super) length_ms: u64,
    pub(super) tool: Option<ToolPattern>,
}

/// What the ends of a period are shown with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Live<'a> {
    pub(super) open: &'a [Task],
    pub(super) pauses: &'a Pauses,
    pub(super) now_ms: u64,
    /// The time as far back as the history goes.
    pub(super) since_ms: u64,
}

/// The calls of some tools at one moment.
#[derive(Debug, Default)]
struct OpenCalls {
    running: usize,
    waiting: usize,
}

impl StatsQuery {
    /// Reads the query of a URL. An error is a sentence for the operator.
    pub(super) fn read(query: &str) -> Result<Self, String> {
        let (mut length, mut tool) = (DAY, None);
        for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
            match &*key {
                "since" => length = seconds("since", &value)?,
                "tool" => tool = Some(ToolPattern::of(&value)),
                other => {
                    return Err(format!(
                        "{other} is unknown here; there are since (seconds) and tool"
                    ));
                }
            }
        }
        if !(1..=LONGEST).contains(&length) {
            return Err(format!(
                "since={length} is no period: it is from 1 second to {} days ago",
                LONGEST / DAY
            ));
        }
        Ok(Self {
            length_ms: length * 1000,
            tool,
        })
    }

    fn has(&self, tool: &str) -> bool {
        self.tool
            .as_ref()
            .is_none_or(|wanted| wanted.is_match(tool))
    }

    /// The answer. `about`: members that say how far it can be relied on.
    pub(super) fn answer(
        &self,
        ends: &PeriodEnds,
        live: Live<'_>,
        about: [(&str, bool); 3],
    ) -> Value {
        let open = live.open.iter().filter(|task| self.has(&task.name));
        let open: Vec<&Task> = open.collect();
        // All of them: each step is bounded, and only of all it is known which tools have the most ends.
        let mut all: BTreeMap<&str, ToolEnds> = BTreeMap::new();
        let tools = ends.steps.iter().flat_map(EndSums::tools);
        for (tool, ends) in tools.filter(|(tool, _)| self.has(tool)) {
            all.entry(tool).or_default().merge(ends);
        }
        // A tool of which nothing has ended yet is running, at least.
        for task in &open {
            all.entry(&task.name).or_default();
        }
        let mut tools: Vec<(&str, &ToolEnds)> =
            all.iter().map(|(tool, ends)| (*tool, ends)).collect();
        tools.sort_by_key(|(_, ends)| std::cmp::Reverse(ends.ended()));
        let more = tools.len().saturating_sub(TOOLS_MAX);
        tools.truncate(TOOLS_MAX);
        let tools = tools.into_iter().map(|(tool, sums)| {
            let open = OpenCalls::of(open.iter().filter(|task| *task.name == *tool));
            let medians = ends.steps.iter().map(|step| {
                let median_ms = step.get(tool).and_then(|ends| ends.quantile_ms(500));
                median_ms.map(in_seconds)
            });
            totals(
                sums,
                [
                    ("tool", tool.into()),
                    ("running", open.running.into()),
                    ("waiting", open.waiting.into()),
                    ("paused", live.pauses.of(tool).is_some().into()),
                    ("medians", medians.collect()),
                ],
            )
        });
        let tools: Vec<Value> = tools.collect();
        let steps = ends.steps.iter().enumerate().map(|(step, sums)| {
            let (from_ms, to_ms) = (ends.period.begin_of(step), ends.period.begin_of(step + 1));
            let began = all.values().map(|ends| ends.began(from_ms, to_ms));
            let began_ms = open.iter().map(|task| task.call_began_ms());
            let open = began_ms.filter(|began_ms| (from_ms..to_ms).contains(began_ms));
            let began = began.sum::<u64>() + open.count() as u64;
            let mut sum = ToolEnds::default();
            let ended = sums.tools().filter(|(tool, _)| self.has(tool));
            ended.for_each(|(_, ends)| sum.merge(ends));
            totals(
                &sum,
                [("at", rfc3339(from_ms).into()), ("began", began.into())],
            )
        });
        let reach = (live.since_ms > ends.period.from_ms).then(|| rfc3339(live.since_ms));
        let own = [
            ("now", rfc3339(live.now_ms).into()),
            ("from", rfc3339(ends.period.from_ms).into()),
            ("step_seconds", (ends.period.step_ms / 1000).into()),
            ("steps", steps.collect()),
            ("tools", tools.into()),
            ("more_tools", more.into()),
            ("history_begins", reach.into()),
        ];
        object(own, about.map(|(key, is)| (key, is.into())))
    }
}

impl OpenCalls {
    fn of<'t>(tasks: impl Iterator<Item = &'t &'t Task>) -> Self {
        tasks.fold(Self::default(), |mut calls, task| {
            if task.was_never_sent() {
                calls.waiting += 1;
            } else {
                calls.running += 1;
            }
            calls
        })
    }
}

fn totals<const N: usize>(ends: &ToolEnds, more: [(&str, Value); N]) -> Value {
    let own = [
        ("ended", ends.ended().into()),
        ("completed", ends.completed.into()),
        ("tool_error", ends.tool_errors.into()),
        ("failed", ends.failed.into()),
        ("cancelled", ends.cancelled.into()),
        (
            "median_seconds",
            ends.quantile_ms(500).map(in_seconds).into(),
        ),
        ("p90_seconds", ends.quantile_ms(900).map(in_seconds).into()),
    ];
    object(own, more)
}

fn object<const N: usize, const M: usize>(
    own: [(&str, Value); N],
    more: [(&str, Value); M],
) -> Value {
    let members = own.into_iter().chain(more);
    members
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "no call takes 2^53 milliseconds"
)]
fn in_seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::history::{EndedTask, Period};
    use crate::task::id::TaskId;
    use crate::task::machine::tests::task;
    use crate::task::pauses::Pause;
    use crate::task::state::{Leg, Outcome};

    const ABOUT: [(&str, bool); 3] = [("history", true), ("lost", false), ("partial", false)];

    const NOW_MS: u64 = 1_700_000_000_000;

    fn call(tool: &str, took_ms: u64, outcome: Option<Outcome>) -> Task {
        Task {
            id: TaskId::random(),
            name: tool.into(),
            created_ms: NOW_MS - 600_000,
            updated_ms: NOW_MS - 600_000 + took_ms,
            outcome,
            ..task(Leg::Sent(1), true)
        }
    }

    #[test]
    fn a_period_is_shown_by_tool_and_over_time() {
        let query = StatsQuery::read("since=3600").unwrap();
        let mut ends = PeriodEnds::new(Period::until(NOW_MS, query.length_ms));
        for (tool, took_ms) in [("build", 60_000), ("build", 61_000), ("deploy", 1)] {
            let ended = call(tool, took_ms, Some(Outcome::Cancelled));
            ends.count(&EndedTask::of(&ended).unwrap());
        }
        let pause = Pause {
            tools: "dep*".into(),
            since_ms: 0,
            until_ms: u64::MAX,
            reason: "".into(),
            by: "".into(),
        };
        let pauses = Pauses::default().with(pause).unwrap();
        let waits = Task {
            leg: Leg::Queued,
            sent_ms: None,
            ..call("test", 0, None)
        };
        let live = Live {
            open: &[call("build", 0, None), waits],
            pauses: &pauses,
            now_ms: NOW_MS,
            since_ms: NOW_MS - 1_800_000,
        };
        let all = query.answer(&ends, live, ABOUT);
        assert_eq!(all["step_seconds"], 60);
        assert_eq!(all["history_begins"], rfc3339(NOW_MS - 1_800_000));
        let tools = all["tools"].as_array().unwrap();
        let facts = |line: &Value| {
            let facts = ["tool", "ended", "cancelled", "running", "waiting", "paused"];
            facts.map(|fact| line[fact].to_string()).join(" ")
        };
        assert_eq!(
            tools.iter().map(facts).collect::<Vec<_>>(),
            [
                r#""build" 2 2 1 0 false"#,
                r#""deploy" 1 1 0 0 true"#,
                r#""test" 0 0 0 1 false"#
            ]
        );
        let steps = all["steps"].as_array().unwrap();
        let sum = |fact: &str| {
            steps
                .iter()
                .map(|step| step[fact].as_u64().unwrap())
                .sum::<u64>()
        };
        assert_eq!((steps.len(), sum("ended"), sum("began")), (61, 3, 5));
        let begun = steps.iter().find(|step| step["began"] != 0).unwrap();
        assert_eq!(begun["began"], 5, "all in one minute");
        let one = StatsQuery::read("since=3600&tool=b*").unwrap();
        let one = one.answer(&ends, live, ABOUT);
        assert_eq!(one["tools"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn a_period_that_is_none_is_refused() {
        let read = |query: &str| StatsQuery::read(query).unwrap_err();
        assert!(read("since=0").contains("no period") && read("since=10m").contains("seconds"));
        assert!(read("until=1").contains("there are since"));
        assert!(read("since=99999999").contains("70 days"));
        assert_eq!(StatsQuery::read("").unwrap().length_ms, DAY * 1000);
    }
}
