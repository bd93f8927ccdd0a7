//! What each modern request says of itself in `_meta` (basic, Per-request protocol fields).

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::error::RpcError;
use super::json::{Object, is_object};

pub const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
pub const PROGRESS_TOKEN: &str = "progressToken";
/// Ties a message to a task of 2025-11-25; no result on the modern face has it.
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
/// Raincheck's own: by which a client knows its call again.
pub const IDEMPOTENCY_KEY: &str = "io.raincheck/idempotencyKey";

const RESERVED: [&str; 6] = [
    PROTOCOL_VERSION,
    CLIENT_CAPABILITIES,
    LOG_LEVEL,
    SUBSCRIPTION_ID,
    PROGRESS_TOKEN,
    IDEMPOTENCY_KEY,
];

/// The protocol fields of one modern request.
#[derive(Debug)]
pub struct Meta<'a> {
    pub version: Cow<'a, str>,
    pub capabilities: &'a RawValue,
    /// The client understands `CreateTaskResult` on this request.
    pub declares_tasks: bool,
    pub progress_token: Option<&'a RawValue>,
    pub log_level: Option<Cow<'a, str>>,
    pub idempotency_key: Option<&'a RawValue>,
}

impl<'a> Meta<'a> {
    /// Reads `params._meta`; what is required and missing is -32602.
    pub fn of(params: &Object<'a>) -> Result<Self, RpcError> {
        let meta = params
            .get_object("_meta")
            .ok_or_else(|| RpcError::invalid_params("Invalid params: _meta is missing"))?;
        if meta.is_ambiguous(&RESERVED) {
            return Err(RpcError::invalid_request(
                "Invalid request: ambiguous _meta",
            ));
        }
        let version = meta.get_str(PROTOCOL_VERSION).ok_or_else(|| {
            RpcError::invalid_params("Invalid params: _meta has no protocol version")
        })?;
        let capabilities = meta
            .get(CLIENT_CAPABILITIES)
            .filter(|raw| is_object(raw))
            .ok_or_else(|| {
                RpcError::invalid_params("Invalid params: _meta has no client capabilities")
            })?;
        let log_level = match meta.get(LOG_LEVEL) {
            None => None,
            Some(raw) => Some(known_log_level(raw)?),
        };
        let progress_token = meta.get(PROGRESS_TOKEN);
        Ok(Self {
            version,
            capabilities,
            declares_tasks: declares_tasks(capabilities),
            progress_token,
            log_level,
            idempotency_key: meta.get(IDEMPOTENCY_KEY),
        })
    }
}

fn declares_tasks(capabilities: &RawValue) -> bool {
    // Most requests declare nothing: a glance spares the parse.
    capabilities.get().contains(TASKS_EXTENSION)
        && Object::parse(capabilities.get())
            .ok()
            .and_then(|capabilities| capabilities.get_object("extensions"))
            .and_then(|extensions| extensions.get(TASKS_EXTENSION))
            .is_some_and(is_object)
}

/// The levels of RFC 5424 (server, Logging).
const LOG_LEVELS: [&str; 8] = [
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
];

fn known_log_level(raw: &RawValue) -> Result<Cow<'_, str>, RpcError> {
    super::json::string(raw)
        .filter(|level| is_log_level(level))
        .ok_or_else(|| RpcError::invalid_params("Invalid params: unknown log level"))
}

pub fn is_log_level(level: &str) -> bool {
    LOG_LEVELS.contains(&level)
}

/// Whether a message of that level is at or above the level that was asked for. An unknown level
/// is let through.
pub fn is_at_least(level: &str, asked: &str) -> bool {
    let rank = |name| LOG_LEVELS.iter().position(|known| *known == name);
    rank(level).is_none_or(|level| rank(asked).is_none_or(|asked| level >= asked))
}
