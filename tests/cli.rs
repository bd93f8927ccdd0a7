//! The program from outside: exit codes, what it says, and that the demo is true.

use std::ffi::OsStr;
#[cfg(target_os = "linux")]
use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, PipeWriter, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Child, Command, Output, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

#[path = "cli/check.rs"]
mod check;
#[path = "cli/completions.rs"]
mod completions;
#[path = "cli/documents.rs"]
mod documents;
#[path = "cli/last_words.rs"]
mod last_words;
#[path = "cli/plain_words.rs"]
mod plain_words;
#[path = "cli/schema.rs"]
mod schema;
#[path = "cli/wrap/mod.rs"]
mod wrap;

fn raincheck(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_raincheck"))
        .args(arguments)
        .env_clear()
        .env("HOME", "/nonexistent")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn mistakes_are_one_line_and_exit_with_2() {
    let cases: [(&[&str], &str); 5] = [
        (
            &["run"],
            "raincheck: upstream.url: not set; say which server to wrap: --upstream \
             http://127.0.0.1:8000/mcp, or its command after --\n",
        ),
        (
            &["run", "--upstream", "ftp://x/"],
            "raincheck: --upstream: not a URL that can be wrapped; write \
             \"http://127.0.0.1:8000/mcp\" or \"unix:/run/mcp.sock\"\n",
        ),
        (
            &["run", "--upstream", "http://127.0.0.1:99999/mcp"],
            "raincheck: --upstream: its port is not a number from 1 to 65535\n",
        ),
        (
            &["run", "--upstraem", "x"],
            "raincheck: unexpected argument '--upstraem' found; did you mean --upstream?\n",
        ),
        (
            &[
                "run",
                "--upstream",
                "http://127.0.0.1:1/mcp",
                "--listen",
                "0.0.0.0:0",
            ],
            "raincheck: listen.address: 0.0.0.0:0 can be reached from other machines, and raincheck \
             does not check who calls: set auth.tokens_file or [[auth.jwt]], or listen on 127.0.0.1, or set \
             auth.allow_anonymous = true if something in front of it does\n",
        ),
    ];
    for (arguments, expected) in cases {
        let output = raincheck(arguments);
        assert_eq!(String::from_utf8_lossy(&output.stderr), expected);
        assert_eq!(output.status.code(), Some(2));
        assert!(output.stdout.is_empty());
    }
}

/// Left out, a token would leave its listener open.
#[test]
fn a_setting_that_is_not_unicode_is_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_raincheck"))
        .args(["check", "--upstream", "http://127.0.0.1:1/mcp"])
        .env_clear()
        .env("RAINCHECK_ADMIN__LISTEN", "127.0.0.1:0")
        .env(
            "RAINCHECK_ADMIN__TOKEN",
            OsStr::from_bytes(b"abcdefghijklmnop\xff"),
        )
        .output()
        .unwrap();
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        complaint,
        "raincheck: RAINCHECK_ADMIN__TOKEN: is not UTF-8\n"
    );
    assert_eq!(output.status.code(), Some(2));
}

#[cfg(target_os = "linux")]
#[test]
fn what_cannot_be_printed_is_told() {
    for arguments in [
        &["config", "example"][..],
        &["check", "--client", "mcpc"],
        &["completions", "bash"],
    ] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_raincheck"))
            .args(arguments)
            .stdout(full)
            .output()
            .unwrap();
        assert_eq!(
            String::from_utf8(output.stderr).unwrap(),
            "raincheck: standard output cannot be written: No space left on device\n"
        );
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    }
}

#[test]
fn settings_are_printed() {
    let said = |arguments: &[&str]| {
        let output = raincheck(arguments);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {complaint}");
        String::from_utf8(output.stdout).unwrap()
    };
    let example = include_str!("../config.example.toml");
    assert_eq!(said(&["config", "example"]), example);
    let store = "redis://user:s3cret@localhost";
    let shown = said(&[
        "config",
        "show",
        "--upstream",
        "http://h/mcp?key=s3cret",
        "--store",
        store,
    ]);
    assert!(!shown.contains("s3cret"), "{shown}");
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["store"]["url"], "redis://[secret]@localhost");
    assert_eq!(shown["tasks"]["mode"], "auto");
}

#[test]
fn what_is_checked_is_json_for_scripts() {
    let checked = ["check", "--json", "--upstream", "http://127.0.0.1:1/mcp"];
    let output = raincheck(&[&checked[..], &["--store", "memory:"]].concat());
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["good"], false);
    let findings = report["findings"].as_array().unwrap();
    let wrong = findings.iter().find(|it| it["verdict"] == "WRONG").unwrap();
    assert_eq!(wrong["subject"], "upstream");
}

#[test]
fn what_does_not_work_exits_with_1() {
    let unreachable = [
        "check",
        "--upstream",
        "http://127.0.0.1:1/mcp",
        "--store",
        "memory:",
    ];
    let output = raincheck(&unreachable);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("WRONG  upstream"));
}

