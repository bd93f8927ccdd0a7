//! `raincheck tools stats`: what ended in a period, by tool, or of one tool over time.

use std::fmt::Write as _;

use clap::Args;
use serde_json::Value;

use super::shown::{at, members, text};
use crate::cli::failure::CommandFailure;
use crate::cli::table::{short, table};
use crate::config::duration;

/// A bar of each height, for a value over time in one line.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

#[derive(Debug, Args)]
pub(super) struct StatsArgs {
    #[arg(
        value_name = "TOOL",
        help = "Over time, of this tool, or of those that a glob matches"
    )]
    tool: Option<String>,
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "24h",
        help = "How far back"
    )]
    since: String,
}

impl StatsArgs {
    pub(super) fn path(&self) -> Result<String, CommandFailure> {
        let since = duration(&self.since)
            .map_err(|why| CommandFailure::usage(format!("--since {}: {why}", self.since)))?;
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.append_pair("since", &since.as_millis().div_ceil(1000).to_string());
        query.extend_pairs(self.tool.iter().map(|tool| ("tool", tool)));
        Ok(format!("/tools/stats?{}", query.finish()))
    }

    /// The answer as a person reads it.
    pub(super) fn text(&self, stats: &Value) -> String {
        let mut out = if self.tool.is_some() {
            over_time(stats)
        } else {
            by_tool(stats)
        };
        if let Some(more @ 1..) = at(stats, "more_tools").as_u64() {
            let _ = writeln!(out, "  {more} more tools, of which less ended");
        }
        if let Some(begins) = at(stats, "history_begins").as_str() {
            let _ = writeln!(out, "  the history goes back to {begins}");
        }
        if at(stats, "history") == false {
            out.push_str("  no history is kept (history.keep): only open tasks count\n");
        }
        if at(stats, "lost") == true {
            out.push_str("  the store has lost some of the tasks that ended\n");
        }
        if at(stats, "partial") == true {
            out.push_str("  there are more open tasks than are looked at\n");
        }
        out
    }
}

fn by_tool(stats: &Value) -> String {
    let tools = members(stats, "tools");
    if tools.is_empty() {
        return "  nothing runs, and nothing ended\n".to_owned();
    }
    let head = [
        "tool",
        "running",
        "waiting",
        "ended",
        "failed",
        "tool errors",
        "cancelled",
        "median",
        "90 %",
        "median over time",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(tools.iter().map(|tool| {
        let count = |key: &str| at(tool, key).to_string();
        let paused = at(tool, "paused") == true;
        [
            format!("{}{}", named(tool), if paused { " (paused)" } else { "" }),
            count("running"),
            count("waiting"),
            count("ended"),
            count("failed"),
            count("tool_error"),
            count("cancelled"),
            seconds(at(tool, "median_seconds")),
            seconds(at(tool, "p90_seconds")),
            bars(members(tool, "medians")),
        ]
    }));
    let step = at(stats, "step_seconds").as_u64().unwrap_or_default() / 60;
    let from = text(stats, "from");
    format!(
        "{}\n  since {from}, a bar for each {step} min\n",
        table(&rows)
    )
}

fn over_time(stats: &Value) -> String {
    let head = [
        "from",
        "began",
        "ended",
        "failed",
        "tool errors",
        "cancelled",
        "median",
        "90 %",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    let steps = members(stats, "steps").iter();
    // Most of a night has nothing to show.
    let some = steps.filter(|step| at(step, "ended") != 0 || at(step, "began") != 0);
    rows.extend(some.map(|step| {
        let count = |key: &str| at(step, key).to_string();
        [
            text(step, "at").get(..16).unwrap_or_default().to_owned() + "Z",
            count("began"),
            count("ended"),
            count("failed"),
            count("tool_error"),
            count("cancelled"),
            seconds(at(step, "median_seconds")),
            seconds(at(step, "p90_seconds")),
        ]
    }));
    if rows.len() == 1 {
        return "  nothing began, and nothing ended\n".to_owned();
    }
    table(&rows)
}

fn named(tool: &Value) -> String {
    match text(tool, "tool") {
        "" => "(other tools)".to_owned(),
        name => short(name),
    }
}

/// A duration with three digits, such as 1.23 s.
fn seconds(value: &Value) -> String {
    match value.as_f64() {
        None => String::new(),
        Some(seconds @ ..10.0) => format!("{seconds:.2}s"),
        Some(seconds @ ..100.0) => format!("{seconds:.1}s"),
        Some(seconds) => format!("{seconds:.0}s"),
    }
}

/// Values over time, each as a bar as high as it is in comparison. A space: there is none.
fn bars(values: &[Value]) -> String {
    let most = values.iter().filter_map(Value::as_f64).fold(0.0, f64::max);
    let bar = |value: &Value| {
        let Some(value) = value.as_f64() else {
            return ' ';
        };
        let full = BARS.iter().rev().zip((0..8).rev());
        let lower = full.map(|(bar, eighths)| (*bar, most * f64::from(eighths) / 8.0));
        let fits = lower
            .filter(|(_, from)| value > *from)
            .map(|(bar, _)| bar)
            .next();
        fits.unwrap_or('▁')
    };
    let line: String = values.iter().map(bar).collect();
    line.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(tool: Option<&str>, since: &str) -> StatsArgs {
        StatsArgs {
            tool: tool.map(str::to_owned),
            since: since.to_owned(),
        }
    }

    #[test]
    fn the_period_is_a_duration_as_in_the_settings() {
        let path = asked(Some("b*"), "7d").path().unwrap();
        assert_eq!(path, "/tools/stats?since=604800&tool=b*");
        let refused = asked(None, "monday").path().unwrap_err().text;
        assert!(refused.starts_with("--since monday: "), "{refused}");
    }

    #[test]
    fn tools_are_a_table_and_one_tool_is_shown_over_time() {
        let tool = json!({
            "tool": "build", "running": 1, "waiting": 0, "ended": 12, "failed": 1, "tool_error": 2, "cancelled": 3,
            "median_seconds": 1.234, "p90_seconds": 61.5, "paused": true, "medians": [null, 1.0, 8.0, null],
        });
        let empty = json!({"at": "2026-12-01T10:00:00.000Z", "began": 0, "ended": 0});
        let step = json!({
            "at": "2026-12-01T10:30:00.000Z", "began": 13, "ended": 12, "failed": 1, "tool_error": 2, "cancelled": 3,
            "median_seconds": 1.234, "p90_seconds": 161.5,
        });
        let stats = json!({
            "from": "2026-12-01T10:00:00.000Z", "step_seconds": 1800, "tools": [tool], "steps": [empty, step],
            "more_tools": 2, "history": true, "lost": true,
        });
        assert_eq!(
            asked(None, "1d").text(&stats),
            "  tool            running  waiting  ended  failed  tool errors  cancelled  median  90 %   median over time\n  \
               build (paused)  1        0        12     1       2            3          1.23s   61.5s   ▁█\n\n  \
               since 2026-12-01T10:00:00.000Z, a bar for each 30 min\n  \
               2 more tools, of which less ended\n  the store has lost some of the tasks that ended\n"
        );
        let over_time = asked(Some("build"), "1d").text(&stats);
        assert!(
            over_time.starts_with(
                "  from               began  ended  failed  tool errors  cancelled  median  90 %\n  \
                   2026-12-01T10:30Z  13     12     1       2            3          1.23s   162s\n"
            ),
            "{over_time}"
        );
    }
}
