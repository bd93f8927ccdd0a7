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
    ] {
        let row = format!("\n| `{}` |", reason.word());
        assert_eq!(readme.matches(&row).count(), 1, "{}", reason.word());
    }
}
