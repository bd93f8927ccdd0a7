//! The wrapped server: an address or a program.

use raincheck::config::{CredentialUse, Secret, TransportChoice, Wrapped, WrappedCommand};

use super::*;

fn program(
    file: &str,
    words: &[&str],
    environment: &[(&str, &str)],
) -> Result<WrappedCommand, String> {
    let flags = Flags {
        command: words.iter().map(|word| (*word).to_owned()).collect(),
        ..Flags::default()
    };
    let config = File::new(file).load(&flags, environment)?;
    match config.upstream.server {
        Wrapped::Command(command) => Ok(command),
        other @ (Wrapped::Url(_) | Wrapped::Unix(_)) => panic!("{other}"),
    }
}

fn exposed(command: &WrappedCommand) -> Vec<&str> {
    command.arguments.iter().map(Secret::expose).collect()
}

#[test]
fn a_program_comes_after_the_dashes_or_from_the_file() {
    let command = program("", &["npx", "-y", "some server"], &[]).unwrap();
    assert_eq!(command.program, "npx");
    assert_eq!(exposed(&command), ["-y", "some server"]);
    let text = "[upstream]\ncommand = ['uvx', 'mcp-server-time']\ncwd = '/srv'";
    let command = program(text, &[], &[]).unwrap();
    assert_eq!(command.program, "uvx");
    assert_eq!(exposed(&command), ["mcp-server-time"]);
    assert_eq!(command.directory, Some("/srv".into()));
    // What is said last counts whole, not word by word.
    let command = program(text, &["other"], &[]).unwrap();
    assert_eq!(
        (command.program.as_str(), exposed(&command).len()),
        ("other", 0)
    );
}

#[test]
fn a_programs_own_variables_keep_their_names() {
    let file = "[upstream]\ncommand = ['x']\nenv = { LEVEL = 1 }";
    let ours = [
        ("RAINCHECK_UPSTREAM__ENV__MEMORY_FILE_PATH", "/srv/memory"),
        ("RAINCHECK_UPSTREAM__ENV__App__mode", "b"),
    ];
    let command = program(file, &[], &ours).unwrap();
    let mut variables: Vec<_> = command
        .environment
        .iter()
        .map(|(name, value)| (name.as_str(), value.expose()))
        .collect();
    variables.sort_unstable();
    assert_eq!(
        variables,
        [
            ("App__mode", "b"),
            ("HOME", "/srv/ada"),
            ("LEVEL", "1"),
            ("MEMORY_FILE_PATH", "/srv/memory")
        ]
    );
}

#[test]
fn a_program_gets_what_is_named_and_nothing_else() {
    let text = "[upstream]\ncommand = ['x']\nenv_allow = ['TOKEN', 'NONE']\nenv = { LEVEL = 1, SHELL = '/bin/none' }";
    let ours = [
        ("PATH", "/usr/bin"),
        ("SHELL", "/bin/bash"),
        ("TERM", "() { :; }"),
        ("TOKEN", "t"),
        ("AWS_SECRET", "s"),
        ("RAINCHECK_STORE__URL", "memory:"),
    ];
    let command = program(text, &[], &ours).unwrap();
    let mut variables: Vec<_> = command
        .environment
        .iter()
        .map(|(name, value)| (name.as_str(), value.expose()))
        .collect();
    variables.sort_unstable();
    assert_eq!(
        variables,
        [
            ("HOME", "/srv/ada"),
            ("LEVEL", "1"),
            ("PATH", "/usr/bin"),
            ("SHELL", "/bin/none"),
            ("TOKEN", "t"),
        ]
    );
}

#[test]
fn secrets_of_a_program_are_not_shown() {
    let text = "[upstream]\ncommand = ['x', '--token=hunter2']\nenv = { KEY = 'hunter2' }";
    let config = File::new(text).load(&Flags::default(), &[]).unwrap();
    let server = &config.upstream.server;
    let shown = format!("{config:?} {server} {}", server.identity());
    assert!(!shown.contains("hunter2"), "{shown}");
    // But two programs that differ only by it are two.
    let other = text.replace("--token=hunter2", "--token=hunter3");
    let other = File::new(&other).load(&Flags::default(), &[]).unwrap();
    assert_ne!(server.identity(), other.upstream.server.identity());
    // And one service all the same.
    assert_eq!(server.service(), "stdio:x");
    assert!(!server.is_local());
}

#[test]
fn a_key_in_an_address_is_not_shown() {
    let text = "[upstream]\nurl = 'https://api.example.com/mcp?key=hunter2'";
    let server = File::new(text).load(&Flags::default(), &[]).unwrap();
    let server = server.upstream.server;
    assert_eq!(server.to_string(), "https://api.example.com/mcp?...");
    assert_eq!(server.service(), "https://api.example.com/mcp");
    assert!(server.identity().contains("hunter2"));
}

