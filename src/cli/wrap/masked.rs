//! A settings file in a form that may be shown on a screen: every value that may be a secret is replaced by
//! `***`. The number of lines stays the same, so that a difference can be computed on the originals and shown
//! from the masked texts.

use jsonc_parser::cst::{CstContainerNode, CstLeafNode, CstNode};

use super::document::Document;

/// The text that replaces a value.
const MASK: &str = "***";

/// Members whose values are no secrets: what a client launches, and over which transport.
const SHOWN: [&str; 6] = [
    "command",
    "type",
    "transport",
    "cwd",
    "envFile",
    "RAINCHECK_UPSTREAM__ENV_ALLOW",
];

/// Members that hold addresses, which may carry a key behind the host.
const ADDRESSES: [&str; 4] = ["url", "serverUrl", "httpUrl", "RAINCHECK_UPSTREAM__URL"];

/// The text with every value masked, except for values that are known to be no secret.
pub(super) fn masked(text: &str) -> Result<String, String> {
    let document = Document::parse(text)?;
    mask_members(&document.root_node());
    Ok(document.text())
}

fn mask_members(node: &CstNode) {
    for child in node.children() {
        let Some(member) = child.as_object_prop() else {
            mask_members(&child);
            continue;
        };
        let name = member.decoded_name().unwrap_or_default();
        let Some(value) = member.value() else {
            continue;
        };
        if name == "args" && value.as_array().is_some() {
            mask_words(&value);
        } else if matches!(value, CstNode::Container(_)) {
            mask_value(&value);
        } else if ADDRESSES.contains(&&*name) {
            set(&value, &address);
        } else if !SHOWN.contains(&&*name) {
            set(&value, &|_| MASK.to_owned());
        }
    }
}

/// Masks the values in an object, or in a list that is no command line.
fn mask_value(value: &CstNode) {
    mask_members(value);
    if let CstNode::Container(CstContainerNode::Array(list)) = value {
        for element in list.elements() {
            if matches!(element, CstNode::Container(_)) {
                mask_value(&element);
            } else {
                set(&element, &|_| MASK.to_owned());
            }
        }
    }
}

/// Masks the words of a command line.
fn mask_words(list: &CstNode) {
    let words = list.as_array().map(|list| list.elements());
    let mut place = ArgumentPosition::default();
    for word in words.unwrap_or_default() {
        let Some(text) = string(&word) else {
            continue;
        };
        let shown = place.next(&text);
        set(&word, &|_| shown.clone());
    }
}

/// The position of a word in a command line.
#[derive(Default)]
struct ArgumentPosition {
    part: MaskedPart,
    /// `true` if a word that is no option was shown already.
    has_named: bool,
    /// `true` if the word before is an option that may have a value.
    is_value: bool,
}

/// The part of the command line to which the next word belongs.
#[derive(Default, PartialEq, Eq)]
enum MaskedPart {
    #[default]
    First,
    Ours,
    /// The name of the wrapped program.
    Program,
    Theirs,
}

/// Options of launchers that have no value, or a value that is no secret.
const FLAGS: [&str; 5] = ["-y", "--yes", "-m", "-i", "--rm"];

impl ArgumentPosition {
    fn next(&mut self, word: &str) -> String {
        match std::mem::replace(&mut self.part, MaskedPart::Theirs) {
            MaskedPart::First if word == "stdio" => {
                self.part = MaskedPart::Ours;
                return word.to_owned();
            }
            MaskedPart::Ours => {
                self.part = if word == "--" {
                    MaskedPart::Program
                } else {
                    MaskedPart::Ours
                };
                let is_address = word.contains("://");
                return if is_address {
                    address(word)
                } else {
                    word.to_owned()
                };
            }
            MaskedPart::Program => return word.to_owned(),
            MaskedPart::First | MaskedPart::Theirs => {}
        }
        let is_value = std::mem::take(&mut self.is_value);
        if word.starts_with('-') {
            self.is_value = !FLAGS.contains(&word);
            return match word.split_once('=') {
                Some((option, _)) => format!("{option}={MASK}"),
                // A short option may have its value behind it without a space.
                None if !word.starts_with("--") && word.len() > 2 => {
                    format!("{}{MASK}", short(word))
                }
                None => word.to_owned(),
            };
        }
        // This word names the package or script that runs. The words after it may be secrets.
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "@/._-".contains(c);
        if !is_value && !self.has_named && word.chars().all(is_plain) {
            self.has_named = true;
            return word.to_owned();
        }
        MASK.to_owned()
    }
}

