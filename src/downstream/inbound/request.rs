//! A client's message, parsed once and borrowed from the body.

use std::borrow::Cow;

use hyper::HeaderMap;
use serde_json::value::RawValue;

use super::envelope;
use crate::mcp::error::{RpcError, code};
use crate::mcp::json::{Object, is_object};
use crate::mcp::meta::{META, Meta, PROTOCOL_VERSION};
use crate::mcp::request::{ClientMessage, Envelope, Refused, Request, check_on_session, no_object};
use crate::mcp::scan::{Fault, scan};
use crate::mcp::version::Era;
use crate::task::gave_up::CancelCause;

/// A client's message, before the era is known by whose rules it is read.
pub(in crate::downstream) struct Inbound<'a> {
    /// The whole message. If the message has a fault, raincheck must not act on this text.
    text: &'a str,
    /// Why parsers could read the message differently.
    fault: Option<Fault>,
    /// `None`: the message is no JSON object.
    envelope: Option<Envelope<'a>>,
    /// The members of its params.
    params: Option<Object<'a>>,
    /// The members of the `_meta` of its params.
    meta: Option<Object<'a>>,
}

impl<'a> Inbound<'a> {
    pub(in crate::downstream) fn read(body: &'a [u8]) -> Self {
        // No text is right where it is not UTF-8. The era of such a message still decides how it is refused.
        let text = std::str::from_utf8(body).unwrap_or_default();
        // Nearly every message is read in this one pass. `None` is no verdict: the slower readers below decide.
        if let Some((members, [params, meta])) = Object::read_plain(text, ["params", META]) {
            return Self {
                text,
                fault: None,
                envelope: Some(Envelope::of(members)),
                params,
                meta,
            };
        }
        let members = Object::parse(text).ok();
        let params = members.as_ref().and_then(|it| it.get_object("params"));
        let meta = params.as_ref().and_then(|it| it.get_object(META));
        // A model's text may be cut in the middle of a pair. Such a string passes unread, as any other. No reader of a string
        // that is read here sees another one in it: it is none to raincheck.
        let is_read = is_read(members.as_ref(), "params", params.as_ref())
            && is_read(params.as_ref(), META, meta.as_ref());
        let fault = scan(body).err();
        Self {
            text,
            fault: fault.filter(|fault| *fault != Fault::Surrogate || !is_read),
            envelope: members.map(Envelope::of),
            params,
            meta,
        }
    }

    /// The era that the message speaks of: modern where `_meta` names a protocol version.
    pub(in crate::downstream) fn era(&self) -> Era {
        if self.meta().is_some_and(|it| it.contains(PROTOCOL_VERSION)) {
            Era::Modern
        } else {
            Era::Legacy
        }
    }

