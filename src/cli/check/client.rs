//! `raincheck check --client NAME[@VERSION]`: what one client gets for calls that take long, and why.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::large_results;
use crate::cli::failure::CommandFailure;
use crate::cli::stdout::print;
use crate::cli::table::{short, table};
use crate::config::warnings::name;
use crate::config::{CompanionUse, Config, duration_text};
use crate::mcp::version::{Era, LEGACY_NEWEST, MODERN};
use crate::task::clients::{Choice, ClientTerms, KnownClient, KnownTasks, OnProgress, Patience};

/// Prints the settings that a client gets. The server is not asked: none of them depends on the server.
pub(in crate::cli) fn client(
    config: &Config,
    wanted: &str,
    as_json: bool,
) -> Result<ExitCode, CommandFailure> {
    if wanted.is_empty() || wanted.starts_with('@') {
        let text =
            "--client: no name; write what the client says of itself, such as opencode@1.18.33";
        return Err(CommandFailure::usage(text));
    }
    let report = report(config, wanted);
    let text = if as_json {
        format!("{}\n", report.json())
    } else {
        report.text()
    };
    print(text)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) struct ClientReport {
    /// The client that was asked for.
    wanted: String,
    client: Option<&'static KnownClient>,
    gets: Vec<Gets>,
}

/// One thing that the client gets.
struct Gets {
    /// Under which rule.
    rule: String,
    setting: &'static str,
    value: String,
    why: &'static str,
}

fn split(wanted: &str) -> (&str, &str) {
    // The name itself may have an `@`, so the last one counts.
    wanted.rsplit_once('@').unwrap_or((wanted, ""))
}

pub(super) fn report(config: &Config, wanted: &str) -> ClientReport {
    let (named, version) = split(wanted);
    let client = KnownClient::named(named, version);
    let terms = ClientTerms::of(client);
    let mut gets = Vec::new();
    let rules = std::iter::once(config.rules.defaults()).chain(config.rules.entries());
    for (place, rule) in rules.enumerate() {
        // The first rule is the one of `[tasks]`, which has no place among the entries.
        let place = place.checked_sub(1);
        let (is_first, defaults) = (place.is_none(), config.rules.defaults());
        // A value that an entry only inherits would repeat the line of `[tasks]`.
        if is_first || rule.heartbeat != defaults.heartbeat {
            let beats = terms.heartbeat(rule);
            gets.push(Gets {
                rule: name(place),
                setting: "heartbeat",
                value: on(beats.value),
                why: beats.why,
            });
        }
        if is_first || rule.fallback_after_ms != defaults.fallback_after_ms {
            let after = terms.fallback_after_ms(rule);
            gets.push(Gets {
                rule: name(place),
                setting: "fallback_after",
                value: duration_text(after.value),
                why: after.why,
            });
        }
    }
    for (era, revision) in [(Era::Modern, MODERN), (Era::Legacy, LEGACY_NEWEST)] {
        let choice = companion_tools(config, terms, era);
        gets.push(Gets {
            rule: format!("client of {revision}"),
            setting: "companion_tools",
            value: on(choice.value),
            why: choice.why,
        });
    }
    gets.extend(large_results(config, terms));
    let told = terms.tasks_of_2025();
    gets.push(Gets {
        rule: "client of 2025-11-25".to_owned(),
        setting: "told of tasks",
        value: on(told.value),
        why: told.why,
    });
    ClientReport {
        wanted: wanted.to_owned(),
        client,
        gets,
    }
}

/// Returns the handling of large results for the client, under each rule that differs from the defaults. Companion
/// tools depend on the revision that the client speaks, so there may be two lines.
fn large_results(config: &Config, terms: ClientTerms) -> Vec<Gets> {
    let mut gets = Vec::new();
    let defaults = config.rules.defaults();
    let entries = config.rules.entries().enumerate();
    let others = entries.filter(|(_, rule)| rule.result_inline != defaults.result_inline);
    let rules = others.map(|(place, rule)| (Some(place), rule));
    for (place, rule) in std::iter::once((None, defaults)).chain(rules) {
        let [modern, legacy] = [Era::Modern, Era::Legacy].map(|era| {
            let has_ours = companion_tools(config, terms, era).value;
            large_results::gets(rule.result_inline, has_ours)
        });
        let lines = if modern == legacy {
            vec![(name(place), modern)]
        } else {
            let of = |revision| format!("{}, client of {revision}", name(place));
            vec![(of(MODERN), modern), (of(LEGACY_NEWEST), legacy)]
        };
        gets.extend(lines.into_iter().map(|(rule, choice)| Gets {
            rule,
            setting: "result_inline",
            value: choice.value,
            why: choice.why,
        }));
    }
    let rules = std::iter::once((None, defaults)).chain(
        config
            .rules
            .entries()
            .enumerate()
            .map(|(place, rule)| (Some(place), rule)),
    );
    gets.extend(rules.filter_map(|(place, rule)| {
        let is_said =
            place.is_none() || rule.max_result_size_chars != defaults.max_result_size_chars;
        Some(Gets {
            rule: name(place),
            setting: "max_result_size_chars",
            value: rule.max_result_size_chars.filter(|_| is_said)?.to_string(),
            why: "the settings say so; Claude Code keeps to it",
        })
    }));
    gets
}

