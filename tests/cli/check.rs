//! `raincheck check`: what is wrong, and what to do next.

use super::raincheck;

/// What is said of one subject, with its verdict, and the exit code.
fn verdict(arguments: &[&str], subject: &str) -> (String, Option<i32>) {
    let output = raincheck(arguments);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = said
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .find(|line| line.split(' ').nth(1) == Some(subject));
    let line = line.unwrap_or_else(|| panic!("nothing is said of {subject}: {said}"));
    (line, output.status.code())
}

#[test]
fn a_store_that_cannot_be_had_is_wrong() {
    for (store, expected) in [
        (
            "redis://127.0.0.1:1",
            "WRONG store Redis at 127.0.0.1:1 cannot be reached or refuses us: Connection refused",
        ),
        (
            "redb:/proc/nope/x.redb",
            "WRONG store /proc/nope/x.redb cannot be written (No such file or directory (os error \
             2)); name another file with --store redb:PATH",
        ),
    ] {
        let config = std::env::temp_dir().join(format!("rc-check-{}.toml", std::process::id()));
        std::fs::write(&config, "store.namespace = 'x'\n").unwrap();
        let config_arguments = ["--config", config.to_str().unwrap(), "--store", store];
        let mut arguments = vec!["check", "--upstream", "http://127.0.0.1:1/mcp"];
        arguments.extend(config_arguments);
        let (line, code) = verdict(&arguments, "store");
        std::fs::remove_file(&config).unwrap();
        assert!(line.starts_with(expected), "{line}");
        assert_eq!(code, Some(1));
    }
}
