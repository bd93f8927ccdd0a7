//! What a rule says of questions that nobody answers, and who answered.

use serde::{Deserialize, Serialize};

/// What happens to a question of a task that no client answers within the rule's `input_timeout`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnInputTimeout {
    /// The task fails.
    #[default]
    Fail,
    /// The server is told that the user said no.
    Decline,
    /// The server is told that the user decided nothing.
    Cancel,
    /// The server gets this answer, a JSON object, if the answer fits the form that the server asked with.
    Answer(Box<str>),
}

impl OnInputTimeout {
    pub fn is_fail(&self) -> bool {
        *self == Self::Fail
    }
}

/// Who answered a question.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnsweredBy {
    #[default]
    Client,
    /// Somebody at the admin listener.
    Operator,
    /// The rule of the tool, because no client answered in time.
    Rule,
}

impl AnsweredBy {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
    pub fn is_client(&self) -> bool {
        *self == Self::Client
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Operator => "operator",
            Self::Rule => "rule",
        }
    }
}