    /// The members of `_meta` of the params.
    pub(in crate::downstream) fn meta(&self) -> Option<&Object<'a>> {
        self.meta.as_ref()
    }

    /// The whole message, where its members are known.
    pub(in crate::downstream) fn text(&self) -> &'a str {
        self.text
    }

    /// The members of the message. `None`: no certain reading of it is a message.
    pub(in crate::downstream) fn members(&self) -> Option<&Object<'a>> {
        self.envelope().map(|it| &it.members)
    }

    /// The members of the message, where no other reader could see another message in them.
    pub(in crate::downstream) fn certain_members(&self) -> Option<&Object<'a>> {
        let envelope = self.envelope().filter(|it| !it.is_ambiguous);
        envelope.map(|it| &it.members)
    }

    /// The method of the message.
    pub(in crate::downstream) fn method(&self) -> Option<&Cow<'a, str>> {
        self.envelope()?.method.as_ref()
    }

    fn envelope(&self) -> Option<&Envelope<'a>> {
        self.envelope.as_ref().filter(|_| self.fault.is_none())
    }

    /// The id of the request, also of one that is refused.
    pub(in crate::downstream) fn request_id(&self) -> Option<&'a RawValue> {
        self.envelope.as_ref()?.request_id()
    }

    /// The members of the params.
    pub(in crate::downstream) fn params(&self) -> Option<&Object<'a>> {
        self.params.as_ref()
    }

    /// Checks that every parser reads the same call in the message of a legacy session, or none.
    pub(in crate::downstream) fn check_on_session(&self) -> Result<(), RpcError> {
        check_on_session(self.object()?, self.params.as_ref())
    }

    /// The message by the rules of revision 2026-07-28.
    pub(in crate::downstream) fn modern(
        mut self,
        headers: &'a HeaderMap,
    ) -> Result<ModernMessage<'a>, Refused> {
        let params = self.params.take();
        let envelope = self.object().map_err(|error| Refused {
            id: self.request_id().map(ToOwned::to_owned),
            error,
        })?;
        let ClientMessage::Request(request) = ClientMessage::of(envelope, params)? else {
            return Ok(ModernMessage::Notification);
        };
        match envelope::check(&request, self.meta.as_ref(), headers) {
            Ok(meta) => Ok(ModernMessage::Request(Box::new(Modern {
                request,
                meta,
                headers,
            }))),
            Err(error) => Err(Refused {
                id: Some(request.id.to_owned()),
                error,
            }),
        }
    }

    /// Reads the message by the rules of the legacy revisions: its members decide if it is a request, a notification
    /// or an answer.
    pub(in crate::downstream) fn legacy(self) -> LegacyMessage<'a> {
        if self.fault.is_some() {
            return LegacyMessage::Unclear(Unclear::Json);
        }
        let Some(envelope) = self.envelope.filter(|it| !it.is_ambiguous) else {
            return LegacyMessage::Unclear(Unclear::Envelope);
        };
        let members = envelope.members;
        match (envelope.method, members.get("id")) {
            (Some(method), Some(id)) => LegacyMessage::Request(Request {
                id,
                method,
                params_text: members.get("params").map_or("{}", RawValue::get),
                params: self.params.unwrap_or_default(),
            }),
            (Some(method), None) => {
                LegacyMessage::Notification(method, self.params.unwrap_or_default())
            }
            (None, Some(id)) if is_answer(&members) => LegacyMessage::Answer(id, members),
            (None, _) => LegacyMessage::Unclear(Unclear::Kind),
        }
    }

    fn object(&self) -> Result<&Envelope<'a>, RpcError> {
        if let Some(fault) = self.fault {
            let message = format!("Parse error: {fault}");
            return Err(RpcError::new(code::PARSE, message));
        }
        self.envelope.as_ref().ok_or_else(|| no_object(self.text))
    }
}

/// Returns `true` if a message with an id is an answer. Some clients write the members that it does not have as null.
pub(in crate::downstream) fn is_answer(members: &Object<'_>) -> bool {
    let has = |name| members.get(name).is_some_and(|it| it.get() != "null");
    let is_request = has("method") || has("params");
    !is_request && (members.contains("result") || has("error"))
}

/// Returns `true` if the object of that name was read, or there is none.
fn is_read(within: Option<&Object<'_>>, name: &str, read: Option<&Object<'_>>) -> bool {
    read.is_some() || !within.and_then(|it| it.get(name)).is_some_and(is_object)
}

/// A modern request whose envelope is in order.
#[derive(Debug)]
pub(in crate::downstream) struct Modern<'a> {
    pub(in crate::downstream) request: Request<'a>,
    pub(in crate::downstream) meta: Meta<'a>,
    pub(in crate::downstream) headers: &'a HeaderMap,
}

/// The kind of a modern message.
#[derive(Debug)]
pub(in crate::downstream) enum ModernMessage<'a> {
    Request(Box<Modern<'a>>),
    Notification,
}

/// The kind of a legacy client's message, as far as raincheck needs it.
#[derive(Debug)]
pub(in crate::downstream) enum LegacyMessage<'a> {
    Request(Request<'a>),
    Notification(Cow<'a, str>, Object<'a>),
    /// To a question that was put to the client: its id, and the whole message.
    Answer(&'a RawValue, Object<'a>),
    /// A message that raincheck does not understand passes: the server decides about it.
    Unclear(Unclear),
}

