//! What the program says last when it fails: in the form of its log, whatever the log's filter is.

use std::fs;
use std::net::TcpListener;
use std::process::{Command, Output};

use raincheck::telemetry::log::{LogSettings, init};
use serde_json::Value;

const SERVER: [&str; 4] = ["--upstream", "http://127.0.0.1:1/mcp", "--store", "memory:"];

/// Runs the program with these settings of its log.
fn run(command: &str, log: &str, format: &str, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_raincheck"))
        .arg(command)
        .args(arguments)
        .env_clear()
        .env("HOME", "/nonexistent")
        .env("RAINCHECK_TELEMETRY__LOG", log)
        .env("RAINCHECK_TELEMETRY__FORMAT", format)
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The last line, where all lines are JSON of one shape.
fn last_of_json(output: &Output) -> String {
    let said = said(output);
    let lines: Vec<Value> = (said.lines())
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}")))
        .collect();
    for line in &lines {
        for field in ["timestamp", "level", "message", "target"] {
            assert!(line[field].is_string(), "{line}");
        }
    }
    let last = lines.last().unwrap();
    assert_eq!(last["level"], "ERROR", "{last}");
    assert_eq!(last["target"], "raincheck", "{last}");
    last["message"].as_str().unwrap().to_owned()
}

#[test]
fn a_failure_is_a_line_of_json_where_the_log_is_json() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let open = ["--listen", "0.0.0.0:0"];
    let cases: [(&str, Vec<&str>, i32, &str); 4] = [
        (
            "run",
            [&SERVER[..], &["--listen", &taken]].concat(),
            1,
            "cannot be listened on: Address already in use;",
        ),
        (
            "run",
            [&SERVER[..], &open].concat(),
            2,
            "listen.address: 0.0.0.0:0 can be reached from other machines",
        ),
        (
            "run",
            vec!["--upstream", "ftp://x/"],
            2,
            "--upstream: not a URL that can be wrapped",
        ),
        ("stdio", vec![], 2, "upstream.url: not set"),
    ];
    for (command, arguments, code, expected) in cases {
        for log in ["info", "off"] {
            let output = run(command, log, "json", &arguments);
            let last = last_of_json(&output);
            assert!(last.contains(expected), "{last}");
            assert_eq!(output.status.code(), Some(code));
            let lines = said(&output).lines().count();
            assert!(log != "off" || lines == 1, "{}", said(&output));
        }
        let output = run(command, "off", "text", &arguments);
        let said = said(&output);
        assert!(said.starts_with("raincheck: "), "{said}");
        assert!(
            said.contains(expected) && said.lines().count() == 1,
            "{said}"
        );
    }
}

#[test]
fn settings_that_cannot_be_read_are_told_as_text() {
    let file = std::env::temp_dir().join(format!("rc-last-{}.toml", std::process::id()));
    let path = file.to_str().unwrap();
    for (settings, expected) in [
        ("[store", "line 1 is not TOML"),
        ("[store]\nno_setting = 1\n", "store.no_setting: unknown key"),
    ] {
        fs::write(&file, settings).unwrap();
        let output = run("run", "info", "json", &["--config", path]);
        let said = said(&output);
        assert!(said.starts_with("raincheck: "), "{said}");
        assert!(said.contains(expected), "{said}");
    }
    let _ = fs::remove_file(&file);
    let output = run("run", "info", "json", &["--no-such-flag"]);
    assert!(said(&output).starts_with("raincheck: unexpected argument"));
}

/// Says which form the log of the child has. With it, this test is the child.
const CHILD: &str = "RAINCHECK_TEST_PANICS_WITH";

#[test]
#[expect(clippy::disallowed_methods, reason = "tests own their environment")]
fn a_panic_is_told_whatever_the_filter_is() {
    if let Ok(form) = std::env::var(CHILD) {
        let (filter, json) = form.split_once(' ').unwrap();
        init(&LogSettings {
            filter: filter.to_owned(),
            json: json == "json",
            colours: false,
        })
        .unwrap();
        panic!("the child \"panics\"\nas it should");
    }
    let child = |form: &str| {
        let name = "last_words::a_panic_is_told_whatever_the_filter_is";
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, form)
            .env("RUST_BACKTRACE", "0")
            .output()
            .unwrap();
        assert!(!output.status.success());
        output
    };
    let place = "last_words.rs:";
    let message = "the child \"panics\"\nas it should";
    for filter in ["off", "raincheck=off,warn", "info"] {
        let output = child(&format!("{filter} json"));
        let text = said(&output);
        let lines: Vec<Value> = (text.lines())
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        let [line] = lines.as_slice() else {
            panic!("{text}")
        };
        assert_eq!(line["level"], "ERROR", "{line}");
        let told = line["message"].as_str().unwrap();
        assert!(told.contains(place) && told.ends_with(message), "{told}");
    }
    let text = said(&child("off text"));
    assert!(
        text.contains("raincheck: thread ") && text.contains(place),
        "{text}"
    );
    assert!(text.contains(message), "{text}");
    assert!(said(&child("info text")).contains(" ERROR "));
}
