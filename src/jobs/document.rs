//! The document in an answer of a tool, and the places in it.

use std::borrow::Cow;

use regex_lite::Regex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::mcp::json::{Object, Writer};

/// The most bytes of text that patterns search.
const TEXT_MAX: usize = 64 << 10;

/// The data in a result of `tools/call`.
#[derive(Debug, Default)]
pub struct Document {
    /// `structuredContent`, or else the first block of text that is JSON; null if there is neither.
    pub value: Value,
    /// The blocks of text, one to a line, up to 64 KiB.
    pub text: String,
    /// The tool reports an error.
    pub is_error: bool,
}

#[derive(Deserialize)]
struct TextBlock<'r> {
    #[serde(borrow)]
    text: Cow<'r, str>,
}

impl Document {
    /// Reads a result. What cannot be read of it counts as missing. `None`: it is no object.
    pub fn of(result: &RawValue) -> Option<Self> {
        let result = Object::parse(result.get()).ok()?;
        let blocks = result.get("content").map_or("[]", RawValue::get);
        let blocks: Vec<&RawValue> = serde_json::from_str(blocks).unwrap_or_default();
        // Other kinds of content have no text, and do not hide the text of the others.
        let texts: Vec<_> = blocks
            .iter()
            .filter_map(|block| serde_json::from_str::<TextBlock<'_>>(block.get()).ok())
            .map(|block| block.text)
            .collect();
        let structured = result.get("structuredContent");
        let structured: Option<Value> =
            structured.and_then(|value| serde_json::from_str(value.get()).ok());
        let structured = structured.filter(|value| !value.is_null());
        let value = structured.map(unwrapped).or_else(|| {
            let mut parsed = texts.iter().filter_map(|text| json(text));
            parsed.next()
        });
        Some(Self {
            value: value.unwrap_or_default(),
            text: joined(&texts),
            is_error: result.get("isError").is_some_and(|it| it.get() == "true"),
        })
    }

    /// The text as a result of `tools/call`.
    pub fn to_result(&self) -> Option<Box<RawValue>> {
        let mut block = Writer::object();
        block.str("type", "text").str("text", &self.text);
        let mut result = Writer::object();
        result.raw("content", &format!("[{}]", block.end()));
        RawValue::from_string(result.end()).ok()
    }

    /// The document of an error of JSON-RPC.
    pub fn of_error(error: &RawValue) -> Self {
        let value: Value = serde_json::from_str(error.get()).unwrap_or_default();
        let message = value.get("message").and_then(Value::as_str);
        Self {
            text: joined(&[Cow::Borrowed(message.unwrap_or_default())]),
            value,
            is_error: true,
        }
    }

    /// Returns the word or number at a pointer (RFC 6901), as text.
    pub fn word_at(&self, pointer: &str) -> Option<Cow<'_, str>> {
        word(self.value.pointer(pointer)?)
    }

    /// Returns the part of the text that a pattern finds: its first group, or else all of it.
    pub fn find(&self, pattern: &str) -> Option<&str> {
        // Checked when the settings were read.
        let found = Regex::new(pattern).ok()?.captures(&self.text)?;
        found.get(1).or_else(|| found.get(0)).map(|it| it.as_str())
    }
}

/// A place in a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobSource {
    Pointer(Box<str>),
    /// A pattern that is searched in the text.
    Text(Box<str>),
    /// The client's own argument of the start. Only for the id.
    Argument(Box<str>),
}

impl JobSource {
    /// Returns the word at this place.
    pub fn word<'d>(&self, document: &'d Document) -> Option<Cow<'d, str>> {
        match self {
            Self::Pointer(pointer) => document.word_at(pointer),
            Self::Text(pattern) => document.find(pattern).map(Cow::Borrowed),
            Self::Argument(_) => None,
        }
    }
}

/// Returns a value that is one word: a text, a number or a truth value.
fn word(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Number(number) => Some(number.to_string().into()),
        Value::Bool(value) => Some(value.to_string().into()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Frameworks wrap what is no object in one member, `result`, and a text in it may be JSON.
fn unwrapped(structured: Value) -> Value {
    let members = structured.as_object().filter(|members| members.len() == 1);
    let inner = members.and_then(|members| members.get("result")).cloned();
    let inner = inner.unwrap_or(structured);
    let parsed = inner.as_str().and_then(json);
    parsed.unwrap_or(inner)
}

/// Returns a value as text: a text without its quotes.
pub fn as_text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns the JSON in a text that is an object or a list: a bare number in a text is a text.
fn json(text: &str) -> Option<Value> {
    let trimmed = text.trim_start();
    if !trimmed.starts_with(['{', '[']) {
        return None;
    }
    serde_json::from_str(trimmed).ok()
}

fn joined(texts: &[Cow<'_, str>]) -> String {
    let mut all = String::new();
    for text in texts {
        if !all.is_empty() {
            all.push('\n');
        }
        let rest = TEXT_MAX.saturating_sub(all.len());
        let end = text.floor_char_boundary(rest);
        all.push_str(text.get(..end).unwrap_or_default());
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(result: &Value) -> Document {
        let raw = RawValue::from_string(result.to_string()).unwrap();
        Document::of(&raw).unwrap()
    }

    #[test]
    fn structured_content_comes_first_and_is_unwrapped() {
        let both = json!({
            "content": [{"type": "text", "text": "{\"a\": 1}"}],
            "structuredContent": {"a": 2},
        });
        assert_eq!(of(&both).value, json!({"a": 2}));
        for (structured, seen) in [
            (json!({"result": {"id": "x"}}), json!({"id": "x"})),
            (json!({"result": "{\"id\": 7}"}), json!({"id": 7})),
            (json!({"result": "words"}), json!("words")),
            (json!({"result": 1, "b": 2}), json!({"result": 1, "b": 2})),
        ] {
            assert_eq!(
                of(&json!({"content": [], "structuredContent": structured})).value,
                seen
            );
        }
    }

    #[test]
    fn the_first_text_that_is_json_counts_and_all_text_is_searched() {
        let result = json!({"content": [
            {"type": "text", "text": "Started."},
            {"type": "image", "data": "", "mimeType": "image/png"},
            {"type": "text", "text": " {\"jobId\": 12}"},
            {"type": "text", "text": "[1]"},
        ]});
        let document = of(&result);
        assert_eq!(document.word_at("/jobId").as_deref(), Some("12"));
        assert_eq!(document.find(r"Start(ed)\."), Some("ed"));
        assert_eq!(document.find(r"\d+"), Some("12"));
        assert!(!document.is_error);
    }

    #[test]
    fn what_is_no_result_is_no_document_and_an_error_has_its_message() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        assert!(Document::of(&raw("7")).is_none() && Document::of(&raw("[]")).is_none());
        let deep = "[".repeat(200) + &"]".repeat(200);
        for odd in [&*deep, "1e400", "null"] {
            let odd = format!(
                r#"{{"structuredContent":{odd},"isError":null,"content":[{odd},{{"type":"text","text":"{{\"a\":1}}"}}]}}"#
            );
            let document = Document::of(&raw(&odd)).unwrap();
            assert_eq!(
                (document.value, document.is_error),
                (json!({"a": 1}), false)
            );
        }
        assert!(Document::of(&raw(r#"{"content":null}"#)).is_some());
        let error = Document::of_error(&raw(r#"{"code":-32602,"message":"not found"}"#));
        assert!(error.is_error);
        assert_eq!(error.text, "not found");
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        let result = json!({"content": [{"type": "text", "text": "é".repeat(TEXT_MAX)}]});
        assert_eq!(of(&result).text.len(), TEXT_MAX);
    }
}
