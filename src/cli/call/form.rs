//! The form that a server asks a person to fill in (`elicitation/create`), from its schema to typed lines and back.
//! Pure.

use std::fmt::Write as _;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::cli::table::cleaned;
use crate::mcp::json::Object;

/// More fields than this are no form that a person can fill in.
const FIELDS_MAX: usize = 64;

/// The form of the server's question.
#[derive(Debug, PartialEq)]
pub(super) enum QuestionForm {
    /// Fields, each with a line of its own.
    Fields(Vec<FormField>),
    /// Only whether the person agrees.
    Consent,
    /// An address that the person opens in a browser (`mode: "url"`).
    Visit(String),
}

/// One field of a form.
#[derive(Debug, PartialEq)]
pub(super) struct FormField {
    pub(super) name: String,
    title: String,
    description: String,
    kind: FieldKind,
    is_required: bool,
    default: Value,
}

#[derive(Debug, PartialEq)]
enum FieldKind {
    Text {
        format: String,
        length_min: u64,
        length_max: u64,
    },
    Number {
        is_whole: bool,
        min: f64,
        max: f64,
    },
    YesOrNo,
    One(Vec<FieldChoice>),
    Several(Vec<FieldChoice>),
    /// A type that the protocol does not have: typed as JSON.
    Json,
}

#[derive(Debug, PartialEq)]
struct FieldChoice {
    value: String,
    title: String,
}

impl QuestionForm {
    /// The form of an elicitation's `params`, with the fields in the order of its schema.
    pub(super) fn of(params: &RawValue) -> Self {
        let params = Object::parse(params.get()).unwrap_or_default();
        if let (Some("url"), Some(url)) = (params.get_str("mode").as_deref(), params.get_str("url"))
        {
            return Self::Visit(url.into_owned());
        }
        let schema = params.get_object("requestedSchema").unwrap_or_default();
        let required = schema.get("required").map(value);
        let is_required = |name: &str| {
            let names = required.as_ref().and_then(Value::as_array);
            names.is_some_and(|names| names.iter().any(|one| one == name))
        };
        let properties = schema.get_object("properties").unwrap_or_default();
        let fields = properties.iter().take(FIELDS_MAX);
        let fields: Vec<FormField> = fields
            .map(|(name, schema)| FormField::of(name, &value(schema), is_required(name)))
            .collect();
        if fields.is_empty() {
            Self::Consent
        } else {
            Self::Fields(fields)
        }
    }
}

impl FormField {
    fn of(name: &str, schema: &Value, is_required: bool) -> Self {
        let own = |key| cleaned(text(schema, key).unwrap_or_default());
        let title = own("title");
        Self {
            name: name.to_owned(),
            title: if title.is_empty() {
                cleaned(name)
            } else {
                title
            },
            description: own("description"),
            kind: FieldKind::of(schema),
            is_required,
            default: schema.get("default").cloned().unwrap_or_default(),
        }
    }

    /// Returns the text before the line for the person, without a line break at its end.
    pub(super) fn prompt(&self) -> String {
        let mut out = format!("  {}", self.title);
        if !self.description.is_empty() {
            let _ = write!(out, " - {}", self.description);
        }
        let choices = match &self.kind {
            FieldKind::One(choices) | FieldKind::Several(choices) => choices.as_slice(),
            FieldKind::Text { .. }
            | FieldKind::Number { .. }
            | FieldKind::YesOrNo
            | FieldKind::Json => &[],
        };
        for (place, choice) in choices.iter().enumerate() {
            let _ = write!(out, "\n    {}) {}", place + 1, cleaned(&choice.title));
        }
        if !choices.is_empty() {
            out.push_str("\n ");
        }
        let mut hints = vec![self.kind.hint()];
        if !self.default.is_null() {
            hints.push(format!("Enter for {}", cleaned(&plain(&self.default))));
        } else if !self.is_required {
            hints.push("Enter to leave it out".to_owned());
        }
        let _ = write!(out, " ({}): ", hints.join("; "));
        out
    }

    /// Returns the value that a line stands for; `None` leaves the field out. An error describes the text to type in
    /// its place.
    pub(super) fn read(&self, line: &str) -> Result<Option<Value>, String> {
        let line = line.trim();
        if line.is_empty() {
            return match (&self.default, self.is_required) {
                (Value::Null, false) => Ok(None),
                (Value::Null, true) => Err(format!("{} is needed", self.title)),
                (default, _) => Ok(Some(default.clone())),
            };
        }
        self.kind.read(line).map(Some)
    }
}

