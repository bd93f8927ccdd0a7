//! What the documents name is there: pages, headings, files, tests and sentences of the log.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::{File, files, none, root, sources};

#[test]
fn every_link_leads_somewhere() {
    let pages = pages();
    let broken = pages.iter().flat_map(|page| {
        let links = links(&prose(&page.text));
        let broken = links
            .into_iter()
            .filter(|link| !resolves(page, link, &pages));
        let broken = broken.map(|link| format!("{}: {link}", page.name));
        broken.collect::<Vec<_>>()
    });
    none(broken, "leads to no file or heading");
}

#[test]
fn the_summary_lists_every_page() {
    let pages = pages();
    let summary = pages.iter().find(|page| page.name == "docs/SUMMARY.md");
    let listed = links(&summary.unwrap().text);
    let missing = pages
        .iter()
        .filter_map(|page| page.name.strip_prefix("docs/"))
        .filter(|name| *name != "SUMMARY.md" && !listed.iter().any(|link| link == name));
    none(
        missing.map(ToOwned::to_owned),
        "is a page that docs/SUMMARY.md does not list",
    );
}

#[test]
fn every_file_that_is_named_is_there() {
    let folders = ["src", "tests", "docs", "deploy", "examples", "benches"];
    let gone = pages().into_iter().flat_map(|page| {
        let of_source = is_of_source(&page.name);
        let named = in_backticks(&page.text).into_iter().filter(|text| {
            let is_path = |c: char| c.is_alphanumeric() || "/._-".contains(c);
            text.contains('/') && text.chars().all(is_path)
        });
        let gone = named.filter(|text| {
            let top = text.split('/').next().unwrap_or_default();
            let path = if folders.contains(&top) {
                root().join(text)
            } else if of_source && root().join("src").join(top).is_dir() {
                root().join("src").join(text)
            } else {
                return false;
            };
            !path.exists() && !path.with_extension("rs").exists()
        });
        let gone = gone.map(|text| format!("{}: {text}", page.name));
        gone.collect::<Vec<_>>()
    });
    none(gone, "is not there");
}

/// ARCHITECTURE.md names the tests that hold what it says, as words in backticks with three underscores or more.
#[test]
fn every_test_that_is_named_is_there() {
    let code = [sources("src"), sources("tests")].concat();
    let gone = pages()
        .into_iter()
        .filter(|page| is_of_source(&page.name))
        .flat_map(|page| {
            let is_test = |text: &String| {
                let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
                text.matches('_').count() >= 3 && text.chars().all(is_part)
            };
            let named = in_backticks(&page.text).into_iter().filter(is_test);
            let gone = named.filter(|name| {
                let function = format!("fn {name}(");
                !code.iter().any(|file| file.text.contains(&function))
            });
            let gone = gone.map(|name| format!("{}: {name}", page.name));
            gone.collect::<Vec<_>>()
        });
    none(gone, "is no test");
}

/// "`Name` in `src/file.rs`" says where a name is defined.
#[test]
fn every_name_is_defined_where_a_page_says() {
    let wrong = pages().into_iter().flat_map(|page| {
        let parts: Vec<_> = page.text.split('`').collect();
        let wrong = parts.windows(3).filter_map(|window| match window {
            [name, " in ", path] if path.split('.').next_back() == Some("rs") => {
                let text = std::fs::read_to_string(root().join(path)).unwrap_or_default();
                let kinds = ["struct", "enum", "trait", "fn", "const", "type"];
                let is_defined = kinds
                    .iter()
                    .any(|kind| text.contains(&format!("{kind} {name}")));
                (!is_defined).then(|| format!("{}: {name} in {path}", page.name))
            }
            _ => None,
        });
        wrong.collect::<Vec<_>>()
    });
    none(wrong, "is not defined there");
}

/// A page about the code, which names files below `src`.
fn is_of_source(page: &str) -> bool {
    page == "ARCHITECTURE.md" || page.starts_with("docs/design/")
}