fn companion_tools(config: &Config, terms: ClientTerms, era: Era) -> Choice<bool> {
    let said = |value| Choice {
        value,
        why: "the settings say so",
    };
    match config.companion.as_ref().map(|companion| companion.used) {
        None => said(false),
        Some(CompanionUse::Always) => said(true),
        Some(CompanionUse::KnownToNeed | CompanionUse::AllButKnownNotTo) => {
            terms.companion_tools(era)
        }
    }
}

fn on(is: bool) -> String {
    if is { "on" } else { "off" }.to_owned()
}

impl ClientReport {
    pub(super) fn text(&self) -> String {
        let mut out = match self.client {
            Some(client) => known(client) + &self.version_note(),
            None => format!(
                "{} is not known: it gets what helps most clients.\nKnown are {}. The name is the one in \
                 clientInfo, letter by letter; it is not always the one on the box.\n",
                short(&self.wanted),
                KnownClient::names().join(", ")
            ),
        };
        let rows: Vec<[String; 4]> = self
            .gets
            .iter()
            .map(|it| {
                let Gets {
                    rule,
                    setting,
                    value,
                    why,
                } = it;
                [
                    rule.clone(),
                    (*setting).to_owned(),
                    value.clone(),
                    (*why).to_owned(),
                ]
            })
            .collect();
        out.push('\n');
        out.push_str(&table(&rows));
        out
    }

    /// Returns a note on the version, where it is not the one that was probably meant.
    fn version_note(&self) -> String {
        let (name, version) = split(&self.wanted);
        if !KnownClient::depends_on_version(name) || KnownClient::reads_version(version) {
            return String::new();
        }
        let said = if version.is_empty() {
            "No version was given".to_owned()
        } else {
            format!("\"{}\" is no version of numbers", short(version))
        };
        format!(
            "\n{said}, so this is what an old {} gets: write {name}@1.2.3.\n",
            short(name)
        )
    }

    pub(super) fn json(&self) -> Value {
        let gets: Vec<Value> = self
            .gets
            .iter()
            .map(|it| json!({"for": it.rule, "setting": it.setting, "value": it.value, "why": it.why}))
            .collect();
        let known = self.client.map(|client| {
            json!({
                "name": client.name,
                "since": client.since,
                "patienceSeconds": match client.patience {
                    Patience::Unlimited => None,
                    Patience::Seconds(seconds) => Some(seconds),
                },
                "onProgress": on_progress(client.on_progress),
                "tasks": tasks(client.tasks),
                "readsLinks": client.reads_links,
                "largeResults": client.large_results,
                "foundOut": {
                    "basis": client.found_out.basis.word(),
                    "what": client.found_out.what,
                    "date": client.found_out.date,
                },
            })
        });
        json!({"client": self.wanted, "known": known, "gets": gets})
    }
}

/// Returns the known facts about a client, and their source.
fn known(client: &KnownClient) -> String {
    let patience = match client.patience {
        Patience::Unlimited => "none of its own".to_owned(),
        Patience::Seconds(seconds) => duration_text(u64::from(seconds) * 1000),
    };
    let links = match client.reads_links {
        Some(true) => "fetched",
        Some(false) => "not fetched",
        None => "not known",
    };
    let large = match client.large_results {
        "" => "not known",
        said => said,
    };
    let found = &client.found_out;
    let rows = [
        ["client", &client.to_string()],
        ["limit of a call", &patience],
        ["on progress", on_progress(client.on_progress)],
        ["tasks", tasks(client.tasks)],
        ["resource links", links],
        ["large results", large],
        [
            "found out",
            &format!("{} on {}: {}", found.basis.word(), found.date, found.what),
        ],
    ];
    table(&rows.map(|row| row.map(str::to_owned)))
}

fn on_progress(what: OnProgress) -> &'static str {
    match what {
        OnProgress::Restarts => "the limit starts anew",
        OnProgress::GoesOn => "the limit goes on",
        OnProgress::NotKnown => "not known",
    }
}

fn tasks(what: KnownTasks) -> &'static str {
    match what {
        KnownTasks::None => "none",
        KnownTasks::Of2025 => "of 2025-11-25",
        KnownTasks::Of2026 => "the extension of 2026-07-28",
        KnownTasks::BlocksOn2025 => "of 2025-11-25, and its user can do nothing while one runs",
    }
}