#[test]
fn mistakes_about_the_program() {
    for (text, expected) in [
        (
            "[upstream]\nurl = 'http://127.0.0.1:1/'\ncommand = ['x']",
            "config.toml: upstream.command: set, and upstream.url too; a server has either an address or a command; keep one",
        ),
        (
            "[upstream]\ncommand = 'npx -y some-server'",
            "config.toml: upstream.command: is a program and its arguments, which no shell takes apart; write [\"npx\", \"-y\", \"some-server\"]",
        ),
        (
            "[upstream]\ncommand = ['']",
            "config.toml: upstream.command: is a program and its arguments, which no shell takes apart; write [\"npx\", \"-y\", \"some-server\"]",
        ),
        (
            "[upstream]\nurl = 'http://127.0.0.1:1/'\ncwd = '/srv'",
            "config.toml: upstream.cwd: is for a server that raincheck runs, and this one has a URL; take it out",
        ),
        (
            "[upstream]\ncommand = ['x']\nenv_allow = ['A=B']",
            "config.toml: upstream.env_allow: \"A=B\" is not the name of a variable",
        ),
        (
            "[upstream]\ncommand = ['x']\nchildren_max = 0",
            "config.toml: upstream.children_max: must be from 1 to 1000000; the default is 32",
        ),
        (
            "[upstream]\ncommand = ['x']\ntransport = 'sse'",
            "config.toml: upstream.transport: is for a server with a URL, and this one is run by raincheck; take it out",
        ),
    ] {
        assert_eq!(program(text, &[], &[]).unwrap_err(), expected);
    }
}

#[test]
fn the_transport_is_found_out_or_said() {
    let transport = |lines: &str| {
        let text = format!("[upstream]\nurl = 'http://127.0.0.1/sse'\n{lines}");
        let config = File::new(&text).load(&Flags::default(), &[]);
        config.map(|config| config.upstream.transport)
    };
    assert_eq!(transport(""), Ok(TransportChoice::Auto));
    assert_eq!(transport("transport = 'sse'"), Ok(TransportChoice::Sse));
    let streamable = transport("transport = 'streamable-http'\nera = 'modern'");
    assert_eq!(streamable, Ok(TransportChoice::StreamableHttp));
    for (lines, mistake) in [
        (
            "transport = 'http'",
            "config.toml: upstream.transport: \"http\" is not one of \"auto\", \"streamable-http\", \"sse\"",
        ),
        (
            "transport = 'sse'\nera = 'modern'",
            "config.toml: upstream.transport: no modern server speaks \"sse\"; take upstream.era out, or this",
        ),
    ] {
        assert_eq!(transport(lines).unwrap_err(), mistake);
    }
}

#[test]
fn credentials_go_to_loopback_only() {
    let local = |url: &str| {
        let flags = Flags {
            upstream: Some(url.into()),
            ..Flags::default()
        };
        load(&flags, &pairs(&[]))
            .unwrap()
            .upstream
            .server
            .is_local()
    };
    assert!(local("http://127.0.0.1:8000/mcp"));
    assert!(local("http://127.9.9.9/mcp"));
    assert!(local("http://localhost/mcp"));
    assert!(local("http://[::1]:8000/mcp"));
    assert!(!local("http://10.0.0.1/mcp"));
    assert!(!local("https://localhost.example.com/mcp"));
}

fn used_credentials(lines: &str) -> Result<CredentialUse, String> {
    let config = File::new(&format!("[upstream]\n{lines}")).load(&Flags::default(), &[])?;
    Ok(config.upstream.credentials.used)
}

const HERE: &str = "url = 'http://127.0.0.1:1/mcp'\n";
const THERE: &str = "url = 'https://t.example/mcp'\n";
const OWN: &str = "headers.authorization = 'Bearer x'\n";

#[test]
fn what_the_server_gets_of_credentials() {
    for (lines, expected) in [
        (HERE.to_owned(), CredentialUse::Forward),
        (THERE.to_owned(), CredentialUse::Strip),
        (
            "url = 'unix:/run/mcp.sock'".to_owned(),
            CredentialUse::Forward,
        ),
        ("command = ['server']".to_owned(), CredentialUse::Strip),
        (format!("{HERE}{OWN}"), CredentialUse::Static),
        (
            format!("{THERE}{OWN}credentials = 'static'"),
            CredentialUse::Static,
        ),
        (format!("{HERE}credentials = 'strip'"), CredentialUse::Strip),
        (
            format!("{THERE}same_resource = true"),
            CredentialUse::Forward,
        ),
        (
            format!("{THERE}same_resource = true\ncredentials = 'forward'"),
            CredentialUse::Forward,
        ),
    ] {
        assert_eq!(used_credentials(&lines), Ok(expected), "{lines}");
    }
}

