//! What cannot be wrapped or undone is said in one line, and nothing is changed.

use super::*;

#[test]
fn a_file_that_cannot_be_edited_without_a_loss_is_refused() {
    let args = r#"{"servers": {"a": {"command": "node", "args": "x.js"}}}"#;
    assert_eq!(
        Settings::new(args).refused(&["a", "--yes"]),
        "\"a\": has args that are no list; write \"args\": [\"one\", \"two\"]"
    );
}

#[test]
fn mistakes_are_one_line() {
    let twice = r#"{"servers": {"a": {"command": "x"}, "a": {"command": "y"}}}"#;
    let entry = |entry: &str| format!(r#"{{"servers": {{"a": {entry}}}}}"#);
    let cases = [
        (
            SETTINGS.into(),
            "none",
            "names no server \"none\", but \"time\", \"one line\", \"bare\", \"remote\", \"keyed\"",
        ),
        (
            "{\n\"a\": 1\n".into(),
            "a",
            "line 1 is not JSON: Unterminated object",
        ),
        (r#"["a"]"#.into(), "a", "not a JSON object"),
        (
            r#"{"a": 1}"#.into(),
            "a",
            "has no servers: neither \"mcpServers\" nor \"servers\"",
        ),
        (
            r#"{"servers": {}}"#.into(),
            "a",
            "names no server \"a\", but no server at all",
        ),
        (twice.into(), "a", "\"a\" is there twice"),
        (
            entry("{}"),
            "a",
            "\"a\": has neither a command nor a url, so there is nothing to wrap",
        ),
        (
            entry(r#"{"url": "https://x.example/", "oauth": {"clientId": "c"}}"#),
            "a",
            "\"a\": \"oauth\" lets the client sign in, which it does for no program that it launches; \
             put `raincheck run --upstream` in front of the server, and its address here",
        ),
        (
            entry(r#"{"url": "https://x.example/", "headers": {"X_Key": "k"}}"#),
            "a",
            "\"a\": the header \"X_Key\" has an underscore, which no variable can say: put \
             [upstream.headers] into a file, name it with --config, and take the header out here",
        ),
        (
            entry(r#"{"url": "https://x.example/", "headers": {"Accept": "*/*"}}"#),
            "a",
            "\"a\": RAINCHECK_UPSTREAM__HEADERS__ACCEPT: belongs to HTTP or to MCP, and raincheck sets \
             it for each request; take it out",
        ),
        (
            entry(r#"{"url": "https://u:p@x.example/"}"#),
            "a",
            "\"a\": credentials in a URL are not used; write them as headers",
        ),
    ];
    for (text, name, expected) in cases {
        assert_eq!(Settings::new(&text).refused(&[name, "--yes"]), expected);
    }
    let settings = Settings::new(SETTINGS);
    assert!(
        settings
            .refused(&["time", "--yes", "--store", "redis://u:p@h"])
            .starts_with("--store: a password")
    );
}

#[test]
fn a_file_that_is_not_there_is_no_file() {
    let settings = Settings::new(SETTINGS);
    fs::remove_file(settings.folder.join("mcp.json")).unwrap();
    let output = settings.run(&["time"]);
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(
        complaint
            .ends_with("there is no such file; name the settings of a client, such as .mcp.json\n"),
        "{complaint}"
    );
}

#[test]
fn a_server_of_a_project_is_found_for_who_does_not_name_it() {
    let text = r#"{"projects": {"/x": {"mcpServers": {"a": {"command": "x"}}}}}"#;
    let settings = Settings::new(text);
    for (arguments, expected) in [
        (
            &["a", "--yes"][..],
            "\"a\" is a server of single projects: --project /x",
        ),
        (
            &["b", "--yes"],
            "names no server \"b\", but no server at all",
        ),
        (
            &["b", "--project", "/x"],
            "names no server \"b\", but \"a\"",
        ),
        (
            &["a", "--project", "/y"],
            "has no servers of a project \"/y\"",
        ),
    ] {
        assert_eq!(settings.refused(arguments), expected);
    }
}

#[test]
fn a_change_without_the_name_of_a_server_is_refused() {
    let two = r#"{"servers": {"a": {"command": "x"}, "b c": {"command": "y"}}}"#;
    let settings = Settings::new(two);
    for flag in ["--yes", "--dry-run", "--undo", "--namespace=n"] {
        let flag_name = flag.split('=').next().unwrap();
        let expected = format!("{flag_name} needs the name of a server: \"a\", \"b c\"");
        assert_eq!(settings.refused(&[flag]), format!("raincheck: {expected}"));
    }
}

#[test]
fn other_kinds_of_settings_are_named() {
    let settings = Settings::new(SETTINGS);
    let file = settings.folder.join("config.toml");
    fs::write(&file, "[mcp_servers.a]\ncommand = 'x'\n").unwrap();
    let output = Command::new(RAINCHECK)
        .arg("wrap")
        .args([&file])
        .arg("a")
        .output()
        .unwrap();
    assert!(!output.status.success());
    let complaint = String::from_utf8(output.stderr).unwrap();
    let expected = "is TOML, and only JSON is edited: there, put `raincheck stdio --` before the \
                    server's command\n";
    assert!(complaint.ends_with(expected), "{complaint}");
}

#[test]
fn undo_without_a_backup_says_so() {
    let text =
        r#"{"servers": {"a": {"command": "/x/raincheck", "args": ["stdio", "--config", "y"]}}}"#;
    let settings = Settings::new(text);
    let complaint = settings.refused(&["a", "--undo", "--yes"]);
    assert!(
        complaint.starts_with("no backup has \"a\" as it was: "),
        "{complaint}"
    );
}