/// Why a legacy message is neither a request, a notification nor an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::downstream) enum Unclear {
    /// Parsers could read the text differently.
    Json,
    /// The text is no object (a batch, for example), or has a member of the envelope twice.
    Envelope,
    /// The message has neither a method nor an id, or it has an id and what no answer has: a method that is no text, params,
    /// or neither a result nor an error.
    Kind,
}

/// A client's `notifications/cancelled`.
#[derive(Debug, Clone, Copy)]
pub(in crate::downstream) struct CancelMessage<'a> {
    /// The id of the request that the client no longer waits for.
    pub(in crate::downstream) id: &'a RawValue,
    /// By the reason.
    pub(in crate::downstream) cause: CancelCause,
}

impl<'a> CancelMessage<'a> {
    pub(in crate::downstream) fn of(params: &Object<'a>) -> Option<Self> {
        let reason = params.get_str("reason").unwrap_or_default();
        let cause = CancelCause::of(&reason);
        let id = params.get("requestId")?;
        Some(Self { id, cause })
    }
}

impl<'a> LegacyMessage<'a> {
    /// The request that this message cancels.
    pub(in crate::downstream) fn cancels(&self) -> Option<CancelMessage<'a>> {
        match self {
            Self::Notification(method, params) if method == "notifications/cancelled" => {
                CancelMessage::of(params)
            }
            Self::Request(_) | Self::Notification(..) | Self::Answer(..) | Self::Unclear(_) => None,
        }
    }

    /// The message, if it is a request.
    pub(in crate::downstream) fn request(&self) -> Option<&Request<'a>> {
        match self {
            Self::Request(request) => Some(request),
            Self::Notification(..) | Self::Answer(..) | Self::Unclear(_) => None,
        }
    }

    /// Returns `true` if this is a request with that method.
    pub(in crate::downstream) fn asks_for(&self, method: &str) -> bool {
        self.request()
            .is_some_and(|request| request.method == method)
    }
}

