//! The error in a configuration, in one line: the source, the key and the fix.
//!
//! Figment's own text is never shown, because it prints values, which may be secrets, and internals.

use figment::error::{Actual, Kind};
use figment::{Error, Figment};

use super::log_format::LogFormat;
use crate::base::printable::is_printable;

/// One line, ready to print.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct ConfigError {
    text: String,
    /// The form of the log, if the settings could be read and are refused for their values.
    log_format: Option<LogFormat>,
}

impl ConfigError {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self {
            // A value or a path may contain line breaks.
            text: text.into().replace(|c| !is_printable(c), " "),
            log_format: None,
        }
    }

    /// Returns the form in which a process reports that it cannot start. `None`: the settings could not be read.
    pub fn log_format(&self) -> Option<LogFormat> {
        self.log_format
    }

    pub(super) fn in_format(self, log_format: LogFormat) -> Self {
        Self {
            log_format: Some(log_format),
            ..self
        }
    }
}

/// A failed check. The source of the value is not known yet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// The key, with dots as in the file. For a rule: `tools.<place>.<setting>`.
    pub(super) key: String,
    pub(super) text: String,
}

impl Problem {
    pub(super) fn new(key: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            text: text.into(),
        }
    }

    pub(super) fn located(self, figment: &Figment) -> ConfigError {
        let path: Vec<String> = self.key.split('.').map(str::to_owned).collect();
        ConfigError::new(place(source_of(&path, figment), &path) + ": " + &self.text)
    }
}

/// The name of the source that the value of this key comes from. Figment cannot look into the list of rules. A key that no
/// source has gets the source of its section.
fn source_of<'f>(path: &[String], figment: &'f Figment) -> Option<&'f str> {
    // The longest part of the key that a source has is the nearest one to the value.
    let written = (1..=path.len()).rev().find_map(|length| {
        let key = path.get(..length)?.join(".");
        figment.find_metadata(&key)
    });
    written.map(|metadata| metadata.name.as_ref())
}

/// Explains the first of figment's errors in raincheck's words. One error is enough, because a user fixes one
/// error at a time.
pub(super) fn explain(error: Error, figment: &Figment) -> ConfigError {
    let Some(error) = error.into_iter().next() else {
        return ConfigError::new("the configuration cannot be read");
    };
    let source = source_of(&error.path, figment);
    let text = match &error.kind {
        Kind::Message(text) => text.clone(),
        Kind::InvalidType(actual, expected) | Kind::InvalidValue(actual, expected) => {
            format!("must be {}, not {}", expectation(expected), noun(actual))
        }
        Kind::UnknownField(_, accepted) => unknown(&error.path, accepted),
        Kind::UnknownVariant(_, accepted) => format!("must be one of {}", accepted.join(", ")),
        Kind::InvalidLength(..)
        | Kind::MissingField(_)
        | Kind::DuplicateField(_)
        | Kind::ISizeOutOfRange(_)
        | Kind::USizeOutOfRange(_)
        | Kind::Unsupported(_)
        | Kind::UnsupportedKey(..) => "cannot be read".to_owned(),
    };
    ConfigError::new(place(source, &error.path) + ": " + &text)
}

/// The names of the layers that are not files. The layer of a file has the file's name.
pub(super) const ENVIRONMENT: &str = "environment";
pub(super) const FLAGS: &str = "flags";

/// Settings that have a flag.
pub(super) const FLAG_KEYS: [(&str, &str); 5] = [
    ("--upstream", "upstream.url"),
    ("--listen", "listen.address"),
    ("--store", "store.url"),
    ("--namespace", "store.namespace"),
    ("--log", "telemetry.log"),
];

pub(super) const ENVIRONMENT_PREFIX: &str = "RAINCHECK_";

/// The name of the setting in its source.
fn place(source: Option<&str>, path: &[String]) -> String {
    match source {
        None => key(path),
        Some(FLAGS) => {
            let key = key(path);
            FLAG_KEYS
                .iter()
                .find_map(|(flag, of)| (*of == key).then(|| (*flag).to_owned()))
                .unwrap_or(key)
        }
        Some(ENVIRONMENT) => {
            let name = path.join("__").to_uppercase().replace('-', "_");
            format!("{ENVIRONMENT_PREFIX}{name}")
        }
        Some(file) => format!("{file}: {}", key(path)),
    }
}

