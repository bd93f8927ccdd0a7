//! The keys of the texts that spans have: those of OpenTelemetry's conventions, and raincheck's own.

use super::attributes::Key;

pub(super) const METHOD: Key = Key::new("mcp.method.name");
pub(super) const VERSION: Key = Key::new("mcp.protocol.version");
pub(super) const OPERATION: Key = Key::new("gen_ai.operation.name");
pub(super) const TOOL: Key = Key::new("gen_ai.tool.name");
pub(super) const PROMPT: Key = Key::new("gen_ai.prompt.name");
pub(super) const REQUEST_ID: Key = Key::new("jsonrpc.request.id");
pub(super) const TRANSPORT: Key = Key::new("network.transport");
pub(super) const ERROR: Key = Key::new("error.type");
pub(super) const CODE: Key = Key::new("rpc.response.status_code");

pub(super) const TASK: Key = Key::new("raincheck.task.id");
pub(super) const OUTCOME: Key = Key::new("raincheck.outcome");
pub(super) const REASON: Key = Key::new("raincheck.reason");
pub(super) const EFFECT: Key = Key::new("raincheck.effect");
pub(super) const JOB: Key = Key::new("raincheck.job.id");
