//! No circle of files: where two files name each other, neither can be understood, tested or moved by
//! itself.
//!
//! A file names another one by a path to what stands in it, or is re-exported from it. What is only
//! there for tests names whatever it likes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::paths::{Named, Reading, read};
use crate::{File, none, sources};

#[test]
fn no_file_names_itself_through_others() {
    let circles = Graph::of(&sources("src")).circles();
    none(
        shown(&circles),
        "is a circle: move what both need into a file below both",
    );
}

/// Each circle, as the shortest way around.
fn shown(circles: &[Circle]) -> Vec<String> {
    let each = circles.iter();
    each.map(|it| format!("{} ({} files in all)", it.chain, it.files.len()))
        .collect()
}

/// Files that name each other, each of them all the others in the end.
struct Circle {
    files: Vec<String>,
    /// The shortest way around: `a -> b (what of b) -> a (what of a)`.
    chain: String,
}

/// Which file names what of which other one.
struct Graph(BTreeMap<String, BTreeMap<String, BTreeSet<String>>>);

/// `store::redis`, in parts.
type Module = Vec<String>;

impl Graph {
    fn of(files: &[File]) -> Self {
        let read: BTreeMap<Module, (&str, Reading)> = files
            .iter()
            // A crate of its own, which names the library only.
            .filter(|file| file.name != "src/main.rs")
            .map(|file| (module(&file.name), (&*file.name, read(&file.text))))
            .collect();
        let tests: Vec<Module> = read
            .iter()
            .flat_map(|(module, (_, reading))| {
                let names = reading.test_modules.iter();
                names.map(|name| [&**module, std::slice::from_ref(name)].concat())
            })
            .collect();
        let is_test = |module: &Module| tests.iter().any(|test| module.starts_with(test));
        let modules: BTreeSet<Module> = read.keys().cloned().collect();
        let mut graph = BTreeMap::new();
        for (module, (name, reading)) in read.iter().filter(|(module, _)| !is_test(module)) {
            let named: &mut BTreeMap<String, BTreeSet<String>> =
                graph.entry((*name).to_owned()).or_default();
            for (other, what) in resolved(module, &reading.paths, &modules) {
                if other != *module && !is_test(&other) {
                    let other = read[&other].0.to_owned();
                    named.entry(other).or_default().insert(what);
                }
            }
        }
        Self(graph)
    }

    fn circles(&self) -> Vec<Circle> {
        let reached: BTreeMap<&str, BTreeSet<&str>> = self
            .0
            .keys()
            .map(|file| (&**file, self.reached(file)))
            .collect();
        let mut seen = BTreeSet::new();
        let mut found = Vec::new();
        for (file, others) in &reached {
            if !others.contains(file) || seen.contains(file) {
                continue;
            }
            let files = others.iter().filter(|other| reached[*other].contains(file));
            let files: Vec<&str> = files.copied().collect();
            seen.extend(files.iter().copied());
            let around = files.iter().map(|file| self.way_around(file));
            let shortest = around.min_by_key(Vec::len).unwrap_or_default();
            found.push(Circle {
                files: files.iter().map(|file| (*file).to_owned()).collect(),
                chain: self.chain(&shortest),
            });
        }
        found
    }

    /// Every file that is named, by this one or by one that it names.
    fn reached<'g>(&'g self, from: &'g str) -> BTreeSet<&'g str> {
        let mut reached = BTreeSet::new();
        let mut next = vec![from];
        while let Some(file) = next.pop() {
            let named = self.0.get(file).into_iter().flatten();
            next.extend(
                named
                    .map(|(other, _)| &**other)
                    .filter(|it| reached.insert(*it)),
            );
        }
        reached
    }

    /// The shortest way from a file back to it, both ends included.
    fn way_around<'g>(&'g self, start: &'g str) -> Vec<&'g str> {
        let mut ways = VecDeque::from([vec![start]]);
        let mut seen = BTreeSet::new();
        while let Some(way) = ways.pop_front() {
            let named = way.last().and_then(|last| self.0.get(*last));
            for other in named.into_iter().flat_map(BTreeMap::keys) {
                let longer = [&*way, &[&**other]].concat();
                if other == start {
                    return longer;
                }
                if seen.insert(other) {
                    ways.push_back(longer);
                }
            }
        }
        Vec::new()
    }

    fn chain(&self, way: &[&str]) -> String {
        let mut text = way.first().copied().unwrap_or_default().to_owned();
        for pair in way.windows(2) {
            let what: Vec<_> = self.0[pair[0]][pair[1]]
                .iter()
                .map(String::as_str)
                .collect();
            for part in [" -> ", pair[1], " (", &what.join(", "), ")"] {
                text.push_str(part);
            }
        }
        text
    }
}

