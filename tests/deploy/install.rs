//! `install.sh`, in each shell that is there, from files that a server of this machine has.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;

use super::*;
use crate::packages::{VERSION, folder, printed, succeeds, without_symbols};

static SCRIPT: LazyLock<String> = LazyLock::new(|| text("install.sh"));

/// Files of a release at an address of this machine, and a home where nothing is installed yet.
struct Release {
    folder: PathBuf,
    address: String,
    server: Child,
}

impl Drop for Release {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn archive() -> String {
    format!(
        "raincheck-{VERSION}-{}-unknown-linux-musl",
        std::env::consts::ARCH
    )
}

impl Release {
    /// The archive has the layout of deploy/archive.py, whose own test is in archive.rs.
    fn served(name: &str) -> Self {
        let folder = folder(&format!("install-{name}"));
        let files = folder.join(format!("v{VERSION}"));
        let inside = folder.join(archive());
        for below in ["bin", "share/man/man1"] {
            fs::create_dir_all(inside.join(below)).unwrap();
        }
        fs::rename(without_symbols(&folder), inside.join("bin/raincheck")).unwrap();
        fs::write(inside.join("share/man/man1/raincheck.1"), ".TH").unwrap();
        fs::create_dir(&files).unwrap();
        let packed = files.join(archive() + ".tar.gz");
        let mut pack = Command::new("tar");
        pack.args(["--create", "--use-compress-program=gzip -1"]);
        pack.arg("--file")
            .arg(packed)
            .arg("--directory")
            .arg(&folder);
        succeeds(pack.arg(archive()));
        succeeds(packages::python().args(["-m", "sums"]).arg(&files));
        fs::create_dir(folder.join("temporary")).unwrap();

        let mut server = Command::new("python3")
            .args(["-u", "-m", "http.server", "0", "--bind", "127.0.0.1"])
            .current_dir(&folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(server.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let port = line
            .split_whitespace()
            .find_map(|word| word.parse::<u16>().ok());
        Self {
            address: format!("http://127.0.0.1:{}", port.expect("a port")),
            folder,
            server,
        }
    }

    fn prefix(&self) -> PathBuf {
        self.folder.join("home/.local")
    }

    fn sums(&self) -> PathBuf {
        self.folder.join(format!("v{VERSION}/SHA256SUMS"))
    }

    /// The script, as a shell reads it from a pipe.
    fn piped(&self, shell: &[&str], script: &str) -> Command {
        let file = self.folder.join("script");
        fs::write(&file, script).unwrap();
        let mut command = Command::new(shell[0]);
        command
            .args(&shell[1..])
            .stdin(fs::File::open(file).unwrap());
        command.env_remove("RAINCHECK_INSTALL");
        command.env("HOME", self.folder.join("home"));
        command.env("TMPDIR", self.folder.join("temporary"));
        command.env("RAINCHECK_ADDRESS", &self.address);
        command.env("RAINCHECK_VERSION", VERSION);
        command
    }

    fn run(&self, shell: &[&str]) -> Output {
        self.piped(shell, &SCRIPT).output().unwrap()
    }

    fn refuses(&self, mut command: Command, expected: &str) {
        let output = command.output().unwrap();
        let text = printed(&output);
        assert!(!output.status.success(), "{text}");
        assert!(text.contains(expected), "{text}");
        self.has_nothing_installed();
    }

    fn has_nothing_installed(&self) {
        assert!(!self.folder.join("home").exists());
        self.left_nothing();
    }

    fn left_nothing(&self) {
        let left = fs::read_dir(self.folder.join("temporary")).unwrap().count();
        assert_eq!(left, 0, "in the temporary folder");
    }
}

/// Where a program is, if it is there.
fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path).map(|folder| folder.join(program));
    found.find(|path| path.exists())
}

#[test]
fn a_release_is_installed_by_each_shell() {
    let release = Release::served("shells");
    let busybox = which("busybox").expect("busybox (tests/setup.sh installs it)");
    let busybox = busybox.to_str().unwrap();
    let shells = [
        &["sh"][..],
        &["bash"],
        &["dash"],
        &["zsh"],
        &[busybox, "ash"],
    ];
    let there = shells.iter().filter(|shell| which(shell[0]).is_some());
    for shell in there {
        let output = release.run(shell);
        let said = printed(&output);
        assert!(output.status.success(), "{shell:?}: {said}");
        let program = release.prefix().join("bin/raincheck");
        let version = succeeds(Command::new(&program).arg("--version"));
        assert_eq!(version.trim(), format!("raincheck {VERSION}"));
        assert!(release.prefix().join("share/man/man1/raincheck.1").exists());
        assert!(said.contains("bin is not in PATH; add it: "), "{said}");
        let all = fs::read_dir(release.prefix().join("bin")).unwrap().count();
        assert_eq!(all, 1, "only the program");
        release.left_nothing();
        fs::remove_dir_all(release.folder.join("home")).unwrap();
    }
}

/// As on Alpine: no program of another origin, and so wget in place of curl.
#[test]
fn a_release_is_installed_where_only_busybox_is() {
    let release = Release::served("busybox");
    let busybox = which("busybox").expect("busybox (tests/setup.sh installs it)");
    let programs = release.folder.join("programs");
    fs::create_dir(&programs).unwrap();
    for name in [
        "cp",
        "cut",
        "mkdir",
        "mktemp",
        "mv",
        "rm",
        "sha256sum",
        "tar",
        "uname",
        "wget",
    ] {
        std::os::unix::fs::symlink(&busybox, programs.join(name)).unwrap();
    }
    let mut install = release.piped(&[busybox.to_str().unwrap(), "ash"], &SCRIPT);
    let output = install.env("PATH", &programs).output().unwrap();
    assert!(output.status.success(), "{}", printed(&output));
    assert!(release.prefix().join("bin/raincheck").exists());
}

#[test]
fn a_program_that_runs_is_replaced_and_runs_on() {
    let release = Release::served("again");
    let other = release.folder.join("other place");
    let installs = || {
        let mut install = release.piped(&["sh"], &SCRIPT);
        let path = std::env::var("PATH").unwrap_or_default();
        install.env("PATH", format!("{}/bin:{path}", other.display()));
        let output = install.env("RAINCHECK_INSTALL", &other).output().unwrap();
        assert!(output.status.success(), "{}", printed(&output));
        assert!(!printed(&output).contains("PATH"), "{}", printed(&output));
    };
    installs();
    let mut running = Command::new(other.join("bin/raincheck"))
        .args([
            "stdio",
            "--upstream",
            "http://127.0.0.1:9/mcp",
            "--store",
            "memory:",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    installs();
    assert!(running.try_wait().unwrap().is_none(), "it ended");
    drop(running.stdin.take());
    running.wait().unwrap();
}

#[test]
fn an_archive_with_a_wrong_sum_or_none_is_refused() {
    let release = Release::served("sums");
    let right = fs::read_to_string(release.sums()).unwrap();
    let install = || release.piped(&["sh"], &SCRIPT);
    let (sum, rest) = right.split_at(64);
    let wrong: String = sum.chars().rev().collect();
    fs::write(release.sums(), wrong + rest).unwrap();
    release.refuses(install(), "has the SHA-256 sum");
    fs::write(
        release.sums(),
        right.replace(&archive(), "raincheck-of-others"),
    )
    .unwrap();
    release.refuses(install(), "has no sum of");
    fs::remove_file(release.sums()).unwrap();
    release.refuses(
        install(),
        "SHA256SUMS cannot be fetched: nothing was installed",
    );
    let mut other = install();
    other.env("RAINCHECK_VERSION", "9.9.9");
    release.refuses(other, "cannot be fetched: nothing was installed");
    let mut unset = install();
    unset.env_remove("RAINCHECK_VERSION");
    release.refuses(unset, "set RAINCHECK_VERSION");
}

#[test]
fn a_system_without_a_program_is_refused_with_the_others() {
    let release = Release::served("systems");
    let programs = release.folder.join("programs");
    fs::create_dir(&programs).unwrap();
    let uname = programs.join("uname");
    let path = std::env::var("PATH").unwrap_or_default();
    let on = |system: &str, machine: &str| {
        let script = format!("#!/bin/sh\n[ \"$1\" = -s ] && echo {system} || echo {machine}\n");
        fs::write(&uname, script).unwrap();
        succeeds(Command::new("chmod").arg("+x").arg(&uname));
        let mut install = release.piped(&["sh"], &SCRIPT);
        install.env("PATH", format!("{}:{path}", programs.display()));
        install
    };
    let there = "on Linux and macOS, on x86_64 and aarch64; for Windows";
    for (system, machine, named) in [
        ("FreeBSD", "amd64", "FreeBSD"),
        ("Linux", "riscv64", "Linux on riscv64"),
        ("MINGW64_NT-10.0", "x86_64", "MINGW64_NT-10.0"),
    ] {
        let expected =
            format!("error: there is no raincheck for {named}: this script installs it {there}");
        release.refuses(on(system, machine), &expected);
    }
    // The file that is asked for, where there is one.
    for (system, machine, target) in [
        ("Darwin", "arm64", "aarch64-apple-darwin"),
        ("Darwin", "x86_64", "x86_64-apple-darwin"),
    ] {
        let expected = format!("raincheck-{VERSION}-{target}.tar.gz cannot be fetched");
        release.refuses(on(system, machine), &expected);
    }
}

/// A connection that breaks gives the shell the beginning of the script.
#[test]
fn half_a_script_does_nothing() {
    let release = Release::served("half");
    let whole = SCRIPT.trim_end().len();
    let ends = (0..whole - 3).step_by(150).chain([whole - 4, whole - 1]);
    for end in ends {
        let half = SCRIPT.get(..end).unwrap();
        let _ = release.piped(&["sh"], half).output().unwrap();
        release.has_nothing_installed();
    }
}
