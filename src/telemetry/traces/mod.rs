//! Traces: spans of requests and of whole calls, for a collector of OpenTelemetry. Without a collector nothing is
//! made.

mod attributes;
mod export;
mod grpc;
mod keys;
mod otlp;
mod queue;
mod rejected;
mod request;
mod span;
pub(super) mod tasks;
mod tracer;
mod wire;

pub use export::{Collector, TraceResource, export, probe};
pub use queue::SpanQueue;
pub use request::{RequestSpan, RequestTerms, SpanGuard, Tracing};
pub use tracer::{are_on, begin};
