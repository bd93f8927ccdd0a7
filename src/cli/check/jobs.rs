//! The rules for job tools that the server's tools suggest. None applies by itself.

use std::fmt::Write as _;

use crate::cli::inspect::Inspection;
use crate::cli::table::cleaned;
use crate::config::Config;
use crate::config::fitting::presets_that_fit;
use crate::jobs::suggested::{JobGroup, groups};
use crate::mcp::json::quote;

/// A rule that the configuration lacks and the server's tools suggest.
pub(super) struct SuggestedJob {
    /// As the configuration has it.
    pub(super) rule: String,
    pub(super) reason: String,
}

/// The suggestions for tools that no rule is about. A preset takes the place of what its tools look like.
pub(super) fn suggested(config: &Config, found: &Inspection) -> Vec<SuggestedJob> {
    let (rules, tools) = (config.rules.jobs(), &found.tools);
    let mut covered: Vec<&str> = tools.names().filter(|tool| rules.may_start(tool)).collect();
    // Servers that are related have tools of one name: their presets are all shown.
    let fitting = presets_that_fit(tools)
        .filter(|preset| !preset.starts.iter().any(|start| covered.contains(start)));
    let fitting: Vec<_> = fitting.collect();
    let presets = fitting.iter().map(|preset| SuggestedJob {
        rule: format!("[[jobs]]\npreset = {:?}\n", preset.name),
        reason: format!(
            "a preset for {} {}, whose tools have the same names",
            preset.package, preset.versions
        ),
    });
    let mut all: Vec<_> = presets.collect();
    covered.extend(fitting.into_iter().flat_map(|preset| preset.starts));
    let is_new = |group: &JobGroup<'_>| !group.starts.iter().any(|start| covered.contains(start));
    let groups = groups(tools).into_iter().filter(is_new);
    all.extend(groups.map(|group| of_group(&group)));
    all
}

fn of_group(group: &JobGroup<'_>) -> SuggestedJob {
    let mut rule = String::from("[[jobs]]\n");
    let start = match group.starts.as_slice() {
        [start] => toml(start),
        starts => format!(
            "[{}]",
            starts
                .iter()
                .map(|it| toml(it))
                .collect::<Vec<_>>()
                .join(", ")
        ),
    };
    let lines = [
        ("start", Some(start)),
        ("status", Some(toml(group.status))),
        (
            "result",
            group
                .result
                .map(|tool| format!("{{ tool = {} }}", toml(tool))),
        ),
        ("cancel", group.cancel.map(toml)),
    ];
    for (key, value) in lines {
        if let Some(value) = value {
            let _ = writeln!(rule, "{key} = {value}");
        }
    }
    let (status, id) = (cleaned(group.status), cleaned(group.id_argument));
    let reason = if group.is_any_start {
        format!(
            "{status} reports on any job by its {id}: keep in start only the tools whose answers have one"
        )
    } else {
        let starts = cleaned(&group.starts.join(", "));
        format!("{status} takes {id}, which the answer of {starts} may have")
    };
    SuggestedJob { rule, reason }
}

/// Returns a name as a text of TOML, in one line. A text of JSON is one, but for the character that `cleaned` replaces.
fn toml(name: &str) -> String {
    quote(&cleaned(name))
}

/// Returns the suggestions as commented entries. Empty if there are none.
pub(super) fn text(suggested: &[SuggestedJob]) -> String {
    if suggested.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "\n  Some tools look like tools that start and follow a job. With a rule, raincheck follows the job, and the call that starts it ends\n  \
         with its result (docs/jobs.md). No rule applies by itself. Look at the answers of these tools before you take one over:\n",
    );
    for SuggestedJob { rule, reason } in suggested {
        let _ = write!(text, "\n# {reason}\n");
        for line in rule.lines() {
            let _ = writeln!(text, "# {line}");
        }
    }
    text
}
