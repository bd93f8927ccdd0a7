//! What the README says is so.

use super::*;

/// The README's rules are rules, and its error is what is said.
#[test]
fn the_readme_is_true() {
    let readme = include_str!("../../README.md");
    let (_, section) = readme.split_once("## Rules for tools").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rules: Vec<_> = section
        .lines()
        .filter_map(|line| line.strip_prefix("    "))
        .collect();
    let config = from_file(&rules.join("\n"));
    assert_eq!(config.rules.for_tool("search_web").0.mode, Mode::Never);
    let (deploy, place) = config.rules.for_tool("deploy_web");
    assert_eq!(
        (deploy.mode, deploy.require_tasks, place),
        (Mode::Always, true, Some(1))
    );
    let refusal = refusal("[tasks]\ngrace_window = '3 parsecs'");
    assert!(readme.contains(&format!(
        "raincheck: rain{}",
        refusal.replace("config", "check")
    )));
}

/// And so are its companion tools.
#[test]
fn the_companion_tools_of_the_readme_are_wanted() {
    let readme = include_str!("../../README.md");
    let (_, section) = readme.split_once("## Clients without Tasks").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rules = section.lines().filter_map(|line| line.strip_prefix("    "));
    let config = from_file(&rules.collect::<Vec<_>>().join("\n"));
    assert!(config.companion.is_some());
    assert_eq!(config.rules.defaults().fallback_after_ms, 45_000);
    assert_eq!(from_file("").companion, None);
}

/// And so are its limits.
#[test]
fn the_limits_of_the_readme_are_limits() {
    use raincheck::task::policy::{Concurrency, Limit};
    let readme = include_str!("../../README.md");
    let (_, section) = readme.split_once("## Not too many calls at once").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rules = section.lines().filter_map(|line| line.strip_prefix("    "));
    let config = from_file(&rules.collect::<Vec<_>>().join("\n"));
    let limit = |at_once, queue| Limit { at_once, queue };
    assert_eq!(config.upstream.concurrency, Some(limit(16, 256)));
    let of = |tool| config.rules.for_tool(tool).0.concurrency;
    assert_eq!(of("deploy_web"), Some(Concurrency::Together(limit(1, 10))));
    assert_eq!(of("other"), Some(Concurrency::EachTool(limit(4, 256))));
}

/// And so is its window.
#[test]
fn the_same_call_of_the_readme_is_the_same_call() {
    let readme = include_str!("../../README.md");
    let (_, section) = readme.split_once("## The same call again").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rules = section.lines().filter_map(|line| line.strip_prefix("    "));
    let config = from_file(&rules.collect::<Vec<_>>().join("\n"));
    let of = |tool| config.rules.for_tool(tool).0.attach_window_ms;
    assert_eq!((of("deploy_web"), of("other")), (Some(60_000), None));
}

/// What fails is listed for the user: the table is what the code says of its reasons, no more and no less.
#[test]
fn the_readme_lists_every_reason() {
    use raincheck::mcp::error::Reason;
    let readme = include_str!("../../README.md");
    let (_, table) = readme.split_once("| `io.raincheck/reason` |").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    let listed: Vec<_> = table.lines().skip(2).collect();
    let said: Vec<_> = Reason::ALL
        .map(|reason| {
            let (happened, effect) = reason.described();
            format!("| `{}` | {happened} | {effect} |", reason.word())
        })
        .into();
    assert_eq!(listed, said, "the table would be:\n{}", said.join("\n"));
}

/// No reason is listed that nothing gives, and none is given that is not listed.
#[test]
fn every_reason_is_given_somewhere() {
    use raincheck::mcp::error::Reason;
    let words: Vec<_> = Reason::ALL.iter().map(|reason| reason.word()).collect();
    let given = given_reasons(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    for reason in Reason::ALL {
        assert!(given.contains(&format!("{reason:?}")), "{reason:?}");
    }
    let listed = Reason::ALL.map(|reason| format!("{reason:?}"));
    for name in given {
        let is_known = listed.contains(&name) || name == format!("{:?}", Reason::AnswerLost);
        assert!(is_known, "{name} is not listed");
    }
    assert!(words.contains(&Reason::AnswerLost.word()));
}

/// What stands behind `Reason::` in the source, but where the reasons are made.
fn given_reasons(folder: &std::path::Path) -> std::collections::BTreeSet<String> {
    let mut given = std::collections::BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            given.extend(given_reasons(&path));
        } else if !path.ends_with("mcp/error.rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let names = text.split("Reason::").zip(text.split("Reason::").skip(1));
            for (before, name) in names {
                let name: String = name
                    .chars()
                    .take_while(char::is_ascii_alphanumeric)
                    .collect();
                // Another word may end so.
                if !before.ends_with(char::is_alphanumeric) && name != "ALL" {
                    given.insert(name);
                }
            }
        }
    }
    given
}
