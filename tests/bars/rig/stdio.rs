//! The program that a replica runs itself: `tests/support/stdio_server.py`, and its processes, known by a mark.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::eventually::try_eventually;

/// A program that bears a mark of its own among its arguments, and lists the calls that it gets.
#[derive(Debug)]
pub(crate) struct Program {
    mode: &'static str,
    mark: PathBuf,
}

impl Program {
    pub(crate) fn new(mode: &'static str) -> Self {
        let name = format!("rcb-{}", uuid::Uuid::new_v4().simple());
        Self {
            mode,
            mark: std::env::temp_dir().join(name),
        }
    }

    /// The part of a configuration that runs it.
    pub(crate) fn upstream(&self) -> String {
        let era = match self.mode {
            "modern" => "modern",
            _ => "legacy",
        };
        let server = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/stdio_server.py");
        let (mode, mark, calls) = (self.mode, self.mark.display(), self.calls_file());
        format!(
            "[upstream]\nera = \"{era}\"\ncommand = [\"python3\", \"{server}\", \"{mode}\", \"{mark}\"]\n\
             env = {{ CALLS = \"{}\" }}\n",
            calls.display()
        )
    }

    fn calls_file(&self) -> PathBuf {
        self.mark.with_extension("calls")
    }

    /// How often the call of this token came.
    pub(crate) fn calls(&self, token: &str) -> usize {
        let calls = fs::read_to_string(self.calls_file()).unwrap_or_default();
        calls.lines().filter(|line| *line == token).count()
    }

    /// What a program that dies waits for.
    pub(crate) fn let_live(&self) {
        fs::write(&self.mark, "").expect("a file for the program");
    }

    /// Its processes, those too that are about to become it.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let mark = self.mark.display().to_string();
        let is_marked = |pid: &u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&mark)
        };
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(is_marked).collect()
    }

    /// Those that are left when they had time to end.
    pub(crate) async fn left_after(&self, patience: Duration) -> Vec<u32> {
        let ended = async || self.processes().is_empty();
        match try_eventually(patience, ended).await {
            Ok(()) => Vec::new(),
            Err(_) => self.processes(),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.calls_file());
        let _ = fs::remove_file(&self.mark);
        for pid in self.processes() {
            super::process::end(pid);
        }
    }
}