#[test]
fn credentials_that_cannot_go_are_refused() {
    for (lines, says) in [
        (
            format!("{THERE}credentials = 'forward'"),
            "Set upstream.same_resource = true",
        ),
        (
            format!("{HERE}{OWN}credentials = 'forward'"),
            "takes the place of every client's",
        ),
        (
            format!("{HERE}credentials = 'static'"),
            "upstream.headers.authorization is not set",
        ),
        (
            format!("{HERE}{OWN}credentials = 'strip'"),
            "write \"static\"",
        ),
        (
            format!("{HERE}credentials = 'both'"),
            "is not one of \"forward\", \"strip\", \"static\"",
        ),
        (
            format!("{THERE}{OWN}same_resource = true"),
            "same_resource: is true, but",
        ),
        (
            "command = ['server']\ncredentials = 'strip'".to_owned(),
            "is for a server with a URL",
        ),
        (
            format!("{HERE}caller_header = 'x-caller'"),
            "nobody is asked who it is",
        ),
        (
            format!("{HERE}caller_header = 'Mcp-Session-Id'"),
            "must be in lower case",
        ),
        (
            format!("{HERE}caller_header = 'mcp-session-id'"),
            "belongs to HTTP, to MCP",
        ),
        (
            format!("{THERE}forward_headers = ['x-key']\n[auth]\ncredential_headers = ['x-key']"),
            "\"x-key\" is one of auth.credential_headers",
        ),
        (
            format!("{HERE}[auth]\ncredential_headers = ['authorization']"),
            "is a credential without being named",
        ),
        (
            format!(
                "{HERE}caller_header = 'x-key'\n[auth]\ntokens_file = 't'\ncredential_headers = ['x-key']"
            ),
            "raincheck writes this header itself",
        ),
    ] {
        let wrong = used_credentials(&lines).unwrap_err();
        assert!(wrong.contains(says), "{lines}: {wrong}");
    }
}

/// Some servers make one sign of all that are no letters.
#[test]
fn a_header_that_could_be_read_as_another_is_refused() {
    for (lines, says) in [
        (
            format!("{THERE}forward_headers = ['x_forwarded_for']"),
            "\"x_forwarded_for\" is read as \"x-forwarded-for\" by servers",
        ),
        (
            format!("{THERE}forward_headers = ['content_length']"),
            "\"content_length\" is read as \"content-length\"",
        ),
        (
            format!("{HERE}[auth]\ncredential_headers = ['mcp_session_id']"),
            "\"mcp_session_id\" is read as \"mcp-session-id\"",
        ),
        (
            format!("{HERE}headers.transfer_encoding = 'x'"),
            "upstream.headers.transfer_encoding: belongs to HTTP",
        ),
        (
            format!(
                "{HERE}caller_header = 'x-key'\nforward_headers = ['x_key']\n[auth]\ntokens_file = 't'"
            ),
            "\"x-key\" and \"x_key\" are one header for many servers",
        ),
        (
            format!("{HERE}headers.x_key = 'k'\n[auth]\ncredential_headers = ['x-key']"),
            "\"x_key\" and \"x-key\" are one header for many servers",
        ),
    ] {
        let wrong = used_credentials(&lines).unwrap_err();
        assert!(wrong.contains(says), "{lines}: {wrong}");
    }
}

/// A program is one replica's own, and so is what runs on its machine.
#[test]
fn who_shares_the_server() {
    let shared = |text: &str| {
        let config = File::new(text).load(&Flags::default(), &[]).unwrap();
        config.upstream.shared
    };
    assert!(!shared("[upstream]\ncommand = ['server']"));
    assert!(shared("[upstream]\ncommand = ['server']\nshared = true"));
    assert!(!shared("[upstream]\nurl = 'http://127.0.0.1/mcp'"));
    assert!(shared("[upstream]\nurl = 'http://server/mcp'"));
}

#[test]
fn a_socket_is_a_server_of_ones_own() {
    let flags = Flags {
        upstream: Some("unix:/run/mcp.sock:/other".into()),
        ..Flags::default()
    };
    let upstream = File::new("").load(&flags, &[]).unwrap().upstream;
    assert_eq!(upstream.server.to_string(), "unix:/run/mcp.sock:/other");
    assert!(upstream.server.is_local() && !upstream.shared);
}

fn header(config: &Config, name: &str) -> Option<String> {
    let header = config.upstream.headers.iter().find(|h| h.name == name)?;
    Some(header.value.expose().to_owned())
}