impl FieldKind {
    fn of(schema: &Value) -> Self {
        let number = |key| schema.get(key).and_then(Value::as_f64);
        let count = |key| schema.get(key).and_then(Value::as_u64);
        let choices = choices(schema);
        match text(schema, "type") {
            // A choice has a type as well, mostly "string", so choices come first.
            _ if !choices.is_empty() => Self::One(choices),
            Some("string") => Self::Text {
                format: text(schema, "format").unwrap_or_default().to_owned(),
                length_min: count("minLength").unwrap_or_default(),
                length_max: count("maxLength").unwrap_or(u64::MAX),
            },
            Some(word @ ("number" | "integer")) => Self::Number {
                is_whole: word == "integer",
                min: number("minimum").unwrap_or(f64::NEG_INFINITY),
                max: number("maximum").unwrap_or(f64::INFINITY),
            },
            Some("boolean") => Self::YesOrNo,
            Some("array") => {
                let choices = self::choices(schema.get("items").unwrap_or(&Value::Null));
                if choices.is_empty() {
                    Self::Json
                } else {
                    Self::Several(choices)
                }
            }
            _ => Self::Json,
        }
    }

    fn hint(&self) -> String {
        match self {
            Self::Text { format, .. } if format.is_empty() => "text".to_owned(),
            Self::Text { format, .. } => cleaned(format),
            Self::Number { is_whole, min, max } => {
                let word = if *is_whole { "whole number" } else { "number" };
                match (min.is_finite(), max.is_finite()) {
                    (true, true) => format!("{word} from {min} to {max}"),
                    (true, false) => format!("{word} from {min}"),
                    (false, true) => format!("{word} up to {max}"),
                    (false, false) => word.to_owned(),
                }
            }
            Self::YesOrNo => "y or n".to_owned(),
            Self::One(choices) => format!("1 to {}", choices.len()),
            Self::Several(choices) => format!("some of 1 to {}, such as 1,2", choices.len()),
            Self::Json => "JSON".to_owned(),
        }
    }

    fn read(&self, line: &str) -> Result<Value, String> {
        match self {
            Self::Text {
                format,
                length_min,
                length_max,
            } => {
                // JSON Schema counts characters, not bytes.
                let length = line.chars().count() as u64;
                if length < *length_min {
                    return Err(format!("write at least {length_min} characters"));
                }
                if length > *length_max {
                    return Err(format!("write at most {length_max} characters"));
                }
                if is_of_format(line, format) {
                    Ok(json!(line))
                } else {
                    Err(format!("that is no {}", self.hint()))
                }
            }
            Self::Number { is_whole, min, max } => {
                let number = line.parse::<serde_json::Number>().ok();
                let number = number.filter(|it| !is_whole || it.is_i64() || it.is_u64());
                let value = number.as_ref().and_then(serde_json::Number::as_f64);
                let is_in = value.is_some_and(|value| *min <= value && value <= *max);
                match number {
                    Some(number) if is_in => Ok(Value::Number(number)),
                    Some(_) | None => Err(format!("write a {}", self.hint())),
                }
            }
            Self::YesOrNo => yes_or_no(line).map(Value::Bool),
            Self::One(choices) => chosen(choices, line).map(Value::String),
            Self::Several(choices) => {
                let all = line.split(',').map(|part| chosen(choices, part.trim()));
                let all: Result<Vec<String>, String> = all.collect();
                all.map(|all| json!(all))
            }
            Self::Json => serde_json::from_str(line).map_err(|error| format!("no JSON: {error}")),
        }
    }
}

/// Reads an agreement.
pub(super) fn yes_or_no(line: &str) -> Result<bool, String> {
    match line.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" | "true" => Ok(true),
        "n" | "no" | "false" => Ok(false),
        _ => Err("write y or n".to_owned()),
    }
}

/// The answer that accepts, with the fields that have a value.
pub(super) fn accepted(content: &Map<String, Value>) -> Value {
    json!({"action": "accept", "content": content})
}

/// The choices of a schema: `enum` with `enumNames`, or constants with titles (`oneOf`, `anyOf`).
fn choices(schema: &Value) -> Vec<FieldChoice> {
    // `enumNames` gives titles in earlier revisions, and `oneOf` and `anyOf` do so in later ones.
    let names: Vec<&str> = list(schema, "enumNames")
        .filter_map(Value::as_str)
        .collect();
    let values = list(schema, "enum").filter_map(Value::as_str).enumerate();
    let plain = values.map(|(place, value)| (value, names.get(place).copied()));
    let titled = list(schema, "oneOf").chain(list(schema, "anyOf"));
    let titled = titled.filter_map(|one| Some((text(one, "const")?, text(one, "title"))));
    plain
        .chain(titled)
        .map(|(value, title)| FieldChoice {
            value: value.to_owned(),
            title: title.unwrap_or(value).to_owned(),
        })
        .collect()
}

/// The choice that a line names: by its place, its value or its title.
fn chosen(choices: &[FieldChoice], line: &str) -> Result<String, String> {
    // A value or a title counts before a place, because a choice may be called "2".
    let named = choices
        .iter()
        .find(|one| one.value == line || one.title == line);
    let place = line
        .parse::<usize>()
        .ok()
        .and_then(|place| place.checked_sub(1));
    let found = named.or_else(|| choices.get(place?));
    found
        .map(|one| one.value.clone())
        .ok_or_else(|| format!("write a number from 1 to {}", choices.len()))
}

