//! The trace that a request belongs to: `traceparent` and `tracestate` of W3C Trace Context, in the headers of a
//! request or in `_meta` of its params (SEP-414).

use std::fmt;

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use super::hex;
use super::json::{Fault, Object, Writer, is_object, place_of, prepend, quote, set_in};

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

/// So many bytes, written as hexadecimal digits in lower case. Not all of them are zero.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HexId<const N: usize>([u8; N]);

pub type TraceId = HexId<16>;
pub type SpanId = HexId<8>;

impl<const N: usize> HexId<N> {
    /// An id of these bytes. Zero is no id, and becomes one.
    pub fn from_bytes(mut bytes: [u8; N]) -> Self {
        if bytes.iter().all(|byte| *byte == 0)
            && let Some(last) = bytes.last_mut()
        {
            *last = 1;
        }
        Self(bytes)
    }

    pub fn as_bytes(&self) -> &[u8; N] {
        &self.0
    }

    /// `None`: the text is no id.
    pub fn parse(text: &str) -> Option<Self> {
        let is_lower_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let bytes: [u8; N] = hex::decode(text).filter(|_| text.bytes().all(is_lower_hex))?;
        bytes.iter().any(|byte| *byte != 0).then_some(Self(bytes))
    }
}

impl<const N: usize> HexId<N> {
    /// Writes the digits. Each request of a trace has several ids, and `{:02x}` takes thirty times as long.
    fn write_to(&self, out: &mut Vec<u8>) {
        // A loop, because `map` within `map` is not inlined in a release build: it takes six times as many instructions.
        let mut digits = [[0; 2]; N];
        for (two, byte) in digits.iter_mut().zip(self.0) {
            *two = [digit(byte >> 4), digit(byte & 15)];
        }
        out.extend_from_slice(digits.as_flattened());
    }
}

fn digit(value: u8) -> u8 {
    let begin = if value < 10 { b'0' } else { b'a' - 10 };
    begin.wrapping_add(value)
}

impl<const N: usize> fmt::Display for HexId<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::with_capacity(2 * N);
        self.write_to(&mut text);
        f.write_str(&String::from_utf8_lossy(&text))
    }
}

impl<const N: usize> fmt::Debug for HexId<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<const N: usize> Serialize for HexId<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, const N: usize> Deserialize<'de> for HexId<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("no id of a trace"))
    }
}

/// A place in a trace: the span whose children what follows is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    pub trace: TraceId,
    pub span: SpanId,
    /// Whether the one who asks records the trace.
    pub is_sampled: bool,
    /// What other tracers want to be passed on.
    pub state: Option<Box<str>>,
}

impl TraceContext {
    /// The context of a request. What its params say counts before its headers: a header may be of the
    /// connection only.
    pub fn of(params: Option<&Object<'_>>, headers: &HeaderMap) -> Option<Self> {
        let meta = params.and_then(|params| params.get("_meta"));
        let meta = meta.filter(|meta| may_be_in(meta.get()));
        let in_meta = meta.and_then(|meta| {
            let meta = Object::parse(meta.get()).ok()?;
            let parent = meta.get_str(PARENT)?;
            Self::read(&parent, meta.get_str(STATE).as_deref())
        });
        in_meta.or_else(|| {
            let parent = only(headers, &TRACEPARENT)?;
            Self::read(parent, only(headers, &TRACESTATE))
        })
    }

    fn read(parent: &str, state: Option<&str>) -> Option<Self> {
        let mut parts = parent.split('-');
        let (version, trace) = (parts.next()?, TraceId::parse(parts.next()?)?);
        let (span, flags) = (SpanId::parse(parts.next()?)?, parts.next()?);
        let is_byte = |text: &str| text.len() == 2 && u8::from_str_radix(text, 16).is_ok();
        // A later version may have more parts.
        let has_rest = parts.next().is_some();
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
        let mut text = Vec::with_capacity(PARENT_BYTES);
        text.extend_from_slice(b"00-");
        self.trace.write_to(&mut text);
        text.push(b'-');
        self.span.write_to(&mut text);
        text.extend_from_slice(if self.is_sampled { b"-01" } else { b"-00" });
        // Digits and hyphens are text.
        String::from_utf8(text).unwrap_or_default()
    }

