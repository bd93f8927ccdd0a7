//! The rules for job tools that the server's tools suggest. None applies by itself.

use std::fmt::Write as _;

use crate::cli::inspect::Inspection;
use crate::cli::table::cleaned;
use crate::config::Config;
use crate::config::fitting::presets_that_fit;
use crate::jobs::suggested::{JobGroup, groups};

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
    let mut all = Vec::new();
    for preset in presets_that_fit(tools) {
        if preset.starts.iter().any(|start| covered.contains(start)) {
            continue;
        }
        all.push(SuggestedJob {
            rule: format!("[[jobs]]\npreset = {:?}\n", preset.name),
            reason: format!(
                "the tools are those of {} {}, for which raincheck has a preset",
                preset.package, preset.versions
            ),
        });
        covered.extend(preset.starts);
    }
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
        format!("{status} reports on any job by its {id}: keep as start what is answered with one")
    } else {
        let starts = cleaned(&group.starts.join(", "));
        format!("{status} reports on something by its {id}, which {starts} may be answered with")
    };
    SuggestedJob { rule, reason }
}

/// Returns a name as a text of TOML, in one line.
fn toml(name: &str) -> String {
    format!("{:?}", cleaned(name))
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
