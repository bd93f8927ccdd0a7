//! Questions to the client and answers to them, between the two eras.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::error::code;
use super::json::{Fault, Object, Writer, raw};

/// More questions than this in one round, or over one task's life, are refused.
pub const QUESTIONS_MAX: usize = 64;

/// A round of questions larger than this is refused: it would be stored and shown at every poll.
const QUESTIONS_BYTES_MAX: usize = 1024 * 1024;

/// The kinds of input that a server may ask the client for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputKind {
    Elicitation,
    Sampling,
    Roots,
}

impl InputKind {
    pub fn of(method: &str) -> Option<Self> {
        match method {
            "elicitation/create" => Some(Self::Elicitation),
            "sampling/createMessage" => Some(Self::Sampling),
            "roots/list" => Some(Self::Roots),
            _ => None,
        }
    }

    /// `None`: the client is asked for something else.
    fn of_request(request: &RawValue) -> Option<Self> {
        let request = Object::parse(request.get()).ok()?;
        request
            .get_str("method")
            .and_then(|method| Self::of(&method))
    }

    /// The capability that a client must declare before it can be asked for this.
    pub fn capability(self) -> &'static str {
        match self {
            Self::Elicitation => "elicitation",
            Self::Sampling => "sampling",
            Self::Roots => "roots",
        }
    }
}

/// A retry brings answers, and so is another call than the one that asked.
pub fn is_retry(params: &Object<'_>) -> bool {
    params.contains("requestState") || params.contains("inputResponses")
}

/// Returns `true` if the params answer a question of a modern server: they have its state, or an answer.
pub fn is_answer(params: &Object<'_>) -> bool {
    let answers = params.get_object("inputResponses");
    params.get_str("requestState").is_some()
        || answers.is_some_and(|answers| answers.iter().next().is_some())
}

/// Returns `true` if a server may answer this method with questions (2026-07-28, Multi Round-Trip Requests).
pub fn may_be_required(method: &str) -> bool {
    matches!(method, "tools/call" | "prompts/get" | "resources/read")
}

/// Returns `true` if a client that declares these capabilities can be asked this request.
pub fn is_declared(request: &RawValue, capabilities: &str) -> bool {
    let declared = Object::parse(capabilities).unwrap_or_default();
    InputKind::of_request(request).is_some_and(|kind| declared.contains(kind.capability()))
}

/// Returns `true` if this error means that the client cannot be asked, and not that its user refused to answer. SDKs
/// have two such errors.
pub fn cannot_be_asked(error: &RawValue) -> bool {
    let error = Object::parse(error.get()).unwrap_or_default();
    let number = error.get("code").and_then(|code| code.get().parse().ok());
    number
        .is_some_and(|number: i64| matches!(number, code::METHOD_NOT_FOUND | code::INVALID_REQUEST))
}

/// A legacy server's request as an entry of `inputRequests`: method and params, without the
/// `_meta` that belongs to the server's own session.
pub fn request_of_legacy(method: &str, params: Option<&RawValue>) -> Result<Box<RawValue>, Fault> {
    let mut out = Writer::object();
    out.str("method", method);
    if let Some(params) = params {
        if params.get().len() > QUESTIONS_BYTES_MAX {
            return Err(Fault::Syntax);
        }
        let object = Object::parse(params.get())?;
        // The params keep their bytes if nothing is removed.
        if object.contains("_meta") {
            out.raw("params", &object.render_filtered(|key| key != "_meta"));
        } else {
            out.raw("params", params.get());
        }
    }
    raw(out.end())
}

/// Returns the `inputRequests` of a modern server's `input_required` result, by the server's own keys. Refused if
/// there are too many, or two under one key, because their answers could not be distinguished.
pub fn requests_of(result: &RawValue) -> Result<Requests, Fault> {
    if result.get().len() > QUESTIONS_BYTES_MAX {
        return Err(Fault::Syntax);
    }
    let object = Object::parse(result.get())?;
    let mut requests = Vec::new();
    if let Some(asked) = object.get("inputRequests") {
        for (key, request) in Object::parse(asked.get())?.iter() {
            requests.push((key.into(), request.to_owned()));
        }
    }
    let request_state = object.get_str("requestState").map(Into::into);
    let mut keys: Vec<&str> = requests
        .iter()
        .map(|(key, _): &(Box<str>, _)| &**key)
        .collect();
    keys.sort_unstable();
    keys.dedup();
    if keys.len() != requests.len() || requests.len() > QUESTIONS_MAX {
        return Err(Fault::Syntax);
    }
    // Without questions and without a state there is nothing to send with the next leg.
    if requests.is_empty() && request_state.is_none() {
        return Err(Fault::Syntax);
    }
    Ok(Requests {
        requests,
        request_state,
    })
}

