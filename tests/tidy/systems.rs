//! The code that depends on a system stands in `src/platform`, which CI compiles for each of them.

use crate::{File, none, sources};

/// Words that depend on the system.
const OF_A_SYSTEM: [&str; 13] = [
    "cfg(unix",
    "cfg(windows",
    "cfg!(unix",
    "cfg!(windows",
    "not(unix",
    "not(windows",
    "target_os",
    "std::os::",
    "signal::unix",
    "signal::windows",
    "rustix::",
    "procfs::",
    "\"/proc/",
];

/// Files that have one of them all the same, each with its reason.
const WITH: [(&str, &str); 1] = [(
    "src/store/redis/connector.rs",
    "the option of the library is there on Linux only",
)];

#[test]
fn what_depends_on_the_system_is_in_one_folder() {
    let elsewhere = sources("src")
        .into_iter()
        .filter(|file| !file.name.starts_with("src/platform/"))
        .filter(|file| !WITH.iter().any(|(name, _)| *name == file.name))
        .flat_map(|file| found(&file));
    none(
        elsewhere,
        "depends on the system: give it a name in src/platform, for each system",
    );
}

/// The lines of a file, without its tests, that depend on the system.
fn found(file: &File) -> Vec<String> {
    if file.name.ends_with("/tests.rs") {
        return Vec::new();
    }
    let code = file.text.split("#[cfg(unix)]\nmod tests {").next();
    let lines = code.unwrap_or_default().lines().enumerate();
    let code = lines.take_while(|(_, line)| *line != "mod tests {");
    let depends = |line: &str| {
        !line.trim_start().starts_with("//") && OF_A_SYSTEM.iter().any(|word| line.contains(word))
    };
    code.filter(|(_, line)| depends(line))
        .map(|(at, line)| format!("{}:{}: {}", file.name, at + 1, line.trim()))
        .collect()
}

#[test]
fn a_line_of_one_system_is_found() {
    let found = |text: &str| {
        let name = "x.rs".into();
        let text = text.into();
        found(&File { name, text }).len()
    };
    assert_eq!(found("use std::os::fd::AsFd;"), 1);
    assert_eq!(
        found("// as cfg(unix) says\nmod tests {\nuse std::os::fd::AsFd;"),
        0
    );
}
