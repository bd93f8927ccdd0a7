//! The presets for job tools that fit a server.

use super::jobs;
use super::presets::{Preset, presets};
use crate::jobs::job_call::JobCall;
use crate::mcp::tools::Tools;
use crate::task::job_rules::JobRules;

/// A preset for a server that has its tools.
#[derive(Debug)]
pub struct FittingPreset<'t> {
    pub name: String,
    pub package: String,
    pub versions: String,
    /// The tools that start jobs by its rules.
    pub starts: Vec<&'t str>,
}

/// The presets whose tools, with the arguments that the rules name, are all among these.
pub fn presets_that_fit(tools: &Tools) -> impl Iterator<Item = FittingPreset<'_>> {
    let fits = |preset: Preset| {
        let rules = jobs::jobs(preset.jobs).ok()?;
        Some(FittingPreset {
            name: preset.name,
            package: preset.package,
            versions: preset.versions,
            starts: starts(&rules, tools)?,
        })
    };
    presets().into_iter().filter_map(fits)
}

/// Returns the tools that start jobs by these rules. `None`: one of the rules is not about tools of this server.
fn starts<'t>(rules: &JobRules, tools: &'t Tools) -> Option<Vec<&'t str>> {
    let mut all = Vec::new();
    for (start, rule) in rules.entries() {
        let before = all.len();
        all.extend(tools.names().filter(|tool| {
            let call = JobCall::of(rule, tool, |name| tools.get(name));
            start.names(tool)
                && call.is_ok_and(|call| call.unknown_arguments(tool, tools).next().is_none())
        }));
        if all.len() == before {
            return None;
        }
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::recorded;

    #[test]
    fn each_preset_fits_the_tools_that_its_server_listed() {
        let lists = recorded::all();
        let presets = presets();
        assert!(presets.len() >= 20, "{}", presets.len());
        for preset in presets {
            let Preset { name, package, .. } = preset;
            let rules = jobs::jobs(preset.jobs).unwrap();
            let mut of_package = lists.iter().filter(|(_, list)| {
                list["package"] == *package
                    && preset.versions.split(", ").any(|it| list["version"] == *it)
            });
            let (_, list) = of_package.next().expect(&package);
            let tools = recorded::tools(list);
            for (start, rule) in rules.entries() {
                let starts: Vec<_> = tools.names().filter(|tool| start.names(tool)).collect();
                assert!(
                    !starts.is_empty(),
                    "{name}: no tool starts {:?}",
                    rule.status
                );
                for tool in starts {
                    let call = JobCall::of(rule, tool, |name| tools.get(name)).expect(&name);
                    let unknown: Vec<_> = call.unknown_arguments(tool, &tools).collect();
                    assert!(unknown.is_empty(), "{name}: {unknown:?}");
                }
            }
            let mut fitting = presets_that_fit(&tools);
            assert!(fitting.any(|fitting| fitting.name == name), "{name}");
        }
    }
}