/// Checks that raincheck reads a request, in either era, as `serde_json` and the headers have it. `bytes` are
/// headers, an empty line and the body.
#[cfg(any(test, fuzzing))]
#[cfg_attr(not(fuzzing), expect(unreachable_pub, reason = "fuzz/ calls it"))]
pub fn fuzzed(bytes: &[u8]) {
    use hyper::header::{HeaderName, HeaderValue};
    use serde_json::Value;

    use crate::mcp::headers::METHOD;
    use crate::mcp::version::MODERN;

    let split = bytes.windows(2).position(|two| two == b"\n\n");
    let (head, body) = split.map_or((&[][..], bytes), |at| (&bytes[..at], &bytes[at + 2..]));
    let mut headers = HeaderMap::new();
    for line in head.split(|byte| *byte == b'\n') {
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let name = parts.next().and_then(|it| HeaderName::from_bytes(it).ok());
        let value = parts
            .next()
            .and_then(|it| HeaderValue::from_bytes(it.trim_ascii()).ok());
        if let (Some(name), Some(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    let read = Inbound::read(body);
    let _ = (read.era(), envelope::era_by_headers(&headers));
    // Numbers beyond f64 are JSON, which serde's values do not hold.
    let by_serde = serde_json::from_slice::<Value>(body).ok();
    if let Some(value) = &by_serde
        && read.check_on_session().is_ok()
        && read.members().is_some()
    {
        let method = read.method().map(|method| &**method);
        assert_eq!(value["method"].as_str(), method);
        assert_eq!(read.params().is_some(), value["params"].is_object());
    }
    if let Ok(ModernMessage::Request(it)) = read.modern(&headers) {
        assert_eq!(it.meta.version, MODERN);
        let method = headers.get_all(METHOD).iter().collect::<Vec<_>>();
        assert_eq!(method, [it.request.method.as_bytes()]);
        if let Some(value) = &by_serde {
            assert_eq!(value["method"], *it.request.method);
            assert_eq!(
                serde_json::from_str::<Value>(it.request.id.get()).unwrap(),
                value["id"]
            );
        }
    }
    let legacy = Inbound::read(body).legacy();
    let _ = legacy.cancels();
    let Some(value) = by_serde else { return };
    match legacy {
        LegacyMessage::Request(request) => {
            assert_eq!(value["method"], *request.method);
            assert!(value.get("id").is_some());
        }
        LegacyMessage::Notification(method, _) => {
            assert_eq!(value["method"], *method);
            assert!(value.get("id").is_none());
        }
        LegacyMessage::Answer(..) => assert!(value["method"].is_null()),
        LegacyMessage::Unclear(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutator::fuzz;

    #[test]
    fn fuzzed_requests() {
        fuzz("request", fuzzed);
    }

    fn legacy(text: &'static str) -> LegacyMessage<'static> {
        Inbound::read(text.as_bytes()).legacy()
    }

    #[test]
    fn messages_are_told_apart() {
        assert!(matches!(
            legacy(r#"{"id":1,"method":"ping"}"#),
            LegacyMessage::Request(Request {
                params_text: "{}",
                ..
            })
        ));
        assert!(matches!(
            legacy(r#"{"method":"notifications/initialized"}"#),
            LegacyMessage::Notification(_, params) if params.is_empty()
        ));
        for answer in [
            r#"{"id":"x","result":{}}"#,
            r#"{"id":1,"method":null,"params":null,"result":null}"#,
            r#"{"id":1,"result":null,"error":{"code":1,"message":""}}"#,
        ] {
            assert!(matches!(legacy(answer), LegacyMessage::Answer(..)));
        }
        for (text, why) in [
            ("[]", Unclear::Envelope),
            ("{", Unclear::Envelope),
            (r#"{"id":1,"id":2,"method":"ping"}"#, Unclear::Envelope),
            ("{}", Unclear::Kind),
            (r#"{"id":1,"method":["tools/call"]}"#, Unclear::Kind),
            (r#"{"id":1,"method":null}"#, Unclear::Kind),
            (r#"{"id":1,"params":{},"result":{}}"#, Unclear::Kind),
            (r#"{"id":1,"method":"\ud800"}"#, Unclear::Kind),
            (
                r#"{"id":1,"method":"m","params":{"\ud800":1}}"#,
                Unclear::Json,
            ),
        ] {
            let read = legacy(text);
            assert!(
                matches!(read, LegacyMessage::Unclear(it) if it == why),
                "{text}"
            );
        }
    }

    #[test]
    fn a_cancel_names_its_request() {
        let cancel = r#"{"method":"notifications/cancelled","params":{"requestId":"a"}}"#;
        assert_eq!(
            legacy(cancel).cancels().map(|it| it.id.get()),
            Some(r#""a""#)
        );
        for other in [
            r#"{"method":"notifications/cancelled"}"#,
            r#"{"method":"notifications/progress","params":{"requestId":"a"}}"#,
            r#"{"id":1,"method":"notifications/cancelled","params":{"requestId":"a"}}"#,
        ] {
            assert!(legacy(other).cancels().is_none(), "{other}");
        }
    }

    #[test]
    fn the_era_is_what_the_meta_says_also_of_what_cannot_be_read_for_certain() {
        let era = |text: &str| Inbound::read(text.as_bytes()).era();
        let named = r#"{"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"x"}"#;
        assert_eq!(era(&format!("{named}}}}}")), Era::Modern);
        assert_eq!(era(&format!(r#"{named},"a":"\ud800"}}}}"#)), Era::Modern);
        for other in ["", "[]", r#"{"params":{"_meta":{}}}"#, r#"{"params":1}"#] {
            assert_eq!(era(other), Era::Legacy, "{other}");
        }
    }
}
