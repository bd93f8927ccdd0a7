//! Spans as OTLP writes them: the messages of `opentelemetry/proto/trace/v1` and `collector/trace/v1`, as far as
//! raincheck fills them. The shape is stable (OTLP 1.x).

use prost::Message;

use super::span::{Span, SpanKind, SpanValue};

#[derive(Clone, PartialEq, Message)]
struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<Attribute>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<SpanMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct Scope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct SpanMessage {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    trace_state: String,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<Attribute>,
    #[prost(message, repeated, tag = "13")]
    links: Vec<SpanLink>,
    #[prost(message, optional, tag = "15")]
    status: Option<SpanStatus>,
    #[prost(fixed32, tag = "16")]
    flags: u32,
}

#[derive(Clone, PartialEq, Message)]
struct SpanLink {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct SpanStatus {
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Attribute {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "AttributeValue", tags = "1, 3")]
    value: Option<AttributeValue>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum AttributeValue {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Number(i64),
}

const STATUS_ERROR: i32 = 2;

/// The flag of a span of a recorded trace.
const SAMPLED: u32 = 1;

/// The body of one export. `resource` says who exports.
pub(super) fn encode(resource: &[(String, String)], spans: &[Span]) -> Vec<u8> {
    let attributes = resource.iter();
    let request = ExportRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(Resource {
                attributes: attributes.map(|(key, text)| said(key, text)).collect(),
            }),
            scope_spans: vec![ScopeSpans {
                scope: Some(Scope {
                    name: "raincheck".into(),
                    version: env!("CARGO_PKG_VERSION").into(),
                }),
                spans: spans.iter().map(message).collect(),
            }],
        }],
    };
    request.encode_to_vec()
}

fn said(key: &str, text: &str) -> Attribute {
    of(key, AttributeValue::Text(text.to_owned()))
}

fn of(key: &str, value: AttributeValue) -> Attribute {
    Attribute {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
    }
}

fn message(span: &Span) -> SpanMessage {
    let attributes = span.attributes.iter().map(|(key, value)| match value {
        SpanValue::Text(text) => said(key, text),
        SpanValue::Number(number) => of(key, AttributeValue::Number(*number)),
    });
    let link = span.link.as_ref().map(|(trace, id)| SpanLink {
        trace_id: trace.as_bytes().to_vec(),
        span_id: id.as_bytes().to_vec(),
    });
    let parent = span.parent.as_ref();
    SpanMessage {
        trace_id: span.trace.as_bytes().to_vec(),
        span_id: span.id.as_bytes().to_vec(),
        trace_state: span.state.as_deref().unwrap_or_default().to_owned(),
        parent_span_id: parent.map(|id| id.as_bytes().to_vec()).unwrap_or_default(),
        name: span.name.clone(),
        kind: match span.kind {
            SpanKind::Internal => 1,
            SpanKind::Server => 2,
            SpanKind::Client => 3,
        },
        start_time_unix_nano: span.begin_ns,
        // A clock that was set back must not make a span of negative length.
        end_time_unix_nano: span.end_ns.max(span.begin_ns),
        attributes: attributes.collect(),
        links: link.into_iter().collect(),
        status: span.is_error.then_some(SpanStatus { code: STATUS_ERROR }),
        flags: SAMPLED,
    }
}