    /// Puts the context into headers, in place of another.
    pub fn set_headers(&self, headers: &mut HeaderMap) {
        headers.remove(&TRACESTATE);
        for (name, value) in self.headers() {
            headers.insert(name, value);
        }
    }

    pub fn headers(&self) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
        let state = self.state.as_deref().map(HeaderValue::from_str);
        let state = state.and_then(Result::ok).map(|state| (TRACESTATE, state));
        let parent = HeaderValue::try_from(self.parent()).ok();
        parent
            .map(|parent| (TRACEPARENT, parent))
            .into_iter()
            .chain(state)
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

    /// As [`Self::in_message`], for a caller that has read the params of the message. `params`: only where they name no
    /// trace, see [`may_name_trace`].
    pub fn in_read_message(
        &self,
        message: &str,
        params: Option<&Object<'_>>,
    ) -> Result<String, Fault> {
        let meta = params.and_then(|params| params.get("_meta"));
        // Nearly all.
        let meta = meta.filter(|meta| is_object(meta));
        let place = meta.and_then(|meta| place_of(message, meta));
        let parts = place.and_then(|place| message.split_at_checked(place.start + 1));
        let Some((before, after)) = parts else {
            return self.in_message(message);
        };
        let parent = self.parent();
        let state = self.state.as_deref().map(quote);
        let state = state.as_deref().map_or(["", ""], |it| [STATE_MEMBER, it]);
        let has_more = !after.trim_start().starts_with('}');
        let comma = if has_more { "," } else { "" };
        let [name, state] = state;
        Ok([
            before,
            PARENT_MEMBER,
            &parent,
            "\"",
            name,
            state,
            comma,
            after,
        ]
        .concat())
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

/// Whether `_meta` of the params may name a trace, in whichever spelling.
pub fn may_name_trace(params: Option<&Object<'_>>) -> bool {
    let meta = params.and_then(|params| params.get("_meta"));
    meta.is_some_and(|meta| may_be_in(meta.get()))
}

/// Whether a member of the object may be one of ours.
fn may_be_in(object: &str) -> bool {
    // Without an early exit the compiler looks at many bytes at once.
    let bytes = object.as_bytes();
    let is_escape = |byte: u8| byte == b'\\';
    let is_named = |[a, b, c, d]: [u8; 4]| (a ^ b't') | (b ^ b'r') | (c ^ b'a') | (d ^ b'c') == 0;
    let has_escape = bytes.iter().fold(false, |any, byte| any | is_escape(*byte));
    let windows = bytes.array_windows::<4>();
    has_escape || windows.fold(false, |any, letters| any | is_named(*letters))
}

/// The value of a header that occurs once.
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
        let of = |params, headers: &HeaderMap| TraceContext::of(params, headers);
        let span = |context: Option<TraceContext>| context.unwrap().span.to_string();
        assert_eq!(span(of(Some(&params), &headers)), "b7ad6b7169203331");
        assert_eq!(span(of(None, &headers)), "a1ad6b7169203331");
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
            let params = params.filter(|params| !may_name_trace(Some(params)));
            let after_read = context.in_read_message(message, params.as_ref()).unwrap();
            // Spaces stay where they were.
            assert_eq!(after_read.replace(' ', ""), after.replace(' ', ""));
        }
        for odd in [r#"{"params":[1]}"#, r#"{"params":{"_meta":1}}"#, "[]"] {
            assert!(context.in_message(odd).is_err(), "{odd}");
            let params = Object::parse(odd)
                .ok()
                .and_then(|it| it.get_object("params"));
            let edited = context.in_read_message(odd, params.as_ref());
            assert!(edited.is_err(), "{odd}");
        }
    }

    #[test]
    fn an_id_is_never_zero() {
        assert_eq!(SpanId::from_bytes([0; 8]).to_string(), "0000000000000001");
        assert_eq!(SpanId::parse("0000000000000000"), None);
    }
}
