//! `raincheck check`: what the configuration means, whether the wrapped server answers, and which
//! rule each of its tools gets.

use std::process::ExitCode;

use serde_json::{Value, json};

pub(super) use self::client::client;
use self::credentials::credentials;
use self::jobs::SuggestedJob;
use self::learned::{clocks, learned};
use self::sealing::sealing;
use self::webhooks::told;
use super::failure::CommandFailure;
use super::inspect::{Inspection, inspect};
use super::process::runtime;
use super::stdout::print;
use super::table::{short, table};
use crate::app::{OtherReplicas, StoreFound, check_auth, check_store, check_traces, tls_files};
use crate::config::warnings::{name, unfit_jobs, warnings, without_tools};
use crate::config::{
    CompanionUse, Config, Location, TelemetrySettings, TransportChoice, Wrapped, duration_text,
    size_text,
};
use crate::mcp::version::Era;
use crate::platform::LACKS;
use crate::store::embedded::FileState;
use crate::task::clients::ClientTerms;
use crate::task::policy::{Concurrency, Limit, Mode, Rules};
use crate::tls;

pub(super) fn check(config: &Config, as_json: bool) -> Result<ExitCode, CommandFailure> {
    let runtime = runtime()?;
    // All looks run together, because each of them may take as long as its timeout.
    let (inspection, store, auth, traces) = runtime.block_on(async {
        tokio::join!(
            inspect(config),
            check_store(config),
            check_auth(config),
            check_traces(config)
        )
    });
    // Do not wait for a file system or a name server that hangs.
    runtime.shutdown_background();
    let certificate = tls_files(config).map(|files| {
        tls::server_config(&files)
            .and_then(|_| tls::check_dates(&files))
            .map_err(|e| e.to_string())
    });
    let report = report(
        config,
        (auth, traces),
        certificate,
        store.map_err(|e| e.to_string()),
        inspection.as_ref().map_err(String::as_str),
    );
    let text = if as_json {
        format!("{}\n", report.json)
    } else {
        report.text
    };
    print(text)?;
    Ok(ExitCode::from(u8::from(!report.good)))
}

/// Silences the log of failed connections, because the report names the reason.
pub(super) fn telemetry(settings: &TelemetrySettings) -> TelemetrySettings {
    TelemetrySettings {
        log: format!("raincheck::upstream::http::connect=error,{}", settings.log),
        ..settings.clone()
    }
}

struct Report {
    text: String,
    /// The same for scripts.
    json: Value,
    good: bool,
}

/// A fact that was found out, or a fault.
type Finding = Result<String, String>;

/// The report, from all findings.
fn report(
    config: &Config,
    (auth, traces): (Vec<Finding>, Option<Finding>),
    certificate: Option<Result<(), String>>,
    store: Result<StoreFound, String>,
    inspection: Result<&Inspection, &str>,
) -> Report {
    let mut verdicts = vec![("config", Ok("every setting is right".to_owned()))];
    verdicts.extend(LACKS.map(|text| ("system", Ok(text.to_owned()))));
    verdicts.push(("listen", exposure(config)));
    verdicts.extend(auth.into_iter().map(|found| ("auth", found)));
    if let Some(certificate) = certificate {
        verdicts.push((
            "tls",
            certificate.map(|()| "certificate and key fit".to_owned()),
        ));
    }
    verdicts.extend(of_store(config, store));
    let over_sse = match inspection {
        Ok(found) => found.over_sse,
        Err(_) => config.upstream.transport == TransportChoice::Sse,
    };
    let recovery = if over_sse {
        "a call whose process dies is lost with its stream".to_owned()
    } else {
        recovery(config)
    };
    verdicts.push(("recovery", Ok(recovery)));
    verdicts.extend(credentials(config).map(|text| ("callers", Ok(text))));
    if let Some(text) = tickets(config) {
        verdicts.push(("companion", Ok(text)));
    }
    let server = &config.upstream.server;
    verdicts.push((
        "upstream",
        match inspection {
            Ok(found) => Ok(format!("{server} answers{}{}", named(found), start(found))),
            Err(why) => Err(format!("{server}: {why}")),
        },
    ));
    if let Ok(found) = inspection {
        verdicts.push(("era", Ok(era(found))));
        verdicts.push(("capabilities", Ok(capabilities(found))));
    }

    if let Some(limit) = config.upstream.concurrency {
        verdicts.push(("concurrency", Ok(limited(limit, "all calls together"))));
    }

    verdicts.extend(told(config).map(|(subject, text)| (subject, Ok(text))));

    let [traces, without_traces] = of_traces(traces);
    verdicts.extend(traces.map(|(subject, text)| (subject, Ok(text))));

    let good = verdicts.iter().all(|(_, verdict)| verdict.is_ok());
    let mut rows: Vec<_> = verdicts
        .into_iter()
        .map(|(subject, verdict)| match verdict {
            Ok(text) => ["ok".to_owned(), subject.to_owned(), text],
            Err(text) => ["WRONG".to_owned(), subject.to_owned(), text],
        })
        .collect();
    let warn = |(subject, text): (&str, String)| ["warn".to_owned(), subject.to_owned(), text];
    let names = inspection.map_or_else(|_| Vec::new(), Inspection::tool_names);
    let further = warnings(config).chain(found_warnings(config, &names, inspection.ok()));
    rows.extend(further.chain(without_traces).map(warn));
    let mut text = table(&rows);
    let tools = tool_rows(&config.rules, &names);
    let suggested = inspection.map_or_else(|_| Vec::new(), |found| jobs::suggested(config, found));
    if inspection.is_ok() {
        text.push('\n');
        text.push_str(&tools_text(&tools));
        text.push_str(&jobs::text(&suggested));
    }
    Report {
        json: as_json(good, &rows, &tools, &suggested),
        text,
        good,
    }
}

