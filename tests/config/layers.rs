//! Which layer wins, and that each can say everything.

use std::io::Write as _;
use std::os::fd::AsRawFd as _;

use super::*;

#[test]
fn a_server_of_the_command_line_takes_the_place_of_the_file_s() {
    let server = |text: &str, flags: Flags, environment: &[(&str, &str)]| {
        let config = File::new(text).load(&flags, environment).unwrap();
        config.upstream.server.to_string()
    };
    let address = "[upstream]\nurl = 'http://127.0.0.1:1/file'\n";
    let program = "[upstream]\ncommand = ['file']\n";
    let command = Flags {
        command: vec!["program".into()],
        ..Flags::default()
    };
    assert_eq!(server(address, command.clone(), &[]), "program");
    assert_eq!(
        server(program, upstream(), &[]),
        upstream().upstream.unwrap()
    );
    let variable = ("RAINCHECK_UPSTREAM__URL", "http://127.0.0.1:2/variable");
    let environment = [variable];
    assert_eq!(server(program, Flags::default(), &environment), variable.1);
    assert_eq!(server(address, command, &environment), "program");
}

#[test]
fn every_term_can_come_from_the_environment() {
    let environment = [("RAINCHECK_TASKS__ATTACH", "true")];
    let config = load(&upstream(), &pairs(&environment)).unwrap();
    assert!(config.rules.for_tool("any").0.attach_window_ms.is_some());
    let refused = load(&upstream(), &pairs(&[("RAINCHECK_TASKS__ATTACH", "yes")]));
    assert_eq!(
        refused.unwrap_err().to_string(),
        "RAINCHECK_TASKS__ATTACH: \"yes\" is neither true nor false"
    );
}

#[test]
fn a_log_level_that_is_none_silences_nothing() {
    for log in ["verbose", "info,everything", ""] {
        let flags = Flags {
            log: Some(log.into()),
            ..upstream()
        };
        let refused = load(&flags, &pairs(&[])).unwrap_err().to_string();
        let start = format!("--log: {log:?} is not a log filter; write");
        assert!(refused.starts_with(&start), "{refused}");
    }
    for log in ["WARN", "info,raincheck=debug", "off", "warn,hyper=trace"] {
        let flags = Flags {
            log: Some(log.into()),
            ..upstream()
        };
        assert_eq!(load(&flags, &pairs(&[])).unwrap().telemetry.log, log);
    }
}

/// A shell hands a file over as a pipe, which can be read once.
#[test]
fn settings_that_are_a_pipe_are_shown_as_they_run() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer
        .write_all(b"[upstream]\nurl = 'http://127.0.0.1:9/mcp'\n[tasks]\nmode = 'always'\n")
        .unwrap();
    drop(writer);
    let flags = Flags {
        config: Some(format!("/dev/fd/{}", reader.as_raw_fd()).into()),
        ..Flags::default()
    };
    let config = load(&flags, &pairs(&[])).unwrap();
    assert_eq!(config.shown["tasks"]["mode"], "always");
}
