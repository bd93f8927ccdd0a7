//! Job tools: a tool that starts a job in the server's backend, and those that report its state, fetch its result and
//! cancel it. A [`JobRule`] binds them, and the call of the first becomes a call that ends when the job ends. Pure.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::jobs::document::JobSource;
use crate::jobs::words::{Acceptor, JobWords};

pub mod arguments;
pub mod document;
mod id_argument;
pub mod job_call;
pub mod reading;
#[cfg(test)]
pub(crate) mod recorded;
pub mod shared;
pub mod suggested;
pub mod words;

/// A `[[jobs]]` entry but for the tools that it applies to. The record of each job has it, so what the entry leaves out is left out
/// there, too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobRule {
    /// Arguments of the start, where the client gives none of that name.
    #[serde(skip_serializing_if = "is_default")]
    pub set: Map<String, Value>,
    /// The argument of the start by which the server recognizes a start that is sent again. Each call gets a value of its own
    /// there, where the client gives none.
    #[serde(skip_serializing_if = "is_default")]
    pub key: Option<Box<str>>,
    /// The job's id in the answer of the start. `None`: the member with the name of the status tool's argument, or else `id`.
    #[serde(skip_serializing_if = "is_default")]
    pub id: Option<JobSource>,
    pub status: Helper,
    /// The state in the answer of the status tool. `None`: `status`, or else `state`.
    #[serde(skip_serializing_if = "is_default")]
    pub state: Option<JobSource>,
    /// The outcome, which is read once the state says that the job has ended.
    #[serde(skip_serializing_if = "is_default")]
    pub outcome: Option<JobSource>,
    #[serde(skip_serializing_if = "is_default")]
    pub words: JobWords,
    /// Read before the words, in their order.
    #[serde(skip_serializing_if = "is_default")]
    pub acceptors: Vec<Acceptor>,
    #[serde(skip_serializing_if = "is_default")]
    pub progress: Option<Box<str>>,
    #[serde(skip_serializing_if = "is_default")]
    pub total: Option<Box<str>>,
    #[serde(skip_serializing_if = "is_default")]
    pub message: Option<Box<str>>,
    #[serde(skip_serializing_if = "is_default")]
    pub result: JobResult,
    #[serde(skip_serializing_if = "is_default")]
    pub cancel: Option<Helper>,
    pub poll: JobPolls,
    #[serde(skip_serializing_if = "is_default")]
    pub lives: Lives,
}

/// A tool that is called about a job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Helper {
    pub tool: Arc<str>,
    /// Arguments, with `{id}`, `{status:/pointer}` and `{start:name}` in their texts.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub arguments: Map<String, Value>,
}

/// The origin of a job's result.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobResult {
    /// The answer that says that the job has ended.
    #[default]
    Status,
    /// A part of that answer.
    Pointer(Box<str>),
    /// The answer of another tool.
    Tool(Helper),
}

/// The times between the checks of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobPolls {
    pub first: Duration,
    pub max: Duration,
    /// The time until the next check in the answer of the status tool, and the unit of a number there.
    #[serde(skip_serializing_if = "is_default")]
    pub from: Option<(Box<str>, PollUnit)>,
    /// The time without a good check after which the job is lost.
    pub lost_after: Duration,
}

impl Default for JobPolls {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(2),
            max: Duration::from_secs(30),
            from: None,
            lost_after: Duration::from_mins(10),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PollUnit {
    Seconds,
    Milliseconds,
}

/// The part of the server that must be there for a job to be found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lives {
    /// Its backend: any session and any process finds the job.
    #[default]
    Backend,
    /// The process that started the job.
    Process,
    /// The session in which the job was started.
    Session,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

// Records leave out what is as here, so these values never change.
impl Default for JobRule {
    fn default() -> Self {
        Self {
            set: Map::new(),
            key: None,
            id: None,
            status: Helper::default(),
            state: None,
            outcome: None,
            words: JobWords::default(),
            acceptors: Vec::new(),
            progress: None,
            total: None,
            message: None,
            result: JobResult::Status,
            cancel: None,
            poll: JobPolls::default(),
            lives: Lives::Backend,
        }
    }
}

impl JobRule {
    /// The tools that are called about a job.
    pub fn helpers(&self) -> impl Iterator<Item = &Helper> {
        let result = match &self.result {
            JobResult::Tool(helper) => Some(helper),
            JobResult::Status | JobResult::Pointer(_) => None,
        };
        let all = [Some(&self.status), result, self.cancel.as_ref()];
        all.into_iter().flatten()
    }

    /// Returns `true` if that tool is called about a job.
    pub fn is_helper(&self, tool: &str) -> bool {
        self.helpers().any(|helper| &*helper.tool == tool)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_of_a_rule_what_it_sets_and_earlier_records_are_read() {
        let rule = JobRule {
            lives: Lives::Session,
            ..JobRule::default()
        };
        let poll = r#""poll":{"first":{"secs":2,"nanos":0},"max":{"secs":30,"nanos":0},"lost_after":{"secs":600,"nanos":0}}"#;
        let text = format!(r#"{{"status":{{"tool":""}},{poll},"lives":"session"}}"#);
        assert_eq!(serde_json::to_string(&rule).unwrap(), text);
        let nothing =
            r#""key":null,"set":{},"words":[],"acceptors":[],"result":"status","cancel":null"#;
        let earlier = text.replacen('{', &format!("{{{nothing},"), 1);
        for text in [&text, &earlier] {
            assert_eq!(serde_json::from_str::<JobRule>(text).unwrap(), rule);
        }
        let unset = JobRule::default();
        let text = serde_json::to_string(&unset).unwrap();
        assert_eq!(serde_json::from_str::<JobRule>(&text).unwrap(), unset);
    }
}
