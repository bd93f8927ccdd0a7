//! Changes output schemas so that they admit a ticket, too. Pure.
//!
//! Clients check structured content against the schema in the list of tools. Against the server's own schema, every
//! ticket would be an error.

use serde_json::value::RawValue;

use crate::mcp::json::{Object, Writer, prepend, set, string};

/// The members of a ticket, as `task/ticket` writes them.
const TICKET: [(&str, &str); 11] = [
    ("ticket", r#"{"type":"string"}"#),
    ("state", r#"{"type":"string"}"#),
    ("tool", r#"{"type":"string"}"#),
    ("arguments", r#"{"type":"string"}"#),
    ("next", r#"{"type":"string"}"#),
    ("round", r#"{"type":"integer"}"#),
    ("secondsSinceTicket", r#"{"type":"integer"}"#),
    ("message", r#"{"type":"string"}"#),
    ("statusMessage", r#"{"type":"string"}"#),
    ("progress", r#"{"type":"object"}"#),
    ("questions", r#"{"type":"object"}"#),
];

const REQUIRED: &str = r#"{"required":["ticket","state","message"]}"#;

/// Keywords that do not restrict the whole object, or are handled here. References within the schema stay valid,
/// because nothing moves.
const KNOWN: [&str; 13] = [
    "type",
    "properties",
    "required",
    "additionalProperties",
    "$schema",
    "$id",
    "$defs",
    "definitions",
    "$comment",
    "title",
    "description",
    "default",
    "examples",
];

/// The schema that admits a ticket as well. `None`: this schema cannot be changed so.
pub(super) fn or_ticket(schema: &RawValue) -> Option<String> {
    let text = schema.get();
    let object = Object::parse(text).ok()?;
    let is_known = |key: &str| KNOWN.contains(&key) || key.starts_with("x-");
    let is_plain = object.get_str("type")? == "object"
        && object.iter().all(|(key, _)| is_known(key))
        && !object.is_ambiguous(&KNOWN);
    if !is_plain {
        return None;
    }
    let properties = object.get("properties").map_or("{}", RawValue::get);
    let is_open = object
        .get("additionalProperties")
        .is_none_or(|additional| additional.get() == "true");
    let admitted = set(text, "properties", &admitting(properties, is_open)?).ok()?;
    match object.get("required") {
        None => Some(admitted),
        Some(required) => {
            // Without this choice the server's required members would refuse every ticket.
            let mut theirs = Writer::object();
            theirs.raw("required", required.get());
            let either = format!("[{},{REQUIRED}]", theirs.end());
            let rest = Object::parse(&admitted).ok()?;
            let rest = rest.render_filtered(|key| key != "required");
            // `anyOf` is not among the keywords that are let through, so the schema has none yet.
            Some(prepend(&rest, "anyOf", &either))
        }
    }
}

/// The properties, with those of a ticket if the schema admits no others. A property that both have may have either
/// schema.
fn admitting(properties: &str, is_open: bool) -> Option<String> {
    let mut all = properties.to_owned();
    for (name, ours) in TICKET {
        let object = Object::parse(properties).ok()?;
        let theirs = object.get(name);
        let schema = match theirs.map(RawValue::get) {
            // An open schema admits members that it does not name.
            None if is_open => continue,
            None => ours.to_owned(),
            // The tool's own schema admits any string, and so the ticket's.
            Some(theirs) if is_string(theirs) && ours.contains("string") => continue,
            Some(theirs) => format!(r#"{{"anyOf":[{theirs},{ours}]}}"#),
        };
        all = set(&all, name, &schema).ok()?;
    }
    Some(all)
}

/// Returns `true` if the schema admits any string.
fn is_string(schema: &str) -> bool {
    let Ok(schema) = Object::parse(schema) else {
        return false;
    };
    let is_any = |key: &str| matches!(key, "type" | "title" | "description" | "default");
    schema.get("type").and_then(string).as_deref() == Some("string")
        && schema.iter().all(|(key, _)| is_any(key))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::mcp::json::raw;

    fn edited(schema: &Value) -> Option<Value> {
        let edited = or_ticket(&raw(schema.to_string()).unwrap())?;
        Some(serde_json::from_str(&edited).unwrap())
    }

    #[test]
    fn what_the_tool_gives_or_a_ticket() {
        let wrapped = json!({"type": "object", "properties": {"result": {"$ref": "#/$defs/R"}},
            "required": ["result"], "x-fastmcp-wrap-result": true, "$defs": {"R": {"type": "string"}}});
        let mut expected = wrapped.clone();
        expected.as_object_mut().unwrap().remove("required");
        expected["anyOf"] =
            json!([{"required": ["result"]}, {"required": ["ticket", "state", "message"]}]);
        assert_eq!(edited(&wrapped).unwrap(), expected);
    }

    #[test]
    fn a_closed_object_is_opened_for_a_ticket_alone() {
        let closed = json!({"type": "object", "additionalProperties": false, "properties": {
            "n": {"type": "number"}, "state": {"enum": [1]}, "message": {"type": "string"},
        }});
        let open = edited(&closed).unwrap();
        assert_eq!(open["additionalProperties"], false);
        let properties = open["properties"].as_object().unwrap();
        assert!(
            TICKET
                .iter()
                .all(|(name, _)| properties.contains_key(*name))
        );
        assert_eq!(
            properties["state"],
            json!({"anyOf": [{"enum": [1]}, {"type": "string"}]})
        );
        assert_eq!(properties["message"], json!({"type": "string"}));
        assert_eq!(properties["n"], json!({"type": "number"}));
    }

    #[test]
    fn what_cannot_be_read_here_is_not_edited() {
        for other in [
            json!({"type": "object", "minProperties": 1}),
            json!({"type": "object", "allOf": [{"required": ["n"]}]}),
            json!({"type": "array"}),
            json!({"$ref": "#/$defs/x"}),
            json!({"type": ["object", "null"]}),
            json!(true),
        ] {
            assert_eq!(edited(&other), None, "{other}");
        }
    }
}
