//! What the documents say of settings and errors is so.

use raincheck::config::CompanionUse;

use super::*;

const RULES: &str = include_str!("../../docs/rules.md");

/// The settings that a section of docs/rules.md shows.
fn settings_of(section: &str) -> Config {
    let (_, section) = RULES.split_once(&format!("## {section}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let blocks = section.split("```toml\n").skip(1);
    let blocks = blocks.map(|block| block.split("```").next().unwrap());
    from_file(&blocks.collect::<Vec<_>>().join("\n"))
}

#[test]
fn the_rules_of_the_documents_are_rules() {
    let config = settings_of("When a call becomes a task");
    assert_eq!(config.rules.for_tool("search_web").0.mode, Mode::Never);
    let (deploy, place) = config.rules.for_tool("deploy_web");
    assert_eq!(
        (deploy.mode, deploy.require_tasks, place),
        (Mode::Always, true, Some(1))
    );
}

#[test]
fn the_mistake_of_the_documents_is_refused_in_these_words() {
    let refusal = refusal("[tasks]\ngrace_window = '3 parsecs'");
    let said = format!("raincheck: rain{}", refusal.replace("config", "check"));
    assert!(include_str!("../../docs/operations.md").contains(&said));
}

#[test]
fn the_companion_tools_of_the_documents_are_wanted() {
    let config = settings_of("Clients without Tasks");
    let used = |config: &Config| config.companion.as_ref().map(|it| it.used);
    assert_eq!(used(&config), Some(CompanionUse::Always));
    assert_eq!(config.rules.defaults().fallback_after_ms, Some(45_000));
    let usual = from_file("");
    assert_eq!(used(&usual), Some(CompanionUse::KnownToNeed));
    assert_eq!(usual.rules.defaults().fallback_after_ms, None);
    assert_eq!(used(&from_file("[tasks]\ncompanion_tools = false")), None);
}

#[test]
fn the_limits_of_the_documents_are_limits() {
    use raincheck::task::policy::{Concurrency, Limit};
    let config = settings_of("Not too many calls at once");
    let limit = |at_once, queue| Limit { at_once, queue };
    assert_eq!(config.upstream.concurrency, Some(limit(16, 256)));
    let of = |tool| config.rules.for_tool(tool).0.concurrency;
    assert_eq!(of("deploy_web"), Some(Concurrency::Together(limit(1, 10))));
    assert_eq!(of("other"), Some(Concurrency::EachTool(limit(4, 256))));
}

#[test]
fn the_same_call_of_the_documents_is_the_same_call() {
    let config = settings_of("The same call again");
    let of = |tool| config.rules.for_tool(tool).0.attach_window_ms;
    assert_eq!((of("deploy_web"), of("other")), (Some(60_000), None));
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
