//! Rules for the job tools of servers that many people use, as data: `presets.toml`. A configuration names the one that it
//! wants; none applies by itself.

use figment::Figment;
use figment::providers::{Format as _, Toml};
use serde::Deserialize;

use super::file_jobs::Job;
use super::problem::nearest;

/// The rules for one server.
#[derive(Deserialize)]
pub(super) struct Preset {
    /// The name in the configuration.
    pub(super) name: String,
    /// The registry and the package of the server, such as `npm:firecrawl-mcp`.
    pub(super) package: String,
    /// The versions whose tools and answers the rules were compared with. The data has how, and when.
    pub(super) versions: String,
    pub(super) jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Presets {
    preset: Vec<Preset>,
}

const PRESETS: &str = include_str!("presets.toml");

/// All presets, by name.
pub(super) fn presets() -> Vec<Preset> {
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
        let text =
            "stands beside hide and poll only; to change more, write the entry out without it";
        return Err(("preset", text.to_owned()));
    }
    let all = presets();
    let Some(preset) = all.into_iter().find(|preset| preset.name == name) else {
        let names: Vec<_> = presets().into_iter().map(|preset| preset.name).collect();
        let meant = nearest(&name, names.iter().map(String::as_str))
            .map(|name| format!("did you mean {name}? "))
            .unwrap_or_default();
        let text = format!(
            "{name:?} is no preset; {meant}there are {}",
            names.join(", ")
        );
        return Err(("preset", text));
    };
    let mut entries = preset.jobs;
    for entry in &mut entries {
        entry.hide |= hide;
        entry.poll = poll.or(std::mem::take(&mut entry.poll));
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preset_takes_pauses_and_hides_and_nothing_else() {
        let job = |text: &str| -> Job { Figment::from(Toml::string(text)).extract().unwrap() };
        let preset = "preset = \"heygen\"\n";
        let with = format!("{preset}hide = true\npoll = {{ first = \"2s\" }}");
        let own = presets()
            .into_iter()
            .find(|it| it.name == "heygen")
            .unwrap();
        let own = own.jobs[0].poll.max.unwrap();
        for entry in entries(job(&with)).unwrap() {
            let poll = entry.poll;
            assert!(entry.hide && poll.first.unwrap().as_secs() == 2 && poll.max == Some(own));
        }
        let (setting, text) = entries(job(&format!("{preset}start = \"a\""))).unwrap_err();
        assert!(
            setting == "preset" && text.contains("write the entry out"),
            "{text}"
        );
        let (_, text) = entries(job("preset = \"nobody\"")).unwrap_err();
        assert!(
            text.contains("there are") && text.contains("heygen"),
            "{text}"
        );
        let (_, text) = entries(job("preset = \"firecrwl\"")).unwrap_err();
        assert!(text.contains("did you mean firecrawl?"), "{text}");
    }
}
