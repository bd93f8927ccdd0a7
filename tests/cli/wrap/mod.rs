//! `raincheck wrap`: what becomes of a client's settings, byte for byte, and of what it then launches.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

mod edited;
mod launched;
mod mistakes;
mod projects;

const RAINCHECK: &str = env!("CARGO_BIN_EXE_raincheck");

/// As people write them: comments, a trailing comma, both styles, another member beside.
const SETTINGS: &str = r#"{
  // mine
  "mcpServers": {
    "time": {
      "type": "stdio",
      "command": "uvx", // fast
      "args": [
        "mcp-server-time",
        "--utc", /* always */
      ],
      "env": { "TOKEN": "abc" },
      "disabled": false
    },
    "one line": {"command": "npx", "args": ["-y", "@x/one"]},
    "bare": { "command": "bare" },
    "remote": {
      "type": "http",
      "url": "https://api.example.com/mcp",
      "headers": { "Authorization": "Bearer ${input:token}", "X-Api-Key": "k" }
    },
    "keyed": {
      "url": "http://127.0.0.1:8000/mcp?key=secret"
    }
  },
  "big": 12345678901234567890123, "float":1.10
}
"#;

/// A folder with one file in it, gone at the end of the test.
struct Settings {
    folder: PathBuf,
    file: PathBuf,
}

