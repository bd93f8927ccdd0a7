//! A client's settings file as text that can be edited. Comments, order and spaces stay as they are.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstNode, CstObject, CstObjectProp, CstRootNode};

use super::super::table::short;
use super::entry::{ServerEntry, member};

/// JSON with the comments and trailing commas that editors allow in their settings.
pub(super) struct Document {
    root: CstRootNode,
}

/// The server that the user means.
#[derive(Debug, Clone, Copy)]
pub(super) struct WantedServer<'a> {
    pub(super) name: &'a str,
    /// The project of the server; `None`: the server belongs to all projects.
    pub(super) project: Option<&'a str>,
}

/// A server with its name.
pub(super) type NamedServer = (String, ServerEntry);

/// The member where Claude Code keeps the servers of each project, by the path of the project.
const PROJECTS: &str = "projects";

/// The members where clients keep their servers: Claude, Cursor and most others; VS Code's `mcp.json`; VS
/// Code's `settings.json`; Zed.
const PLACES: [&[&str]; 4] = [
    &["mcpServers"],
    &["servers"],
    &["mcp", "servers"],
    &["context_servers"],
];

impl Document {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let options = ParseOptions {
            allow_comments: true,
            allow_trailing_commas: true,
            allow_loose_object_property_names: false,
            allow_missing_commas: false,
            allow_single_quoted_strings: false,
            allow_hexadecimal_numbers: false,
            allow_unary_plus_numbers: false,
            allow_bare_decimal_point_numbers: false,
            allow_non_finite_numbers: false,
            allow_extended_string_escapes: false,
        };
        let root = CstRootNode::parse(text, &options).map_err(|e| {
            // The parser's own message is not used, because it may quote the text, and with it a secret.
            let before = text.get(..e.range().start).unwrap_or_default();
            let line = before.matches('\n').count().saturating_add(1);
            format!("line {line} is not JSON: {}", e.kind())
        })?;
        let document = Self { root };
        // An edit prints the whole tree. A tree that does not print as it was read would change the rest of the file.
        if document.text() == text {
            Ok(document)
        } else {
            Err("cannot be edited without changing more than one server".to_owned())
        }
    }

    pub(super) fn text(&self) -> String {
        self.root.to_string()
    }

    pub(super) fn root_node(&self) -> CstNode {
        self.root.clone().into()
    }

    /// The servers of the project, or those of all projects, each with its name, in the order of the file.
    pub(super) fn entries(&self, project: Option<&str>) -> Result<Vec<NamedServer>, String> {
        let root = self.object()?;
        let Some(project) = project else {
            return match (places(&root), member(&root, PROJECTS)) {
                (Some(members), _) => Ok(read(&members)),
                // A file that has only servers of single projects is in order.
                (None, Some(_)) => Ok(Vec::new()),
                (None, None) => {
                    Err("has no servers: neither \"mcpServers\" nor \"servers\"".to_owned())
                }
            };
        };
        let members = self.projects()?.into_iter().find(|it| it.0 == project);
        let (_, members) =
            members.ok_or_else(|| format!("has no servers of a project {}", shown(project)))?;
        Ok(members)
    }

    /// The projects that have servers, each with its servers.
    pub(super) fn projects(&self) -> Result<Vec<(String, Vec<NamedServer>)>, String> {
        let projects = member(&self.object()?, PROJECTS).and_then(|it| it.object_value());
        let projects = projects.iter().flat_map(CstObject::properties);
        Ok(projects
            .filter_map(|project| {
                let servers = read(&places(&project.object_value()?)?);
                Some((project.decoded_name()?, servers))
            })
            .filter(|(_, servers)| !servers.is_empty())
            .collect())
    }

    pub(super) fn entry(&self, wanted: WantedServer<'_>) -> Result<ServerEntry, String> {
        let entries = self.entries(wanted.project)?;
        let is_it = |(own, _): &&NamedServer| own == wanted.name;
        let mut named = entries.iter().filter(is_it);
        match (named.next(), named.next()) {
            (Some((_, entry)), None) => return Ok(entry.clone()),
            (Some(_), Some(_)) => return Err(format!("{} is there twice", shown(wanted.name))),
            (None, _) => {}
        }
        // A server of a single project is found only with `--project`, so the error names the projects.
        let elsewhere = self.projects()?.into_iter();
        let elsewhere = elsewhere.filter(|(_, servers)| servers.iter().any(|it| is_it(&it)));
        let paths: Vec<_> = elsewhere.map(|(path, _)| short(&path)).collect();
        if !paths.is_empty() {
            let (name, paths) = (shown(wanted.name), paths.join(" or --project "));
            return Err(format!(
                "{name} is a server of single projects: --project {paths}"
            ));
        }
        let names: Vec<_> = entries.iter().map(|(own, _)| shown(own)).collect();
        let names = match names.as_slice() {
            [] => "no server at all".to_owned(),
            names => names.join(", "),
        };
        Err(format!(
            "names no server {}, but {names}",
            shown(wanted.name)
        ))
    }

    /// The text of the document with one server's entry replaced by `text`.
    pub(super) fn with(&self, entry: &ServerEntry, text: &str) -> Option<String> {
        let all = self.text();
        let old = entry.text();
        let from = start(&entry.node());
        let (before, rest) = all.split_at_checked(from)?;
        // The text around the entry stays as it is, comments included.
        Some([before, text, rest.strip_prefix(&old)?].concat())
    }

    fn object(&self) -> Result<CstObject, String> {
        self.root
            .object_value()
            .ok_or_else(|| "not a JSON object".to_owned())
    }
}

