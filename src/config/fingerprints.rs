//! The written settings one by one: their names, and a fingerprint of each.

use std::collections::BTreeMap;

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::{Value, json};

/// The beginning of the names of settings in rules.
pub(super) const RULES: &str = "[[tools]]";

/// A fingerprint of each written setting, so that a changed secret is seen and no secret is kept.
pub(super) type Fingerprints = BTreeMap<String, [u8; 32]>;

pub(super) fn fingerprints(settings: &Value) -> Fingerprints {
    let flat = flat(settings).into_iter();
    flat.map(|(name, value)| {
        let hash = digest(&SHA256, text(&value).as_bytes());
        (
            name,
            hash.as_ref().first_chunk().copied().unwrap_or_default(),
        )
    })
    .collect()
}

/// The same text for a value in the file and for the same value in the environment, where everything is text.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    }
}

/// Each setting under its name. A rule is named by its globs, so that a rule before it does not rename it.
pub(super) fn flat(settings: &Value) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    let mut open = vec![(String::new(), settings)];
    while let Some((path, value)) = open.pop() {
        match value {
            Value::Object(members) => {
                for (key, value) in members {
                    let dot = if path.is_empty() { "" } else { "." };
                    open.push((format!("{path}{dot}{key}"), value));
                }
            }
            Value::Array(rules) if path == "tools" => rules_of(rules, &mut found),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_) => {
                found.insert(path, value.clone());
            }
        }
    }
    found
}

fn rules_of(rules: &[Value], found: &mut BTreeMap<String, Value>) {
    let mut names: Vec<String> = Vec::new();
    for rule in rules {
        let globs = match rule.get("name") {
            Some(Value::Array(globs)) => globs.iter().map(text).collect::<Vec<_>>().join(", "),
            Some(name) => text(name),
            None => String::new(),
        };
        let equal = names.iter().filter(|name| **name == globs).count();
        let name = match equal {
            0 => format!("{RULES} {globs}"),
            earlier => format!("{RULES} {globs} (#{})", earlier + 1),
        };
        names.push(globs);
        let terms = rule.as_object().into_iter().flatten();
        for (key, value) in terms.filter(|(key, _)| *key != "name") {
            found.insert(format!("{name}: {key}"), value.clone());
        }
    }
    // The order of the rules decides which one counts.
    found.insert(RULES.to_owned(), json!(names));
}
