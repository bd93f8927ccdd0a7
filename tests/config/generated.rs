//! The parts of the documents that are made from the program: docs/configuration.md, docs/errors.md, docs/jobs.md and
//! docs/metrics.md.
//!
//! `RAINCHECK_RENEW=1 cargo test --test config generated` writes them anew.

use std::fmt::Write as _;

use figment::Figment;
use figment::providers::{Format as _, Toml};
use raincheck::mcp::error::{Failure, Reason, SideEffect};
use raincheck::telemetry::metrics::METRICS;
use serde_json::Value;

#[test]
fn the_page_of_settings_is_the_example_file() {
    let example = include_str!("../../config.example.toml");
    is_in_page("configuration.md", &settings(example));
}

#[test]
fn the_page_of_errors_lists_what_the_program_says() {
    let mut table = String::from(
        "| `io.raincheck/reason` | the message begins | what happened | effect |\n|---|---|---|---|\n",
    );
    for reason in Reason::ALL {
        let sentence = Failure::new(reason, SideEffect::Unknown).sentence();
        let (happened, effect) = reason.described();
        let word = reason.word();
        let _ = writeln!(table, "| `{word}` | {sentence} | {happened} | {effect} |");
    }
    is_in_page("errors.md", &table);
}

#[test]
fn the_page_of_metrics_lists_what_is_served() {
    let mut table =
        String::from("| metric | type | labels | what it counts |\n|---|---|---|---|\n");
    for metric in METRICS.described() {
        let labels: Vec<String> = metric.labels.iter().map(|l| format!("`{l}`")).collect();
        let (name, kind, labels) = (metric.name, metric.kind, labels.join(", "));
        let _ = writeln!(table, "| `{name}` | {kind} | {labels} | {} |", metric.help);
    }
    is_in_page("metrics.md", &table);
}

#[test]
fn the_page_of_jobs_lists_the_presets() {
    let mut table = String::from(
        "| preset | server, and the version that it was compared with | starts | compared how |\n|---|---|---|---|\n",
    );
    for preset in presets() {
        let text = |key: &str| preset[key].as_str().unwrap().to_owned();
        let jobs = preset["jobs"].as_array().unwrap().iter();
        let names = |start: &Value| match (start.as_array(), start.as_str()) {
            (Some(all), _) => all.clone(),
            (None, Some(_)) => vec![start.clone()],
            (None, None) => vec![start["tool"].clone()],
        };
        let starts = jobs.flat_map(|job| names(&job["start"]));
        let starts: Vec<String> = starts
            .map(|start| format!("`{}`", start.as_str().unwrap()))
            .collect();
        let how = match &*text("verified") {
            "fake API" => "jobs run by raincheck, with an API of our own behind the server",
            "answers" => "its answers, with an API of our own behind it",
            "source" => "its list of tools, and its source",
            other => panic!("verified = {other:?}"),
        };
        let _ = writeln!(
            table,
            "| `{}` | `{}` {} | {} | {how}, {} |",
            text("name"),
            text("package"),
            text("versions"),
            starts.join(", "),
            text("date"),
        );
    }
    is_in_page("jobs.md", &table);
}

fn presets() -> Vec<Value> {
    let text = include_str!("../../src/config/presets.toml");
    Figment::from(Toml::string(text))
        .extract_inner("preset")
        .unwrap()
}

const BEGIN: &str = "<!-- generated";
const END: &str = "<!-- end -->";

/// Compares what stands between the marks of a page, or writes it.
fn is_in_page(name: &str, wanted: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("docs")
        .join(name);
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (mark, rest) = rest.split_once('\n').unwrap();
    let (found, after) = rest.split_once(END).unwrap();
    let wanted = format!("\n{wanted}\n");
    if std::env::var_os("RAINCHECK_RENEW").is_some() {
        let page = format!("{before}{BEGIN}{mark}\n{wanted}{END}{after}");
        std::fs::write(&path, page).unwrap();
        return;
    }
    assert!(
        found == wanted,
        "docs/{name} is stale: RAINCHECK_RENEW=1 cargo test --test config generated"
    );
}

/// A section a heading, a setting a row: the comment above it, and its default.
fn settings(example: &str) -> String {
    let mut page = String::new();
    let mut comment: Vec<&str> = Vec::new();
    let mut is_code = false;
    for line in example.lines() {
        let text = line.strip_prefix("# ").unwrap_or(line);
        if line.is_empty() {
            if is_code {
                page.push_str("```\n");
            }
            is_code = false;
            comment.clear();
        } else if is_code {
            let _ = writeln!(page, "{text}");
        } else if text.starts_with('[') {
            let about = prose(&comment);
            let _ = write!(page, "\n## `{text}`\n\n{about}\n\n");
            is_code = line.starts_with('#');
            if is_code {
                let _ = writeln!(page, "```toml\n{text}");
            } else {
                page.push_str("| setting | default | meaning |\n|---|---|---|\n");
            }
            comment.clear();
        } else if let Some((key, value)) = setting(text) {
            let value = if line.starts_with('#') {
                format!("none; such as `{value}`")
            } else {
                format!("`{value}`")
            };
            let about = prose(&comment);
            let _ = writeln!(page, "| `{key}` | {value} | {about} |");
            comment.clear();
        } else {
            comment.push(text.trim_start_matches('#'));
        }
    }
    page.trim_start().to_owned()
}

fn setting(text: &str) -> Option<(&str, &str)> {
    let is_key = |key: &str| {
        key.chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c))
    };
    text.split_once(" = ").filter(|(key, _)| is_key(key))
}

/// Lines of a comment as one line of Markdown, in which nothing but code in backticks is marked.
fn prose(comment: &[&str]) -> String {
    let line = comment.join(" ");
    let parts = line.split('`').enumerate().map(|(place, part)| {
        if place % 2 == 1 {
            return format!("`{part}`");
        }
        let part = part.replace('<', "&lt;").replace('*', "\\*");
        part.replace('|', "\\|")
    });
    parts.collect::<String>().trim().to_owned()
}
