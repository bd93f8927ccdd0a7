//! Spans as OTLP writes them: the messages of `opentelemetry/proto/trace/v1` and `collector/trace/v1`, as far as
//! raincheck fills them. The shape is stable (OTLP 1.x).
//!
//! A span is written field by field when it ends, because messages that a library encodes take some thirty allocations each.

use super::attributes::text_attribute;
use super::span::{Span, SpanKind};
use super::wire::{
    bytes, fixed32, fixed64_key, length_key, nested, nested_long, number, number_key,
};

const STATUS_ERROR: u64 = 2;

/// The flag of a span of a recorded trace.
const SAMPLED: u32 = 1;

/// Returns the body of one export, of spans that [`write_span`] wrote. `resource` describes the process that exports.
pub(super) fn request(resource: &[(String, String)], spans: &[u8]) -> Vec<u8> {
    let mut request = Vec::with_capacity(spans.len() + 1024);
    nested(&mut request, 1, |resource_spans| {
        nested(resource_spans, 1, |out| {
            for (key, text) in resource {
                text_attribute(out, 1, key, text);
            }
        });
        nested(resource_spans, 2, |scope_spans| {
            nested(scope_spans, 1, |scope| {
                bytes(scope, 1, b"raincheck");
                bytes(scope, 2, env!("CARGO_PKG_VERSION").as_bytes());
            });
            scope_spans.extend_from_slice(spans);
        });
    });
    request
}

/// Writes a span as one of the spans of a `ScopeSpans`.
pub(super) fn write_span(out: &mut Vec<u8>, span: &Span<'_>) {
    nested_long(out, 2, |out| {
        out.extend_from_slice(&ids(span));
        if let Some(state) = span.state {
            bytes(out, 3, state.as_bytes());
        }
        if let Some(parent) = &span.parent {
            bytes(out, 4, parent.as_bytes());
        }
        nested(out, 5, |out| {
            for part in span.name {
                out.extend_from_slice(part.as_bytes());
            }
        });
        out.extend_from_slice(&kind_and_times(span));
        out.extend_from_slice(&span.attributes);
        if let Some((trace, id)) = &span.link {
            nested(out, 13, |out| {
                bytes(out, 1, trace.as_bytes());
                bytes(out, 2, id.as_bytes());
            });
        }
        if span.is_error {
            nested(out, 15, |out| number(out, 3, STATUS_ERROR));
        }
        fixed32(out, 16, SAMPLED);
    });
}

// Fields that every span has are written at once: each write looks whether there is room.

/// The fields `trace_id` and `span_id`.
fn ids(span: &Span<'_>) -> [u8; 28] {
    let mut fields = [0; 28];
    fields[0..2].copy_from_slice(&[length_key(1), 16]);
    fields[2..18].copy_from_slice(span.trace.as_bytes());
    fields[18..20].copy_from_slice(&[length_key(2), 8]);
    fields[20..28].copy_from_slice(span.id.as_bytes());
    fields
}

/// The fields `kind`, `start_time_unix_nano` and `end_time_unix_nano`.
fn kind_and_times(span: &Span<'_>) -> [u8; 20] {
    let kind = match span.kind {
        SpanKind::Internal => 1,
        SpanKind::Server => 2,
        SpanKind::Client => 3,
    };
    // A clock that was set back must not make a span of negative length.
    let end_ns = span.end_ns.max(span.begin_ns);
    let mut fields = [0; 20];
    fields[0..3].copy_from_slice(&[number_key(6), kind, fixed64_key(7)]);
    fields[3..11].copy_from_slice(&span.begin_ns.to_le_bytes());
    fields[11..12].copy_from_slice(&[fixed64_key(8)]);
    fields[12..20].copy_from_slice(&end_ns.to_le_bytes());
    fields
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::super::attributes::Key;
    use super::*;
    use crate::mcp::trace_id::HexId;

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

    fn attribute(key: &str, value: AttributeValue) -> Attribute {
        Attribute {
            key: key.to_owned(),
            value: Some(AnyValue { value: Some(value) }),
        }
    }

    fn text(key: &str, text: &str) -> Attribute {
        attribute(key, AttributeValue::Text(text.to_owned()))
    }

    fn span() -> Span<'static> {
        Span {
            trace: HexId::from_bytes([1; 16]),
            id: HexId::from_bytes([2; 8]),
            parent: None,
            state: None,
            name: ["ping", "", ""],
            kind: SpanKind::Internal,
            begin_ns: 7,
            end_ns: 6,
            attributes: Vec::new(),
            link: None,
            is_error: false,
        }
    }

    #[test]
    fn every_field_is_written_as_a_library_writes_it() {
        let long = "x".repeat(300);
        let mut whole = Span {
            parent: Some(HexId::from_bytes([3; 8])),
            state: Some(&long),
            name: ["tools/call", " ", "t\u{e4}"],
            kind: SpanKind::Client,
            begin_ns: 1,
            end_ns: u64::MAX,
            link: Some((HexId::from_bytes([4; 16]), HexId::from_bytes([5; 8]))),
            ..span()
        };
        whole.say(&Key::new("a.text"), "b");
        whole.say(&Key::new("a.long.text"), &long);
        whole.count("a.number", 300);
        whole.count("none", 0);
        whole.ended("tool_error", "-32603");
        let mut spans = Vec::new();
        write_span(&mut spans, &whole);
        write_span(&mut spans, &span());
        let resource = [("service.name".to_owned(), String::new())];
        let written = ExportRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(Resource {
                    attributes: vec![text("service.name", "")],
                }),
                scope_spans: vec![ScopeSpans {
                    scope: Some(Scope {
                        name: "raincheck".into(),
                        version: env!("CARGO_PKG_VERSION").into(),
                    }),
                    spans: vec![
                        SpanMessage {
                            trace_id: vec![1; 16],
                            span_id: vec![2; 8],
                            trace_state: long.clone(),
                            parent_span_id: vec![3; 8],
                            name: "tools/call t\u{e4}".into(),
                            kind: 3,
                            start_time_unix_nano: 1,
                            end_time_unix_nano: u64::MAX,
                            attributes: vec![
                                text("a.text", "b"),
                                text("a.long.text", &"x".repeat(128)),
                                attribute("a.number", AttributeValue::Number(300)),
                                attribute("none", AttributeValue::Number(0)),
                                text("error.type", "tool_error"),
                                text("rpc.response.status_code", "-32603"),
                            ],
                            links: vec![SpanLink {
                                trace_id: vec![4; 16],
                                span_id: vec![5; 8],
                            }],
                            status: Some(SpanStatus { code: 2 }),
                            flags: 1,
                        },
                        SpanMessage {
                            trace_id: vec![1; 16],
                            span_id: vec![2; 8],
                            name: "ping".into(),
                            kind: 1,
                            start_time_unix_nano: 7,
                            // Not before its beginning.
                            end_time_unix_nano: 7,
                            flags: 1,
                            ..SpanMessage::default()
                        },
                    ],
                }],
            }],
        };
        assert_eq!(request(&resource, &spans), written.encode_to_vec());
    }
}