#[test]
fn headers_come_from_the_file_and_the_environment_and_are_not_shown() {
    let text = "[upstream.headers]\nauthorization = 'Bearer hunter2'\nx-api-key = 1";
    let environment = [
        ("RAINCHECK_UPSTREAM__HEADERS__X_API_KEY", "hunter3"),
        ("RAINCHECK_UPSTREAM__HEADERS__X_NEW", "007"),
    ];
    let config = File::new(text).load(&upstream(), &environment).unwrap();
    let found = |name| header(&config, name);
    assert_eq!(found("authorization").as_deref(), Some("Bearer hunter2"));
    assert_eq!(found("x-api-key").as_deref(), Some("hunter3"));
    assert_eq!(found("x-new").as_deref(), Some("007"));
    assert!(!format!("{config:?}").contains("hunter"));
}

#[test]
fn a_header_that_cannot_be_sent_is_refused_without_its_value() {
    let refused = |name: &str, value: &str| {
        // TOML writes control characters as JSON does.
        let value = serde_json::to_string(value)
            .unwrap()
            .replace('\u{7f}', "\\u007f");
        let text = format!("[upstream.headers]\n{name:?} = {value}");
        let why = File::new(&text).load(&upstream(), &[]).unwrap_err();
        assert!(!why.contains("hunter2"), "{why}");
        why
    };
    for name in [
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "te",
        "accept",
        "content-type",
        "last-event-id",
        "mcp-session-id",
        "mcp-anything",
        "origin",
    ] {
        let expected = format!(
            "config.toml: upstream.headers.{name}: belongs to HTTP or to MCP, and raincheck sets \
             it for each request; take it out"
        );
        assert_eq!(refused(name, "hunter2"), expected);
    }
    for value in [
        "hunter2\n",
        "hunter2\r\nx: y",
        "hunter2\u{7f}",
        "hunter2é",
        "\t",
    ] {
        let why = refused("x-a", value);
        assert!(why.ends_with("without control characters"), "{why}");
    }
    assert!(refused("X-A", "hunter2").ends_with(r#"write it in lower case: "x-a""#));
    assert!(refused("x a", "hunter2").contains("is not the name of a header"));
    assert!(refused("x-a", "  ").contains("is empty"));
    assert!(refused("x-a", " hunter2").contains("ends with a space"));
    let wrong = ("RAINCHECK_UPSTREAM__HEADERS__CONTENT_TYPE", "hunter2");
    let why = File::new("").load(&upstream(), &[wrong]).unwrap_err();
    assert!(
        why.starts_with("RAINCHECK_UPSTREAM__HEADERS__CONTENT_TYPE: belongs"),
        "{why}"
    );
}

#[test]
fn what_an_upstream_is_told_must_be_of_use_to_it() {
    for (text, expected) in [
        (
            "[upstream]\nurl = 'https://x/mcp'\ntls.certificate = 'c'",
            "config.toml: upstream.tls.key: not set, but upstream.tls.certificate is; TLS needs \
             both, PEM files",
        ),
        (
            "[upstream]\nurl = 'http://x/mcp'\ntls.roots = 'r'",
            "config.toml: upstream.tls: has an effect only if upstream.url begins with \"https\"",
        ),
        (
            "[upstream]\nurl = 'unix:/x'\ntls.roots = 'r'",
            "config.toml: upstream.tls: has an effect only if upstream.url begins with \"https\"",
        ),
        (
            "[upstream]\ncommand = ['x']\nheaders.x-a = 'y'",
            "config.toml: upstream.headers: are for a server with a URL, and this one is a \
             command; give it what it needs in upstream.env",
        ),
        (
            "[upstream]\nurl = 'unix:mcp.sock'",
            "config.toml: upstream.url: not a socket that can be wrapped; write \
             \"unix:/run/mcp.sock\", or \"unix:/run/mcp.sock:/path\" where its path is not /mcp",
        ),
        (
            "[upstream.tls]\nroot = 'x'",
            "config.toml: upstream.tls.root: unknown key; did you mean roots? accepted in \
             [upstream.tls]: roots, certificate, key",
        ),
    ] {
        let said = File::new(text).load(&Flags::default(), &[]).unwrap_err();
        assert_eq!(said, expected, "{text}");
    }
}

#[test]
fn what_is_for_the_other_kind_of_server_is_refused() {
    for (setting, kind) in [
        ("sessions_max = 4", "sessions_max"),
        ("connect_timeout = '1s'", "connect_timeout"),
        ("http2 = true", "http2"),
    ] {
        let text = format!("[upstream]\ncommand = ['x']\n{setting}");
        assert_eq!(
            program(&text, &[], &[]).unwrap_err(),
            format!(
                "config.toml: upstream.{kind}: is for a server with a URL, and this one is run by \
                 raincheck; take it out"
            )
        );
    }
    // At their defaults they say nothing.
    let usual = "[upstream]\ncommand = ['x']\nsessions_max = 256\nconnect_timeout = '5s'";
    program(usual, &[], &[]).unwrap();
}
