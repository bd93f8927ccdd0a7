//! The settings that the user wrote in each `[[jobs]]`.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::scalar::{names, optional, scalar, words};
use crate::jobs::words::Meaning;
use crate::jobs::{Lives, PollUnit};

/// A tool that starts jobs, and the tools about them.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Job {
    #[serde(deserialize_with = "optional")]
    pub(super) preset: Option<String>,
    #[serde(deserialize_with = "shape")]
    pub(super) start: Option<Value>,
    #[serde(deserialize_with = "shape")]
    pub(super) set: Option<Value>,
    #[serde(deserialize_with = "optional")]
    pub(super) key: Option<String>,
    #[serde(deserialize_with = "shape")]
    pub(super) id: Option<Value>,
    #[serde(deserialize_with = "shape")]
    pub(super) status: Option<Value>,
    #[serde(deserialize_with = "shape")]
    pub(super) state: Option<Value>,
    #[serde(deserialize_with = "shape")]
    pub(super) outcome: Option<Value>,
    #[serde(deserialize_with = "names")]
    pub(super) working: Vec<String>,
    #[serde(deserialize_with = "names")]
    pub(super) done: Vec<String>,
    #[serde(deserialize_with = "names")]
    pub(super) failed: Vec<String>,
    #[serde(deserialize_with = "names")]
    pub(super) cancelled: Vec<String>,
    #[serde(deserialize_with = "names")]
    pub(super) input: Vec<String>,
    #[serde(deserialize_with = "names")]
    pub(super) retry: Vec<String>,
    #[serde(deserialize_with = "names")]
    pub(super) gone: Vec<String>,
    #[serde(rename = "match")]
    pub(super) acceptors: Vec<WrittenAcceptor>,
    #[serde(deserialize_with = "optional")]
    pub(super) progress: Option<String>,
    #[serde(deserialize_with = "optional")]
    pub(super) total: Option<String>,
    #[serde(deserialize_with = "optional")]
    pub(super) message: Option<String>,
    #[serde(deserialize_with = "shape")]
    pub(super) result: Option<Value>,
    #[serde(deserialize_with = "shape")]
    pub(super) cancel: Option<Value>,
    pub(super) poll: WrittenPolls,
    #[serde(deserialize_with = "scalar")]
    pub(super) lives: Lives,
    #[serde(deserialize_with = "scalar")]
    pub(super) hide: bool,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WrittenAcceptor {
    #[serde(rename = "where", deserialize_with = "shape")]
    pub(super) place: Option<Value>,
    #[serde(deserialize_with = "optional")]
    pub(super) equals: Option<String>,
    #[serde(deserialize_with = "optional")]
    pub(super) matches: Option<String>,
    #[serde(deserialize_with = "optional")]
    pub(super) means: Option<Meaning>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WrittenPolls {
    #[serde(deserialize_with = "optional")]
    pub(super) first: Option<Duration>,
    #[serde(deserialize_with = "optional")]
    pub(super) max: Option<Duration>,
    #[serde(deserialize_with = "optional")]
    pub(super) from: Option<String>,
    #[serde(deserialize_with = "optional")]
    pub(super) unit: Option<PollUnit>,
    #[serde(deserialize_with = "optional")]
    pub(super) lost_after: Option<Duration>,
}

impl WrittenPolls {
    /// Returns these, and the others where nothing is written here.
    pub(super) fn or(&self, other: Self) -> Self {
        Self {
            first: self.first.or(other.first),
            max: self.max.or(other.max),
            from: self.from.clone().or(other.from),
            unit: self.unit.or(other.unit),
            lost_after: self.lost_after.or(other.lost_after),
        }
    }
}

/// For `#[serde(deserialize_with)]`: a setting that has a short form, which is a text, and a long one.
fn shape<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    from.deserialize_any(Shape).map(Some)
}

struct Shape;

impl<'de> Visitor<'de> for Shape {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a list of texts or a table")
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(one) = from.next_element()? {
            all.push(Value::String(one));
        }
        Ok(all.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some((name, value)) = from.next_entry()? {
            members.insert(name, value);
        }
        Ok(members.into())
    }
}

words!(
    Meaning:
    "working" => Self::Working,
    "done" => Self::Done,
    "failed" => Self::Failed,
    "cancelled" => Self::Cancelled,
    "input" => Self::Input,
    "retry" => Self::Retry;
    or "gone" => Self::Gone
);

words!(
    Lives:
    "backend" => Self::Backend,
    "process" => Self::Process;
    or "session" => Self::Session
);

words!(PollUnit: "s" => Self::Seconds; or "ms" => Self::Milliseconds);
