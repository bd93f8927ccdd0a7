//! The part of a `tools/list` result that raincheck reads: the arguments that are mirrored into headers.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::json::{Fault, Object, string};

/// The tools of one caller.
#[derive(Debug, Default)]
pub struct Tools {
    by_name: HashMap<Box<str>, Tool>,
    /// In the server's order.
    names: Vec<Box<str>>,
}

/// The known facts about one tool.
#[derive(Debug, Default, Clone)]
pub struct Tool {
    pub mirrored: Vec<Mirrored>,
    /// The server's hint about a second call with the same arguments. This is an untrusted hint (tools, Tool).
    pub repeats: Option<Repeats>,
    /// The cases in which a legacy server runs the tool as a task of its own (2025-11-25, Tasks).
    pub own_task: OwnTask,
    pub arguments: Box<[ToolArgument]>,
    /// The server says that the tool may destroy something.
    pub is_destructive: bool,
}

/// An argument that the schema of a tool names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolArgument {
    pub name: Box<str>,
    pub kind: ArgumentKind,
    pub required: bool,
}

/// The type of an argument, as far as raincheck gives it a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArgumentKind {
    Text,
    Number,
    List,
    /// Any other type, or several.
    Other,
}

impl ArgumentKind {
    /// Returns `false` if a text is surely refused.
    pub fn takes_text(self) -> bool {
        matches!(self, Self::Text | Self::Other)
    }
}

impl Tool {
    /// Returns `true` if a legacy server runs the tool only as a task of its own.
    pub fn requires_task(&self) -> bool {
        self.own_task == OwnTask::Always
    }
}

/// A tool that may be called again with the same arguments (schema, `ToolAnnotations`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeats {
    /// A second call has no effect of its own.
    Idempotent,
    /// No call has an effect.
    ReadOnly,
}

/// When a legacy server makes a task of its own of a call.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum OwnTask {
    #[default]
    Never,
    WhereAskedTo,
    /// The tool runs in no other way.
    Always,
}

/// An argument that `Mcp-Param-{name}` mirrors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirrored {
    /// The whole header name, lower case.
    pub header: String,
    /// The chain of `properties` keys from the schema's root.
    pub path: Vec<String>,
}

/// Deeper schemas are not searched: no server is known to mirror a deeper argument.
const PATH_MAX: usize = 16;

impl Tools {
    pub fn get(&self, name: &str) -> Option<&Tool> {
        self.by_name.get(name)
    }