fn short(option: &str) -> &str {
    option.get(..2).unwrap_or("-")
}

/// An address with its host. The path is kept only if it is one of the usual paths.
fn address(text: &str) -> String {
    // Without a scheme nothing shows where the host ends.
    let Some((scheme, rest)) = text.split_once("://") else {
        return MASK.to_owned();
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end).unwrap_or_default();
    // The part before `@` may be a password.
    let host = authority.rsplit('@').next().unwrap_or_default();
    let path = match path {
        "" | "/" | "/mcp" | "/mcp/" | "/sse" => path,
        _ => "/***",
    };
    format!("{scheme}://{host}{path}")
}

fn string(node: &CstNode) -> Option<String> {
    node.as_string_lit()?.decoded_value().ok()
}

/// Changes a value that is neither an object nor a list.
fn set(node: &CstNode, shown: &dyn Fn(&str) -> String) {
    match node {
        CstNode::Leaf(CstLeafNode::StringLit(text)) => {
            let value = text.decoded_value().unwrap_or_default();
            text.set_raw_value(crate::mcp::json::quote(&shown(&value)));
        }
        CstNode::Leaf(CstLeafNode::NumberLit(number)) => {
            number.set_raw_value(crate::mcp::json::quote(MASK));
        }
        // Booleans and null hold no secret.
        CstNode::Leaf(_) | CstNode::Container(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_no_secret_is_shown() {
        for (text, shown) in [
            (
                r#"{"mcpServers": {"a": {"command": "npx", "args": ["-y", "@x/y", "k3y", "--key", "k3y", "--key=k3y", "-pk3y"]}}}"#,
                r#"{"mcpServers": {"a": {"command": "npx", "args": ["-y", "@x/y", "***", "--key", "***", "--key=***", "-p***"]}}}"#,
            ),
            (
                r#"{"a": {"args": ["stdio", "--upstream", "https://u:k3y@h:1/k3y?k=k3y", "--", "sh", "-c", "K=k3y run"], "env": {"T": "k3y", "P": 3}}}"#,
                r#"{"a": {"args": ["stdio", "--upstream", "https://h:1/***", "--", "sh", "-c", "***"], "env": {"T": "***", "P": "***"}}}"#,
            ),
            (
                r#"{"a": {"args": ["--token", "k3y", "-t", "k3y", "run.js"]}}"#,
                r#"{"a": {"args": ["--token", "***", "-t", "***", "run.js"]}}"#,
            ),
            (
                r#"{"a": {"url": "https://h/mcp", "headers": {"x": "k3y"}, "on": true, "l": ["k3y", {"z": "k3y"}, [["k3y"], 7]]}, "b": "k3y"} // c"#,
                r#"{"a": {"url": "https://h/mcp", "headers": {"x": "***"}, "on": true, "l": ["***", {"z": "***"}, [["***"], "***"]]}, "b": "***"} // c"#,
            ),
            (
                r#"{"a": {"env": {"RAINCHECK_UPSTREAM__URL": "http://h/?k3y", "RAINCHECK_UPSTREAM__ENV_ALLOW": "T"}}}"#,
                r#"{"a": {"env": {"RAINCHECK_UPSTREAM__URL": "http://h/***", "RAINCHECK_UPSTREAM__ENV_ALLOW": "T"}}}"#,
            ),
        ] {
            assert_eq!(masked(text).unwrap(), shown);
            assert!(!shown.contains("k3y"));
        }
    }
}
