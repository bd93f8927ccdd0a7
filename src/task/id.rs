//! The names that must not be swapped by mistake.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A task's handle: 122 random bits from the operating system, no time and no order in them
/// (tasks.md, Security Considerations).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(Uuid);

impl TaskId {
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }

    /// Only the one spelling that was given out is a task id.
    pub fn parse(text: &str) -> Option<Self> {
        let id = Uuid::try_parse(text).ok()?;
        let mut buffer = Uuid::encode_buffer();
        (*id.hyphenated().encode_lower(&mut buffer) == *text).then_some(Self(id))
    }

    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

impl fmt::Debug for TaskId {
    /// A task id is a handle: logs get its first bytes, enough to find it again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}..", self.0.as_fields().0)
    }
}

/// To whom a task belongs: a keyed hash, so that the store never holds a credential.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Caller([u8; 16]);

impl Caller {
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Caller")
    }
}

/// One run of one replica's process.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Incarnation(Box<str>);

impl Incarnation {
    /// `<replica>/<random>`: the replica is stable over restarts, the rest is not. With the newest
    /// record format that it reads behind, where others must know: `<replica>/<random>/<format>`.
    pub fn new(replica: &str) -> Self {
        Self(format!("{replica}/{}", Uuid::new_v4().simple()).into())
    }

    #[must_use]
    pub fn reading(self, format: u32) -> Self {
        Self(format!("{}/{format}", self.0).into())
    }

    /// The newest record format that it reads, where it says so.
    pub fn reads(&self) -> Option<u32> {
        self.0.splitn(3, '/').nth(2)?.parse().ok()
    }

    pub fn from_text(text: &str) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Grows with each commit of a task; the first commit makes it 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revision(pub u64);

/// Grows with each claim of a task and names its result, so that a late owner cannot replace its
/// successor's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fence(pub u64);
