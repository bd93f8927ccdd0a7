//! The durations of OpenTelemetry's conventions for MCP, under the names and labels that Prometheus gives them. The
//! conventions are those of `open-telemetry/semantic-conventions-genai` at 1e01e83 (docs/gen-ai/mcp.md, status Development).
//!
//! There is no `mcp.server.session.duration`: sessions of legacy clients are the server's own, or values in the store that
//! every replica serves, and no replica sees their beginning and their end.

use prometheus::HistogramVec;

use super::list::List;
use super::per_thread::ThreadHistograms;

/// The buckets that the conventions recommend.
const SECONDS: &[f64] = &[
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
];

const LABELS: &[&str] = &[
    "mcp_method_name",
    "gen_ai_tool_name",
    "error_type",
    "rpc_response_status_code",
    "mcp_protocol_version",
    "network_transport",
];

#[derive(Debug)]
pub struct OperationMetrics {
    pub server: ThreadHistograms,
    pub client: ThreadHistograms,
    pub client_sessions: HistogramVec,
    pub responses: ThreadHistograms,
}

impl OperationMetrics {
    pub(super) fn new(list: &mut List) -> Self {
        Self {
            server: list.thread_histograms(
                "mcp_server_operation_duration_seconds",
                "Seconds from a message of a client to the end of its answer (OpenTelemetry, \
                 `mcp.server.operation.duration`). `error_type` is empty for a good answer, else the JSON-RPC code, \
                 `tool_error` (the tool says `isError`), the HTTP status, or `cancelled` (the client left). Answers that \
                 pass through are not read: of these the HTTP status counts alone, and an error by which raincheck ends \
                 such an answer. A call that became a task ends with the task's id.",
                LABELS,
                SECONDS,
            ),
            client: list.thread_histograms(
                "mcp_client_operation_duration_seconds",
                "Seconds from a request to the server to its answer (OpenTelemetry, `mcp.client.operation.duration`), for \
                 requests that raincheck carries. `error_type` is as above, or the reason of a failure (errors.md).",
                LABELS,
                SECONDS,
            ),
            client_sessions: list.histograms(
                "mcp_client_session_duration_seconds",
                "Seconds that a session with a legacy server over HTTP, or a process of the server's command, lasted \
                 (OpenTelemetry, `mcp.client.session.duration`).",
                &["network_transport"],
                SECONDS,
            ),
            responses: list.thread_histograms(
                "raincheck_upstream_response_seconds",
                "Seconds from a POST to a server over HTTP to the head of its response: of requests that pass, and of those \
                 that raincheck carries. The wait for a connection does not count. A server that answers with one JSON body sends the \
                 head when the tool has ended; one that streams may send it at once.",
                &[],
                SECONDS,
            ),
        }
    }
}
