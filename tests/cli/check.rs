//! `raincheck check`: what is wrong, and what to do next.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use super::raincheck;

/// What is said of one subject, with its verdict, and the exit code.
fn verdict(arguments: &[&str], subject: &str) -> (String, Option<i32>) {
    let output = raincheck(arguments);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = said
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .find(|line| line.split(' ').nth(1) == Some(subject));
    let line = line.unwrap_or_else(|| panic!("nothing is said of {subject}: {said}"));
    (line, output.status.code())
}

#[test]
fn a_store_that_cannot_be_had_is_wrong() {
    for (store, expected) in [
        (
            "redis://127.0.0.1:1",
            "WRONG store Redis at 127.0.0.1:1 cannot be reached or refuses us: Connection refused",
        ),
        (
            "redb:/proc/nope/x.redb",
            "WRONG store /proc/nope/x.redb cannot be written (No such file or directory); \
             name another file with --store redb:PATH",
        ),
    ] {
        let config = std::env::temp_dir().join(format!("rc-check-{}.toml", std::process::id()));
        std::fs::write(&config, "store.namespace = 'x'\n").unwrap();
        let config_arguments = ["--config", config.to_str().unwrap(), "--store", store];
        let mut arguments = vec!["check", "--upstream", "http://127.0.0.1:1/mcp"];
        arguments.extend(config_arguments);
        let (line, code) = verdict(&arguments, "store");
        std::fs::remove_file(&config).unwrap();
        assert!(line.starts_with(expected), "{line}");
        assert_eq!(code, Some(1));
    }
}

