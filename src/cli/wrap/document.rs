//! A client's settings as text that is edited: comments, order and spaces stay as they are.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstNode, CstObject, CstObjectProp, CstRootNode};

use super::entry::Entry;
use super::shown;

/// JSON with the comments and trailing commas that editors allow in their settings.
pub(super) struct Document {
    root: CstRootNode,
}

/// Where clients keep their servers: Claude, Cursor and most others; VS Code's `mcp.json`; VS
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
            // Not its Display, which may quote the text, and with it perhaps a secret.
            let before = text.get(..e.range().start).unwrap_or_default();
            let line = before.matches('\n').count().saturating_add(1);
            format!("line {line} is not JSON: {}", e.kind())
        })?;
        let document = Self { root };
        if document.text() == text {
            Ok(document)
        } else {
            Err("cannot be edited without changing more than one server".to_owned())
        }
    }

    pub(super) fn text(&self) -> String {
        self.root.to_string()
    }

    /// Every server with its name, in the order of the file.
    pub(super) fn entries(&self) -> Result<Vec<(String, Entry)>, String> {
        Ok(self.members()?.iter().filter_map(read).collect())
    }

    pub(super) fn entry(&self, name: &str) -> Result<Entry, String> {
        let entries = self.entries()?;
        let mut named = entries.iter().filter(|(own, _)| own == name);
        match (named.next(), named.next()) {
            (Some((_, entry)), None) => Ok(entry.clone()),
            (Some(_), Some(_)) => Err(format!("{} is there twice", shown(name))),
            (None, _) => {
                let names: Vec<_> = entries.iter().map(|(own, _)| shown(own)).collect();
                let names = match names.as_slice() {
                    [] => "no server at all".to_owned(),
                    names => names.join(", "),
                };
                Err(format!("names no server {}, but {names}", shown(name)))
            }
        }
    }

    /// The text with other bytes in place of one server's.
    pub(super) fn with(&self, entry: &Entry, text: &str) -> Option<String> {
        let all = self.text();
        let old = entry.text();
        let from = start(&entry.node());
        let (before, rest) = all.split_at_checked(from)?;
        Some([before, text, rest.strip_prefix(&old)?].concat())
    }

    fn members(&self) -> Result<Vec<CstObjectProp>, String> {
        let root = self.root.object_value().ok_or("not a JSON object")?;
        let found: Vec<_> = PLACES
            .iter()
            .filter_map(|path| {
                path.iter().try_fold(root.clone(), |object, name| {
                    member(&object, name)?.object_value()
                })
            })
            .collect();
        if found.is_empty() && member(&root, "projects").is_some() {
            // Where Claude Code puts what belongs to one folder and one user.
            let text = "has servers of single projects only, which stay as they are: add the server \
                        with `claude mcp add --scope project`, and wrap it in .mcp.json";
            return Err(text.to_owned());
        }
        if found.is_empty() {
            return Err("has no servers: neither \"mcpServers\" nor \"servers\"".to_owned());
        }
        Ok(found.iter().flat_map(CstObject::properties).collect())
    }
}

/// The member of that name; of several the last, as parsers take it.
pub(super) fn member(object: &CstObject, name: &str) -> Option<CstObjectProp> {
    let named = |prop: &CstObjectProp| prop.decoded_name().as_deref() == Some(name);
    object.properties().into_iter().rev().find(named)
}

fn read(prop: &CstObjectProp) -> Option<(String, Entry)> {
    Some((prop.decoded_name()?, Entry::new(prop.object_value()?)))
}

/// Where a node begins in its document's text.
fn start(node: &CstNode) -> usize {
    let before: usize = node
        .previous_siblings()
        .map(|sibling| sibling.to_string().len())
        .sum();
    let parent = node.parent().map(CstNode::from);
    before + parent.as_ref().map_or(0, start)
}
