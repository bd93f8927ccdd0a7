//! Questions to the client and answers to them, between the two eras.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::json::{Fault, Object, Writer, raw, string};

/// What a server may ask the client for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Elicitation,
    Sampling,
    Roots,
}

impl Kind {
    pub fn of(method: &str) -> Option<Self> {
        match method {
            "elicitation/create" => Some(Self::Elicitation),
            "sampling/createMessage" => Some(Self::Sampling),
            "roots/list" => Some(Self::Roots),
            _ => None,
        }
    }
}

/// A legacy server's request as an entry of `inputRequests`: method and params, without the
/// `_meta` that belongs to the server's own session.
pub fn request_of_legacy(method: &str, params: Option<&RawValue>) -> Result<Box<RawValue>, Fault> {
    let mut out = Writer::object();
    out.str("method", method);
    if let Some(params) = params {
        let object = Object::parse(params.get())?;
        if object.contains("_meta") {
            out.raw("params", &object.render_filtered(|key| key != "_meta"));
        } else {
            out.raw("params", params.get());
        }
    }
    raw(out.end())
}

/// `inputRequests` of a modern server's `input_required` result, by its own keys.
pub fn requests_of(result: &RawValue) -> Result<Requests, Fault> {
    let object = Object::parse(result.get())?;
    let mut requests = Vec::new();
    if let Some(asked) = object.get("inputRequests") {
        for (key, request) in Object::parse(asked.get())?.iter() {
            requests.push((key.into(), request.to_owned()));
        }
    }
    let request_state = object.get_str("requestState").map(Into::into);
    if requests.is_empty() && request_state.is_none() {
        return Err(Fault::Syntax);
    }
    Ok(Requests {
        requests,
        request_state,
    })
}

/// What a modern server asks in one round.
#[derive(Debug)]
pub struct Requests {
    pub requests: Vec<(Box<str>, Box<RawValue>)>,
    pub request_state: Option<Box<str>>,
}

/// `inputResponses` as a map. Duplicate keys are refused: which answer counts must not be a guess.
pub fn responses_of(raw: &RawValue) -> Option<BTreeMap<Box<str>, Box<RawValue>>> {
    let mut map = BTreeMap::new();
    for (key, answer) in Object::parse(raw.get()).ok()?.iter() {
        if map.insert(Box::from(key), answer.to_owned()).is_some() {
            return None;
        }
    }
    Some(map)
}

/// Whether an answer has the shape that its request asks for: an object, and for an elicitation
/// one of the three actions.
pub fn answers(request: &RawValue, answer: &RawValue) -> bool {
    let Ok(answer) = Object::parse(answer.get()) else {
        return false;
    };
    let method = Object::parse(request.get())
        .ok()
        .and_then(|r| r.get("method"));
    let kind = method.and_then(|m| string(m).and_then(|m| Kind::of(&m)));
    match kind {
        Some(Kind::Elicitation) => {
            matches!(
                answer.get_str("action").as_deref(),
                Some("accept" | "decline" | "cancel")
            )
        }
        Some(Kind::Sampling | Kind::Roots) | None => true,
    }
}