fn is_of_format(line: &str, format: &str) -> bool {
    match format {
        "email" => line
            .split_once('@')
            .is_some_and(|(name, host)| !name.is_empty() && !host.is_empty()),
        "uri" => url::Url::parse(line).is_ok(),
        "date" => is_date(line),
        "date-time" => line
            .split_once(['T', 't'])
            .is_some_and(|(day, _)| is_date(day)),
        _ => true,
    }
}

/// As in 2026-11-23.
fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let fits =
        |part: &str, digits| part.len() == digits && part.bytes().all(|b| b.is_ascii_digit());
    matches!(parts.as_slice(), [year, month, day] if fits(year, 4) && fits(month, 2) && fits(day, 2))
}

fn value(raw: &RawValue) -> Value {
    serde_json::from_str(raw.get()).unwrap_or_default()
}

/// A text as it is, and anything else as JSON.
fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

fn text<'v>(value: &'v Value, key: &str) -> Option<&'v str> {
    value.get(key).and_then(Value::as_str)
}

fn list<'v>(value: &'v Value, key: &str) -> impl Iterator<Item = &'v Value> {
    value
        .get(key)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(schema: &Value, is_required: bool) -> FormField {
        FormField::of("it", schema, is_required)
    }

    fn reads(schema: &Value, line: &str) -> Result<Option<Value>, String> {
        field(schema, true).read(line)
    }

    #[test]
    fn a_line_becomes_the_value_that_the_schema_asks_for() {
        let colour = json!({"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"]});
        let titled = json!({"type": "string", "oneOf": [{"const": "r", "title": "Red"}]});
        let several =
            json!({"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}});
        for (schema, line, value) in [
            (json!({"type": "string"}), " Ada ", json!("Ada")),
            (
                json!({"type": "string", "format": "email"}),
                "a@b",
                json!("a@b"),
            ),
            (
                json!({"type": "string", "format": "date"}),
                "2026-11-23",
                json!("2026-11-23"),
            ),
            (json!({"type": "integer", "minimum": 1}), "7", json!(7)),
            (json!({"type": "number"}), "-0.5", json!(-0.5)),
            (json!({"type": "boolean"}), "Yes", json!(true)),
            (
                json!({"type": "boolean", "default": false}),
                "",
                json!(false),
            ),
            (colour.clone(), "2", json!("g")),
            (colour.clone(), "Red", json!("r")),
            (titled, "1", json!("r")),
            (several.clone(), "1, c", json!(["a", "c"])),
            (json!({"type": "object"}), r#"{"a":1}"#, json!({"a": 1})),
        ] {
            assert_eq!(reads(&schema, line), Ok(Some(value)), "{line}");
        }
        for (schema, line) in [
            (json!({"type": "string"}), ""),
            (json!({"type": "string", "minLength": 3}), "ab"),
            (json!({"type": "string", "maxLength": 1}), "ab"),
            (json!({"type": "string", "format": "email"}), "ab"),
            (json!({"type": "string", "format": "uri"}), "ab"),
            (json!({"type": "string", "format": "date"}), "23.11.2026"),
            (json!({"type": "integer"}), "1.5"),
            (json!({"type": "integer", "maximum": 3}), "4"),
            (json!({"type": "boolean"}), "maybe"),
            (colour, "3"),
            (several, "1,9"),
            (json!({"type": "object"}), "{"),
        ] {
            assert!(reads(&schema, line).is_err(), "{line}");
        }
        assert_eq!(field(&json!({"type": "string"}), false).read(""), Ok(None));
    }

    #[test]
    fn a_prompt_says_what_may_be_typed() {
        let age = json!({"type": "integer", "title": "Age", "minimum": 0, "maximum": 150});
        assert_eq!(
            field(&age, true).prompt(),
            "  Age (whole number from 0 to 150): "
        );
        let colour =
            json!({"enum": ["red", "gr\u{1b}een"], "description": "of the bike", "default": "red"});
        assert_eq!(
            field(&colour, true).prompt(),
            "  it - of the bike\n    1) red\n    2) gr\u{fffd}een\n  (1 to 2; Enter for red): "
        );
        let note = field(&json!({"type": "string"}), false);
        assert_eq!(note.prompt(), "  it (text; Enter to leave it out): ");
    }

    #[test]
    fn a_question_has_fields_wants_consent_or_sends_somewhere() {
        let form =
            |params: &str| QuestionForm::of(&RawValue::from_string(params.to_owned()).unwrap());
        let asked = r#"{"message":"?","requestedSchema":{"type":"object","required":["b"],
            "properties":{"c":{"type":"string"},"b":{"type":"string"}}}}"#;
        let QuestionForm::Fields(fields) = form(asked) else {
            panic!("fields");
        };
        let needed: Vec<_> = fields
            .iter()
            .map(|it| (&*it.name, it.is_required))
            .collect();
        assert_eq!(needed, [("c", false), ("b", true)]);
        assert_eq!(form(r#"{"message":"Sure?"}"#), QuestionForm::Consent);
        let visit = form(r#"{"mode":"url","url":"https://a.example/x"}"#);
        assert_eq!(visit, QuestionForm::Visit("https://a.example/x".into()));
    }
}
