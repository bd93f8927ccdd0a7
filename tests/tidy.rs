//! The rules of the house that no compiler checks: what may name what, how a file opens, how long it may get.
//!
//! Reads the tree as text. A rule that stands in the way is changed here, with its reason, not worked around.

#[path = "tidy/arrows.rs"]
mod arrows;
#[path = "tidy/circles.rs"]
mod circles;
#[path = "tidy/documents.rs"]
mod documents;
#[path = "tidy/paths.rs"]
mod paths;
#[path = "tidy/systems.rs"]
mod systems;
#[path = "tidy/words.rs"]
mod words;
#[path = "support/written.rs"]
mod written_files;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use arrows::{ARROWS, MODULES};
use written_files::files_below;

/// Pure code: decides, and leaves waiting, sockets, clocks and randomness to others.
const PURE: &[&str] = &["mcp", "task"];
const IMPURE: &[&str] = &[
    "async fn",
    ".await",
    "tokio::",
    "std::net",
    "std::fs",
    "SystemTime",
    "Instant::now",
];

/// A file is split by idea before it gets this long.
const LINES_MAX: usize = 500;

/// Test files and folders that may sleep or yield, each with its reason: elsewhere time is paused, passed in or waited for.
const SLEEPERS: &[(&str, &str)] = &[
    (
        "tests/support/eventually.rs",
        "the one place that looks again and again for what no event tells, for a bounded time",
    ),
    (
        "tests/sim/",
        "time is paused: what takes long in the simulation takes no time",
    ),
    (
        "tests/suite/support/upstream/tools.rs",
        "the tool that is slow is slow",
    ),
    (
        "tests/interop/rmcp_server.rs",
        "the tool that is slow is slow",
    ),
    (
        "tests/bars/bars/",
        "a bar chooses moments and measures waits: outages, leases and expiry take the time that they take",
    ),
    (
        "tests/support/scripted.rs",
        "a server that answers late does so because its script says it",
    ),
    (
        "tests/bars/rig/follow.rs",
        "many clients poll at the pace of clients, and what each poll was answered is judged",
    ),
    (
        "tests/bars/rig/mod.rs",
        "a replica judges a lease after a time that no event ends",
    ),
    ("tests/bars/upstream/", "the tool that is slow is slow"),
    (
        "tests/upstream/stdio/faults.rs",
        "a write that fills a pipe is begun when all tasks that can run have run",
    ),
];

/// The files that write where a person may read, each with what it writes of others. A text that somebody else chose goes
/// through `printable`.
const WAYS_OUT: &[(&str, &str)] = &[
    ("src/cli/stdout.rs", "`print` makes every text printable"),
    ("src/cli/failure.rs", "`plain` makes every line printable"),
    ("src/cli/call/screen.rs", "`say`, `ask` and the progress do"),
    ("src/cli/wrap/mod.rs", "`say` does"),
    ("src/cli/demo/terminal.rs", "the demo has no text of others"),
    ("src/base/failpoint.rs", "names of failpoints"),
    ("src/task/polling/model.rs", "a test's table"),
    (
        "src/platform/unix/pipe.rs",
        "looks for the end of the client; the log, whose fields make lines printable",
    ),
    (
        "src/platform/windows/pipe.rs",
        "the log, whose fields make lines printable",
    ),
    ("src/downstream/stdio/mod.rs", "MCP, for the client"),
];

/// A new way out belongs into `WAYS_OUT`, with what makes its texts printable; and only `printable` says what that is.
#[test]
fn no_text_of_others_goes_out_as_it_is() {
    let streams = ["stdout()", "stderr()", "println!", "print!("];
    let writes = |code: &str| {
        let calls = code.replace("stdout().is_terminal()", "");
        let calls = calls.replace("stderr().is_terminal()", "");
        streams.iter().any(|stream| calls.contains(stream))
    };
    let code = |file: &File| code(&file.text);
    let program = || sources("src").into_iter();
    let out: Vec<_> = program().filter(|file| writes(&code(file))).collect();
    let idle = WAYS_OUT.iter().map(|(name, _)| *name);
    let idle = idle.filter(|name| !out.iter().any(|file| file.name == *name));
    none(
        idle.map(ToOwned::to_owned),
        "writes to no stream: it has no place in WAYS_OUT",
    );
    let new = out.into_iter().map(|file| file.name);
    none(
        new.filter(|name| !WAYS_OUT.iter().any(|(known, _)| name == known)),
        "writes to a stream and is not in WAYS_OUT",
    );
    let second = program().filter(|file| code(file).contains("is_control"));
    none(
        second
            .map(|file| file.name)
            .filter(|name| name != "src/base/printable.rs"),
        "judges control characters: use `printable`",
    );
}

