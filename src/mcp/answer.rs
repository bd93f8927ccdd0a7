//! Which message answers a request.

use serde_json::Value;
use serde_json::value::RawValue;

use super::json::Object;

/// Whether a message is the response to the request with that id.
pub fn is_answer(message: &Object<'_>, id: &RawValue) -> bool {
    is_any_answer(message) && message.get("id").is_some_and(|other| is_same(other, id))
}

/// Whether a message is the response to some request.
pub fn is_any_answer(message: &Object<'_>) -> bool {
    !message.contains("method") && (message.contains("result") || message.contains("error"))
}

/// Whether a text is a JSON-RPC message.
pub fn is_any_message(text: &str) -> bool {
    Object::parse(text).is_ok_and(|message| {
        ["method", "result", "error"]
            .into_iter()
            .any(|key| message.contains(key))
    })
}

/// Servers may write an id in their own way: `7` for `7.0`, a character for its escape.
fn is_same(one: &RawValue, other: &RawValue) -> bool {
    if one.get() == other.get() {
        return true;
    }
    let read = |id: &RawValue| serde_json::from_str::<Value>(id.get()).ok();
    match (read(one), read(other)) {
        (Some(Value::Number(one)), Some(Value::Number(other))) => {
            one.as_f64().map(f64::to_bits) == other.as_f64().map(f64::to_bits)
        }
        (Some(one), Some(other)) => one == other,
        (None, _) | (_, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_response_to_the_request_is_its_answer() {
        let id = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let answers = [
            (r#"{"id":7,"result":{}}"#, "7", true),
            (r#"{"id":7,"error":{}}"#, "7.0", true),
            (r#"{"id":"\u0061","result":{}}"#, r#""a""#, true),
            (r#"{"id":8,"result":{}}"#, "7", false),
            (r#"{"id":"7","result":{}}"#, "7", false),
            (r#"{"id":null,"error":{}}"#, "7", false),
            (r#"{"error":{}}"#, "7", false),
            (r#"{"id":7,"method":"ping"}"#, "7", false),
        ];
        for (message, asked, expected) in answers {
            let read = Object::parse(message).unwrap();
            assert_eq!(is_answer(&read, &id(asked)), expected, "{message}");
        }
    }
}
