//! `config.example.toml` is complete and true.

use super::*;

/// `config.example.toml` is the list of all settings, so it must be complete and true.
#[test]
fn the_example_file_is_the_defaults() {
    let example = include_str!("../../config.example.toml");
    let written = format!("{:#?}", from_file(example));
    let defaults = format!("{:#?}", from_environment(&[]).unwrap());
    assert_eq!(written, defaults);
}

/// Settings that stand in place of others of the example, or that it explains where they cannot be.
const IN_PLACE_OF_OTHERS: [&str; 11] = [
    "secret_file = ",
    "secret_previous_file = ",
    "url_file = ",
    "seal_key_file = ",
    "seal_key_previous_file = ",
    "token_file = ",
    "header_files = ",
    "env_files = ",
    "rules_file = ",
    "rules = ",
    "preset = ",
];

/// The example with its comments that are settings, but for the lines that `of_another` names: a
/// server has an address or is run.
fn whole_example(of_another: &[&str]) -> Config {
    let lines = include_str!("../../config.example.toml")
        .lines()
        .map(|line| {
            let setting = line.strip_prefix("# ").unwrap_or(line);
            let is_key = |key: &str| {
                key.chars()
                    .all(|c| c.is_ascii_lowercase() || "_-".contains(c))
            };
            let is_setting = setting.starts_with("[[tools]]")
                || setting.starts_with("[[auth.jwt]]")
                || setting.starts_with("[[admin.operators]]")
                || setting.starts_with("[[jobs]]")
                || setting.starts_with("[[notify]]")
                || setting
                    .split_once(" = ")
                    .is_some_and(|(key, _)| is_key(key));
            if is_setting { setting } else { line }
        });
    let lines = lines.filter(|line| !of_another.iter().any(|start| line.starts_with(start)));
    // Files are read, and stand in place of settings that are here, too.
    let is_other = |line: &str| IN_PLACE_OF_OTHERS.iter().any(|key| line.starts_with(key));
    let lines = lines.filter(|line| !is_other(line));
    let example = lines.collect::<Vec<_>>().join("\n");
    let example = example.replace("http://127.0.0.1:8000", "https://tools.example.com");
    // The secrets that the example shows are refused, because everyone can read them.
    let example = example
        .replace("\"a-long-random-text\"", "\"correct-horse-battery\"")
        .replace("a-long-random-text-of-ada", "battery-horse-correct")
        .replace("whsec_MfKQ", "whsec_AAAA")
        .replace("whsec_C2FV", "whsec_BBBB")
        .replace("0123456789abcdef", "1f2e3d4c5b6a7988")
        .replace("fedcba9876543210", "0f1e2d3c4b5a6978");
    File::new(&example).load(&Flags::default(), &[]).unwrap()
}

#[test]
fn what_the_example_file_leaves_out_is_there_too() {
    let addressed = whole_example(&["command = ", "cwd = "]).upstream;
    assert!(addressed.tls.roots.is_some() && addressed.tls.identity.is_some());
    assert_eq!(addressed.headers.len(), 2);
    let config = whole_example(&[
        "url = \"http:",
        "roots = \"/etc/raincheck/upstream",
        "certificate = \"/etc/raincheck/upstream",
        "key = \"/etc/raincheck/upstream",
        "authorization = ",
        "x-api-key = ",
        "credentials = ",
        "caller_header = ",
    ]);
    assert_eq!(config.upstream.server.to_string(), "npx");
    assert_eq!(config.replica.id, "web-0");
    assert!(config.listen.tls.is_some());
    assert!(config.auth.tokens_file.is_some() && config.auth.jwt.len() == 1);
    assert!(config.auth.client_roots.is_some());
    assert_eq!(&*config.admin.operators[0].name, "ada");
    assert_eq!(config.notify[0].secrets.len(), 2);
    assert!(config.store.tls.roots.is_some() && config.store.tls.identity.is_some());
    assert_eq!(config.rules.defaults().input_timeout_ms, Some(600_000));
    let traces = config.telemetry.traces.unwrap();
    assert!(traces.roots.is_some() && traces.headers.len() == 1);
    assert_eq!(traces.resource[0].1, "tools");
    let job = config.rules.jobs().rule("start_export", None).unwrap();
    assert_eq!(&*job.status.tool, "get_export");
    let (rule, place) = config.rules.for_tool("build_all");
    assert_eq!(
        (rule.mode, rule.max_duration_ms, place),
        (Mode::Always, 14_400_000, Some(0))
    );
}

/// Every key that serde accepts is in the example file, if only in a comment.
#[test]
fn the_example_file_names_every_setting() {
    let example = include_str!("../../config.example.toml");
    for section in [
        "listen",
        "listen.tls",
        "upstream",
        "upstream.tls",
        "store",
        "store.tls",
        "tasks",
        "replica",
        "drain",
        "admin",
        "auth",
        "[auth.jwt]",
        "[admin.operators]",
        "[jobs]",
        "[notify]",
        "limits",
        "telemetry",
        "telemetry.traces",
    ] {
        let refusal = refusal(&format!("[{section}]\nqqqqqqqqqqqqqqqqqqqqqqqq = 1\n"));
        let (_, accepted) = refusal.rsplit_once("]: ").unwrap();
        for key in accepted
            .split(", ")
            .filter(|key| !["tls", "headers", "jwt", "operators", "traces"].contains(key))
        {
            assert!(example.contains(&format!("{key} = ")), "{section}.{key}");
        }
    }
}
