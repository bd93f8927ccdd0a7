//! What comes while raincheck starts, and what the start says of the process.

use std::fs::File;
use std::process::{Command, Stdio};

use tokio::net::unix::pipe::OpenOptions;
use tokio::process::Child;

use crate::authority::Authority;
use crate::support::{PATIENCE, TempDir, eventually};

/// A start whose log is a file.
struct Starting {
    files: TempDir,
    child: Child,
}

impl Starting {
    /// `first` is run by the shell that becomes raincheck.
    fn run(files: TempDir, first: &str, settings: &str) -> Self {
        let settings = format!(
            "[upstream]\nurl = \"http://127.0.0.1:1/mcp\"\n[store]\nurl = \"memory:\"\n[listen]\n\
             address = \"127.0.0.1:0\"\n{settings}"
        );
        let config = files.file("raincheck.toml", &settings);
        let log = File::create(files.path().join("log")).unwrap();
        let line = format!("{first}exec \"$0\" run --config \"$1\"");
        let child = tokio::process::Command::new("sh")
            .args(["-c", &line, env!("CARGO_BIN_EXE_raincheck")])
            .arg(config)
            .stdin(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self { files, child }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.files.path().join("log")).unwrap()
    }

    async fn until_said(&self, text: &str) {
        let what = format!("the log says: {text}");
        let said = async || {
            let log = self.log();
            if log.contains(text) { Ok(()) } else { Err(log) }
        };
        eventually(PATIENCE, &what, said).await;
    }

    /// Writes into the pipe, once raincheck reads it.
    async fn write_token(&self, before: impl FnOnce()) {
        let pipe = self.files.path().join("token");
        let open = async || OpenOptions::new().open_sender(&pipe);
        let sender = eventually(PATIENCE, "raincheck reads the token", open).await;
        before();
        sender.writable().await.unwrap();
        sender
            .try_write(b"0123456789abcdef0123456789abcdef")
            .unwrap();
    }
}

/// A secret that is a pipe holds the start up while the settings are read.
#[tokio::test]
async fn a_reload_that_is_asked_for_during_the_start_comes_after_it() {
    let files = TempDir::new();
    let pipe = files.path().join("token");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let settings = format!("[admin]\nlisten = \"127.0.0.1:0\"\ntoken_file = {pipe:?}\n");
    let process = Starting::run(files, "", &settings);
    let pid = process.child.id().unwrap().to_string();
    let hang_up = || {
        let sent = Command::new("kill").args(["-HUP", &pid]).status().unwrap();
        assert!(sent.success());
    };
    process.write_token(hang_up).await;
    process.until_said("serving").await;
    process.write_token(|| ()).await;
    process.until_said("reloaded: nothing has changed").await;
}

#[tokio::test]
async fn a_limit_of_open_files_below_the_limits_of_the_settings_is_told() {
    let few = "[limits]\nconnections = 10\ncalls = 10\n";
    let low = Starting::run(TempDir::new(), "ulimit -n 83; ", few);
    low.until_said("the limit of open files is low").await;
    assert!(low.log().contains("limit=83 needed=84"), "{}", low.log());
    let enough = Starting::run(TempDir::new(), "ulimit -n 84; ", few);
    enough.until_said("serving").await;
    assert!(!enough.log().contains("is low"), "{}", enough.log());
}

/// Clients refuse it, and raincheck hears nothing of that.
#[tokio::test]
async fn a_certificate_that_has_expired_is_told() {
    let files = TempDir::new();
    let (certificate, key) = Authority::new().issue_until(2020);
    let certificate = files.file("c.pem", &certificate);
    let key = files.file("k.pem", &key);
    let settings = format!("tls.certificate = {certificate:?}\ntls.key = {key:?}\n");
    let process = Starting::run(files, "", &settings);
    process.until_said("serving").await;
    let log = process.log();
    let told = "clients refuse the certificate of listen.tls";
    let line = log.lines().find(|line| line.contains(told));
    assert!(line.unwrap().contains("c.pem: expired "), "{log}");
}