    pub fn all_names(&self) -> &[Box<str>] {
        &self.names
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Adds one page of the list and returns the cursor of the next page.
    pub fn add_page(&mut self, result: &RawValue) -> Result<Option<String>, Fault> {
        let object = Object::parse(result.get())?;
        let tools: Vec<&RawValue> = object
            .get("tools")
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .ok_or(Fault::Syntax)?;
        for tool in tools {
            // One tool that cannot be read does not hide the others.
            let Ok(tool) = Object::parse(tool.get()) else {
                continue;
            };
            let Some(name) = tool.get_str("name") else {
                continue;
            };
            let mut mirrored = Vec::new();
            let schema = tool.get_object("inputSchema").unwrap_or_default();
            collect(&schema, &mut Vec::new(), &mut mirrored);
            let known = Tool {
                mirrored,
                repeats: repeats(&tool),
                own_task: own_task(&tool),
                arguments: arguments(&schema),
                is_destructive: hints(&tool, "destructiveHint"),
            };
            if self.by_name.insert(name.as_ref().into(), known).is_none() {
                self.names.push(name.as_ref().into());
            }
        }
        Ok(object.get_str("nextCursor").map(Cow::into_owned))
    }
}

fn own_task(tool: &Object<'_>) -> OwnTask {
    let execution = tool.get_object("execution").unwrap_or_default();
    match execution.get_str("taskSupport").as_deref() {
        Some("required") => OwnTask::Always,
        Some("optional") => OwnTask::WhereAskedTo,
        _ => OwnTask::Never,
    }
}

fn repeats(tool: &Object<'_>) -> Option<Repeats> {
    if hints(tool, "readOnlyHint") {
        return Some(Repeats::ReadOnly);
    }
    hints(tool, "idempotentHint").then_some(Repeats::Idempotent)
}

/// Returns `true` if that annotation of the tool is true.
fn hints(tool: &Object<'_>, hint: &str) -> bool {
    let hints = tool.get_object("annotations").unwrap_or_default();
    hints.get(hint).is_some_and(|raw| raw.get() == "true")
}

/// The arguments at the root of a schema.
fn arguments(schema: &Object<'_>) -> Box<[ToolArgument]> {
    let required = schema.get("required").map_or("[]", RawValue::get);
    let required: Vec<String> = serde_json::from_str(required).unwrap_or_default();
    let properties = schema.get_object("properties").unwrap_or_default();
    let all = properties.iter().map(|(name, property)| ToolArgument {
        name: name.into(),
        kind: kind(property),
        required: required.iter().any(|it| it == name),
    });
    all.collect()
}

/// Returns the type that a schema allows beside null: optional arguments are often written as a choice of both.
fn kind(schema: &RawValue) -> ArgumentKind {
    let schema = Object::parse(schema.get()).unwrap_or_default();
    if let Some(one) = schema.get_str("type") {
        return kind_of(&one);
    }
    let list = |key: &str| -> Vec<&RawValue> {
        let all = schema.get(key);
        all.and_then(|all| serde_json::from_str(all.get()).ok())
            .unwrap_or_default()
    };
    let types = list("type");
    let types = types.iter().filter_map(|it| string(it));
    let choices = [list("anyOf"), list("oneOf")].concat();
    let choices = choices.iter().filter_map(|choice| {
        let choice = Object::parse(choice.get()).ok()?;
        // A choice without a type allows anything.
        let name = choice.get_str("type").map(Cow::into_owned);
        Some(Cow::Owned(name.unwrap_or_default()))
    });
    let mut others = types.chain(choices).filter(|name| name != "null");
    match (others.next(), others.next()) {
        (Some(one), None) => kind_of(&one),
        _ => ArgumentKind::Other,
    }
}

fn kind_of(name: &str) -> ArgumentKind {
    match name {
        "string" => ArgumentKind::Text,
        "integer" | "number" => ArgumentKind::Number,
        "array" => ArgumentKind::List,
        _ => ArgumentKind::Other,
    }
}

/// Collects the mirrored arguments. Only arguments that are reachable by `properties` alone count
/// (streamable-http, Schema Extension).
fn collect(schema: &Object<'_>, path: &mut Vec<String>, found: &mut Vec<Mirrored>) {
    let Some(properties) = schema
        .get_object("properties")
        .filter(|_| path.len() < PATH_MAX)
    else {
        return;
    };
    for (name, property) in properties.iter() {
        let Ok(property) = Object::parse(property.get()) else {
            continue;
        };
        path.push(name.to_owned());
        let header = property.get("x-mcp-header").and_then(string);
        // No client can send a header with such a name, so the argument is not mirrored.
        if let Some(header) = header.filter(|header| is_token(header)) {
            let header = format!("mcp-param-{}", header.to_ascii_lowercase());
            found.push(Mirrored {
                header,
                path: path.clone(),
            });
        }
        collect(&property, path, found);
        path.pop();
    }
}

/// A field-name token of RFC 9110.
fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_that_may_be_null_has_the_type_beside_it() {
        for (schema, wanted) in [
            (r#"{"type": "string"}"#, ArgumentKind::Text),
            (r#"{"type": ["array", "null"]}"#, ArgumentKind::List),
            (
                r#"{"anyOf": [{"type": "integer"}, {"type": "null"}]}"#,
                ArgumentKind::Number,
            ),
            (
                r#"{"oneOf": [{"type": "null"}, {"type": "string"}]}"#,
                ArgumentKind::Text,
            ),
            (r#"{"type": ["string", "integer"]}"#, ArgumentKind::Other),
            (
                r#"{"anyOf": [{"type": "string"}, {}]}"#,
                ArgumentKind::Other,
            ),
            (r#"{"anyOf": 7, "type": null}"#, ArgumentKind::Other),
            ("true", ArgumentKind::Other),
        ] {
            let schema = RawValue::from_string(schema.to_owned()).unwrap();
            assert_eq!(kind(&schema), wanted, "{schema}");
        }
    }
}