/// `src/store/redis/mod.rs` and `src/store/redis.rs` -> `store::redis`, `src/lib.rs` -> the root.
fn module(name: &str) -> Module {
    let inside = name.strip_prefix("src/").unwrap_or(name);
    let inside = inside.strip_suffix(".rs").unwrap_or(inside);
    let mut parts: Module = inside.split('/').map(str::to_owned).collect();
    parts.pop_if(|last| ["mod", "lib"].contains(&last.as_str()));
    parts
}

/// The modules with files that are named, and what of each.
fn resolved(module: &Module, paths: &[Named], modules: &BTreeSet<Module>) -> Vec<(Module, String)> {
    let mut known = BTreeMap::new();
    for named in paths {
        if let (Some(name), Some((other, None))) =
            (&named.known_as, resolve(module, named, modules, &known))
        {
            known.insert(name.clone(), other);
        }
    }
    let all = paths.iter();
    all.filter_map(|named| resolve(module, named, modules, &known))
        .map(|(other, what)| (other, what.unwrap_or_else(|| "itself".to_owned())))
        .collect()
}

/// The module of a path that leads to one of ours, and what of it the path names: `None` for the module.
fn resolve(
    module: &Module,
    named: &Named,
    modules: &BTreeSet<Module>,
    known: &BTreeMap<String, Module>,
) -> Option<(Module, Option<String>)> {
    let mut at = [&**module, &*named.within].concat();
    let first = named.path.first()?;
    let child = [&*at, std::slice::from_ref(first)].concat();
    let ups = named
        .path
        .iter()
        .take_while(|part| *part == "super")
        .count();
    let mut rest = match first.as_str() {
        "crate" => {
            at.clear();
            &named.path[1..]
        }
        "super" => {
            at.truncate(at.len().checked_sub(ups)?);
            &named.path[ups..]
        }
        "self" => &named.path[1..],
        _ if modules.contains(&child) => &named.path[..],
        name => {
            at.clone_from(known.get(name).filter(|_| named.path.len() > 1)?);
            &named.path[1..]
        }
    };
    while let Some((next, behind)) = rest.split_first() {
        let below = [&*at, std::slice::from_ref(next)].concat();
        if !modules.contains(&below) {
            break;
        }
        (at, rest) = (below, behind);
    }
    // A module within a file.
    while !modules.contains(&at) {
        at.pop()?;
    }
    Some((at, rest.first().cloned()))
}

fn circles_in(tree: &[(&str, &str)]) -> Vec<Circle> {
    let files = tree.iter().map(|(name, text)| File {
        name: (*name).to_owned(),
        text: (*text).to_owned(),
    });
    Graph::of(&files.collect::<Vec<_>>()).circles()
}

#[test]
fn a_circle_is_found_and_shown() {
    let circles = circles_in(&[
        ("src/lib.rs", "mod a; mod b;"),
        (
            "src/a/mod.rs",
            "mod low; mod high; use low::Low; pub struct A;",
        ),
        (
            "src/a/low.rs",
            "use crate::b; fn f() -> b::deep::Deep { b::x() }",
        ),
        ("src/a/high.rs", "use super::{A, low::{self, Low}};"),
        ("src/b/mod.rs", "pub mod deep; pub fn x() {}"),
        ("src/b/deep.rs", "pub struct Deep(super::super::a::A);"),
    ]);
    let chain = "src/a/low.rs -> src/b/deep.rs (Deep) -> src/a/mod.rs (A) -> src/a/low.rs (Low) (3 files in all)";
    assert_eq!(shown(&circles), [chain]);
}

#[test]
fn what_is_no_circle_is_let_be() {
    let circles = circles_in(&[
        ("src/lib.rs", "mod a; mod b;"),
        (
            "src/a/mod.rs",
            "mod low; mod high; use low::Low; pub struct A;",
        ),
        // Not in comments, strings and visibilities, and not in tests.
        (
            "src/a/low.rs",
            "/// super::A\npub(in crate::a) const URL: &str = \"http://crate::a::A\";\n\
             #[cfg(test)] mod tests { use super::super::A; }\n#[cfg(test)] mod more;",
        ),
        ("src/a/low/more.rs", "use crate::a::A;"),
        ("src/a/high.rs", "use super::A;"),
        (
            "src/b.rs",
            "use crate::a::{A, low}; mod inner { use super::B; } struct B(low::Low);",
        ),
        ("src/main.rs", "use raincheck::a::A;"),
    ]);
    assert_eq!(shown(&circles), [""; 0]);
}
