//! Which message answers a request.

use serde_json::Value;
use serde_json::value::RawValue;

use super::json::Object;

/// Returns `true` if a message is the response to the request with that id.
pub fn is_answer(message: &Object<'_>, id: &RawValue) -> bool {
    is_any_answer(message) && {
        let other = message.get("id");
        other.is_some_and(|other| is_same_id(other.get(), id.get()))
    }
}

/// Returns `true` if a message is the response to some request.
pub fn is_any_answer(message: &Object<'_>) -> bool {
    // Some servers write every member, and null for those that are not there.
    let method = message.get("method").filter(|it| it.get() != "null");
    method.is_none() && (message.contains("result") || message.contains("error"))
}

/// Returns `true` if a text is a JSON-RPC message.
pub fn is_any_message(text: &str) -> bool {
    Object::parse(text).is_ok_and(|message| {
        ["method", "result", "error"]
            .into_iter()
            .any(|key| message.contains(key))
    })
}

/// Returns `true` if two texts are one id. Servers may write an id in their own way: `7.0` or `"7"` for `7`, a
/// character for its escape.
pub fn is_same_id(one: &str, other: &str) -> bool {
    if one == other {
        return true;
    }
    // Nearly all servers send an id back as they got it, and that comparison needs no parser.
    let read = |id: &str| serde_json::from_str::<Value>(id).ok();
    match (read(one), read(other)) {
        (Some(Value::String(one)), Some(Value::String(other))) => one == other,
        (Some(Value::Number(one)), Some(Value::Number(other))) => {
            // Two large whole ids that differ could be equal as floats, so floats are compared only if one id is
            // written as a float.
            let is_fraction = one.is_f64() || other.is_f64();
            one == other || (is_fraction && one.as_f64() == other.as_f64())
        }
        (Some(Value::String(text)), Some(Value::Number(number)))
        | (Some(Value::Number(number)), Some(Value::String(text))) => {
            let number = number.as_i64();
            number.is_some_and(|number| text == number.to_string())
        }
        _ => false,
    }
}

/// The number that an id stands for, also if a server wrote it as a string or with a fraction.
pub fn whole_number(id: &str) -> Option<u64> {
    match serde_json::from_str(id).ok()? {
        Value::Number(number) => {
            let number = number.as_f64()?;
            // The text of a whole float has no fraction, so 7.0 becomes 7. The parser refuses 7.5 and -7.
            format!("{number}").parse().ok()
        }
        Value::String(text) => {
            let number: u64 = text.parse().ok()?;
            // The parser also reads "+7" and "007", which are other ids.
            (text == number.to_string()).then_some(number)
        }
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
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
            (r#"{"id":7,"method":null,"result":{}}"#, "7", true),
            (r#"{"id":8,"result":{}}"#, "7", false),
            (r#"{"id":"7","result":{}}"#, "7", true),
            (r#"{"id":"7.0","result":{}}"#, "7", false),
            (
                r#"{"id":9007199254740993,"result":{}}"#,
                "9007199254740992",
                false,
            ),
            (r#"{"id":7,"result":{}}"#, r#""7""#, true),
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
