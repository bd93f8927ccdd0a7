//! What the report says.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::*;
use crate::mcp::tools::Tools;

/// The report of a configuration without `auth`.
fn report(
    config: &Config,
    certificate: Option<Result<(), String>>,
    store: Result<FileState, String>,
    inspection: Result<&Inspection, &str>,
) -> Report {
    let store = store.map(|file| StoreFound {
        file,
        others: OtherReplicas::Same,
        learned: Vec::new(),
        clocks: Vec::new(),
    });
    super::report(config, (Vec::new(), None), certificate, store, inspection)
}
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

fn listed(tools: &str) -> Arc<Tools> {
    let page = RawValue::from_string(format!(r#"{{"tools":{tools}}}"#)).unwrap();
    let mut tools = Tools::default();
    tools.add_page(&page).unwrap();
    Arc::new(tools)
}

fn inspection() -> Inspection {
    Inspection {
        era: Era::Legacy,
        over_sse: false,
        server: Some("slow-server 1.0".into()),
        capabilities: vec!["tools".into(), "logging".into()],
        redirected: None,
        tools: listed(r#"[{"name": "greet\u001b[2J"}, {"name": "build"}]"#),
        started_in: None,
    }
}

#[test]
fn all_is_well() {
    let report = report(&config(&[]), None, Ok(FileState::Free), Ok(&inspection()));
    assert!(report.good);
    // Without what this system lacks.
    let lines = report.text.split_inclusive('\n');
    let text: String = lines
        .filter(|line| !line.starts_with("  ok  system "))
        .collect();
    assert_eq!(
        text,
        "  ok  config        every setting is right
  ok  listen        http://127.0.0.1:8440/mcp
  ok  store         memory: tasks are gone when the process ends
  ok  size          up to 4GiB of tasks (limits.task_bytes), 80MiB of sessions, and 4MiB for each call on a session while it runs; each replica as much
  ok  recovery      a call whose process dies is lost with it
  ok  callers       clients' own credentials go to the server; a call that came with some is carried on by another process when its client asks again
  ok  upstream      http://127.0.0.1:8000/mcp answers: slow-server 1.0
  ok  era           legacy (2025-11-25 or before): translated for modern clients
  ok  capabilities  tools, logging

  tool       rule     mode           max_duration  retention  input    concurrency  result_inline
  build      [tasks]  auto after 2s  1h            1h         in_task  any          auto
  greet\u{fffd}[2J  [tasks]  auto after 2s  1h            1h         in_task  any          auto
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
fn events_are_said_where_clients_have_one() {
    let said = |wanted: &Config| report(wanted, None, Ok(FileState::Free), Ok(&inspection())).text;
    let line = "clients with credentials have raincheck.task.updated, by poll and by stream";
    assert!(said(&config(&[("RAINCHECK_EVENTS__ENABLED", "true")])).contains(line));
    assert!(!said(&config(&[])).contains(line));
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
fn a_redirect_that_was_followed_is_said() {
    let found = Inspection {
        redirected: Some("http://127.0.0.1:8000/mcp/".into()),
        ..inspection()
    };
    let report = report(&config(&[]), None, Ok(FileState::Free), Ok(&found));
    assert!(report.good);
    let line = "warn  upstream      it redirects to http://127.0.0.1:8000/mcp/, which is followed; write that address \
                in upstream.url";
    assert!(report.text.contains(line), "{}", report.text);
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
             [[tools]]\nname = 'build'\nresult_inline = '64KiB'\ngrace_window = '1m'\nconcurrency = 1\nqueue = 10\n\
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
    let unmatched = "matches none of the tools below; is its name written as the server writes it?";
    let lost = "is long: until its task is announced, a call is lost with its connection";
    assert_eq!(
        said,
        [
            "ok concurrency 16 all calls together, 256 wait".to_owned(),
            format!("warn grace_window [tasks]: 5500ms {lost}"),
            format!("warn grace_window [[tools]] #2: 1m {lost}"),
            format!("warn tools [[tools]] #1 {unmatched}"),
            format!("warn tools [[tools]] #3 {unmatched}"),
            format!("warn tools [[tools]] #4 {unmatched}"),
            "build [[tools]] #2 auto after 1m 1h 1h in_task 1 with the rule's others, 10 wait 64KiB"
                .to_owned(),
            "greet\u{fffd}[2J [tasks] auto after 5500ms 1h 1h in_task 4 at once, 256 wait auto"
                .to_owned(),
        ]
    );
}

#[test]
fn a_server_without_tools_is_no_failure() {
    let found = Inspection {
        tools: Arc::default(),
        ..inspection()
    };
    let report = report(&config(&[]), None, Ok(FileState::Free), Ok(&found));
    assert!(report.good && report.text.contains("offers no tools"));
}

#[test]
fn what_is_sealed_and_under_which_key_is_said() {
    let said = |more: &[(&str, &str)], others| {
        let mut environment = vec![
            ("RAINCHECK_STORE__URL", "redb:/x.redb"),
            ("RAINCHECK_STORE__NAMESPACE", "ns"),
        ];
        environment.extend(more);
        let pairs: Vec<_> = environment
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        let flags = Flags {
            upstream: Some("http://127.0.0.1:8000/mcp".into()),
            ..Flags::default()
        };
        sealing(&load(&flags, &pairs).unwrap().store, others)
    };
    let payloads = ("RAINCHECK_STORE__SEAL", "payloads");
    let redis = ("RAINCHECK_STORE__URL", "redis://127.0.0.1");
    let key = ("RAINCHECK_STORE__SEAL_KEY", &*"1f".repeat(32));
    let other = ("RAINCHECK_STORE__SEAL_KEY_PREVIOUS", &*"2e".repeat(32));
    assert_eq!(
        said(&[], OtherReplicas::Keyless).unwrap().unwrap(),
        "off: who reads the store reads arguments and results"
    );
    assert_eq!(
        said(&[payloads], OtherReplicas::Keyless).unwrap().unwrap(),
        "payloads, under the key beside the file"
    );
    assert_eq!(
        said(&[payloads, redis, key, other], OtherReplicas::Same)
            .unwrap()
            .unwrap(),
        "payloads, under store.seal_key, which the other replicas have, too; what \
         store.seal_key_previous sealed is read"
    );
    let refused = said(&[payloads, redis, key], OtherReplicas::Different).unwrap();
    assert!(
        refused
            .unwrap_err()
            .starts_with("another replica has another store.seal_key")
    );
    let memory = ("RAINCHECK_STORE__URL", "memory:");
    assert!(said(&[memory], OtherReplicas::Keyless).is_none());
}

#[test]
fn tools_that_look_like_those_of_a_job_are_said_and_no_rule_is_applied() {
    let argument = |name: &str| {
        format!(
            r#""inputSchema": {{"properties": {{"{name}": {{"type": "string"}}}}, "required": ["{name}"]}}"#
        )
    };
    let tools = format!(
        r#"[{{"name": "start_export", {}}}, {{"name": "get_export_status", {}}}, {{"name": "cancel_export", {}}}]"#,
        argument("table"),
        argument("export_id"),
        argument("export_id"),
    );
    let found = Inspection {
        tools: listed(&tools),
        ..inspection()
    };
    let said = |config: &Config| report(config, None, Ok(FileState::Free), Ok(&found));
    let first = said(&config(&[]));
    let rule = "# [[jobs]]\n# start = \"start_export\"\n# status = \"get_export_status\"\n# cancel = \"cancel_export\"\n";
    assert!(first.text.ends_with(rule), "{}", first.text);
    assert!(first.text.contains("No rule applies by itself"));
    let suggested = &first.json["suggested_jobs"][0];
    assert!(suggested["reason"].as_str().unwrap().contains("export_id"));
    // With the rule, there is nothing to suggest, and what is wrong with it is said.
    let with = |more: &str| {
        let rule = rule.replace("# ", "");
        from_file(&format!(
            "upstream.url = 'http://127.0.0.1:8000/mcp'\n{rule}{more}"
        ))
    };
    let taken = said(&with(""));
    assert!(!taken.text.contains("[[jobs]]"), "{}", taken.text);
    assert_eq!(taken.json["suggested_jobs"], json!([]));
    for (more, warned) in [
        (
            "set = { wait = false }",
            r#"[[jobs]] #1: "start_export" has no argument "wait""#,
        ),
        ("key = \"token\"", r#"has no argument "token""#),
        (
            "result = { tool = \"no_tool\" }",
            r#"the server has no tool "no_tool""#,
        ),
    ] {
        let text = said(&with(more)).text;
        assert!(
            text.contains("warn  jobs") && text.contains(warned),
            "{text}"
        );
    }
}
