//! The terms of a rule for questions that no client answers, and the sources of answers.

use serde::{Deserialize, Serialize};

/// The handling of a question of a task that no client answers within the rule's `input_timeout`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnInputTimeout {
    /// The task fails.
    #[default]
    Fail,
    /// The server receives the answer that the user declined.
    Decline,
    /// The server receives the answer that the user cancelled without a decision.
    Cancel,
    /// The server gets this answer, a JSON object, if the answer fits the form that the server asked with.
    Answer(Box<str>),
}

impl OnInputTimeout {
    pub fn is_fail(&self) -> bool {
        *self == Self::Fail
    }
}

/// The source of the answer to a question.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnsweredBy {
    #[default]
    Client,
    /// An operator at the admin listener.
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