/// A diagram is drawn by the host, and ends a statement at a semicolon: the rest of the line would be a mistake.
#[test]
fn no_diagram_has_a_semicolon() {
    let broken = pages().into_iter().flat_map(|page| {
        let diagrams = page.text.split("```mermaid\n").skip(1);
        let diagrams = diagrams.filter_map(|rest| rest.split("```").next());
        let lines = diagrams
            .flat_map(str::lines)
            .filter(|line| line.contains(';'));
        let lines = lines.map(|line| format!("{}: {}", page.name, line.trim()));
        lines.collect::<Vec<_>>()
    });
    none(broken, "has a semicolon");
}

/// In the tables of docs/troubleshooting.md, what is quoted and has three words or more is said by the program.
#[test]
fn every_sentence_that_is_quoted_is_said() {
    let said: Vec<_> = sources("src")
        .into_iter()
        .map(|file| whole_strings(&file.text))
        .collect();
    let page = pages()
        .into_iter()
        .find(|page| page.name == "docs/troubleshooting.md");
    let page = page.unwrap();
    let rows = page.text.lines().filter(|line| line.starts_with("| `"));
    let first = rows.filter_map(|row| row.split('`').nth(1));
    let sentences = first.filter(|text| text.split(' ').count() > 2);
    let sentences: Vec<_> = sentences.map(ToOwned::to_owned).collect();
    assert!(sentences.len() > 10, "the tables were not found");
    none(
        sentences
            .into_iter()
            .filter(|text| !said.iter().any(|file| file.contains(text.as_str()))),
        "is quoted in docs/troubleshooting.md, and the program does not say it",
    );
}

/// Source in which a string that goes over several lines is one.
fn whole_strings(text: &str) -> String {
    let mut parts = text.split("\\\n");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |whole, part| whole + part.trim_start())
}

fn pages() -> Vec<File> {
    files("", &["md"])
}

/// Without blocks of code.
fn prose(text: &str) -> String {
    let outside = text.split("```").step_by(2);
    outside.collect()
}

/// The targets of `[text](target)` that are in this repository.
fn links(text: &str) -> Vec<String> {
    let found = text
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    let found = found.filter(|target| !target.contains("://") && !target.starts_with("mailto:"));
    found.map(ToOwned::to_owned).collect()
}

fn resolves(page: &File, link: &str, pages: &[File]) -> bool {
    let (path, heading) = link.split_once('#').unwrap_or((link, ""));
    let folder = Path::new(&page.name).parent().unwrap();
    let target = if path.is_empty() {
        page.name.clone()
    } else {
        let path = straight(&folder.join(path));
        if !root().join(&path).exists() {
            return false;
        }
        path.display().to_string()
    };
    let target = pages.iter().find(|page| page.name == target);
    heading.is_empty() || target.is_some_and(|page| headings(&page.text).contains(heading))
}

/// `docs/../README.md` as `README.md`.
fn straight(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path {
        if part == ".." {
            out.pop();
        } else {
            out.push(part);
        }
    }
    out
}

/// The names by which headings are reached, as hosts and mdBook make them.
fn headings(text: &str) -> BTreeSet<String> {
    let text = prose(text);
    let lines = text.lines().filter(|line| line.starts_with('#'));
    let titles = lines.map(|line| line.trim_start_matches('#').trim().to_lowercase());
    titles
        .map(|title| {
            let kept = title
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

fn in_backticks(text: &str) -> Vec<String> {
    let prose = prose(text);
    let code = prose.split('`').skip(1).step_by(2);
    code.map(ToOwned::to_owned).collect()
}

#[test]
fn links_and_headings_are_read_as_hosts_read_them() {
    let text = "# HTTP+SSE\n## In `[your]` client's: settings\nSee [a](b.md#c) and [d](https://e.f/g).\n```\n[no](h)\n```\n";
    assert_eq!(links(&prose(text)), ["b.md#c"]);
    let expected = ["httpsse", "in-your-clients-settings"];
    assert_eq!(headings(text), expected.map(ToOwned::to_owned).into());
    assert_eq!(
        straight(Path::new("docs/design/../../a.md")),
        Path::new("a.md")
    );
}
