//! The end of a request, as far as its answer shows it.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use crate::mcp::json::Object;
use crate::mcp::result::{error_code, is_tool_error};

/// The end of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationEnding {
    Good,
    /// The result is an error of the tool.
    ToolError,
    /// A JSON-RPC error.
    Code(i64),
    /// An HTTP status, where nothing else is known.
    Status(u16),
    /// There was no answer, for a reason of raincheck's.
    Failed(&'static str),
    /// The client did not wait for the answer.
    Cancelled,
}

impl OperationEnding {
    /// Returns the end of the request that a JSON-RPC message answers; `None` if the message is no answer.
    pub fn of_message(message: &[u8]) -> Option<Self> {
        // Few answers have one of the words, and a search for them is far quicker than a parser.
        if !may_have_error(message) && METHOD.find(message).is_none() {
            return Some(Self::Good);
        }
        let message = std::str::from_utf8(message).ok()?;
        let message = Object::parse(message).ok()?;
        if message.contains("method") {
            return None;
        }
        if let Some(error) = message.get("error") {
            return Some(Self::Code(error_code(error).unwrap_or_default()));
        }
        let is_error = message
            .get("result")
            .is_some_and(|result| is_tool_error(result.get()));
        Some(if is_error {
            Self::ToolError
        } else {
            Self::Good
        })
    }

    /// The same of a message that came alone, which is an answer.
    pub fn of_answer(message: &[u8]) -> Option<Self> {
        if may_have_error(message) {
            Self::of_message(message)
        } else {
            Some(Self::Good)
        }
    }

    /// `error_type` and `rpc_response_status_code`.
    pub(super) fn labels(self) -> (String, String) {
        let of = |kind: &str| (kind.to_owned(), String::new());
        match self {
            Self::Good => (String::new(), String::new()),
            Self::ToolError => of("tool_error"),
            Self::Code(code) if is_bounded(code) => (code.to_string(), code.to_string()),
            Self::Code(_) => (OTHER.to_owned(), OTHER.to_owned()),
            Self::Status(status) => (status.to_string(), String::new()),
            Self::Failed(reason) => of(reason),
            Self::Cancelled => of("cancelled"),
        }
    }
}

/// Finds the mark of a message that is no good result. The search is prepared once, and not for each answer.
static METHOD: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"method\""));

/// The end of two names: `"error"` and `"isError"`. One search finds both.
static ERROR: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("rror\""));

/// Returns `true` if the message has an `error`, or an `isError` that is not plainly `false`.
fn may_have_error(message: &[u8]) -> bool {
    let is_bad = |at: usize| match message.split_at_checked(at) {
        Some((before, _)) if before.ends_with(b"\"e") => true,
        Some((before, name)) if before.ends_with(b"\"isE") => {
            !says_false(name.get(ERROR.needle().len()..).unwrap_or_default())
        }
        _ => false,
    };
    ERROR.find_iter(message).any(is_bad)
}

/// Returns `true` if the name of a member is followed by `false`.
fn says_false(after: &[u8]) -> bool {
    let value = after.trim_ascii_start().strip_prefix(b":");
    value.is_some_and(|value| value.trim_ascii_start().starts_with(b"false"))
}

/// The codes that JSON-RPC defines and reserves for servers. Any other would be a label that the server chooses.
fn is_bounded(code: i64) -> bool {
    matches!(code, -32700 | -32603..=-32600 | -32099..=-32000)
}

/// The value of the conventions where a value has no name of its own.
pub(super) const OTHER: &str = "_OTHER";

#[cfg(test)]
mod tests {
    use super::super::known_names::known_method;
    use super::*;

    #[test]
    fn an_answer_says_how_its_request_ended() {
        for (message, ending) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
                Some(OperationEnding::Good),
            ),
            (
                r#"{"id":1,"error":{"code":-32602}}"#,
                Some(OperationEnding::Code(-32602)),
            ),
            (
                r#"{"id":1,"result":{"isError":true}}"#,
                Some(OperationEnding::ToolError),
            ),
            (
                r#"{"id":1,"result":{"isError":false}}"#,
                Some(OperationEnding::Good),
            ),
            (
                r#"{"id":1,"result":{"text":"\"isError\":false","isError" : true}}"#,
                Some(OperationEnding::ToolError),
            ),
            (
                r#"{"id":1,"result":{"isError" : false}}"#,
                Some(OperationEnding::Good),
            ),
            (
                r#"{"id":1,"result":{"text":"isError \"error\""}}"#,
                Some(OperationEnding::Good),
            ),
            (r#"{"method":"notifications/progress"}"#, None),
            (
                r#"{"id":1,"result":{"s":{"method":1}}}"#,
                Some(OperationEnding::Good),
            ),
            (r#"{"method":"x","params":{"data":"isError"}}"#, None),
        ] {
            assert_eq!(
                OperationEnding::of_message(message.as_bytes()),
                ending,
                "{message}"
            );
        }
    }

    #[test]
    fn no_label_is_chosen_by_a_server_or_a_client() {
        let kind = |code| OperationEnding::Code(code).labels().0;
        assert_eq!(
            (kind(-32603), kind(-32050), kind(7)),
            ("-32603".into(), "-32050".into(), OTHER.into())
        );
        assert_eq!(known_method("tools/call"), Some("tools/call"));
        assert_eq!(known_method("evil"), None);
    }
}
