//! The check of an answer against the form of an elicitation (2025-11-25 and 2026-07-28, Elicitation, Requested
//! Schema). Pure.

use serde_json::Value;

/// Returns `true` if a client could accept the elicitation of these `params` with this content. A visit to a page
/// cannot be answered with content.
pub fn accepts(params: &Value, content: &Value) -> bool {
    // A question without a mode is a form: only revision 2025-11-25 and later have modes.
    if params.get("mode").is_some_and(|mode| mode != "form") {
        return false;
    }
    let (Some(content), Some(schema)) = (content.as_object(), params.get("requestedSchema")) else {
        return false;
    };
    let none = serde_json::Map::new();
    let properties = schema.get("properties").and_then(Value::as_object);
    let properties = properties.unwrap_or(&none);
    let required = schema.get("required").and_then(Value::as_array);
    let mut required = required.into_iter().flatten().filter_map(Value::as_str);
    required.all(|name| content.contains_key(name))
        && content
            .iter()
            .all(|(name, value)| properties.get(name).is_some_and(|of| fits(of, value)))
}

/// Returns the error in the names of this content: a field that the form lacks, or one that the content lacks.
/// `None`: there is no fault, or no form.
pub fn wrong_name(params: &Value, content: &Value) -> Option<String> {
    let schema = params.get("requestedSchema")?;
    let properties = schema.get("properties")?.as_object()?;
    let content = content.as_object()?;
    let listed = || {
        let names: Vec<_> = properties.keys().map(String::as_str).collect();
        names.join(", ")
    };
    if let Some(unknown) = content.keys().find(|name| !properties.contains_key(*name)) {
        return Some(format!(
            "has {unknown:?}, which is no field of the form: {}",
            listed()
        ));
    }
    let required = schema.get("required")?.as_array()?;
    let mut required = required.iter().filter_map(Value::as_str);
    let missing = required.find(|name| !content.contains_key(*name))?;
    Some(format!(
        "lacks {missing:?}, which the form needs: {}",
        listed()
    ))
}

/// Returns `true` if the value is one of this property. The protocol has texts, numbers, yes or no, one choice and
/// several.
fn fits(property: &Value, value: &Value) -> bool {
    // The answer must equal one of the listed values, so its type needs no check.
    if let Some(choices) = choices(property) {
        return choices.contains(&value);
    }
    let number = |key: &str| property.get(key).and_then(Value::as_f64);
    let is_between = |size: f64, [least, most]: [&str; 2]| {
        number(least).is_none_or(|least| size >= least)
            && number(most).is_none_or(|most| size <= most)
    };
    match (property.get("type").and_then(Value::as_str), value) {
        (Some("string"), Value::String(text)) => {
            // JSON Schema counts the characters of a text, not its bytes.
            let length = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
            is_between(f64::from(length), ["minLength", "maxLength"])
        }
        (Some("integer"), Value::Number(_)) if !value.is_i64() && !value.is_u64() => false,
        (Some("number" | "integer"), Value::Number(number)) => number
            .as_f64()
            .is_some_and(|number| is_between(number, ["minimum", "maximum"])),
        (Some("boolean"), Value::Bool(_)) => true,
        (Some("array"), Value::Array(several)) => {
            let count = u32::try_from(several.len()).unwrap_or(u32::MAX);
            let of_each = property.get("items");
            is_between(f64::from(count), ["minItems", "maxItems"])
                && several
                    .iter()
                    .all(|one| of_each.is_some_and(|of_each| fits(of_each, one)))
        }
        _ => false,
    }
}

/// The values to choose from: `enum`, or `const` of each of `oneOf` and `anyOf`.
fn choices(property: &Value) -> Option<Vec<&Value>> {
    if let Some(listed) = property.get("enum").and_then(Value::as_array) {
        return Some(listed.iter().collect());
    }
    let titled = property.get("oneOf").or_else(|| property.get("anyOf"))?;
    let titled = titled.as_array()?.iter();
    Some(titled.filter_map(|one| one.get("const")).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn params() -> Value {
        json!({"message": "?", "requestedSchema": {
            "type": "object",
            "required": ["sure"],
            "properties": {
                "sure": {"type": "boolean"},
                "name": {"type": "string", "minLength": 2, "maxLength": 3},
                "count": {"type": "integer", "minimum": 1},
                "size": {"type": "string", "enum": ["s", "m"]},
                "color": {"type": "string", "oneOf": [{"const": "r", "title": "Red"}]},
                "tags": {"type": "array", "maxItems": 2, "items": {"type": "string", "enum": ["a", "b"]}},
            },
        }})
    }

    #[test]
    fn what_fits_each_property_is_accepted() {
        for content in [
            json!({"sure": false}),
            json!({"sure": true, "name": "Ada", "count": 1, "size": "m", "color": "r", "tags": ["a", "b"]}),
            json!({"sure": true, "tags": []}),
        ] {
            assert!(accepts(&params(), &content), "{content}");
        }
    }

    #[test]
    fn what_does_not_fit_is_not() {
        for content in [
            json!({}),
            json!([]),
            json!({"sure": "yes"}),
            json!({"sure": true, "name": "A"}),
            json!({"sure": true, "name": "Adam"}),
            json!({"sure": true, "count": 0}),
            json!({"sure": true, "count": 1.5}),
            json!({"sure": true, "size": "xl"}),
            json!({"sure": true, "color": "Red"}),
            json!({"sure": true, "tags": ["a", "b", "a"]}),
            json!({"sure": true, "tags": ["c"]}),
            json!({"sure": true, "unknown": 1}),
        ] {
            assert!(!accepts(&params(), &content), "{content}");
        }
    }

    #[test]
    fn a_visit_is_not_answered_with_content() {
        let visit = json!({"mode": "url", "url": "https://example.com", "message": "?"});
        assert!(!accepts(&visit, &json!({})));
        assert!(!accepts(&json!({"message": "?"}), &json!({})));
    }

    #[test]
    fn a_name_that_the_form_lacks_is_named() {
        let params = json!({"requestedSchema": {"type": "object", "required": ["name"],
            "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}});
        let wrong = |content| wrong_name(&params, &content);
        assert_eq!(wrong(json!({"name": "Ada", "age": 36})), None);
        // Values are the server's to judge.
        assert_eq!(wrong(json!({"name": 7})), None);
        assert_eq!(
            wrong(json!({"nme": "Ada"})).unwrap(),
            "has \"nme\", which is no field of the form: age, name"
        );
        assert_eq!(
            wrong(json!({"age": 36})).unwrap(),
            "lacks \"name\", which the form needs: age, name"
        );
        assert_eq!(
            wrong_name(&json!({"mode": "url", "url": "x"}), &json!({})),
            None
        );
    }
}
