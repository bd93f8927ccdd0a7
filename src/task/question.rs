//! A question of the wrapped server, and how far it has come.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::digest::Digest;
use super::input_rule::AnsweredBy;

/// A question of the wrapped server to the client.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Question {
    /// Unique for the life of the task (tasks.md, Task Update Requests).
    pub key: Box<str>,
    /// The server's own name for the question: a modern input key, or a legacy JSON-RPC id as JSON. Empty
    /// when the run that asked is over: the next run may use the name again.
    pub origin: Box<str>,
    pub asked_ms: u64,
    /// `true` if receivers were notified of the question again because it waited for long.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reminded: bool,
    /// Counts once the question is answered.
    #[serde(default, skip_serializing_if = "AnsweredBy::is_client")]
    pub answered_by: AnsweredBy,
    /// Replicas of an earlier version drop it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_ms: Option<u64>,
    pub stage: QuestionStage,
}

impl Question {
    pub fn is_open(&self) -> bool {
        matches!(self.stage, QuestionStage::Open(_))
    }
}

/// The stage that a question has reached.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuestionStage {
    /// The question waits for the client. The request as JSON: method and params.
    Open(Box<RawValue>),
    /// The client answered; the server does not have the answer yet.
    Answered(Box<RawValue>),
    /// The server has the answer. The record keeps its digest only.
    Delivered(Digest),
    /// The run that asked is over: no server waits for an answer.
    Withdrawn,
}
