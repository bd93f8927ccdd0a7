//! `raincheck check`: what the configuration means, whether the wrapped server answers, and which
//! rule each of its tools gets.

use std::io::{self, Write as _};
use std::process::ExitCode;

use super::failure::CommandFailure;
use super::inspect::{Inspection, inspect};
use super::process::runtime;
use super::table::{duration, printable, table};
use super::warnings::{name, warnings};
use crate::app::{check_auth, check_store};
use crate::config::{
    CompanionSettings, Config, Location, TelemetrySettings, TransportChoice, Wrapped,
};
use crate::mcp::version::Era;
use crate::store::embedded::FileState;
use crate::task::policy::{Concurrency, Limit, Mode, Rules};
use crate::tls;

pub(super) fn check(config: &Config) -> Result<ExitCode, CommandFailure> {
    let runtime = runtime()?;
    let (inspection, store) =
        runtime.block_on(async { tokio::join!(inspect(config), check_store(config)) });
    // Do not wait for a file system or a name server that hangs.
    runtime.shutdown_background();
    let certificate = config.listen.tls.as_ref().map(|files| {
        tls::server_config(&files.certificate, &files.key)
            .map(|_| ())
            .map_err(|e| e.to_string())
    });
    let report = report(
        config,
        certificate,
        store.map_err(|e| e.to_string()),
        inspection.as_ref().map_err(String::as_str),
    );
    // A reader that went away (`| head`) is no reason to fail.
    let _ = io::stdout().lock().write_all(report.text.as_bytes());
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
    good: bool,
}

/// The report, from all findings.
fn report(
    config: &Config,
    certificate: Option<Result<(), String>>,
    store: Result<FileState, String>,
    inspection: Result<&Inspection, &str>,
) -> Report {
    let mut verdicts = vec![("config", Ok("every setting is right".to_owned()))];
    let exposure = config
        .refuse_exposure()
        .and_then(|()| config.refuse_circle());
    let exposure = exposure.map_err(|e| e.to_string());
    verdicts.push(("listen", exposure.map(|()| listening(config))));
    match check_auth(config) {
        Ok(Some(who)) => verdicts.push(("auth", Ok(who))),
        Ok(None) => {}
        Err(error) => verdicts.push(("auth", Err(error.to_string()))),
    }
    if let Some(certificate) = certificate {
        verdicts.push((
            "tls",
            certificate.map(|()| "certificate and key fit".to_owned()),
        ));
    }
    verdicts.push((
        "store",
        store.map(|state| describe_store(&config.store.location, state)),
    ));
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
    if let Some(companion) = &config.companion {
        verdicts.push(("companion", Ok(tickets(companion))));
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
        let capabilities: Vec<_> = found.capabilities.iter().map(|c| printable(c)).collect();
        let capabilities = match capabilities.as_slice() {
            [] => "none".to_owned(),
            some => some.join(", "),
        };
        verdicts.push(("capabilities", Ok(capabilities)));
    }

    if let Some(limit) = config.upstream.concurrency {
        verdicts.push(("concurrency", Ok(limited(limit, "all calls together"))));
    }

    let good = verdicts.iter().all(|(_, verdict)| verdict.is_ok());
    let mut rows: Vec<_> = verdicts
        .into_iter()
        .map(|(subject, verdict)| match verdict {
            Ok(text) => ["ok".to_owned(), subject.to_owned(), text],
            Err(text) => ["WRONG".to_owned(), subject.to_owned(), text],
        })
        .collect();
    let warn = |(subject, text): (&str, String)| ["warn".to_owned(), subject.to_owned(), text];
    rows.extend(warnings(config).map(warn));
    let mut text = table(&rows);
    if let Ok(found) = inspection {
        text.push('\n');
        text.push_str(&tools(&config.rules, &found.tools));
    }
    Report { text, good }
}

fn limited(limit: Limit, of: &str) -> String {
    format!("{} {of}, {} wait", limit.at_once, limit.queue)
}

/// How long the program took to start, which every first client waits for.
fn start(found: &Inspection) -> String {
    let took = found.started_in;
    took.map(|took| format!(", {:.1} s after its start", took.as_secs_f64()))
        .unwrap_or_default()
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
        Location::Redis { namespace, .. } => format!("Redis, namespace {namespace}"),
    }
}

