//! JSON-RPC errors, and raincheck's own failures as JSON-RPC errors.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::failure_detail::FailureDetail;
use super::flaw::Flaw;
use super::json::{Object, Writer, quote};

const REASON: &str = "io.raincheck/reason";
const EFFECT: &str = "io.raincheck/effect";
const STATUS: &str = "io.raincheck/status";
const UNTIL: &str = "io.raincheck/until";
const NONE: &str = "none";
const UNKNOWN: &str = "unknown";

/// The meaning of [`SideEffect`] for another call.
const NONE_WORDS: &str = "it did not run; it can be called again";
const UNKNOWN_WORDS: &str = "it may have run, look before calling again";

/// The same, where the server would refuse the same call in the same way.
const NONE_LASTING_WORDS: &str = "it did not run, and the server would refuse it the same way";
const UNKNOWN_LASTING_WORDS: &str = "it may have run, and the server would refuse it the same way";

/// Codes of JSON-RPC 2.0 and of revision 2026-07-28 (basic, Error Codes).
pub mod code {
    pub const PARSE: i64 = -32700;
    pub const INVALID_REQUEST: i64 = -32600;
    pub const METHOD_NOT_FOUND: i64 = -32601;
    pub const INVALID_PARAMS: i64 = -32602;
    pub const INTERNAL: i64 = -32603;
    /// No specification has this number. The official clients give it to a timeout of their own.
    pub const REQUEST_TIMEOUT: i64 = -32001;
    pub const HEADER_MISMATCH: i64 = -32020;
    pub const MISSING_CLIENT_CAPABILITY: i64 = -32021;
    pub const UNSUPPORTED_VERSION: i64 = -32022;
    // Those of the Events extension, by the numbers that clients in use know.
    pub const EVENTS_NOT_FOUND: i64 = -32011;
    pub const EVENTS_FORBIDDEN: i64 = -32012;
    pub const EVENTS_RESOURCE_EXHAUSTED: i64 = -32013;
    pub const EVENTS_UNSUPPORTED: i64 = -32014;
    pub const EVENTS_CALLBACK: i64 = -32015;
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

    /// Returns the error for a request that needs the store while the store is away.
    pub fn store_unavailable() -> Self {
        Self::internal("The task store does not answer; try again later")
    }

    pub fn method_not_found() -> Self {
        Self::new(code::METHOD_NOT_FOUND, "Method not found")
    }

    /// Returns the error for an unknown, an expired and a foreign task, which clients must not be able to distinguish
    /// (tasks.md, Error Handling).
    pub fn unknown_task() -> Self {
        Self::new(
            code::INVALID_PARAMS,
            "Failed to retrieve task: Task not found",
        )
    }

