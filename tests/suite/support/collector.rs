//! A collector of traces: takes OTLP over HTTP or gRPC, and keeps the spans. It has its own copy of the messages, by the field
//! numbers of `opentelemetry/proto/trace/v1`.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use bytes::Bytes;
use hyper::HeaderMap;
use prost::Message;
use tokio::sync::watch;

use super::grpc_collector::GrpcServer;
use super::{Config, PATIENCE, within};
use crate::http_request::WireRequest;
use crate::scripted::{Act, Scripted};

#[derive(Clone, PartialEq, Message)]
struct Export {
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
    #[prost(message, repeated, tag = "2")]
    spans: Vec<SpanMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct SpanMessage {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start: u64,
    #[prost(fixed64, tag = "8")]
    end: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<Attribute>,
    #[prost(message, repeated, tag = "13")]
    links: Vec<Link>,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
}

#[derive(Clone, PartialEq, Message)]
struct Link {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
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
    #[prost(oneof = "Value", tags = "1, 3")]
    value: Option<Value>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Number(i64),
}

/// A span as the collector got it, ids in hexadecimal digits.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    pub(crate) trace: String,
    pub(crate) id: String,
    /// Empty: the first of its trace.
    pub(crate) parent: String,
    pub(crate) name: String,
    /// 1: within raincheck, 2: answers a client, 3: asks the server.
    pub(crate) kind: i32,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) link: Option<(String, String)>,
    pub(crate) is_error: bool,
    attributes: Vec<Attribute>,
    resource: Vec<Attribute>,
}

impl Span {
    /// An attribute as text; empty if there is none.
    pub(crate) fn said(&self, key: &str) -> String {
        text(&self.attributes, key)
    }

    /// What the exporter says of itself.
    pub(crate) fn of_exporter(&self, key: &str) -> String {
        text(&self.resource, key)
    }
}

fn text(attributes: &[Attribute], key: &str) -> String {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    let value = found.and_then(|attribute| attribute.value.clone()?.value);
    match value {
        Some(Value::Text(text)) => text,
        Some(Value::Number(number)) => number.to_string(),
        None => String::new(),
    }
}

/// What came.
#[derive(Debug, Default)]
pub(crate) struct Got {
    pub(crate) spans: Vec<Span>,
    pub(crate) bodies: Vec<Bytes>,
    pub(crate) headers: Vec<HeaderMap>,
}

pub(crate) struct Collector {
    pub(crate) url: String,
    _server: Box<dyn Any + Send + Sync>,
    protocol: &'static str,
    got: Arc<watch::Sender<Got>>,
    status: Arc<AtomicU16>,
}

impl Collector {
    pub(crate) async fn start() -> Self {
        let got = Arc::new(watch::Sender::new(Got::default()));
        let status = Arc::new(AtomicU16::new(200));
        let (into, answer) = (Arc::clone(&got), Arc::clone(&status));
        let script = move |request: &_| vec![take(&into, answer.load(Ordering::Relaxed), request)];
        let server = Scripted::start(script).await;
        Self {
            url: format!("http://{}", server.address()),
            _server: Box::new(server),
            protocol: "http/protobuf",
            got,
            status,
        }
    }

    /// A collector for gRPC, whose statuses are gRPC's.
    pub(crate) async fn of_grpc() -> Self {
        let got = Arc::new(watch::Sender::new(Got::default()));
        let status = Arc::new(AtomicU16::new(0));
        let server = GrpcServer::start(&got, &status).await;
        Self {
            url: server.url.clone(),
            _server: Box::new(server),
            protocol: "grpc",
            got,
            status,
        }
    }

    /// The configuration that sends every trace here.
    pub(crate) fn of(&self, config: Config) -> Config {
        let path = if self.protocol == "grpc" {
            ""
        } else {
            "/v1/traces"
        };
        let (url, protocol) = (&self.url, self.protocol);
        let lines = format!("endpoint = \"{url}{path}\"\nprotocol = \"{protocol}\"");
        config.section("telemetry.traces", &lines)
    }

    /// From now on every export is answered with this status.
    pub(crate) fn answer_with(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    /// All that came.
    pub(crate) fn got(&self) -> watch::Ref<'_, Got> {
        self.got.borrow()
    }

    /// Waits for so many spans of that name, and gives all spans.
    pub(crate) async fn until(&self, name: &str, count: usize) -> Vec<Span> {
        let mut got = self.got.subscribe();
        let named = |got: &Got| got.spans.iter().filter(|span| span.name == name).count();
        let sentence = format!("{count} spans {name:?}");
        let event = got.wait_for(|got| named(got) >= count);
        within(PATIENCE, &sentence, event)
            .await
            .unwrap()
            .spans
            .clone()
    }

    /// Waits for an export, whatever it was answered with.
    pub(crate) async fn until_asked(&self) {
        let mut got = self.got.subscribe();
        let event = got.wait_for(|got| !got.bodies.is_empty());
        within(PATIENCE, "an export", event).await.unwrap();
    }
}

/// The one span of that name and that kind.
pub(crate) fn only<'s>(spans: &'s [Span], name: &str, kind: i32) -> &'s Span {
    let mut found = spans.iter().filter(|it| it.name == name && it.kind == kind);
    let span = found.next();
    let span = span.unwrap_or_else(|| panic!("no span {name:?} of kind {kind}: {spans:#?}"));
    assert!(found.next().is_none(), "two spans {name:?}: {spans:#?}");
    span
}

fn take(into: &watch::Sender<Got>, status: u16, request: &WireRequest) -> Act {
    let is_export = request.path() == "/v1/traces"
        && request.headers["content-type"] == "application/x-protobuf";
    let status = if is_export { status } else { 400 };
    let body = Bytes::from(request.body.clone());
    into.send_modify(|got| {
        if status == 200 {
            got.spans.extend(spans(&body));
        }
        got.headers.push(request.headers.clone());
        got.bodies.push(body.clone());
    });
    Act::response(&format!("{status} Said"), "")
}

pub(super) fn spans(body: &Bytes) -> Vec<Span> {
    let export = Export::decode(body.clone()).expect("an export");
    let mut spans = Vec::new();
    for of_resource in export.resource_spans {
        let resource = of_resource.resource.unwrap_or_default().attributes;
        for span in of_resource.scope_spans.into_iter().flat_map(|it| it.spans) {
            spans.push(Span {
                trace: hex(&span.trace_id),
                id: hex(&span.span_id),
                parent: hex(&span.parent_span_id),
                name: span.name,
                kind: span.kind,
                start: span.start,
                end: span.end,
                link: (span.links.first()).map(|it| (hex(&it.trace_id), hex(&it.span_id))),
                is_error: span.status.is_some_and(|status| status.code == 2),
                attributes: span.attributes,
                resource: resource.clone(),
            });
        }
    }
    spans
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
