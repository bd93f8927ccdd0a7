//! What people read of an error of the system: its words, without its number.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use super::{Running, raincheck};

#[test]
fn no_number_of_the_system_reaches_a_person() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken: &'static str = taken.local_addr().unwrap().to_string().leak();
    let nobody = "http://127.0.0.1:1/mcp";
    let redis = ["--store", "redis://127.0.0.1:1", "--namespace", "n"];
    let memory = ["--store", "memory:"];
    let wraps = |command, rest: &[&'static str]| {
        let begin = [command, "--upstream", nobody];
        [&begin[..], rest].concat()
    };
    let listens = [&memory[..], &["--listen", taken]].concat();
    let missing = ["--", "/nonexistent/server"];
    let cases: [(Vec<&str>, &str); 9] = [
        (wraps("check", &memory), "Connection refused"),
        (wraps("check", &redis), "Connection refused"),
        (wraps("run", &redis), "Connection refused"),
        (
            wraps("run", &["--store", "redb:/proc/x.redb"]),
            "No such file",
        ),
        (wraps("run", &listens), "Address already in use"),
        (vec!["run", "--config", "/nonexistent/x"], "No such file"),
        ([&["check"], &memory[..], &missing].concat(), "No such file"),
        (vec!["call", "--url", nobody, "tool"], "Connection refused"),
        (
            vec!["tasks", "--admin", "127.0.0.1:1", "list"],
            "Connection refused",
        ),
    ];
    for (arguments, expected) in cases {
        let output = raincheck(&arguments);
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8(said).unwrap();
        assert!(said.contains(expected), "{arguments:?}: {said}");
        assert!(!said.contains("os error"), "{arguments:?}: {said}");
        assert!(!output.status.success(), "{arguments:?}");
    }
}

#[test]
fn no_number_of_the_system_is_in_the_log() {
    let started = Command::new(env!("CARGO_BIN_EXE_raincheck"))
        .args(["run", "--upstream", "http://127.0.0.1:1/mcp"])
        .args(["--listen", "127.0.0.1:0", "--store", "redis://127.0.0.1:1"])
        .args(["--namespace", "n"])
        .env("RAINCHECK_STORE__REQUIRED_AT_START", "false")
        .stderr(Stdio::piped())
        .spawn();
    let mut process = Running(started.unwrap());
    let log = BufReader::new(process.0.stderr.take().unwrap());
    let refused = log.lines().map_while(Result::ok);
    let refused = refused.filter(|line| line.contains("Connection refused"));
    // One of the server, and one of the store.
    let lines: Vec<String> = refused.take(2).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    for line in lines {
        assert!(!line.contains("os error"), "{line}");
    }
}