    /// The client's credential does not allow the call, or a request about the call's task.
    pub fn insufficient_scope(scopes: &[Box<str>]) -> Self {
        let message = format!("Forbidden: this needs the scope {}", scopes.join(" "));
        Self::new(code::INVALID_REQUEST, message)
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

    /// The server asked for something that the client cannot be asked for. `capability` is what the client
    /// would have to declare. The call may have had effects already.
    pub fn cannot_ask(capability: &str) -> Self {
        let message = format!(
            "The server asks for {capability}, which this client does not declare; {UNKNOWN_WORDS}"
        );
        let data = format!(
            r#"{{"requiredCapabilities":{{{}:{{}}}},{}:{}}}"#,
            quote(capability),
            quote(EFFECT),
            quote(UNKNOWN)
        );
        Self::new(code::MISSING_CLIENT_CAPABILITY, message).with_data(data)
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
        // The text is JSON, because its parts are. The null only takes the place of a panic.
        RawValue::from_string(self.to_json()).unwrap_or_else(|_| RawValue::NULL.to_owned())
    }
}

/// The known effect of a call: none, or a possible run at the wrapped server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SideEffect {
    /// The call was provably not sent, or was refused before it ran: it is safe to repeat.
    None,
    /// The call may have run.
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
    UpstreamTooDeep,
    /// The request waited for a session or a process, and none became free in time.
    SessionsInUse,
    /// The status tool of a job gave no good answer for too long a time, or the server does not know the job any more.
    JobLost,
    StoreLost,
    AnswerRefused,
    Busy,
    QueueFull,
    /// An operator has paused the tool.
    Paused,
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
            Self::UpstreamTooDeep => "upstream_too_deep",
            Self::SessionsInUse => "sessions_in_use",
            Self::JobLost => "job_lost",
            Self::StoreLost => "store_lost",
            Self::AnswerRefused => "answer_refused",
            Self::Busy => "busy",
            Self::QueueFull => "queue_full",
            Self::Paused => "paused",
            Self::Quota => "quota",
        }
    }

    /// Returns `true` if the server answered, and not as an MCP server does.
    pub fn is_no_mcp(self) -> bool {
        matches!(
            self,
            Self::UpstreamHttp
                | Self::UpstreamInvalid
                | Self::UpstreamTooLarge
                | Self::UpstreamTooDeep
        )
    }

    /// Every reason that clients can meet, in the order of docs/errors.md. Reasons that share a word are
    /// listed once.
    pub const ALL: [Self; 18] = [
        Self::UpstreamUnreachable,
        Self::UpstreamUnauthorized,
        Self::UpstreamHttp,
        Self::UpstreamReset,
        Self::UpstreamInvalid,
        Self::UpstreamTooLarge,
        Self::UpstreamTooDeep,
        Self::SessionsInUse,
        Self::Deadline,
        Self::AnswerRefused,
        Self::JobLost,
        Self::OwnerLost,
        Self::Shutdown,
        Self::StoreLost,
        Self::Busy,
        Self::QueueFull,
        Self::Paused,
        Self::Quota,
    ];

    /// Returns a description of the failure, and of the possible effect of the call: a row of the table in
    /// docs/errors.md, which a test makes from this.
    pub fn described(self) -> (&'static str, &'static str) {
        match self {
            Self::UpstreamUnreachable => (
                "The server could not be reached, or its process could not be started.",
                "none",
            ),
            Self::UpstreamUnauthorized => {
                ("The server refused the credentials (401, 403).", "none")
            }
            Self::UpstreamHttp => (
                "The server refused with another HTTP error.",
                "none for statuses that come before a handler (400, 404, 405, 406, 411, 413, 414, 415, 421, 426, 428, 429, 431, and 503 with `Retry-After`), otherwise unknown",
            ),
            Self::UpstreamReset => (
                "The connection broke, or the server's process ended, before the answer.",
                "unknown",
            ),
            Self::UpstreamInvalid => (
                "The answer was not valid MCP. The message says what was wrong and where, as far as that is known.",
                "unknown",
            ),
            Self::UpstreamTooLarge => ("The answer was larger than `result_bytes_max`.", "unknown"),
            Self::UpstreamTooDeep => (
                "The answer was nested more than 4096 levels deep.",
                "unknown",
            ),
            Self::SessionsInUse => (
                "The call waited for a session of the server (`upstream.sessions_max`) or a process (`upstream.children_max`), and none became free in time.",
                "none",
            ),
            Self::Deadline | Self::AnswerLost => (
                "`max_duration` or `input_timeout` was over, or a server without sessions lost the answer to its question. The server was told to stop.",
                "unknown; none if nothing of the call was sent yet",
            ),
            Self::AnswerRefused => (
                "The client refused to answer a question without which the call cannot go on.",
                "unknown",
            ),
            Self::JobLost => (
                "The status tool of a [job](jobs.md) gave no good answer for `poll.lost_after`, or does not know the job.",
                "unknown",
            ),
            Self::OwnerLost => (
                "The raincheck that carried the call died.",
                "none if the call had not been sent, otherwise unknown",
            ),
            Self::Shutdown => (
                "raincheck was stopped, and the call outlasted `drain.grace`.",
                "unknown; none if nothing of the call was sent yet",
            ),
            Self::StoreLost => (
                "The store could not keep the task (HTTP 503 where the store does not answer).",
                "none or unknown",
            ),
            Self::Busy => (
                "`limits.calls` calls are running, or `limits.calls_per_caller` of this caller (HTTP 503).",
                "none",
            ),
            Self::QueueFull => (
                "`queue` calls wait for their turn already (HTTP 503).",
                "none",
            ),
            Self::Paused => (
                "An operator has [paused](operations.md#pausing-tools) the tool, until `io.raincheck/until` in `data`.",
                "none",
            ),
            Self::Quota => (
                "The caller has as many tasks, or bytes of tasks, as it may have (`limits.tasks_per_caller`, `limits.task_bytes_per_caller`).",
                "none; unknown if the server had asked a question already, or if the result was too many bytes",
            ),
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
            Self::UpstreamTooDeep => "The server's answer was nested more deeply than allowed",
            Self::SessionsInUse => {
                "All sessions of the server are in use (upstream.sessions_max, or upstream.children_max \
                 for a program)"
            }
            Self::JobLost => "The job that this call started could not be followed to its end",
            Self::StoreLost => "The proxy's store could not keep this task",
            Self::AnswerRefused => "The client refused to answer a question of the server",
            Self::Busy => "Too many calls are under way",
            Self::QueueFull => "Too many calls wait for the server already",
            Self::Paused => "An operator has paused this tool",
            Self::Quota => {
                "This caller has as many tasks, or as many bytes of them, as it may; older ones go \
                 with time"
            }
        }
    }
}

