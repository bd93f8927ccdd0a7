//! The trace that a request belongs to: `traceparent` and `tracestate` of W3C Trace Context, in the headers of a
//! request or in `_meta` of its params (SEP-414).

use std::borrow::Cow;

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};

use super::json::{Fault, Object, Writer, place_of, prepend, quote, set_in};
use super::trace_id::{SpanId, TraceId};

pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

const PARENT: &str = "traceparent";
const STATE: &str = "tracestate";

/// The members as they are written, up to their values.
const PARENT_MEMBER: &str = "\"traceparent\":\"";
const STATE_MEMBER: &str = ",\"tracestate\":";

/// The length of a `traceparent`.
const PARENT_BYTES: usize = "00-".len() + 32 + 1 + 16 + "-01".len();

/// The longest state that is kept. The standard demands this much of every implementation.
const STATE_BYTES_MAX: usize = 512;

/// The flag of a trace that is recorded.
const SAMPLED: u8 = 1;

/// The trace that a request names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToldTrace {
    /// The place of the request in its trace. The `_meta` of its params counts before its headers: a header may be of
    /// the connection only.
    pub context: Option<TraceContext>,
    /// `true` if `_meta` names a trace, of whatever form. The next field is the same for headers.
    in_meta: bool,
    in_headers: bool,
}

impl ToldTrace {
    pub fn of(meta: Option<&Object<'_>>, headers: &HeaderMap) -> Self {
        let in_meta = meta.is_some_and(is_named);
        let in_headers = are_in(headers);
        let by_meta = meta.filter(|_| in_meta).and_then(|meta| {
            let parent = meta.get_str(PARENT)?;
            TraceContext::read(&parent, meta.get_str(STATE).as_deref())
        });
        let by_headers = || {
            let parent = only(headers, &TRACEPARENT)?;
            TraceContext::read(parent, state_in(headers).as_deref())
        };
        Self {
            context: by_meta.or_else(|| if in_headers { by_headers() } else { None }),
            in_meta,
            in_headers,
        }
    }
}

/// A place in a trace: the span whose children what follows is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    pub trace: TraceId,
    pub span: SpanId,
    /// `true` if the sender of the request records the trace.
    pub is_sampled: bool,
    /// The state of other tracers, to be passed on.
    pub state: Option<Box<str>>,
}

impl TraceContext {
    fn read(parent: &str, state: Option<&str>) -> Option<Self> {
        let mut parts = parent.split('-');
        let (version, trace) = (parts.next()?, TraceId::parse(parts.next()?)?);
        let (span, flags) = (SpanId::parse(parts.next()?)?, parts.next()?);
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_byte = |text: &str| text.len() == 2 && text.bytes().all(is_digit);
        // A later version may have more parts.
        let has_rest = parts.next().is_some();
        // The standard forbids version ff, and gives version 00 exactly four parts.
        if !is_byte(version) || !is_byte(flags) || version == "ff" || (has_rest && version == "00")
        {
            return None;
        }
        let flags = u8::from_str_radix(flags, 16).ok()?;
        let is_plain = |state: &&str| {
            !state.is_empty()
                && state.len() <= STATE_BYTES_MAX
                && state
                    .bytes()
                    .all(|byte| matches!(byte, b' '..=b'~' | b'\t'))
        };
        Some(Self {
            trace,
            span,
            is_sampled: flags & SAMPLED != 0,
            // A state that cannot be read must not affect the parent (W3C Trace Context, tracestate).
            state: state.filter(is_plain).map(Into::into),
        })
    }

    /// The same trace, further down.
    #[must_use]
    pub fn at(&self, span: SpanId) -> Self {
        Self {
            span,
            ..self.clone()
        }
    }

    pub fn parent(&self) -> String {
        String::from_utf8_lossy(&self.parent_bytes()).into_owned()
    }

    fn parent_bytes(&self) -> [u8; PARENT_BYTES] {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        let (_version, rest) = text.split_at_mut("00-".len());
        let (trace, rest) = rest.split_at_mut(2 * size_of::<TraceId>());
        let (_hyphen, rest) = rest.split_at_mut("-".len());
        let (span, flags) = rest.split_at_mut(2 * size_of::<SpanId>());
        self.trace.write_to(trace);
        self.span.write_to(span);
        flags.copy_from_slice(if self.is_sampled { b"-01" } else { b"-00" });
        text
    }

    /// Puts the context into a request, in place of the one that it had: into its headers, and into its message.
    /// Returns the message; where its params are no object, the headers are enough. `params`: the members of its
    /// params, and those of `_meta` there.
    pub fn put(
        &self,
        told: &ToldTrace,
        headers: &mut HeaderMap,
        message: &str,
        params: Option<(&Object<'_>, &Object<'_>)>,
    ) -> Option<Bytes> {
        let parent = self.parent_bytes();
        let message = match params {
            // Nearly all.
            Some((params, meta)) if !told.in_meta => {
                self.in_meta_of(message, params, meta, &parent)
            }
            _ => self.in_message(message).ok().map(String::into_bytes),
        };
        // The old state belongs to the old parent, and this context may have no state to replace it.
        if told.in_headers {
            headers.remove(&TRACESTATE);
        }
        if let Some(parent) = header_value(&parent) {
            headers.insert(TRACEPARENT, parent);
        }
        if let Some(state) = self.state_value() {
            headers.insert(TRACESTATE, state);
        }
        message.map(Bytes::from)
    }