#[test]
fn every_file_opens_with_what_it_is() {
    let silent = sources("src")
        .into_iter()
        .filter(|file| !file.text.starts_with("//!"));
    none(
        silent.map(|file| file.name),
        "opens without a //! line that says what the file is",
    );
}

#[test]
fn no_file_is_too_long() {
    let long = tree()
        .into_iter()
        .filter(|file| file.text.lines().count() > LINES_MAX);
    none(
        long.map(|file| file.name),
        "has more than 500 lines: split it by idea",
    );
}

#[test]
fn nothing_is_left_for_later() {
    let words = ["TO DO", "FIX ME", "X XX"].map(|word| word.replace(' ', ""));
    let macros = ["todo", "unimplemented"].map(|name| format!("{name}!"));
    let left = numbered(tree()).filter(|(_, line)| {
        words.iter().any(|word| names(line, word)) || macros.iter().any(|word| line.contains(word))
    });
    none(
        left.map(|(at, _)| at),
        "leaves something for later: do it, or open an issue",
    );
}

#[test]
fn no_path_of_one_machine() {
    let homes = ["home", "root", "Users", "work"].map(|folder| format!("/{folder}/"));
    let told = numbered(written()).filter(|(_, line)| {
        let line = line.replace("/home/ada", ""); // whose home it is in examples
        homes.iter().any(|home| {
            line.match_indices(home).any(|(at, _)| {
                // `https://host/work/` is an address, `"$HOME/work/"` a folder below: only absolute paths are one machine's.
                !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-}$*~".contains(c))
            })
        })
    });
    none(told.map(|(at, _)| at), "names a path of one machine");
}

#[test]
fn arrows_point_down() {
    let wrong = sources("src").into_iter().flat_map(|file| {
        let module = module(&file.name);
        let allowed = ARROWS
            .iter()
            .find(|(name, _)| *name == module)
            .map(|(_, allowed)| *allowed);
        let named = crate_names(&from_the_root(&file));
        let wrong: Vec<_> = named
            .into_iter()
            .filter(|name| *name != module && MODULES.contains(&name.as_str()))
            .filter(|name| allowed.is_some_and(|allowed| !allowed.contains(&name.as_str())))
            .map(|name| format!("{} names crate::{name}", file.name))
            .collect();
        wrong
    });
    none(wrong, "which no arrow of ARCHITECTURE.md allows");
}

#[test]
fn every_module_has_its_place() {
    let unplaced = sources("src").into_iter().map(|file| module(&file.name));
    let unplaced: BTreeSet<_> = unplaced
        .filter(|name| {
            !MODULES.contains(&name.as_str()) && !["lib", "main"].contains(&name.as_str())
        })
        .collect();
    none(
        unplaced,
        "is a module without a place in ARROWS and MODULES",
    );
}

/// One place each, so that a test that crashes there says where; the compiler knows that each is listed.
#[test]
fn every_failpoint_is_hit_at_one_place() {
    let (list, code): (Vec<_>, Vec<_>) = sources("src")
        .into_iter()
        .partition(|file| file.name == "src/base/failpoint.rs");
    let points: Vec<_> = list[0]
        .text
        .lines()
        .filter_map(|line| line.trim().split_once(" = \""))
        .filter(|(point, _)| point.starts_with(char::is_uppercase))
        .map(|(point, _)| format!("hit(Point::{point})"))
        .collect();
    assert!(points.len() > 12, "the list of points was not found");
    let wrong = points.into_iter().filter_map(|point| {
        let places: usize = code.iter().map(|f| f.text.matches(&point).count()).sum();
        (places != 1).then(|| format!("{point}: {places} places"))
    });
    none(wrong, "must be at one place");
}

#[test]
fn the_rules_are_pure() {
    let wrong = sources("src")
        .into_iter()
        .filter(|file| PURE.contains(&module(&file.name).as_str()));
    let wrong = wrong.flat_map(|file| {
        let code = code(&file.text);
        let found: Vec<_> = IMPURE
            .iter()
            .filter(|word| code.contains(**word))
            .map(|word| format!("{}: {word}", file.name))
            .collect();
        found
    });
    none(wrong, "has no place in pure code");
}

#[test]
fn no_test_sleeps() {
    let calls = ["sleep", "yield_now"].map(|name| format!("{name}("));
    let asleep = sources("tests").into_iter().filter(|file| {
        let code = code(&file.text);
        calls.iter().any(|call| code.contains(call))
    });
    let asleep: Vec<_> = asleep.map(|file| file.name).collect();
    let idle = SLEEPERS.iter().map(|(name, _)| *name);
    let idle = idle.filter(|name| !asleep.iter().any(|file| file.starts_with(name)));
    none(
        idle.map(ToOwned::to_owned),
        "does not sleep: it has no place in SLEEPERS",
    );
    let without_a_reason = |file: &&String| {
        let mut allowed = SLEEPERS.iter().map(|(name, _)| *name);
        !allowed.any(|name| file.starts_with(name))
    };
    none(
        asleep.iter().filter(without_a_reason).cloned(),
        "sleeps: wait for what it waits for (`eventually`), or name the reason in SLEEPERS",
    );
}