/// What happens to a call whose process dies.
fn recovery(config: &Config) -> String {
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

/// What clients without Tasks get for long calls.
fn tickets(companion: &CompanionSettings) -> String {
    let millis = companion.fallback_after.as_millis();
    let after = duration(u64::try_from(millis).unwrap_or(u64::MAX));
    format!("a client without Tasks gets a ticket after {after}")
}

fn named(found: &Inspection) -> String {
    found
        .server
        .as_ref()
        .map(|name| format!(": {}", printable(name)))
        .unwrap_or_default()
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

/// Each tool with the rule that applies to it, and rules that apply to none.
fn tools(rules: &Rules, names: &[String]) -> String {
    if names.is_empty() {
        return "  The server offers no tools to a client without credentials.\n".to_owned();
    }
    let header = [
        "tool",
        "rule",
        "mode",
        "max_duration",
        "retention",
        "input",
        "concurrency",
    ];
    let mut rows = vec![header.map(str::to_owned)];
    for tool in names {
        let (rule, place) = rules.for_tool(tool);
        let mut mode = match rule.mode {
            Mode::Auto => format!("auto after {}", duration(rule.grace_window_ms)),
            Mode::Always | Mode::Never => rule.mode.word().to_owned(),
        };
        if rule.require_tasks {
            mode.push_str(", required");
        }
        rows.push([
            printable(tool),
            name(place),
            mode,
            duration(rule.max_duration_ms),
            duration(rule.retention_ms),
            rule.input.word().to_owned(),
            match rule.concurrency {
                Some(Concurrency::EachTool(limit)) => limited(limit, "at once"),
                Some(Concurrency::Together(limit)) => limited(limit, "with the rule's others"),
                None => "any".to_owned(),
            },
        ]);
    }
    table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::load::{Flags, load};

    fn config(environment: &[(&str, &str)]) -> Config {
        let flags = Flags {
            upstream: Some("http://127.0.0.1:8000/mcp".into()),
            store: Some("memory:".into()),
            ..Flags::default()
        };
        let pairs: Vec<_> = environment
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        load(&flags, &pairs).unwrap()
    }

    fn inspection() -> Inspection {
        Inspection {
            era: Era::Legacy,
            over_sse: false,
            server: Some("slow-server 1.0".into()),
            capabilities: vec!["tools".into(), "logging".into()],
            tools: vec!["build".into(), "greet\u{1b}[2J".into()],
            started_in: None,
        }
    }

    #[test]
    fn all_is_well() {
        let report = report(&config(&[]), None, Ok(FileState::Free), Ok(&inspection()));
        assert!(report.good);
        assert_eq!(
            report.text,
            "  ok  config        every setting is right
  ok  listen        http://127.0.0.1:8440/mcp
  ok  store         memory: tasks are gone when the process ends
  ok  recovery      a call whose process dies is lost with it
  ok  upstream      http://127.0.0.1:8000/mcp answers: slow-server 1.0
  ok  era           legacy (2025-11-25 or before): translated for modern clients
  ok  capabilities  tools, logging

  tool       rule     mode           max_duration  retention  input    concurrency
  build      [tasks]  auto after 2s  1h            1h         in_task  any
  greet\u{fffd}[2J  [tasks]  auto after 2s  1h            1h         in_task  any
"
        );
    }

    #[test]
    fn how_long_a_program_needs_to_start_is_said() {
        let found = Inspection {
            started_in: Some(std::time::Duration::from_millis(1_440)),
            ..inspection()
        };
        let report = report(&config(&[]), None, Ok(FileState::Free), Ok(&found));
        let said = "answers: slow-server 1.0, 1.4 s after its start";
        assert!(report.text.contains(said), "{}", report.text);
    }

    #[test]
    fn a_store_that_another_process_has_is_no_failure() {
        let location = Location::Embedded("/x.redb".into());
        let said = describe_store(&location, FileState::InUse(Some(7)));
        assert_eq!(said, "/x.redb: for one process, which has it now (pid 7)");
    }

    #[test]
    fn companion_tools_are_said() {
        let wanted = config(&[("RAINCHECK_TASKS__COMPANION_TOOLS", "true")]);
        let report = report(&wanted, None, Ok(FileState::Free), Ok(&inspection()));
        let line = "companion     a client without Tasks gets a ticket after 45s";
        assert!(report.text.contains(line), "{}", report.text);
    }

    #[test]
    fn the_old_transport_is_said() {
        let found = Inspection {
            over_sse: true,
            ..inspection()
        };
        let report = report(&config(&[]), None, Ok(FileState::Free), Ok(&found));
        for line in [
            "recovery      a call whose process dies is lost with its stream",
            "era           legacy, over HTTP+SSE (2024-11-05): translated for all clients",
        ] {
            assert!(report.text.contains(line), "{}", report.text);
        }
    }

    #[test]
    fn what_is_wrong_is_said_and_is_a_failure() {
        let exposed = config(&[("RAINCHECK_LISTEN__ADDRESS", "0.0.0.0:8440")]);
        let certificate = Some(Err("c.pem: is cut off".to_owned()));
        let report = report(
            &exposed,
            certificate,
            Ok(FileState::Free),
            Err("connection refused"),
        );
        assert!(!report.good);
        for line in [
            "  WRONG  listen    listen.address: 0.0.0.0:8440 can be reached",
            "  WRONG  tls       c.pem: is cut off",
            "  WRONG  upstream  http://127.0.0.1:8000/mcp: connection refused",
        ] {
            assert!(report.text.contains(line), "{}", report.text);
        }
    }

    #[test]
    fn a_listener_that_knows_no_name_is_warned_of() {
        let warned = |address: &str, others: &[(&str, &str)]| {
            let mut environment = vec![
                ("RAINCHECK_LISTEN__ADDRESS", address),
                ("RAINCHECK_AUTH__ALLOW_ANONYMOUS", "true"),
            ];
            environment.extend(others);
            let found = inspection();
            let report = report(&config(&environment), None, Ok(FileState::Free), Ok(&found));
            assert!(report.good);
            let line = report.text.lines().find(|line| line.contains("warn"));
            line.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        };
        let advice = "listen.allowed_hosts is empty; name the hosts that clients write, such as \
                      \"tools.example.com\"";
        assert_eq!(
            warned("0.0.0.0:1", &[]).unwrap(),
            format!("warn listen no client on another machine gets in: {advice}")
        );
        assert_eq!(
            warned("192.0.2.9:1", &[]).unwrap(),
            format!("warn listen off this machine only who writes 192.0.2.9 gets in: {advice}")
        );
        let named = [("RAINCHECK_LISTEN__ALLOWED_HOSTS", "[\"tools.example\"]")];
        assert_eq!(warned("0.0.0.0:1", &named), None);
        assert_eq!(warned("127.0.0.1:1", &[]), None);
    }

    #[test]
    fn what_becomes_of_a_lost_call_is_said() {
        let redis = [
            ("RAINCHECK_STORE__URL", "redis://127.0.0.1"),
            ("RAINCHECK_STORE__NAMESPACE", "ns"),
            ("RAINCHECK_STORE__SEAL_KEY", &"0".repeat(64)),
            ("RAINCHECK_UPSTREAM__SHARED", "true"),
        ];
        let said = |environment: &[(&str, &str)]| {
            let flags = Flags {
                upstream: Some("http://127.0.0.1:8000/mcp".into()),
                ..Flags::default()
            };
            let pairs = environment.iter().map(|(k, v)| ((*k).into(), (*v).into()));
            recovery(&load(&flags, &pairs.collect::<Vec<_>>()).unwrap())
        };
        assert!(said(&redis[..2]).starts_with("no store.seal_key"));
        assert!(said(&redis[..3]).ends_with("the server being its own"));
        assert!(said(&redis).starts_with("any replica"));
        let flags = Flags {
            store: Some("memory:".into()),
            command: vec!["some-server".into()],
            ..Flags::default()
        };
        let program = load(&flags, &[]).unwrap();
        assert!(recovery(&program).contains("lost with its child"));
    }

    fn from_file(text: &str) -> Config {
        let name = format!("raincheck-check-{}.toml", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        let flags = Flags {
            config: Some(path.clone()),
            store: Some("memory:".into()),
            ..Flags::default()
        };
        let config = load(&flags, &[]).unwrap();
        std::fs::remove_file(path).unwrap();
        config
    }

    /// Each rule is warned of once, a rule that never waits is not warned of, and a warning is no failure.
    #[test]
    fn long_windows_are_said_and_limits_shown() {
        let config = from_file(
            "upstream = { url = 'http://127.0.0.1:8000/mcp', concurrency = 16 }\n\
             tasks = { grace_window = '5500ms', concurrency = 4 }\n\
             [[tools]]\nname = 'inherits'\n\
             [[tools]]\nname = 'build'\ngrace_window = '1m'\nconcurrency = 1\nqueue = 10\n\
             [[tools]]\nname = 'always'\nmode = 'always'\ngrace_window = '1h'\n\
             [[tools]]\nname = 'short'\ngrace_window = '5s'\n",
        );
        let report = report(&config, None, Ok(FileState::Free), Ok(&inspection()));
        assert!(report.good);
        let said: Vec<_> = report
            .text
            .lines()
            .filter(|line| line.contains("warn") || line.contains(" wait"))
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        let lost = "is long: until its task is announced, a call is lost with its connection";
        assert_eq!(
            said,
            [
                "ok concurrency 16 all calls together, 256 wait".to_owned(),
                format!("warn grace_window [tasks]: 5500ms {lost}"),
                format!("warn grace_window [[tools]] #2: 1m {lost}"),
                "build [[tools]] #2 auto after 1m 1h 1h in_task 1 with the rule's others, 10 wait"
                    .to_owned(),
                "greet\u{fffd}[2J [tasks] auto after 5500ms 1h 1h in_task 4 at once, 256 wait"
                    .to_owned(),
            ]
        );
    }

    #[test]
    fn a_server_without_tools_is_no_failure() {
        let found = Inspection {
            tools: Vec::new(),
            ..inspection()
        };
        let report = report(&config(&[]), None, Ok(FileState::Free), Ok(&found));
        assert!(report.good && report.text.contains("offers no tools"));
    }
}