    pub fn headers(&self) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
        let parent = header_value(&self.parent_bytes()).map(|parent| (TRACEPARENT, parent));
        let state = self.state_value().map(|state| (TRACESTATE, state));
        parent.into_iter().chain(state)
    }

    fn state_value(&self) -> Option<HeaderValue> {
        header_value(self.state.as_deref()?.as_bytes())
    }

    /// The params with the context in `_meta`, in place of another. Every other member keeps its bytes.
    pub fn in_params(&self, params: &str) -> Result<String, Fault> {
        let members = Object::parse(params)?;
        let Some(meta) = members.get("_meta") else {
            return Ok(prepend(params, "_meta", &self.in_meta(&Object::default())));
        };
        let meta = Object::parse(meta.get())?;
        set_in(params, &members, "_meta", &self.in_meta(&meta))
    }

    /// The message with the context in its params.
    pub fn in_message(&self, message: &str) -> Result<String, Fault> {
        let members = Object::parse(message)?;
        let Some(params) = members.get("params") else {
            return Ok(prepend(message, "params", &self.in_params("{}")?));
        };
        set_in(message, &members, "params", &self.in_params(params.get())?)
    }

    /// The message of these params with the context as the first members of their `_meta`, whose members name no trace.
    fn in_meta_of(
        &self,
        message: &str,
        params: &Object<'_>,
        meta: &Object<'_>,
        parent: &[u8; PARENT_BYTES],
    ) -> Option<Vec<u8>> {
        let begin = place_of(message, params.get("_meta")?)?.start + "{".len();
        let (before, after) = message.as_bytes().split_at_checked(begin)?;
        let state = self.state.as_deref().map(quote);
        let state = state.map_or_else(String::new, |state| [STATE_MEMBER, &state].concat());
        let comma = if meta.is_empty() { "" } else { "," };
        let own = PARENT_MEMBER.len() + PARENT_BYTES + "\"".len() + state.len() + comma.len();
        let mut out = Vec::with_capacity(message.len() + own);
        out.extend_from_slice(before);
        out.extend_from_slice(PARENT_MEMBER.as_bytes());
        out.extend_from_slice(parent);
        out.push(b'"');
        // Nearly all have no state.
        if !state.is_empty() {
            out.extend_from_slice(state.as_bytes());
        }
        out.extend_from_slice(comma.as_bytes());
        out.extend_from_slice(after);
        Some(out)
    }

    fn in_meta(&self, meta: &Object<'_>) -> String {
        let mut out = Writer::object();
        out.str(PARENT, &self.parent());
        if let Some(state) = &self.state {
            out.raw(STATE, &quote(state));
        }
        for (key, value) in meta.iter() {
            if key != PARENT && key != STATE {
                out.raw(key, value.get());
            }
        }
        out.end()
    }
}

fn header_value(bytes: &[u8]) -> Option<HeaderValue> {
    HeaderValue::from_bytes(bytes).ok()
}

/// Returns `true` if members name a trace.
fn is_named(members: &Object<'_>) -> bool {
    members
        .iter()
        .any(|(name, _)| matches!(name, PARENT | STATE))
}

/// Returns `true` if headers name a trace. Nearly none do, and a look at their names takes less than a search for
/// one.
fn are_in(headers: &HeaderMap) -> bool {
    let (parent, state) = (TRACEPARENT, TRACESTATE);
    headers.keys().any(|name| *name == parent || *name == state)
}

/// The value of a header that occurs once.
/// A sender may split its state into several headers (W3C Trace Context, tracestate).
fn state_in(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    let mut values = headers.get_all(TRACESTATE).iter();
    let mut state = Cow::Borrowed(values.next()?.to_str().ok()?);
    for value in values {
        let state = state.to_mut();
        state.push(',');
        state.push_str(value.to_str().ok()?);
    }
    Some(state)
}

fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT_TEXT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_parent_is_read_as_the_standard_says() {
        let context = TraceContext::read(PARENT_TEXT, Some("a=1,b=2")).unwrap();
        assert_eq!(
            context.trace.to_string(),
            "0af7651916cd43dd8448eb211c80319c"
        );
        assert_eq!(context.span.to_string(), "b7ad6b7169203331");
        assert!(context.is_sampled);
        assert_eq!(context.state.as_deref(), Some("a=1,b=2"));
        assert_eq!(context.parent(), PARENT_TEXT);
        // A later version, with what it may add, and other flags.
        let later = "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-02-x";
        assert!(!TraceContext::read(later, None).unwrap().is_sampled);
        for wrong in [
            "",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-+1",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0A",
            "CC-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b71692033312-01",
        ] {
            assert_eq!(TraceContext::read(wrong, None), None, "{wrong}");
        }
        let long = "a=".to_owned() + &"1".repeat(STATE_BYTES_MAX);
        let context = TraceContext::read(PARENT_TEXT, Some(&long)).unwrap();
        assert_eq!(context.state, None);
    }

    #[test]
    fn what_the_params_say_counts_before_the_headers() {
        let mut headers = HeaderMap::new();
        let other = PARENT_TEXT.replacen("b7ad", "a1ad", 1);
        headers.insert(TRACEPARENT, other.parse().unwrap());
        let params = format!(r#"{{"_meta":{{"traceparent":"{PARENT_TEXT}"}}}}"#);
        let params = Object::parse(&params).unwrap();
        let of = |params: Option<&Object<'_>>, headers: &HeaderMap| {
            let meta = params.and_then(|params| params.get_object("_meta"));
            ToldTrace::of(meta.as_ref(), headers).context
        };
        let span = |context: Option<TraceContext>| context.unwrap().span.to_string();
        assert_eq!(span(of(Some(&params), &headers)), "b7ad6b7169203331");
        assert_eq!(span(of(None, &headers)), "a1ad6b7169203331");
        headers.append(TRACESTATE, "a=1".parse().unwrap());
        headers.append(TRACESTATE, "b=2,c=3".parse().unwrap());
        let state = of(None, &headers).unwrap().state;
        assert_eq!(state.as_deref(), Some("a=1,b=2,c=3"));
        let wrong = Object::parse(r#"{"_meta":{"traceparent":7}}"#).unwrap();
        assert_eq!(span(of(Some(&wrong), &headers)), "a1ad6b7169203331");
        headers.append(TRACEPARENT, other.parse().unwrap());
        assert_eq!(of(Some(&wrong), &headers), None);
    }

    #[test]
    fn the_context_takes_the_place_of_another_and_every_other_byte_stays() {
        let context = TraceContext::read(PARENT_TEXT, Some("a=1")).unwrap();
        let own = format!(r#""traceparent":"{PARENT_TEXT}","tracestate":"a=1""#);
        for (message, after) in [
            (
                r#"{"id":1, "params":{"n":1.10,"_meta":{"traceparent":"x","b":1.10,"tracestate":"y"} }}"#,
                format!(r#"{{"id":1, "params":{{"n":1.10,"_meta":{{{own},"b":1.10}} }}}}"#),
            ),
            (
                r#"{"id":1,"params":{"n":1.10}}"#,
                format!(r#"{{"id":1,"params":{{"_meta":{{{own}}},"n":1.10}}}}"#),
            ),
            (
                r#"{"id":1}"#,
                format!(r#"{{"params":{{"_meta":{{{own}}}}},"id":1}}"#),
            ),
            (
                r#"{"params":{"_meta":{ "b":{"c":1.10} },"n":1}}"#,
                format!(r#"{{"params":{{"_meta":{{{own},"b":{{"c":1.10}}}},"n":1}}}}"#),
            ),
            (
                r#"{"params":{"_meta":{ }}}"#,
                format!(r#"{{"params":{{"_meta":{{{own}}}}}}}"#),
            ),
            (
                r#"{"params":{"_meta":{"\u0074raceparent":"x"}}}"#,
                format!(r#"{{"params":{{"_meta":{{{own}}}}}}}"#),
            ),
        ] {
            assert_eq!(context.in_message(message).unwrap(), after);
            let params = Object::parse(message).unwrap().get_object("params");
            let meta = params.as_ref().and_then(|it| it.get_object("_meta"));
            let mut headers = HeaderMap::new();
            headers.insert(TRACESTATE, HeaderValue::from_static("b=2"));
            let told = ToldTrace::of(meta.as_ref(), &headers);
            let params = params.as_ref().zip(meta.as_ref());
            let put = context.put(&told, &mut headers, message, params);
            let put = put.unwrap();
            // Spaces stay where they were.
            let put = String::from_utf8(put.to_vec()).unwrap();
            assert_eq!(put.replace(' ', ""), after.replace(' ', ""));
            assert_eq!(headers[TRACEPARENT], PARENT_TEXT);
            assert_eq!(headers[TRACESTATE], "a=1");
        }
        for odd in [r#"{"params":[1]}"#, r#"{"params":{"_meta":1}}"#, "[]"] {
            assert!(context.in_message(odd).is_err(), "{odd}");
            let mut headers = HeaderMap::new();
            let told = ToldTrace::of(None, &headers);
            let put = context.put(&told, &mut headers, odd, None);
            assert_eq!(put, None, "{odd}");
            assert_eq!(headers[TRACEPARENT], PARENT_TEXT);
        }
    }
}
