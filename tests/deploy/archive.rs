//! The archive for installation by hand: unpacked from its file, and used as its readers use it.

use std::process::Command;

use super::*;
use crate::packages::{VERSION, file, folder, python, succeeds, without_symbols};

#[test]
fn the_archive_brings_the_program_its_pages_and_its_completions() {
    let out = folder("archive");
    let binary = without_symbols(&out);
    let mut make = python();
    make.args(["-m", "archive"]).args([&binary, &out]);
    succeeds(make.arg(VERSION).arg(&binary));
    let prefix = out.join("local");
    fs::create_dir(&prefix).unwrap();
    let mut unpack = Command::new("tar");
    unpack.args(["--extract", "--gzip", "--strip-components=1"]);
    unpack.arg("--directory").arg(&prefix);
    succeeds(unpack.arg("--file").arg(file(&out, ".tar.gz")));

    let program = prefix.join("bin/raincheck");
    let version = succeeds(Command::new(&program).arg("--version"));
    assert_eq!(version.trim(), format!("raincheck {VERSION}"));
    has_a_page_for_each_command(&prefix, &program);

    let completions = prefix.join("share/bash-completion/completions/raincheck");
    let ask = format!(
        "source {}; COMP_WORDS=(raincheck comp); COMP_CWORD=1; _raincheck raincheck comp raincheck; echo ${{COMPREPLY[@]}}",
        completions.display()
    );
    let answer = succeeds(Command::new("bash").args(["--norc", "-c", &ask]));
    assert_eq!(answer.trim(), "completions");
    for (shell, mark) in [
        ("zsh/site-functions/_raincheck", "#compdef raincheck"),
        (
            "fish/vendor_completions.d/raincheck.fish",
            "complete -c raincheck",
        ),
    ] {
        let script = fs::read_to_string(prefix.join("share").join(shell)).unwrap();
        assert!(script.contains(mark), "{shell}");
    }

    let unit = prefix.join("lib/systemd/system/raincheck.service");
    let unit = fs::read_to_string(unit).unwrap();
    assert_eq!(unit, text("systemd/raincheck.service"));
    assert!(
        unit.contains("ExecStart=/usr/local/bin/raincheck "),
        "where the archive puts it"
    );
    let example = prefix.join("share/doc/raincheck/config.example.toml");
    let example = fs::read_to_string(example).unwrap();
    assert_eq!(
        succeeds(Command::new(&program).args(["config", "example"])),
        example
    );
}

fn has_a_page_for_each_command(prefix: &Path, program: &Path) {
    let help = succeeds(Command::new(program).arg("--help"));
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    let (commands, _) = commands.split_once("\n\n").unwrap();
    let mut names: Vec<&str> = commands
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(names.len() > 8, "{help}");
    names.push("");
    for name in names {
        let page = format!("raincheck-{name}.1").replace("-.1", ".1");
        let page = prefix.join("share/man/man1").join(page);
        assert!(
            fs::read_to_string(&page).unwrap().contains(".TH raincheck"),
            "{}",
            page.display()
        );
    }
}
