//! A program in a real terminal (tmux): what a person sees, and what they type.

use std::process::{Command, Output};

use super::{PATIENCE, TempDir, eventually};

/// Runs the program, tells its exit code, and keeps the screen. The shell outlives a Ctrl-C, the program does not.
const SHELL: &str = r#"trap : INT; "$@"; echo "exit code $?"; exec cat"#;

/// The terminal is gone when this is dropped.
#[derive(Debug)]
pub(crate) struct Terminal {
    directory: TempDir,
}

impl Terminal {
    /// Runs the built binary with these arguments.
    pub(crate) fn run(arguments: &[&str]) -> Self {
        let terminal = Self {
            directory: TempDir::new(),
        };
        let shell = ["new-session", "-d", "-x", "100", "-y", "24"];
        let program = ["sh", "-c", SHELL, "sh", env!("CARGO_BIN_EXE_raincheck")];
        terminal.tmux(&[&shell[..], &program, arguments].concat());
        terminal
    }

    /// Waits until the screen shows this text, and returns the screen.
    pub(crate) async fn until_shown(&self, text: &str) -> String {
        eventually(PATIENCE, &format!("the screen shows {text}"), async || {
            let screen = self.screen();
            if screen.contains(text) {
                Ok(screen)
            } else {
                Err(screen)
            }
        })
        .await
    }

    /// Types this text, and presses Enter.
    pub(crate) fn type_line(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
        self.press("Enter");
    }

    /// Presses a key, such as `C-c`.
    pub(crate) fn press(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    fn screen(&self) -> String {
        let output = self.tmux(&["capture-pane", "-p", "-J"]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn tmux(&self, arguments: &[&str]) -> Output {
        let output = self.command(arguments).output();
        let output = output.expect("tmux is installed (tests/setup.sh)");
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "tmux {arguments:?}: {complaint}");
        output
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command
            .arg("-S")
            .arg(self.directory.path().join("tmux"))
            .args(["-f", "/dev/null"])
            .args(arguments)
            .env("TERM", "xterm")
            .env_remove("TMUX");
        command
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.command(&["kill-server"]).output();
    }
}
