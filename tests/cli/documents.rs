//! The command lines that the documents show are command lines of the program.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::raincheck;

#[test]
fn every_flag_that_is_shown_is_a_flag() {
    let mut helps = BTreeMap::new();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for page in pages() {
        for line in std::fs::read_to_string(&page).unwrap().lines() {
            for (command, flags) in commands(line) {
                seen += 1;
                let help = helps
                    .entry(command.clone())
                    .or_insert_with(|| help(&command));
                let unknown = flags.into_iter().filter(|flag| !help.contains(flag));
                wrong.extend(unknown.map(|flag| format!("{}: {command} {flag}", page.display())));
            }
        }
    }
    assert!(seen > 20, "the command lines were not found");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The flags that `raincheck COMMAND --help` lists.
fn help(command: &str) -> BTreeSet<String> {
    let output = raincheck(&[command, "--help"]);
    assert!(output.status.success(), "raincheck {command} is no command");
    flags(&String::from_utf8(output.stdout).unwrap())
}

const COMMANDS: [&str; 6] = ["run", "stdio", "wrap", "check", "call", "demo"];

/// Each `raincheck COMMAND --flag ..` of a line, up to what is no part of it.
fn commands(line: &str) -> Vec<(String, BTreeSet<String>)> {
    let parts = line.split("raincheck ").skip(1);
    let found = parts.filter_map(|rest| {
        let rest = rest.split(['`', '#', '|', '"']).next()?;
        let rest = rest.split(" -- ").next()?;
        let command = rest.split_whitespace().next()?;
        let command = COMMANDS.iter().find(|known| **known == command)?;
        Some(((*command).to_owned(), flags(rest)))
    });
    found.collect()
}

fn flags(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let flags = words.filter(|word| word.starts_with("--") && word.len() > 2);
    flags.map(ToOwned::to_owned).collect()
}

/// The pages at the root, in docs, examples and deploy, and the file of settings.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders =
        [".", "docs", "docs/design", "examples", "deploy"].map(|folder| root.join(folder));
    let files = folders
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let files = files.map(|file| file.unwrap().path());
    let kinds = ["md", "toml", "sh", "rs", "py", "yaml"];
    let is_page = |path: &PathBuf| {
        path.extension()
            .is_some_and(|kind| kinds.iter().any(|k| kind == *k))
    };
    files.filter(is_page).collect()
}

#[test]
fn command_lines_are_found_where_they_are_shown() {
    let line =
        "Run `raincheck run --upstream X -- npx --yes y` or raincheck wrap --dry-run # --not";
    let found = commands(line);
    let flag = |flag: &str| BTreeSet::from([flag.to_owned()]);
    let expected = [
        ("run".to_owned(), flag("--upstream")),
        ("wrap".to_owned(), flag("--dry-run")),
    ];
    assert_eq!(found, expected);
}