/// `tasks.mode`, `[[tools]] #2: mode`, `[[auth.jwt]] #1: issuer`.
fn key(path: &[String]) -> String {
    if let Some((list, rest)) = in_list(path)
        && let [place, rest @ ..] = rest
        && let Ok(place) = place.parse::<usize>()
    {
        let rest = dotted(rest);
        let colon = if rest.is_empty() { "" } else { ": " };
        return format!("[[{list}]] #{}{colon}{rest}", place.saturating_add(1));
    }
    dotted(path)
}

/// The list of tables that a key is in, and the rest of the key.
fn in_list(path: &[String]) -> Option<(&'static str, &[String])> {
    match path {
        [tools, rest @ ..] if tools == "tools" => Some(("tools", rest)),
        [jobs, rest @ ..] if jobs == "jobs" => Some(("jobs", rest)),
        [notify, rest @ ..] if notify == "notify" => Some(("notify", rest)),
        [auth, jwt, rest @ ..] if auth == "auth" && jwt == "jwt" => Some(("auth.jwt", rest)),
        [admin, operators, rest @ ..] if admin == "admin" && operators == "operators" => {
            Some(("admin.operators", rest))
        }
        _ => None,
    }
}

/// The key without positions in lists, because such lists are short and the error quotes the text.
fn dotted(path: &[String]) -> String {
    let names: Vec<&str> = path
        .iter()
        .map(String::as_str)
        .filter(|name| name.parse::<usize>().is_err())
        .collect();
    names.join(".")
}

/// Returns the known name that a misspelt one is probably meant to be.
pub(super) fn nearest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let by_distance = known.map(|known| (distance(name, known), known)).min();
    let near = by_distance.filter(|(distance, known)| *distance <= known.len().div_ceil(3));
    near.map(|(_, known)| known)
}

fn unknown(path: &[String], accepted: &[&str]) -> String {
    let (name, section) = path
        .split_last()
        .map_or(("", &[][..]), |(name, section)| (name.as_str(), section));
    if section.is_empty() && (name == "rules_file" || name == "rules") {
        return "unknown key; it belongs into [tasks]".to_owned();
    }
    let section = match section {
        [] => "at the top level".to_owned(),
        section => match in_list(section) {
            Some((list, _)) => format!("in [[{list}]]"),
            None => format!("in [{}]", dotted(section)),
        },
    };
    let nearest = nearest(name, accepted.iter().copied())
        .map(|key| format!("did you mean {key}? "))
        .unwrap_or_default();
    format!(
        "unknown key; {nearest}accepted {section}: {}",
        accepted.join(", ")
    )
}

/// Returns the expected type in words for users. Serde's words for sections are for programmers.
fn expectation(expected: &str) -> &str {
    if expected.starts_with("struct ") {
        "a table"
    } else if expected.starts_with("a sequence") {
        "a list of tables"
    } else if expected == "a string" {
        "a text"
    } else {
        expected
    }
}

/// The kind of value that was found, without the value.
fn noun(actual: &Actual) -> &'static str {
    match actual {
        Actual::Bool(_) => "a boolean",
        Actual::Unsigned(_) | Actual::Signed(_) | Actual::Float(_) => "a number",
        Actual::Char(_) | Actual::Str(_) | Actual::Bytes(_) => "a text",
        Actual::Seq => "a list",
        Actual::Map => "a table",
        Actual::Unit
        | Actual::Option
        | Actual::NewtypeStruct
        | Actual::Enum
        | Actual::UnitVariant
        | Actual::NewtypeVariant
        | Actual::TupleVariant
        | Actual::StructVariant
        | Actual::Other(_) => "this",
    }
}

/// Levenshtein's distance: how many keystrokes away a known spelling is.
pub(super) fn distance(a: &str, b: &str) -> usize {
    // One row is enough, because of the row before only the value in `diagonal` is still needed.
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, y) in row.iter_mut().skip(1).zip(b.chars()) {
            let replaced = diagonal + usize::from(x != y);
            diagonal = *cell;
            left = replaced.min(left + 1).min(*cell + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        assert_eq!(distance("", ""), 0);
        assert_eq!(distance("mode", "mode"), 0);
        assert_eq!(distance("mdoe", "mode"), 2);
        assert_eq!(distance("grace_windw", "grace_window"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn an_error_is_one_line() {
        assert_eq!(ConfigError::new("a\nb\u{1b}[2J").to_string(), "a b [2J");
    }
}
