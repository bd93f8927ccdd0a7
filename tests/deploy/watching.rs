//! Alerts, the dashboard and the unit of systemd: judged by the programs that read them.

use std::collections::BTreeSet;
use std::process::{Command, Output};

use serde_json::Value;

use super::*;

/// Metrics of Prometheus itself.
const THEIRS: [&str; 1] = ["up"];

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The names in docs/metrics.md, which is generated from the program.
pub(super) fn exported() -> BTreeSet<String> {
    let page = fs::read_to_string(path("docs/metrics.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let names = rows.filter_map(|row| row.split_once('`'));
    names.map(|(name, _)| name.to_owned()).collect()
}

/// The metrics that an expression names. What stands in braces, brackets, quotes or after `by` is no metric.
fn metrics_of(expression: &str) -> Vec<String> {
    let mut rest = String::new();
    let mut depth = 0_usize;
    for letter in expression.chars() {
        match letter {
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            _ if depth > 0 => {}
            _ => rest.push(letter),
        }
    }
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = rest.split(|letter| !is_word(letter));
    let is_metric = |word: &&str| {
        let ours = word.starts_with("raincheck_")
            || word.starts_with("mcp_")
            || word.starts_with("process_");
        (ours && *word != "mcp_method_name") || THEIRS.contains(word)
    };
    words.filter(is_metric).map(ToOwned::to_owned).collect()
}

fn check_exported(expression: &str) {
    let exported = exported();
    let metrics = metrics_of(expression);
    assert!(!metrics.is_empty(), "no metric of ours in {expression}");
    for metric in metrics {
        let histogram = ["_bucket", "_count", "_sum"]
            .iter()
            .find_map(|end| metric.strip_suffix(end));
        let known = exported.contains(&metric)
            || histogram.is_some_and(|name| exported.contains(name))
            || THEIRS.contains(&&*metric);
        assert!(known, "{metric} is not exported: {expression}");
    }
}

fn alerts() -> Vec<Yaml> {
    let document = documents("prometheus/alerts.yaml").remove(0);
    let rules = document["groups"][0]["rules"].as_vec().unwrap().clone();
    assert!(rules.len() > 5);
    rules
}

#[test]
fn every_alert_asks_for_what_is_exported_and_has_a_heading_in_the_runbook() {
    let runbook = fs::read_to_string(path("docs/runbook.md")).unwrap();
    let headings: BTreeSet<&str> = runbook
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .collect();
    let alerts = alerts();
    for alert in &alerts {
        check_exported(alert["expr"].as_str().unwrap());
    }
    let names: BTreeSet<&str> = alerts
        .iter()
        .map(|alert| alert["alert"].as_str().unwrap())
        .collect();
    assert_eq!(names, headings);
}

#[test]
fn a_name_that_is_not_exported_would_be_found() {
    assert_eq!(
        metrics_of("sum by (mcp_method_name) (rate(raincheck_a{tool=\"raincheck_b\"}[5m]))"),
        ["raincheck_a"]
    );
    let wrong = std::panic::catch_unwind(|| check_exported("rate(raincheck_calls_totals[5m])"));
    assert!(wrong.is_err());
}

/// promtool, which tests/setup.sh installs.
fn promtool(arguments: &[&str]) {
    let run = Command::new("promtool")
        .args(arguments)
        .current_dir(path("deploy/prometheus"))
        .output();
    let output = run.expect("promtool is installed (tests/setup.sh)");
    succeeded(&output);
}

fn succeeded(output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    println!("{out}{err}");
}

/// The tests of the rules have a case in which each alert fires, and one in which none does.
#[test]
fn the_alerts_fire_when_they_should() {
    promtool(&["check", "rules", "alerts.yaml"]);
    promtool(&["test", "rules", "alerts.test.yaml"]);
    let tests = documents("prometheus/alerts.test.yaml").remove(0);
    let cases = tests["tests"].as_vec().unwrap();
    let alerts = alerts();
    for alert in &alerts {
        let mut fired = 0;
        for case in cases {
            let checks = case["alert_rule_test"].as_vec().unwrap();
            let own: Vec<&Yaml> = checks
                .iter()
                .filter(|check| check["alertname"] == alert["alert"])
                .collect();
            assert_eq!(own.len(), 1, "{:?}", alert["alert"]);
            fired += usize::from(!own[0]["exp_alerts"].is_badvalue());
        }
        assert_eq!(fired, cases.len() - 1, "{:?}", alert["alert"]);
    }
}

#[test]
fn the_dashboard_shows_what_is_exported() {
    let dashboard: Value = serde_json::from_str(&text("grafana/raincheck.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.len() > 10);
    let mut places = BTreeSet::new();
    for panel in panels {
        assert!(
            places.insert(panel["gridPos"].to_string()),
            "two panels at one place: {}",
            panel["title"]
        );
        for target in panel["targets"].as_array().unwrap() {
            check_exported(target["expr"].as_str().unwrap());
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        if let Some(query) = variable["query"]["query"].as_str() {
            check_exported(query);
        }
    }
}

#[test]
fn the_unit_is_one_that_systemd_takes_and_has_no_rights() {
    let unit = text("systemd/raincheck.service");
    let program = "/usr/local/bin/raincheck";
    let start = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="))
        .unwrap();
    assert!(start.starts_with(program));
    // systemd also looks whether the program is there.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = folder.join(format!("rc-unit-{}", uuid::Uuid::new_v4().simple()));
    fs::create_dir_all(&folder).unwrap();
    let ours = unit.replace(program, env!("CARGO_BIN_EXE_raincheck"));
    let file = folder.join("raincheck.service");
    fs::write(&file, ours).unwrap();
    let analyze = |arguments: &[&str]| {
        let mut command = Command::new("systemd-analyze");
        command.args(arguments).arg(&file).output()
    };
    match analyze(&["verify", "--man=no"]) {
        Ok(verified) => {
            succeeded(&verified);
            assert!(
                verified.stderr.is_empty(),
                "{}",
                String::from_utf8_lossy(&verified.stderr)
            );
            // In tenths: what is exposed at most.
            succeeded(&analyze(&["security", "--offline=true", "--threshold=15"]).unwrap());
        }
        Err(_) => println!("no systemd-analyze here: the unit was not judged"),
    }
    fs::remove_dir_all(&folder).unwrap();
}
