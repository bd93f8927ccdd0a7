//! What only Linux has stands behind `cfg`, so that raincheck also compiles for macOS. CI compiles for Linux only.

use crate::{File, none, sources};

/// Calls and files that macOS does not have. A name that comes into use is added here.
const ONLY_LINUX: [&str; 9] = [
    "\"/proc/",
    "child_subreaper",
    "set_dumpable_behavior",
    "set_parent_process_death_signal",
    "set_tcp_notsent_lowat",
    "tcp_user_timeout",
    "set_user_timeout",
    "SocketAddrExt",
    "epoll",
];

/// Files that name one of them without `cfg`, each with its reason.
const WITHOUT: [(&str, &str); 3] = [
    ("src/cli/init.rs", "the whole module is there on Linux only"),
    (
        "src/config/host.rs",
        "a file that is not there is an answer: the name then comes from HOSTNAME",
    ),
    (
        "src/store/embedded/file_state.rs",
        "a test wants a place where no file can be made",
    ),
];

/// How many lines above the name the `cfg` may stand.
const LINES: usize = 8;

#[test]
fn what_only_linux_has_stands_behind_cfg() {
    let bare = sources("src")
        .into_iter()
        .filter(|file| !WITHOUT.iter().any(|(name, _)| *name == file.name))
        .flat_map(|file| bare(&file));
    none(
        bare,
        "is there on Linux only: put it behind #[cfg(target_os = \"linux\")], and say in docs/operations.md what macOS lacks",
    );
}

fn bare(file: &File) -> Vec<String> {
    let lines: Vec<&str> = file.text.lines().collect();
    let is_bare = |(at, line): &(usize, &&str)| {
        let above = lines[at.saturating_sub(LINES)..=*at].join("\n");
        ONLY_LINUX.iter().any(|name| line.contains(name))
            && !above.contains("target_os = \"linux\"")
            && !line.trim_start().starts_with("//")
    };
    let found = lines.iter().enumerate().filter(is_bare);
    found
        .map(|(at, line)| format!("{}:{}: {}", file.name, at + 1, line.trim()))
        .collect()
}

#[test]
fn a_call_of_linux_without_cfg_is_found() {
    let file = |text: &str| File {
        name: "x.rs".into(),
        text: text.into(),
    };
    let call = "socket.set_tcp_user_timeout(None)?;";
    assert_eq!(bare(&file(call)).len(), 1);
    let behind = format!("#[cfg(target_os = \"linux\")]\n{call}");
    assert_eq!(bare(&file(&behind)), [""; 0]);
}
