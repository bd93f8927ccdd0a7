//! Rules for the job tools of servers that many people use, as data: `presets.toml`. A configuration names the one that it
//! wants; none applies by itself.

use figment::Figment;
use figment::providers::{Format as _, Toml};
use serde::Deserialize;

use super::file_jobs::{Job, WrittenPolls};
use super::jobs;
use crate::jobs::job_call::JobCall;
use crate::mcp::tools::Tools;
use crate::task::job_rules::JobRules;

/// The rules for one server.
#[derive(Deserialize)]
struct Preset {
    /// The name in the configuration.
    name: String,
    /// The registry and the package of the server, such as `npm:firecrawl-mcp`.
    package: String,
    /// The version whose tools and answers the rules were compared with. The data has how, and when.
    versions: String,
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Presets {
    preset: Vec<Preset>,
}

const PRESETS: &str = include_str!("presets.toml");

/// All presets, by name.
fn presets() -> Vec<Preset> {
    let read = Figment::from(Toml::string(PRESETS)).extract::<Presets>();
    // A test reads the data, so that this is never empty.
    read.map(|read| read.preset).unwrap_or_default()
}

/// Returns the entries in place of one that names a preset, or the entry itself. `Err`: the setting that is wrong, and why.
pub(super) fn entries(mut job: Job) -> Result<Vec<Job>, (&'static str, String)> {
    let Some(name) = job.preset.take() else {
        return Ok(vec![job]);
    };
    let hide = std::mem::take(&mut job.hide);
    let poll = std::mem::take(&mut job.poll);
    if job != Job::default() {
        let text = "stands beside hide and poll only: write the entry out, from src/config/presets.toml, to change more";
        return Err(("preset", text.to_owned()));
    }
    let all = presets();
    let Some(preset) = all.into_iter().find(|preset| preset.name == name) else {
        let names: Vec<_> = presets().into_iter().map(|preset| preset.name).collect();
        let text = format!("{name:?} is no preset; there are {}", names.join(", "));
        return Err(("preset", text));
    };
    let mut entries = preset.jobs;
    for entry in &mut entries {
        entry.hide |= hide;
        if poll != WrittenPolls::default() {
            entry.poll = poll.clone();
        }
    }
    Ok(entries)
}

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

    #[test]
    fn a_preset_takes_pauses_and_hides_and_nothing_else() {
        let job = |text: &str| -> Job { Figment::from(Toml::string(text)).extract().unwrap() };
        let first = presets().remove(0).name;
        let preset = format!("preset = {first:?}\n");
        let with = format!("{preset}hide = true\npoll = {{ first = \"9s\" }}");
        for entry in entries(job(&with)).unwrap() {
            assert!(entry.hide && entry.poll.first.as_secs() == 9);
        }
        let (setting, text) = entries(job(&format!("{preset}start = \"a\""))).unwrap_err();
        assert!(
            setting == "preset" && text.contains("write the entry out"),
            "{text}"
        );
        let (_, text) = entries(job("preset = \"nobody\"")).unwrap_err();
        assert!(
            text.contains("there are") && text.contains(&first),
            "{text}"
        );
    }
}