/// The reason and the effect, in their words, of an error object that is a failure of raincheck's own making.
pub fn own_failure(error: &RawValue) -> Option<(&'static str, &'static str)> {
    let data = Object::parse(error.get()).ok()?.get_object("data")?;
    // An error of the server may have these members, too. Only words of the list get into metrics and logs.
    let reason = data.get_str(REASON)?;
    let reason = Reason::ALL
        .into_iter()
        .find(|known| known.word() == reason)?;
    let effect = data.get_str(EFFECT)?;
    let effect = [NONE, UNKNOWN].into_iter().find(|known| *known == effect)?;
    Some((reason.word(), effect))
}

/// Returns `true` if an error object is a failure of raincheck's own making with the effect that nothing ran.
pub fn says_not_run(error: &RawValue) -> bool {
    let effect = || {
        let data = Object::parse(error.get()).ok()?.get_object("data")?;
        Some(data.get_str(EFFECT)? == NONE)
    };
    effect().unwrap_or(false)
}

/// A failure of raincheck's own making: always -32603 with the reason and the effect in `data`,
/// so that it cannot be mistaken for an error of the wrapped server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub reason: Reason,
    pub effect: SideEffect,
    /// The error in the server's answer, where there was one.
    pub detail: Option<FailureDetail>,
}

impl Failure {
    pub const fn new(reason: Reason, effect: SideEffect) -> Self {
        Self {
            reason,
            effect,
            detail: None,
        }
    }

    /// The failure with what was wrong with the answer.
    #[must_use]
    pub fn because(self, flaw: Flaw) -> Self {
        self.with_detail(FailureDetail::Flaw(flaw))
    }

    /// The same failure of a call with another effect.
    #[must_use]
    pub fn with_effect(self, effect: SideEffect) -> Self {
        Self { effect, ..self }
    }

    #[must_use]
    pub fn with_detail(self, detail: FailureDetail) -> Self {
        Self {
            detail: Some(detail),
            ..self
        }
    }

    pub fn to_error(&self) -> RpcError {
        let effect = match self.effect {
            SideEffect::None => NONE,
            SideEffect::Unknown => UNKNOWN,
        };
        let mut data = Writer::object();
        data.str(REASON, self.reason.word()).str(EFFECT, effect);
        if let Some(status) = self.detail.as_ref().and_then(FailureDetail::status) {
            data.number(STATUS, i64::from(status));
        }
        if let Some(FailureDetail::Until { at, .. }) = &self.detail {
            data.str(UNTIL, at);
        }
        RpcError::new(code::INTERNAL, self.message()).with_data(data.end())
    }

    /// Returns a sentence about the failure and about repeating the call. The message has both, because many clients
    /// show a model the message of an error and drop its data.
    pub fn message(&self) -> String {
        let is_lasting = self.detail.as_ref().is_some_and(FailureDetail::is_lasting);
        let effect = match (self.effect, self.reason) {
            // The same credentials would be refused again.
            (SideEffect::None, Reason::UpstreamUnauthorized) => "it did not run",
            (SideEffect::None, Reason::Paused) => "it did not run; it can be called again then",
            (SideEffect::None, _) if is_lasting => NONE_LASTING_WORDS,
            (SideEffect::None, _) => NONE_WORDS,
            (SideEffect::Unknown, _) if is_lasting => UNKNOWN_LASTING_WORDS,
            (SideEffect::Unknown, _) => UNKNOWN_WORDS,
        };
        match &self.detail {
            Some(detail) => format!("{}: {detail}; {effect}", self.sentence()),
            None => format!("{}; {effect}", self.sentence()),
        }
    }

    /// Returns the sentence about the failure, without the detail.
    pub fn sentence(&self) -> &'static str {
        self.reason.sentence()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_says_what_its_data_says() {
        for reason in Reason::ALL {
            for (effect, word, says) in [
                (SideEffect::None, NONE, "; it did not run"),
                (
                    SideEffect::Unknown,
                    UNKNOWN,
                    "; it may have run, look before",
                ),
            ] {
                let error = Failure::new(reason, effect).to_error();
                assert!(error.message.contains(says), "{}", error.message);
                let data = error.data.clone().unwrap();
                assert!(data.contains(&format!(r#""{EFFECT}":"{word}""#)), "{data}");
                assert_eq!(says_not_run(&error.to_raw()), effect == SideEffect::None);
                assert_eq!(own_failure(&error.to_raw()), Some((reason.word(), word)));
            }
        }
    }
}