/// A loop without a body asks as fast as it can, and takes the processor from what it waits for. One that reads a stream
/// waits for events.
#[test]
fn no_test_asks_without_a_pause() {
    let empty = numbered(sources("tests")).filter(|(_, line)| {
        let line = line.trim();
        let condition = line.strip_suffix("};").unwrap_or(line).trim_end();
        let Some(condition) = condition.strip_suffix("{}") else {
            return false;
        };
        let opens = condition.is_empty() || condition.starts_with("while ");
        (opens || condition.contains("{ while "))
            && ![".next", ".read"]
                .iter()
                .any(|event| condition.contains(event))
    });
    none(
        empty.map(|(at, _)| at),
        "asks without a pause: use `eventually`",
    );
}

#[test]
fn paths_are_found_however_they_are_written() {
    let text = "use crate::task::id;\nuse crate::{mcp::json, store::{self, Store}, upstream};\n\
                fn f() -> crate::base::clock::Now { crate :: tls::x() }\nuse crate::config::{\n  Config,\n};\n\
                // use crate::app;\nlet s = $crate::cli::x;";
    let found: Vec<_> = crate_names(text).into_iter().collect();
    assert_eq!(
        found,
        [
            "base", "cli", "config", "mcp", "store", "task", "tls", "upstream"
        ]
    );
}

// --- reading ---

#[derive(Clone)]
struct File {
    name: String,
    text: String,
}

/// The Rust files below a folder, by name relative to the package.
fn sources(folder: &str) -> Vec<File> {
    files(folder, &["rs"])
}

/// Everything a person wrote: code, scripts, settings, documentation.
fn written() -> Vec<File> {
    files("", &["md", "mjs", "py", "rs", "sh", "toml"])
}

fn files(folder: &str, extensions: &[&str]) -> Vec<File> {
    files_below(&root().join(folder), extensions)
        .into_iter()
        .map(|path| File {
            name: path.strip_prefix(root()).unwrap().display().to_string(),
            text: fs::read_to_string(path).unwrap(),
        })
        .collect()
}

fn tree() -> Vec<File> {
    [sources("src"), sources("tests")]
        .into_iter()
        .flatten()
        .collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every line of the files, with where it is.
fn numbered(files: Vec<File>) -> impl Iterator<Item = (String, String)> {
    files.into_iter().flat_map(|file| {
        let all: Vec<_> = file
            .text
            .lines()
            .enumerate()
            .map(|(at, line)| (format!("{}:{}", file.name, at + 1), line.to_owned()))
            .collect();
        all
    })
}

/// `src/store/redis/mod.rs` -> `store`, `src/app.rs` -> `app`.
fn module(name: &str) -> String {
    let inside = name.strip_prefix("src/").unwrap_or(name);
    inside
        .split(['/', '.'])
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// The text without its comment lines.
fn code(text: &str) -> String {
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// The text with the `super::`s that lead up to the root of the crate written as `crate::`.
fn from_the_root(file: &File) -> String {
    let folders = file.name.matches('/').count() - 1;
    let own = usize::from(!file.name.ends_with("/mod.rs"));
    file.text
        .replace(&"super::".repeat(folders + own), "crate::")
}

/// The modules that `crate::X` and `crate::{X, Y::..}` name.
fn crate_names(text: &str) -> BTreeSet<String> {
    let code: String = code(text)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace(" ::", "::")
        .replace(":: ", "::");
    let mut found = BTreeSet::new();
    for (at, path) in code.match_indices("crate::") {
        // `rustls_crate::` is another crate.
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = &code[at + path.len()..];
        match rest.strip_prefix('{') {
            Some(group) => found.extend(heads(group)),
            None => found.extend(head(rest)),
        }
    }
    found
}

fn head(path: &str) -> Option<String> {
    let name: String = path
        .trim_start()
        .chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect();
    (!name.is_empty()).then_some(name)
}

/// The first name of each member of a `{..}` whose opening brace was taken off.
fn heads(group: &str) -> Vec<String> {
    let (mut depth, mut found, mut fresh) = (0_usize, Vec::new(), true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => fresh = true,
            ' ' => {}
            _ if fresh => {
                found.extend(head(&group[at..]));
                fresh = false;
            }
            _ => {}
        }
    }
    found
}

/// The line has the word, not as a part of a longer one.
fn names(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, found)| {
        !line[..at].ends_with(part) && !line[at + found.len()..].starts_with(part)
    })
}

fn none(found: impl IntoIterator<Item = String>, what: &str) {
    let found: Vec<_> = found.into_iter().collect();
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}