/// The questions of a modern server in one round.
#[derive(Debug)]
pub struct Requests {
    pub requests: Vec<(Box<str>, Box<RawValue>)>,
    pub request_state: Option<Box<str>>,
}

/// The answers of a client, by the keys of the questions (`inputResponses`).
pub type InputResponses = BTreeMap<Box<str>, Box<RawValue>>;

/// `inputResponses` as a map. Duplicate keys are refused, because which of the answers counts would be a
/// guess.
pub fn responses_of(raw: &RawValue) -> Option<InputResponses> {
    let mut map = BTreeMap::new();
    for (key, answer) in Object::parse(raw.get()).ok()?.iter() {
        if map.insert(Box::from(key), answer.to_owned()).is_some() {
            return None;
        }
    }
    Some(map)
}

/// Returns `true` if an answer has the shape that its request asks for: an object, and for an elicitation one of the
/// three actions, with fields if it has a content.
pub fn answers(request: &RawValue, answer: &RawValue) -> bool {
    let Ok(answer) = Object::parse(answer.get()) else {
        return false;
    };
    match InputKind::of_request(request) {
        Some(InputKind::Elicitation) => {
            let content = answer.get("content");
            let has_fields =
                content.is_none_or(|it| it.get() == "null" || it.get().starts_with('{'));
            let action = answer.get_str("action");
            has_fields && matches!(action.as_deref(), Some("accept" | "decline" | "cancel"))
        }
        Some(InputKind::Sampling | InputKind::Roots) | None => true,
    }
}

/// The only member of the object that is stored when the client refused to answer. Only a server that asked on an
/// open call can receive a refusal.
const REFUSED: &str = "io.raincheck/refused";

/// The object that is stored when the client refused to answer. It holds the client's JSON-RPC error.
pub fn refusal(error: &RawValue) -> Box<RawValue> {
    let mut out = Writer::object();
    out.raw(REFUSED, error.get());
    // The text is JSON, because its parts are. The null only takes the place of a panic.
    raw(out.end()).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// The client's error, if the stored answer is a refusal.
pub fn refused(answer: &RawValue) -> Option<&RawValue> {
    let answer = Object::parse(answer.get()).ok()?;
    // A client may have a member of this name in its answer. A stored refusal has no member beside it.
    answer.get(REFUSED).filter(|_| answer.len() == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_asked_for_what_it_declares() {
        let asks = |method: &str, declared: &str| {
            let request = raw(format!(r#"{{"method":"{method}"}}"#)).unwrap();
            is_declared(&request, declared)
        };
        let declared = r#"{"elicitation":{},"roots":{}}"#;
        assert!(asks("elicitation/create", declared));
        assert!(asks("roots/list", declared));
        assert!(!asks("sampling/createMessage", declared));
        assert!(!asks("elicitation/create", "{}"));
        assert!(!asks("ping", declared));
    }

    #[test]
    fn a_refusal_is_not_a_client_that_cannot_be_asked() {
        let says = |error: &str| cannot_be_asked(&raw(error.to_owned()).unwrap());
        assert!(says(r#"{"code":-32601,"message":"Method not found"}"#));
        assert!(says(
            r#"{"code":-32600,"message":"Elicitation not supported"}"#
        ));
        assert!(!says(
            r#"{"code":-1,"message":"User rejected sampling request"}"#
        ));
        assert!(!says("7"));
    }

    #[test]
    fn a_round_is_bounded_and_its_keys_differ() {
        let round = |requests: String| {
            let result = format!(r#"{{"resultType":"input_required","inputRequests":{requests}}}"#);
            requests_of(&RawValue::from_string(result).unwrap())
        };
        let many = |count: usize| {
            let all: Vec<_> = (0..count).map(|n| format!(r#""k{n}":{{}}"#)).collect();
            format!("{{{}}}", all.join(","))
        };
        assert_eq!(
            round(many(QUESTIONS_MAX)).unwrap().requests.len(),
            QUESTIONS_MAX
        );
        assert!(round(many(QUESTIONS_MAX + 1)).is_err());
        assert!(round(r#"{"a":{},"a":{}}"#.into()).is_err());
        assert!(round(format!(r#"{{"a":"{}"}}"#, "x".repeat(QUESTIONS_BYTES_MAX))).is_err());
        assert!(
            round("{}".into()).is_err(),
            "neither a question nor a state"
        );
    }
}