impl Settings {
    fn new(text: &str) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let place = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("raincheck-wrap-{}-{place}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).unwrap();
        let file = folder.join("mcp.json");
        fs::write(&file, text).unwrap();
        Self { folder, file }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(RAINCHECK)
            .arg("wrap")
            .arg(&self.file)
            .args(arguments)
            .env_clear()
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// What it says, having succeeded.
    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let said = String::from_utf8(output.stdout).unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}{complaint}");
        said
    }

    /// The one line with which it refuses, after the name of the file; nothing is changed.
    fn refused(&self, arguments: &[&str]) -> String {
        let (text, files) = (self.text(), self.files());
        let output = self.run(arguments);
        assert!(!output.status.success(), "{arguments:?}");
        assert_eq!((self.text(), self.files()), (text, files), "{arguments:?}");
        let complaint = String::from_utf8(output.stderr).unwrap();
        let start = format!("raincheck: {}: ", self.file.display());
        let line = complaint.strip_prefix(&start).unwrap_or(&complaint);
        let line = line.strip_suffix('\n').unwrap();
        assert!(!line.contains('\n'), "{line}");
        line.to_owned()
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.file).unwrap()
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.folder).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn backup(&self, suffix: &str) -> String {
        fs::read_to_string(
            self.folder
                .join(format!("mcp.json.raincheck-backup{suffix}")),
        )
        .unwrap()
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn a_command_is_put_behind_raincheck_and_nothing_else_changes() {
    let settings = Settings::new(SETTINGS);
    let said = settings.ok(&["time", "--yes"]);
    let expected = SETTINGS
        .replace(r#""uvx""#, &format!("{RAINCHECK:?}"))
        .replace(
            "        \"mcp-server-time\",\n",
            "        \"stdio\",\n        \"--\",\n        \"uvx\",\n        \"mcp-server-time\",\n",
        )
        .replace(
            r#"{ "TOKEN": "abc" }"#,
            "{\n        \"TOKEN\": \"abc\",\n        \"RAINCHECK_UPSTREAM__ENV_ALLOW\": \"TOKEN\"\n      }",
        );
    assert_eq!(settings.text(), expected);
    assert_eq!(settings.backup(""), SETTINGS);
    // The change, and of the other servers not a line.
    assert!(
        said.contains("-      \"command\": \"uvx\", // fast\n"),
        "{said}"
    );
    assert!(
        !said.contains("secret") && !said.contains("X-Api-Key"),
        "{said}"
    );

    assert_eq!(
        settings.ok(&["time"]),
        "\"time\": runs through raincheck already\n"
    );
    settings.ok(&["time", "--undo", "--yes"]);
    assert_eq!(settings.text(), SETTINGS);
}

#[test]
fn other_forms_of_a_command() {
    let settings = Settings::new(SETTINGS);
    settings.ok(&["one line", "--yes", "--store", "redb:tasks"]);
    settings.ok(&["bare", "--yes"]);
    let expected = SETTINGS
        .replace(
            r#""npx", "args": ["-y""#,
            &format!(r#"{RAINCHECK:?}, "args": ["stdio", "--store", "redb:tasks", "--", "npx", "-y""#),
        )
        .replace(
            r#"{ "command": "bare" }"#,
            &format!(
                "{{\n      \"command\": {RAINCHECK:?},\n      \"args\": [\"stdio\", \"--\", \"bare\"]\n    }}"
            ),
        );
    assert_eq!(settings.text(), expected);
}

/// As editors on Windows write it.
#[test]
fn a_byte_order_mark_and_line_ends_of_windows_stay() {
    let before = format!("\u{feff}{}", SETTINGS.replace('\n', "\r\n"));
    let settings = Settings::new(&before);
    settings.ok(&["bare", "--yes"]);
    let now = settings.text();
    assert!(now.starts_with("\u{feff}{\r\n  // mine"), "{now}");
    assert!(!now.replace("\r\n", "").contains('\n'), "{now}");
    assert_eq!(settings.backup(""), before);
    settings.ok(&["bare", "--undo", "--yes"]);
    assert_eq!(settings.text(), before);
}

/// Settings are shared between machines; where the path leads here, its name is enough.
#[test]
fn a_program_on_the_path_is_named_without_its_folder() {
    let settings = Settings::new(SETTINGS);
    let output = Command::new(RAINCHECK)
        .arg("wrap")
        .arg(&settings.file)
        .args(["bare", "--yes"])
        .env("PATH", Path::new(RAINCHECK).parent().unwrap())
        .output()
        .unwrap();
    assert!(output.status.success());
    assert!(settings.text().contains(r#""command": "raincheck","#));
    assert!(settings.ok(&["bare"]).contains("already"));
}

#[test]
fn an_address_is_put_behind_raincheck_and_no_secret_among_its_arguments() {
    let settings = Settings::new(SETTINGS);
    let said = settings.ok(&["remote", "--yes"]);
    assert!(!said.contains("OAuth"), "it has a token: {said}");
    settings.ok(&["keyed", "--yes"]);
    let entry = |name: &str, text: &str| {
        let from = text.find(&format!("    {name:?}: {{")).unwrap();
        let (entry, _) = text[from..].split_once("\n    }").unwrap();
        entry.to_owned()
    };
    assert_eq!(
        entry("remote", &settings.text()),
        format!(
            r#"    "remote": {{
      "type": "stdio",
      "command": {RAINCHECK:?},
      "args": ["stdio", "--upstream", "https://api.example.com/mcp"],
      "env": {{
        "RAINCHECK_UPSTREAM__HEADERS__AUTHORIZATION": "Bearer ${{input:token}}",
        "RAINCHECK_UPSTREAM__HEADERS__X_API_KEY": "k"
      }}"#
        )
    );
    assert_eq!(
        entry("keyed", &settings.text()),
        format!(
            r#"    "keyed": {{
      "command": {RAINCHECK:?},
      "args": ["stdio"],
      "env": {{
        "RAINCHECK_UPSTREAM__URL": "http://127.0.0.1:8000/mcp?key=secret"
      }}"#
        )
    );
    for name in ["keyed", "remote"] {
        assert!(settings.ok(&[name]).contains("already"));
        settings.ok(&[name, "--undo", "--yes"]);
    }
    assert_eq!(settings.text(), SETTINGS);
}

/// Terminals are recorded, shown to others and pasted into reports.
#[test]
fn no_secret_is_shown() {
    let one_line = r#"{"mcpServers": {"a": {"command": "npx", "args": ["x", "--key", "s3cret"]}, "b": {"url": "http://h/mcp", "headers": {"X": "s3cret"}}}}"#;
    for (text, names) in [
        (
            SETTINGS.replace("Bearer ${input:token}", "Bearer s3cret"),
            ["remote", "keyed"],
        ),
        (one_line.to_owned(), ["a", "b"]),
    ] {
        let settings = Settings::new(&text);
        for name in names {
            for arguments in [
                &[name, "--dry-run"][..],
                &[name, "--yes"],
                &[name, "--undo", "--dry-run"],
            ] {
                let said = settings.ok(arguments);
                assert!(said.contains("\n+"), "{said}");
                assert!(
                    !said.contains("s3cret") && !said.contains("key=secret"),
                    "{said}"
                );
            }
        }
        let said = settings.ok(&[names[0], "--undo", "--dry-run"]);
        assert!(said.contains("***"), "{said}");
    }
}

#[test]
fn undo_brings_back_one_server_and_leaves_what_changed_since() {
    let settings = Settings::new(SETTINGS);
    settings.ok(&["time", "--yes"]);
    settings.ok(&["bare", "--yes"]);
    let edited = settings.text().replace("@x/one", "@x/two");
    fs::write(&settings.file, &edited).unwrap();
    settings.ok(&["time", "--undo", "--yes"]);
    let now = settings.text();
    let time =
        &SETTINGS[SETTINGS.find(r#""time""#).unwrap()..SETTINGS.find(r#""one line""#).unwrap()];
    assert!(now.contains(time) && now.contains("@x/two"), "{now}");
    assert!(settings.ok(&["bare"]).contains("already"));
    assert_eq!(
        settings.ok(&["time", "--undo"]),
        "\"time\": does not run through raincheck\n"
    );

    // An older backup has another command; the one that is wrapped now comes back.
    settings.ok(&["bare", "--undo", "--yes"]);
    let other = settings.text().replace(r#""bare" }"#, r#""other" }"#);
    fs::write(&settings.file, &other).unwrap();
    settings.ok(&["bare", "--yes"]);
    settings.ok(&["bare", "--undo", "--yes"]);
    assert_eq!(settings.text(), other);
}

#[test]
fn a_backup_is_never_overwritten() {
    let settings = Settings::new(SETTINGS);
    settings.ok(&["time", "--yes"]);
    let once = settings.text();
    settings.ok(&["bare", "--yes"]);
    assert_eq!(
        (settings.backup(""), settings.backup(".2")),
        (SETTINGS.into(), once)
    );
    // The newest state is not kept twice; an older one is, so that numbers say age.
    fs::write(&settings.file, settings.backup(".2")).unwrap();
    settings.ok(&["bare", "--yes"]);
    assert_eq!(settings.files().len(), 3);
    fs::write(&settings.file, SETTINGS).unwrap();
    settings.ok(&["bare", "--yes"]);
    assert_eq!(settings.backup(".3"), SETTINGS);
    // The number of a removed backup is not used again.
    fs::remove_file(settings.folder.join("mcp.json.raincheck-backup.2")).unwrap();
    settings.ok(&["time", "--yes"]);
    let backups = [
        "mcp.json",
        "mcp.json.raincheck-backup",
        "mcp.json.raincheck-backup.3",
        "mcp.json.raincheck-backup.4",
    ];
    assert_eq!(settings.files(), backups);
}

#[test]
fn who_may_read_the_file_stays() {
    let settings = Settings::new(SETTINGS);
    fs::set_permissions(&settings.file, Permissions::from_mode(0o640)).unwrap();
    let link = settings.folder.join("link.json");
    symlink(&settings.file, &link).unwrap();
    let output = Command::new(RAINCHECK)
        .arg("wrap")
        .arg(&link)
        .args(["bare", "--yes"])
        .output()
        .unwrap();
    assert!(output.status.success());
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    for file in ["mcp.json", "mcp.json.raincheck-backup"] {
        let mode = fs::metadata(settings.folder.join(file)).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o640, "{file}");
    }
    assert!(settings.ok(&["bare"]).contains("already"));
}

#[test]
fn nothing_happens_without_a_yes() {
    let settings = Settings::new(SETTINGS);
    assert_eq!(
        settings.refused(&["time"]),
        "not changed: there is no terminal to ask on, and no --yes"
    );
    assert!(
        settings
            .ok(&["time", "--dry-run"])
            .contains("+        \"stdio\",\n")
    );
    assert_eq!(settings.files(), ["mcp.json"]);
    for (answer, changed) in [("n\n", false), ("\n", false), ("y\n", true)] {
        let said = on_a_terminal(&settings.file, answer);
        assert!(said.contains("[y/N]"), "{said}");
        assert_eq!(settings.text() != SETTINGS, changed, "{answer:?}: {said}");
    }
}

/// What the command says on a terminal where somebody types.
fn on_a_terminal(file: &Path, typed: &str) -> String {
    let command = format!("'{RAINCHECK}' wrap '{}' time", file.display());
    let mut script = Command::new("script")
        .args(["--quiet", "--command", &command, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(script.stdout.take().unwrap());
    let mut text = Vec::new();
    said.read_until(b']', &mut text).unwrap();
    let mut keyboard = script.stdin.take().unwrap();
    keyboard.write_all(typed.as_bytes()).unwrap();
    said.read_to_end(&mut text).unwrap();
    drop(keyboard);
    script.wait().unwrap();
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn the_servers_of_a_file_are_listed() {
    let settings = Settings::new(SETTINGS);
    settings.ok(&["time", "--yes"]);
    assert_eq!(
        settings.ok(&[]),
        "  time      uvx                      wrapped\n  \
           one line  npx\n  \
           bare      bare\n  \
           remote    https://api.example.com\n  \
           keyed     http://127.0.0.1:8000\n"
    );
    let vs_code = Settings::new(r#"{"mcp": {"servers": {"a": {"command": "x"}}}}"#);
    assert_eq!(vs_code.ok(&[]), "  a  x\n");
    let zed = Settings::new(r#"{"context_servers": {"a": {"command": "x"}}}"#);
    assert_eq!(zed.ok(&[]), "  a  x\n");
}
