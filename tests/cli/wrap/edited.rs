//! Entries that their owner edits after they were wrapped.

use super::*;

fn edit(settings: &Settings, from: &str, to: &str) {
    let text = settings.text();
    assert!(text.contains(from), "{from} in {text}");
    fs::write(&settings.file, text.replacen(from, to, 1)).unwrap();
}

#[test]
fn undo_keeps_a_token_that_was_replaced() {
    let settings = Settings::new(SETTINGS);
    settings.ok(&["time", "--yes"]);
    edit(&settings, r#""abc""#, r#""the new one""#);
    let said = settings.ok(&["time", "--undo", "--yes"]);
    assert!(said.contains("only what raincheck put there"), "{said}");
    let now = settings.text();
    let entry = now.split_once("\"one line\"").unwrap().0;
    assert!(entry.contains(r#""TOKEN": "the new one""#), "{entry}");
    assert!(entry.contains(r#""command": "uvx", // fast"#), "{entry}");
    assert!(entry.contains(r#""--utc", /* always */"#), "{entry}");
    assert!(
        !entry.contains("RAINCHECK") && !entry.contains("\"stdio\",\n        \"--\""),
        "{entry}"
    );
    assert_eq!(
        now.split_once("\"one line\"").unwrap().1,
        SETTINGS.split_once("\"one line\"").unwrap().1
    );
    assert!(settings.ok(&[]).starts_with("  time      uvx\n"));

    settings.ok(&["remote", "--yes"]);
    edit(&settings, r#"X_API_KEY": "k""#, r#"X_API_KEY": "k2""#);
    settings.ok(&["remote", "--undo", "--yes"]);
    let now = settings.text();
    for kept in [
        r#""type": "http""#,
        r#""url": "https://api.example.com/mcp""#,
        r#""Authorization": "Bearer ${input:token}""#,
        r#""X-Api-Key": "k2""#,
    ] {
        assert!(now.contains(kept), "{kept} in {now}");
    }
    assert!(!now.contains("RAINCHECK"), "{now}");
}

/// Shared settings were wrapped on another user's machine.
#[test]
fn undo_needs_no_backup_to_know_the_server() {
    let settings = Settings::new(SETTINGS);
    for name in ["one line", "bare", "keyed"] {
        settings.ok(&[name, "--yes"]);
    }
    for file in settings.files() {
        if file != "mcp.json" {
            fs::remove_file(settings.folder.join(file)).unwrap();
        }
    }
    for name in ["one line", "bare", "keyed"] {
        let said = settings.ok(&[name, "--undo", "--yes"]);
        assert!(
            said.contains("note: no backup has this very server"),
            "{said}"
        );
    }
    let value = |text: &str| {
        let text = text.replace("  // mine\n", "").replace(" // fast", "");
        let text = text.replace("\"--utc\", /* always */", "\"--utc\"");
        serde_json::from_str::<serde_json::Value>(&text).unwrap()
    };
    assert_eq!(value(&settings.text()), value(SETTINGS));
}

#[test]
fn a_variable_that_came_later_is_let_through_when_it_is_wrapped_again() {
    let settings = Settings::new(SETTINGS);
    settings.ok(&["time", "--yes"]);
    edit(
        &settings,
        r#""TOKEN": "abc""#,
        r#""TOKEN": "abc", "LEVEL": "1""#,
    );
    let said = settings.ok(&["time", "--yes"]);
    assert!(
        said.contains("runs through raincheck already, which kept"),
        "{said}"
    );
    assert!(
        settings
            .text()
            .contains(r#""RAINCHECK_UPSTREAM__ENV_ALLOW": "TOKEN,LEVEL""#)
    );
    assert!(
        settings
            .ok(&["time"])
            .contains("runs through raincheck already\n")
    );
}

/// The variable takes the place of the list in the file, so that it has both.
#[test]
fn what_the_settings_of_raincheck_let_through_stays_let_through() {
    let settings = Settings::new(SETTINGS);
    let config = settings.folder.join("raincheck.toml");
    fs::write(
        &config,
        "[upstream]\nenv_allow = [\"HTTPS_PROXY\", \"TOKEN\"]\n",
    )
    .unwrap();
    let config = config.to_str().unwrap();
    settings.ok(&["time", "--yes", "--config", config]);
    let allowed = r#""RAINCHECK_UPSTREAM__ENV_ALLOW": "TOKEN,HTTPS_PROXY""#;
    assert!(settings.text().contains(allowed), "{}", settings.text());
    settings.ok(&["time", "--undo", "--yes"]);
    assert_eq!(settings.text(), SETTINGS);
}

/// An entry without variables has no such list at first, and the file's holds.
#[test]
fn the_first_variable_of_an_entry_is_let_through_beside_those_of_the_settings() {
    let settings = Settings::new(r#"{"mcpServers": {"time": {"command": "uvx"}}}"#);
    let config = settings.folder.join("raincheck.toml");
    let file = "[upstream]\nenv_allow = [\"HTTPS_PROXY\"]\n";
    fs::write(&config, file).unwrap();
    settings.ok(&["time", "--yes", "--config", config.to_str().unwrap()]);
    edit(
        &settings,
        r#""command":"#,
        r#""env": {"TOKEN": "abc"}, "command":"#,
    );
    settings.ok(&["time", "--yes"]);
    let allowed = r#""RAINCHECK_UPSTREAM__ENV_ALLOW": "HTTPS_PROXY,TOKEN""#;
    assert!(settings.text().contains(allowed), "{}", settings.text());
}
