//! JSON-RPC errors, and raincheck's own failures in the words of the wire.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::json::{Object, Writer, quote};

const EFFECT: &str = "io.raincheck/effect";
const NONE: &str = "none";

/// Codes of JSON-RPC 2.0 and of revision 2026-07-28 (basic, Error Codes).
pub mod code {
    pub const PARSE: i64 = -32700;
    pub const INVALID_REQUEST: i64 = -32600;
    pub const METHOD_NOT_FOUND: i64 = -32601;
    pub const INVALID_PARAMS: i64 = -32602;
    pub const INTERNAL: i64 = -32603;
    pub const HEADER_MISMATCH: i64 = -32020;
    pub const MISSING_CLIENT_CAPABILITY: i64 = -32021;
    pub const UNSUPPORTED_VERSION: i64 = -32022;
    /// Resource not found, until 2025-11-25; a 2026 server must not emit it.
    pub const LEGACY_RESOURCE_NOT_FOUND: i64 = -32002;
    /// URL elicitation required, 2025-11-25 only; a 2026 server must not emit it.
    pub const LEGACY_URL_ELICITATION: i64 = -32042;
}

/// A JSON-RPC error of raincheck's own making.
#[derive(Debug, Clone)]
pub struct RpcError {
    pub code: i64,
    pub message: Cow<'static, str>,
    /// JSON text.
    pub data: Option<Cow<'static, str>>,
}

impl RpcError {
    pub fn new(code: i64, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    #[must_use]
    pub fn with_data(mut self, json: impl Into<Cow<'static, str>>) -> Self {
        self.data = Some(json.into());
        self
    }

    pub fn parse(message: &'static str) -> Self {
        Self::new(code::PARSE, message)
    }

    pub fn invalid_request(message: &'static str) -> Self {
        Self::new(code::INVALID_REQUEST, message)
    }

    pub fn invalid_params(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(code::INVALID_PARAMS, message)
    }

    pub fn header_mismatch(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(code::HEADER_MISMATCH, message)
    }

    pub fn internal(message: &'static str) -> Self {
        Self::new(code::INTERNAL, message)
    }

    pub fn method_not_found() -> Self {
        Self::new(code::METHOD_NOT_FOUND, "Method not found")
    }

    /// The same words for an unknown, an expired and a foreign task (tasks.md, Error Handling).
    pub fn unknown_task() -> Self {
        Self::new(
            code::INVALID_PARAMS,
            "Failed to retrieve task: Task not found",
        )
    }

    /// The request needs Tasks and did not declare them (tasks.md, Capability Negotiation).
    pub fn tasks_required() -> Self {
        Self::new(
            code::MISSING_CLIENT_CAPABILITY,
            "Missing required client capability",
        )
        .with_data(
            r#"{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#,
        )
    }

    /// The error object as JSON.
    pub fn to_json(&self) -> String {
        let mut out = Writer::object();
        out.number("code", self.code).str("message", &self.message);
        if let Some(data) = &self.data {
            out.raw("data", data);
        }
        out.end()
    }

    pub fn to_raw(&self) -> Box<RawValue> {
        RawValue::from_string(self.to_json()).unwrap_or_else(|_| RawValue::NULL.to_owned())
    }
}

/// Whether the wrapped server may have run the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SideEffect {
    /// Provably not sent, or refused before it ran: safe to repeat.
    None,
    /// It may have run.
    Unknown,
}

/// Why raincheck itself ended a call, or did not begin it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    OwnerLost,
    Shutdown,
    Deadline,
    /// A kind of [`Self::Deadline`] with a sentence of its own.
    AnswerLost,
    UpstreamUnreachable,
    UpstreamReset,
    UpstreamInvalid,
    UpstreamHttp,
    UpstreamUnauthorized,
    UpstreamTooLarge,
    StoreLost,
    CancelledByDisconnect,
    AnswerRefused,
    Busy,
    QueueFull,
    Quota,
}

impl Reason {
    /// The word on the wire, under `io.raincheck/reason`.
    pub fn word(self) -> &'static str {
        match self {
            Self::OwnerLost => "owner_lost",
            Self::Shutdown => "shutdown",
            Self::Deadline | Self::AnswerLost => "deadline",
            Self::UpstreamUnreachable => "upstream_unreachable",
            Self::UpstreamReset => "upstream_reset",
            Self::UpstreamInvalid => "upstream_invalid",
            Self::UpstreamHttp => "upstream_http",
            Self::UpstreamUnauthorized => "upstream_unauthorized",
            Self::UpstreamTooLarge => "upstream_too_large",
            Self::StoreLost => "store_lost",
            Self::CancelledByDisconnect => "cancelled_by_disconnect",
            Self::AnswerRefused => "answer_refused",
            Self::Busy => "busy",
            Self::QueueFull => "queue_full",
            Self::Quota => "quota",
        }
    }

    fn sentence(self) -> &'static str {
        match self {
            Self::OwnerLost => "The proxy process that carried this call ended before the call did",
            Self::Shutdown => "The proxy was shut down before the call ended",
            Self::Deadline => "The call did not end within its time limit",
            Self::AnswerLost => {
                "The server asked a question and did nothing with the answer: a server without \
                 sessions loses it"
            }
            Self::UpstreamUnreachable => "The server could not be reached",
            Self::UpstreamReset => "The connection to the server broke before it answered",
            Self::UpstreamInvalid => "The server's answer was not a valid MCP message",
            Self::UpstreamHttp => "The server refused the call with an HTTP error",
            Self::UpstreamUnauthorized => "The server did not accept the credentials of this call",
            Self::UpstreamTooLarge => "The server's answer was larger than allowed",
            Self::StoreLost => "The proxy's store could not keep this task",
            Self::CancelledByDisconnect => "The client went away before it heard of this task",
            Self::AnswerRefused => "The client refused to answer a question of the server",
            Self::Busy => "Too many calls are under way; try again later",
            Self::QueueFull => "Too many calls wait for the server already; try again later",
            Self::Quota => {
                "This caller has as many tasks, or as many bytes of them, as it may; older ones go \
                 with time"
            }
        }
    }
}

/// Whether an error object is a failure of raincheck's own making that says that nothing ran.
pub fn says_not_run(error: &RawValue) -> bool {
    let effect = || {
        let data = Object::parse(error.get()).ok()?.get_object("data")?;
        Some(data.get_str(EFFECT)? == NONE)
    };
    effect().unwrap_or(false)
}

/// A failure of raincheck's own making: always -32603 with the reason and the effect in `data`,
/// so that it cannot be mistaken for an error of the wrapped server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    pub reason: Reason,
    pub effect: SideEffect,
}

impl Failure {
    pub fn new(reason: Reason, effect: SideEffect) -> Self {
        Self { reason, effect }
    }

    pub fn to_error(self) -> RpcError {
        let effect = match self.effect {
            SideEffect::None => NONE,
            SideEffect::Unknown => "unknown",
        };
        RpcError::internal(self.reason.sentence()).with_data(format!(
            r#"{{"io.raincheck/reason":{},{}:{}}}"#,
            quote(self.reason.word()),
            quote(EFFECT),
            quote(effect)
        ))
    }

    pub fn message(self) -> &'static str {
        self.reason.sentence()
    }
}
