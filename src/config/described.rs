//! The meanings and the defaults of all settings, read from the comments of the example file.

use std::collections::HashMap;

use figment::providers::{Format, Toml};
use figment::value::Dict;
use serde_json::Value;

use super::load::EXAMPLE;

/// The settings as the example describes them.
pub(super) struct DescribedSettings {
    /// By the section and the name of the setting.
    meanings: HashMap<(String, String), String>,
    defaults: Value,
}

impl DescribedSettings {
    pub(super) fn example() -> Self {
        let defaults: Dict = Toml::from_str(EXAMPLE).unwrap_or_default();
        Self {
            meanings: meanings(EXAMPLE),
            defaults: serde_json::to_value(defaults).unwrap_or_default(),
        }
    }

    /// Adds the descriptions of the example to the schema of the file.
    pub(super) fn describe(&self, schema: &mut Value) {
        self.section("", schema, &self.defaults);
    }

    fn section(&self, path: &str, schema: &mut Value, defaults: &Value) {
        let Some(settings) = schema.get_mut("properties").and_then(Value::as_object_mut) else {
            return;
        };
        for (key, setting) in settings {
            let below = if path.is_empty() {
                key.clone()
            } else {
                format!("{path}.{key}")
            };
            let default = defaults.get(key).unwrap_or(&Value::Null);
            if let Some(items) = setting.get_mut("items") {
                self.section(&below, items, &Value::Null);
                continue;
            }
            self.section(&below, setting, default);
            // A rule for some tools has the settings of the rule for every tool.
            let section = if path == "tools" { "tasks" } else { path };
            let name = (section.to_owned(), key.clone());
            let Some(members) = setting.as_object_mut() else {
                continue;
            };
            if let Some(meaning) = self.meanings.get(&name) {
                members.insert("description".into(), meaning.as_str().into());
            }
            // The address of the example is no default, and a section has none as a whole.
            if !default.is_null() && !default.is_object() && below != "upstream.url" {
                members.insert("default".into(), default.clone());
            }
        }
    }
}

/// The comment above each setting. A setting without a default stands in a comment itself.
fn meanings(example: &str) -> HashMap<(String, String), String> {
    let mut found = HashMap::new();
    let (mut section, mut comment) = (String::new(), Vec::new());
    for line in example.lines() {
        let text = line.trim_start_matches(['#', ' ']);
        let is_name = |name: &str| {
            name.chars()
                .all(|c| c.is_ascii_lowercase() || "_-".contains(c))
        };
        let key = text.split_once(" = ").map(|(key, _)| key);
        if line.is_empty() {
            comment.clear();
        } else if text.starts_with('[') && text.ends_with(']') {
            text.trim_matches(['[', ']']).clone_into(&mut section);
            comment.clear();
        } else if let Some(key) = key.filter(|key| is_name(key)) {
            if !comment.is_empty() {
                found.insert((section.clone(), key.to_owned()), comment.join(" "));
            }
            comment.clear();
        } else {
            comment.push(text);
        }
    }
    found
}
