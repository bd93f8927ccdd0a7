//! How spans go to their collector: `telemetry.traces.protocol`, in the words of OpenTelemetry.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceProtocol {
    Http,
    Grpc,
}