#[test]
fn a_signal_drains_and_exits_with_0() {
    let mut process = Command::new(env!("CARGO_BIN_EXE_raincheck"))
        .args(["run", "--upstream", "http://127.0.0.1:1/mcp"])
        .args(["--listen", "127.0.0.1:0", "--store", "memory:"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let log = BufReader::new(process.stderr.take().unwrap());
    let mut lines = log.lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("serving")));
    let id = process.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &id])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(process.wait().unwrap().code(), Some(0));
}

/// What starts a program may stop reading what it says.
#[test]
fn a_failure_that_nobody_reads_ends_the_process() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (_reader, mut full) = std::io::pipe().unwrap();
    let has_room = |pipe: &PipeWriter| {
        let mut polled = [PollFd::new(pipe, PollFlags::OUT)];
        poll(&mut polled, Some(&Timespec::default())).unwrap() > 0
    };
    while has_room(&full) {
        full.write_all(&[b'x'; 4096]).unwrap();
    }
    let mut process = Command::new(env!("CARGO_BIN_EXE_raincheck"))
        .args(["run", "--upstream", "http://127.0.0.1:1/mcp"])
        .args(["--listen", &address, "--store", "memory:"])
        .stderr(full)
        .spawn()
        .unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(1));
}

/// Ended with the test, however that ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn who_is_refused_for_its_host_hears_of_the_setting_and_the_operator_once() {
    let process = Command::new(env!("CARGO_BIN_EXE_raincheck"))
        .args(["run", "--upstream", "http://127.0.0.1:1/mcp"])
        .args(["--listen", "127.0.0.1:0", "--store", "memory:"])
        .stderr(Stdio::piped())
        .spawn();
    let mut process = Running(process.unwrap());
    let log = BufReader::new(process.0.stderr.take().unwrap());
    let mut lines = log.lines().map_while(Result::ok);
    let serving = lines.find(|line| line.contains("serving")).unwrap();
    let address = serving.split("address=").nth(1).unwrap();
    let address = address.split(' ').next().unwrap();
    for (header, setting) in [
        ("host: evil.example", "allowed_hosts"),
        ("host: evil.example", "allowed_hosts"),
        (
            "host: localhost\r\norigin: http://evil.example",
            "allowed_origins",
        ),
    ] {
        let mut client = TcpStream::connect(address).unwrap();
        write!(client, "GET /mcp HTTP/1.1\r\n{header}\r\n\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        assert!(answer.contains(setting), "{answer}");
    }
    drop(process);
    // Other lines are about the server, which is not there.
    let of_host = |line: &String| line.contains("WARN") && line.contains("evil.example");
    let told: Vec<_> = lines.filter(of_host).collect();
    let [host, origin] = told.as_slice() else {
        panic!("{told:?}");
    };
    for (told, setting) in [
        (host, "listen.allowed_hosts"),
        (origin, "listen.allowed_origins"),
    ] {
        assert!(
            told.contains("evil.example") && told.contains(setting),
            "{told}"
        );
    }
}

#[test]
fn the_demo_is_true() {
    let output = raincheck(&["demo"]);
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}\n{complaint}");
    assert!(said.contains("All of this was checked"));
}

/// The secrets of the configuration are in our environment, and the program that is wrapped runs as the
/// same user.
#[cfg(target_os = "linux")]
#[test]
fn the_wrapped_program_cannot_read_our_environment() {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;

    let name = format!("raincheck-private-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let binary = folder.join("raincheck");
    std::fs::copy(env!("CARGO_BIN_EXE_raincheck"), &binary).unwrap();
    let script = "cat /proc/$PPID/environ >&2 && echo it can be read >&2; exec cat";
    let mut command = Command::new(&binary);
    command
        .args(["run", "--listen", "127.0.0.1:0", "--store", "memory:"])
        .args(["--", "sh", "-c", script])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("RAINCHECK_UPSTREAM__ENV__TOKEN", "s3cret")
        .current_dir(&folder)
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    if rustix::process::geteuid().is_root() {
        // Root reads everything.
        command.uid(65534).gid(65534);
    }
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let said = lines
        .map_while(Result::ok)
        .find(|line| line.contains("Permission denied") || line.contains("it can be read"));
    child.kill().unwrap();
    child.wait().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let said = said.unwrap_or_default();
    assert!(said.contains("Permission denied"), "{said}");
}

/// A variable with one underscore is the probable cause of a setting that is missing.
#[test]
fn a_variable_that_is_not_read_is_named_where_a_setting_is_missing() {
    let output = Command::new(env!("CARGO_BIN_EXE_raincheck"))
        .arg("run")
        .env_clear()
        .env("RAINCHECK_UPSTREAM_URL", "http://127.0.0.1:1/mcp")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("write RAINCHECK_UPSTREAM__URL"), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
}
