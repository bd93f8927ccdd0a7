//! `raincheck config schema`, read by a validator that others wrote.

use std::io::Write as _;
use std::process::{Command, Stdio};

use super::*;

/// Reads `{"schema": .., "files": [[name, toml], ..]}` and prints the names of the files that are refused, a line each.
const VALIDATOR: &str = r#"
import json, sys, tomllib
from jsonschema import Draft7Validator
asked = json.load(sys.stdin)
Draft7Validator.check_schema(asked["schema"])
validator = Draft7Validator(asked["schema"])
for name, text in asked["files"]:
    for error in validator.iter_errors(tomllib.loads(text)):
        print(name, "/".join(map(str, error.absolute_path)), error.message[:200])
        break
"#;

/// The names of the files that the schema refuses, each with the reason.
fn refused(files: &[(String, String)]) -> Vec<String> {
    let schema = raincheck(&["config", "schema"]);
    let schema: serde_json::Value = serde_json::from_slice(&schema.stdout).unwrap();
    let asked = serde_json::json!({"schema": schema, "files": files}).to_string();
    let mut python = Command::new("python3")
        .args(["-W", "ignore", "-c", VALIDATOR])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = python.stdin.take().unwrap();
    input.write_all(asked.as_bytes()).unwrap();
    drop(input);
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success(), "python3 with jsonschema is needed");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// The TOML of all pages, and the example.
fn documents() -> Vec<(String, String)> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let example = include_str!("../../config.example.toml");
    let mut files = vec![("example".to_owned(), example.to_owned())];
    // With the settings that the example only shows.
    let shown = example.lines().map(|line| {
        let setting = line.strip_prefix("# ").unwrap_or(line);
        let is_key = |key: &str| {
            key.chars()
                .all(|c| c.is_ascii_lowercase() || "_-".contains(c))
        };
        let is_setting = setting
            .split_once(" = ")
            .is_some_and(|(key, _)| is_key(key))
            || setting.starts_with("[[");
        if is_setting { setting } else { line }
    });
    let shown: Vec<&str> = shown.collect();
    files.push(("example with comments".to_owned(), shown.join("\n")));
    let mut folders = vec![root.join("docs"), root.join("docs/design")];
    let mut pages = vec![root.join("README.md")];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(folder).unwrap();
        pages.extend(entries.map(|entry| entry.unwrap().path()));
    }
    for page in pages {
        if page.extension().is_none_or(|it| it != "md") {
            continue;
        }
        let text = std::fs::read_to_string(&page).unwrap();
        for (place, block) in text.split("```toml\n").skip(1).enumerate() {
            let block = block.split("```").next().unwrap();
            files.push((format!("{}#{place}", page.display()), block.to_owned()));
        }
    }
    files
}

fn numbered(files: &[&str]) -> Vec<(String, String)> {
    let files = files.iter().enumerate();
    let files = files.map(|(number, text)| (number.to_string(), (*text).to_owned()));
    files.collect()
}

#[test]
fn the_schema_takes_every_file_of_the_documents() {
    let files = documents();
    assert!(files.len() > 5, "{}", files.len());
    assert_eq!(refused(&files), [""; 0]);
}

#[test]
fn the_schema_refuses_what_raincheck_refuses() {
    let files = [
        "[tasks]\nmdoe = \"auto\"",
        "[tasks]\nmode = \"sometimes\"",
        "[tasks]\ngrace_window = \"3 parsecs\"",
        "[limits]\ncalls = -1",
        "[limits]\ntask_bytes = \"4GB\"",
        "[store]\nallow_eviction = \"yes\"",
        "[[tools]]\nname = 7",
        "[[tools]]\nname = \"a\"\ncompanion_tools = true",
        "[[auth.jwt]]\nisuer = \"x\"",
        "[taks]\nmode = \"auto\"",
        "listen = \"127.0.0.1:8440\"",
    ];
    let found = refused(&numbered(&files));
    assert_eq!(found.len(), files.len(), "{found:?}");
    let good = [
        "[tasks]\ngrace_window = \"1h30m\"\nconcurrency = \"4\"",
        "[limits]\ntask_bytes = 4096\nbody_bytes_max = \"1MiB\"",
        "[upstream]\ncommand = \"server\"\n[upstream.headers]\nx-api-key = \"a\"",
    ];
    assert_eq!(refused(&numbered(&good)), [""; 0]);
}