/// The members of the objects that hold servers; `None`: the document has no such object.
fn places(object: &CstObject) -> Option<Vec<CstObjectProp>> {
    let mut found = PLACES.iter().filter_map(|path| {
        path.iter().try_fold(object.clone(), |object, name| {
            member(&object, name)?.object_value()
        })
    });
    let first = found.next()?;
    let all = std::iter::once(first).chain(found);
    Some(all.flat_map(|place| place.properties()).collect())
}

fn read(members: &[CstObjectProp]) -> Vec<NamedServer> {
    let one =
        |prop: &CstObjectProp| Some((prop.decoded_name()?, ServerEntry::new(prop.object_value()?)));
    members.iter().filter_map(one).collect()
}

/// Where a node begins in its document's text.
fn start(node: &CstNode) -> usize {
    // Nodes of this tree have no places, so the lengths of all texts before the node are added up.
    let before: usize = node
        .previous_siblings()
        .map(|sibling| sibling.to_string().len())
        .sum();
    let parent = node.parent().map(CstNode::from);
    before + parent.as_ref().map_or(0, start)
}

/// A server's name as messages show it.
pub(super) fn shown(name: &str) -> String {
    format!("{:?}", short(name))
}

/// Whatever is in the file: only the entry changes, and the file can be read after that.
#[cfg(any(test, fuzzing))]
#[cfg_attr(not(fuzzing), expect(unreachable_pub, reason = "fuzz/ calls it"))]
pub fn fuzzed(bytes: &[u8]) {
    const NEW: &str = r#"{"command": "raincheck"}"#;
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let Ok(document) = Document::parse(text) else {
        return;
    };
    let projects = document.projects().unwrap_or_default();
    let projects = projects.into_iter().map(|(path, _)| Some(path));
    for project in std::iter::once(None).chain(projects) {
        let entries = document.entries(project.as_deref()).unwrap_or_default();
        for (_, entry) in entries {
            let same = document.with(&entry, &entry.text());
            assert_eq!(same.as_deref(), Some(text));
            let edited = document.with(&entry, NEW).unwrap();
            let grown = edited.len() + entry.text().len();
            assert_eq!(grown, text.len() + NEW.len());
            assert!(Document::parse(&edited).is_ok(), "{edited}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutator::fuzz;

    #[test]
    fn fuzzed_files() {
        fuzz("wrap", fuzzed);
    }
}
