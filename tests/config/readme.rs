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

/// What fails is listed for the user, each reason once.
#[test]
fn the_readme_lists_every_reason() {
    use raincheck::mcp::error::Reason;
    let readme = include_str!("../../README.md");
    for reason in [
        Reason::OwnerLost,
        Reason::Shutdown,
        Reason::Deadline,
        Reason::UpstreamUnreachable,
        Reason::UpstreamReset,
        Reason::UpstreamInvalid,
        Reason::UpstreamHttp,
        Reason::UpstreamUnauthorized,
        Reason::UpstreamTooLarge,
        Reason::StoreLost,
        Reason::CancelledByDisconnect,
        Reason::Busy,
        Reason::QueueFull,
    ] {
        let row = format!("\n| `{}` |", reason.word());
        assert_eq!(readme.matches(&row).count(), 1, "{}", reason.word());
    }
}