/// Where spans go: as a verdict, or, because raincheck works as well without its collector, as a warning.
fn of_traces(found: Option<Finding>) -> [Option<(&'static str, String)>; 2] {
    match found {
        Some(Ok(text)) => [Some(("traces", text)), None],
        Some(Err(text)) => [None, Some(("traces", text))],
        None => [None, None],
    }
}

/// The most that the store holds. `docs/design/writes.md` has every write and its bound.
fn store_size(config: &Config) -> String {
    let tasks = size_text(config.limits.tasks.bytes);
    format!(
        "up to {tasks} of tasks (limits.task_bytes), 80MiB of sessions, and 4MiB for each call on a session while it runs; \
         each replica as much"
    )
}

/// Where tasks live, what they may need there, and what of them is sealed.
fn of_store(
    config: &Config,
    found: Result<StoreFound, String>,
) -> impl Iterator<Item = (&'static str, Result<String, String>)> {
    let others = found.as_ref().map(|found| found.others);
    let learned = found
        .as_ref()
        .ok()
        .and_then(|found| learned(&found.learned));
    let clocks = found.as_ref().ok().and_then(|found| clocks(&found.clocks));
    let settings = &config.store;
    // A store without an answer shows no key of other replicas.
    let sealed = sealing(settings, others.unwrap_or(OtherReplicas::Keyless));
    let described = found.map(|found| describe_store(&settings.location, found.file));
    let sealed = sealed.map(|said| ("sealing", said));
    let learned = learned.map(|text| ("polling", Ok(text)));
    let clocks = clocks.map(|text| ("clocks", Ok(text)));
    let size = ("size", Ok(store_size(config)));
    [("store", described), size]
        .into_iter()
        .chain(sealed)
        .chain(learned)
        .chain(clocks)
}

fn capabilities(found: &Inspection) -> String {
    let names: Vec<_> = found.capabilities.iter().map(|c| short(c)).collect();
    match names.as_slice() {
        [] => "none".to_owned(),
        some => some.join(", "),
    }
}

fn as_json(
    good: bool,
    rows: &[[String; 3]],
    tools: &[[String; 8]],
    suggested: &[SuggestedJob],
) -> Value {
    let findings: Vec<Value> = rows
        .iter()
        .map(|[verdict, subject, text]| json!({"verdict": verdict, "subject": subject, "text": text}))
        .collect();
    let tools: Vec<Value> = tools
        .iter()
        .map(|row| {
            TOOL_COLUMNS
                .iter()
                .copied()
                .zip(row.iter().map(|cell| json!(cell)))
        })
        .map(|row| row.map(|(name, cell)| (name.to_owned(), cell)).collect())
        .map(Value::Object)
        .collect();
    let jobs: Vec<Value> = suggested
        .iter()
        .map(|it| json!({"rule": it.rule, "reason": it.reason}))
        .collect();
    json!({"good": good, "findings": findings, "tools": tools, "suggested_jobs": jobs})
}

fn limited(limit: Limit, of: &str) -> String {
    format!("{} {of}, {} wait", limit.at_once, limit.queue)
}

/// Returns the time that the program took to start, which every first client waits for.
fn start(found: &Inspection) -> String {
    let took = found.started_in;
    took.map(|took| format!(", {:.1} s after its start", took.as_secs_f64()))
        .unwrap_or_default()
}

/// The address, unless it can be reached and must not be.
fn exposure(config: &Config) -> Finding {
    let refused = config
        .refuse_exposure()
        .and_then(|()| config.refuse_circle());
    refused.map_err(|e| e.to_string())?;
    Ok(listening(config))
}

fn listening(config: &Config) -> String {
    let listen = &config.listen;
    let scheme = if listen.tls.is_some() {
        "https"
    } else {
        "http"
    };
    format!("{scheme}://{}{}", listen.address, listen.path)
}

/// Describes the store, without the URL of a Redis, which may hold a password.
fn describe_store(location: &Location, state: FileState) -> String {
    match location {
        Location::Memory => "memory: tasks are gone when the process ends".to_owned(),
        Location::Embedded(path) => {
            let path = path.display();
            match state {
                FileState::Free => format!("{path}: for one process"),
                FileState::InUse(None) => format!("{path}: for one process, which has it now"),
                FileState::InUse(Some(pid)) => {
                    format!("{path}: for one process, which has it now (pid {pid})")
                }
            }
        }
        Location::Slots(path) => {
            format!("{}: one of several, for one process each", path.display())
        }
        Location::Redis { .. } => location.to_string(),
    }
}

/// Returns the sentence about a call whose process dies.
fn recovery(config: &Config) -> String {
    // A program ends with this process, whatever the store is.
    if matches!(config.upstream.server, Wrapped::Command(_)) {
        return "a call whose process dies is lost with its child".to_owned();
    }
    let own = "only by a replica of the same id, the server being its own";
    let text = match &config.store.location {
        Location::Memory => "a call whose process dies is lost with it",
        Location::Embedded(_) | Location::Slots(_) => {
            "the next start resumes a call where the server's streams allow it"
        }
        Location::Redis { .. } if config.store.seal_key.is_none() => {
            "no store.seal_key: a call whose replica dies is not resumed, and fails"
        }
        Location::Redis { .. } if config.upstream.shared => {
            "any replica resumes a call where the server's streams allow it"
        }
        Location::Redis { .. } => {
            return format!("a call is resumed where the server's streams allow it, {own}");
        }
    };
    text.to_owned()
}

/// Returns the sentence about long calls of clients without Tasks, where the operator has set it. Otherwise it
/// depends on the client.
fn tickets(config: &Config) -> Option<String> {
    let companion = config.companion.as_ref()?;
    if companion.used != CompanionUse::Always {
        return None;
    }
    let rule = config.rules.defaults();
    let after = duration_text(ClientTerms::default().fallback_after_ms(rule).value);
    let known = match rule.fallback_after_ms {
        Some(_) => "",
        None => ", unless it is known to need another time",
    };
    Some(format!(
        "a client without Tasks gets a ticket after {after}{known}"
    ))
}

fn named(found: &Inspection) -> String {
    found
        .server
        .as_ref()
        .map(|name| format!(": {}", short(name)))
        .unwrap_or_default()
}

/// Returns warnings where the server's answers differ from the operator's probable expectation.
fn found_warnings(
    config: &Config,
    names: &[String],
    found: Option<&Inspection>,
) -> impl Iterator<Item = (&'static str, String)> {
    let without = without_tools(&config.rules, names).map(|text| ("tools", text));
    let jobs = found.into_iter().flat_map(|found| {
        let unfit = unfit_jobs(&config.rules, &found.tools);
        unfit.map(|text| ("jobs", text))
    });
    without.chain(jobs).chain(found.and_then(redirected))
}

/// A redirect costs a request after each start, and is followed within the server only.
fn redirected(found: &Inspection) -> Option<(&'static str, String)> {
    let to = short(found.redirected.as_ref()?);
    let text =
        format!("it redirects to {to}, which is followed; write that address in upstream.url");
    Some(("upstream", text))
}

fn era(found: &Inspection) -> String {
    match found.era {
        Era::Legacy if found.over_sse => {
            "legacy, over HTTP+SSE (2024-11-05): translated for all clients".to_owned()
        }
        Era::Legacy => "legacy (2025-11-25 or before): translated for modern clients".to_owned(),
        Era::Modern => "modern (2026-07-28)".to_owned(),
    }
}

/// The columns of the table of tools.
const TOOL_COLUMNS: [&str; 8] = [
    "tool",
    "rule",
    "mode",
    "max_duration",
    "retention",
    "input",
    "concurrency",
    "result_inline",
];

fn tools_text(rows: &[[String; 8]]) -> String {
    if rows.is_empty() {
        return "  The server offers no tools to a client without credentials.\n".to_owned();
    }
    let header = TOOL_COLUMNS.map(str::to_owned);
    let all: Vec<_> = std::iter::once(header)
        .chain(rows.iter().cloned())
        .collect();
    table(&all)
}

/// Each tool with the rule that applies to it.
fn tool_rows(rules: &Rules, names: &[String]) -> Vec<[String; 8]> {
    let mut rows = Vec::new();
    for tool in names {
        let (rule, place) = rules.for_tool(tool);
        let mut mode = match rule.mode {
            Mode::Auto => format!("auto after {}", duration_text(rule.grace_window_ms)),
            Mode::Always | Mode::Never => rule.mode.word().to_owned(),
        };
        if rule.require_tasks {
            mode.push_str(", required");
        }
        rows.push([
            short(tool),
            name(place),
            mode,
            duration_text(rule.max_duration_ms),
            duration_text(rule.retention_ms),
            rule.input.word().to_owned(),
            match rule.concurrency {
                Some(Concurrency::EachTool(limit)) => limited(limit, "at once"),
                Some(Concurrency::Together(limit)) => limited(limit, "with the rule's others"),
                None => "any".to_owned(),
            },
            large_results::setting(rule.result_inline),
        ]);
    }
    rows
}

mod client;
mod credentials;
mod jobs;
mod large_results;
mod learned;
mod sealing;
#[cfg(test)]
mod tests;
mod webhooks;