/// A server that gives every request that answer, and its port.
fn server(answer: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = BufReader::new(stream.try_clone().unwrap());
            let mut length = 0;
            let mut line = String::new();
            while request.read_line(&mut line).is_ok_and(|read| read > 2) {
                let lower = line.to_ascii_lowercase();
                if let Some(value) = lower.strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut body = vec![0; length];
            let _ = request.read_exact(&mut body);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    port
}

fn upstream_at(url: &str) -> String {
    let arguments = ["check", "--store", "memory:", "--upstream", url];
    verdict(&arguments, "upstream").0
}

#[test]
fn a_redirect_is_said_with_its_address() {
    let answer = "HTTP/1.1 307 Temporary Redirect\r\nlocation: /mcp?token=s3cret\r\n\
                  content-length: 0\r\nconnection: close\r\n\r\n";
    let port = server(answer);
    let url = format!("http://127.0.0.1:{port}/mcp/?key=s3cret");
    assert_eq!(
        upstream_at(&url),
        format!(
            "WRONG upstream http://127.0.0.1:{port}/mcp/?...: HTTP 307 to http://127.0.0.1:{port}/mcp, \
             which is not followed: write that address in upstream.url"
        )
    );
}

#[test]
fn a_path_that_is_not_there_is_named() {
    let port = server("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    let line = upstream_at(&format!("http://127.0.0.1:{port}/wrong"));
    let said = "/wrong: HTTP 404: is /wrong the server's MCP path? Often it is /mcp or /sse";
    assert!(line.ends_with(said), "{line}");
}

#[test]
fn a_server_without_tls_is_told_of_in_one_line() {
    let port = server("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    let url = format!("https://127.0.0.1:{port}/mcp");
    let output = raincheck(&["check", "--store", "memory:", "--upstream", &url]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains(": it does not speak TLS: write http://\n"),
        "{said}"
    );
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn a_server_that_is_slow_to_answer_was_reached() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let line = upstream_at(&format!("http://127.0.0.1:{port}/mcp"));
    let said = "/mcp: no answer within 30s to the question which era it speaks; upstream.era = \
                \"legacy\" (or \"modern\") spares it that question";
    assert!(line.ends_with(said), "{line}");
}

#[test]
fn a_program_that_ends_at_once_is_quoted() {
    let script = "echo Error: GITHUB_TOKEN is not set >&2; echo bye >&2; exit 3";
    let arguments = ["check", "--store", "memory:", "--", "sh", "-c", script];
    let (line, _) = verdict(&arguments, "upstream");
    assert_eq!(
        line,
        "WRONG upstream sh: it ended at once (exit status 3): \"Error: GITHUB_TOKEN is not set\". Of \
         this environment it sees only PATH, HOME and the like, and what upstream.env_allow names"
    );
}

#[test]
fn a_program_that_is_not_there_is_looked_for_on_the_path() {
    let arguments = ["check", "--store", "memory:", "--", "nosuchprogram"];
    assert_eq!(
        verdict(&arguments, "upstream").0,
        "WRONG upstream nosuchprogram: it cannot be run: No such file or directory; is it on the PATH?"
    );
}

#[test]
fn a_silent_program_is_waited_for_with_a_word() {
    let mut process = Command::new(env!("CARGO_BIN_EXE_raincheck"))
        .args(["check", "--store", "memory:", "--", "sleep", "60"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(process.stderr.take().unwrap());
    let first = said.lines().next().unwrap().unwrap();
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(
        first,
        "raincheck: waiting for sleep (up to 60 s; npx and the like may be fetching it)"
    );
}

/// Some of what does nothing may stand in a file that others share, so it is only said.
#[test]
fn what_does_nothing_where_it_stands_is_told() {
    let config = std::env::temp_dir().join(format!("rc-unused-{}.toml", std::process::id()));
    let text = "[store]\nurl = 'memory:'\nnamespace = 'x'\nwait_timeout = '2s'\n\
                [tasks]\ncompanion_tools = false\nfallback_after = '30s'\n[admin]\nready_needs_store = true\n";
    std::fs::write(&config, text).unwrap();
    let arguments = ["check", "--upstream", "http://127.0.0.1:1/mcp", "--config"];
    let output = raincheck(&[&arguments[..], &[config.to_str().unwrap()]].concat());
    std::fs::remove_file(&config).unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let warned: Vec<_> = said
        .lines()
        .filter(|line| line.contains("does nothing here"))
        .filter_map(|line| line.split_whitespace().nth(2))
        .collect();
    assert_eq!(
        warned,
        [
            "store.namespace",
            "store.wait_timeout",
            "tasks.fallback_after",
            "admin.ready_needs_store"
        ],
        "{said}"
    );
}

#[test]
fn what_a_client_would_get_is_said_with_the_reason() {
    let arguments = [
        "check",
        "--client",
        "opencode@1.18.33",
        "--store",
        "memory:",
    ];
    let output = raincheck(&arguments);
    assert!(output.status.success());
    let said = String::from_utf8(output.stdout).unwrap();
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    for line in [
        "client opencode since 1.18",
        "limit of a call 1m",
        "on progress the limit starts anew",
        "found out measured on 2026-11-23: opencode 1.18.33",
        "[tasks] heartbeat on its patience starts anew with progress",
        "[tasks] fallback_after 45s three quarters of its patience",
        "client of 2025-11-25 companion_tools off progress keeps it waiting",
        "[tasks] result_inline whole \"auto\" shortens only what task_result gives",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let unknown = ["check", "--client", "x@1", "--json", "--store", "memory:"];
    let said: serde_json::Value = serde_json::from_slice(&raincheck(&unknown).stdout).unwrap();
    assert!(said["known"].is_null(), "{said}");
    assert_eq!(said["gets"][0]["setting"], "heartbeat");
    assert_eq!(said["gets"][0]["value"], "on");
}

/// A rule has a line where it says something else than the defaults, and each kind of client a reason of its own.
#[test]
fn what_a_client_gets_of_a_large_result_is_said_for_each_rule() {
    let config = std::env::temp_dir().join(format!("rc-large-{}.toml", std::process::id()));
    let text = "[tasks]\nresult_inline = 'auto'\n[[tools]]\nname = 'export'\nresult_inline = 'off'\n\
                [[tools]]\nname = 'other'\nmode = 'never'\n[[tools]]\nname = 'logs'\nresult_inline = '128KiB'\nmax_result_size_chars = 9\n";
    std::fs::write(&config, text).unwrap();
    let gets = |client: &str| {
        let file = config.to_str().unwrap();
        let arguments = ["check", "--client", client, "--json", "--store", "memory:"];
        let more = ["--config", file, "--upstream", "http://127.0.0.1:1/mcp"];
        let output = raincheck(&[&arguments[..], &more].concat());
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let gets = said["gets"].as_array().unwrap().iter();
        let settings = ["result_inline", "max_result_size_chars"];
        let of_results = gets.filter(|line| settings.iter().any(|it| line["setting"] == *it));
        let words = of_results.map(|line| {
            ["for", "value", "why"]
                .map(|key| line[key].as_str().unwrap())
                .join(" | ")
        });
        words.collect::<Vec<_>>()
    };
    let by_reading = [
        "[tasks] | whole | \"auto\" shortens only what task_result gives",
        "[[tools]] #1 | whole | the settings say so",
        "[[tools]] #3 | excerpt above 128KiB | the settings say so; the rest is read by resources/read",
        "[[tools]] #3 | 9 | the settings say so; Claude Code keeps to it",
    ];
    assert_eq!(gets("claude-code@2.1.330"), by_reading);
    let by_ticket = [
        "[tasks] | excerpt above 64KiB | its model reads the rest with task_result; what comes before a ticket goes whole",
        "[[tools]] #1 | whole | the settings say so",
        "[[tools]] #3 | excerpt above 128KiB | the settings say so; the rest is read with task_result",
        "[[tools]] #3 | 9 | the settings say so; Claude Code keeps to it",
    ];
    assert_eq!(gets("claude-ai@0.1.0"), by_ticket);
    // In 2026-07-28 this client has companion tools.
    let by_revision = gets("mcpc@0.6.0");
    assert!(by_revision[0].starts_with("[tasks], client of 2026-07-28 | excerpt above 64KiB | "));
    assert!(by_revision[1].starts_with("[tasks], client of 2025-11-25 | whole | "));
    assert_eq!(by_revision.len(), 6);
    std::fs::remove_file(&config).unwrap();
}

#[test]
fn a_name_or_a_version_that_is_not_read_is_not_silent() {
    let said = |client: &str| {
        let output = raincheck(&["check", "--client", client, "--store", "memory:"]);
        let text = String::from_utf8(output.stdout).unwrap();
        (
            output.status.code(),
            text + &String::from_utf8_lossy(&output.stderr),
        )
    };
    let (code, text) = said("Claude Code");
    assert_eq!(code, Some(0));
    assert!(text.contains("Known are claude-code, opencode, "), "{text}");
    for (client, note) in [
        (
            "opencode@latest",
            "\"latest\" is no version of numbers, so this is what an old opencode gets",
        ),
        (
            "opencode",
            "No version was given, so this is what an old opencode gets",
        ),
    ] {
        let (code, text) = said(client);
        assert!(code == Some(0) && text.contains(note), "{text}");
    }
    for client in ["opencode@1.18.33", "claude-code"] {
        let (_, text) = said(client);
        assert!(!text.contains("so this is what"), "{text}");
    }
    let (code, text) = said("@2");
    assert_eq!(code, Some(2));
    assert_eq!(
        text,
        "raincheck: --client: no name; write what the client says of itself, such as opencode@1.18.33\n"
    );
}
