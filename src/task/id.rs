//! Identifiers as types of their own, so that the compiler finds an identifier that is used in place of
//! another.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

use crate::base::account::Account;
use crate::mcp::hex;

/// A task's handle: 122 random bits from the operating system, without a time or an order (tasks.md, Security
/// Considerations).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(Uuid);

impl TaskId {
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }

    /// Accepts only the spelling that [`fmt::Display`] writes: one task has one id.
    pub fn parse(text: &str) -> Option<Self> {
        let id = Self(Uuid::try_parse(text).ok()?);
        // The parser also reads upper case, braces and URNs, and the store has each task under one spelling.
        (id.text(&mut Self::text_buffer()) == text).then_some(id)
    }

    /// The id in a text that writes it in any way: in upper case, without hyphens, in braces, as a URN. For what must not
    /// get through; no task is found by such a text.
    pub fn in_any_spelling(text: &str) -> Option<Self> {
        Uuid::try_parse(text.trim()).ok().map(Self)
    }

    /// The spelling that [`fmt::Display`] writes, without an allocation.
    pub fn text<'b>(&self, buffer: &'b mut [u8; Hyphenated::LENGTH]) -> &'b str {
        self.0.as_hyphenated().encode_lower(buffer)
    }

    /// Room for [`Self::text`].
    pub fn text_buffer() -> [u8; Hyphenated::LENGTH] {
        [0; Hyphenated::LENGTH]
    }

    /// The beginning of the id, which is all that operators and receivers of webhooks see of it.
    pub fn short(&self) -> String {
        let mut buffer = Self::text_buffer();
        let first = self.text(&mut buffer).split('-').next();
        first.unwrap_or_default().to_owned()
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
        f.write_str(self.text(&mut Self::text_buffer()))
    }
}

impl fmt::Debug for TaskId {
    /// Writes the first bytes only: a task id is a handle, and logs must not hold one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..", self.short())
    }
}

/// The owner of a task among the clients: a keyed hash, so that the store never holds a credential.
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

    /// Returns the caller of a client whose description of itself goes beyond its proof: it has tasks of its own, and
    /// the account of this one. `further` is a keyed hash of the whole description. Such callers differ in their
    /// first half, by which maps find them.
    #[must_use]
    pub fn with_further(&self, further: [u8; 16]) -> Self {
        let mut bytes = self.0;
        // The second half names the account of the caller, so it stays as it is.
        for (to, from) in bytes.iter_mut().zip(further).take(8) {
            *to = from;
        }
        Self(bytes)
    }

    /// The account on which the shares and quotas of this caller count.
    pub fn account(&self) -> Account {
        Account::of(self.0)
    }

    /// Returns the beginning of the hash: enough to distinguish callers, and nothing of a credential.
    pub fn short(&self) -> String {
        let [a, b, c, d, ..] = self.0;
        hex::encode(&[a, b, c, d])
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
    /// Makes `<replica>/<random>`. The name of the replica survives a restart, the random part does not.
    /// [`Self::reading`] adds a third part, from which other replicas read the newest record format that this replica
    /// reads.
    pub fn new(replica: &str) -> Self {
        Self(format!("{replica}/{}", Uuid::new_v4().simple()).into())
    }

    #[must_use]
    pub fn reading(self, format: u32) -> Self {
        Self(format!("{}/{format}", self.0).into())
    }

    /// Returns the newest record format that this incarnation reads, if its name contains one.
    pub fn reads(&self) -> Option<u32> {
        self.0.splitn(3, '/').nth(2)?.parse().ok()
    }

    pub fn from_text(text: &str) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of the replica.
    pub fn replica(&self) -> &str {
        self.0.split('/').next().unwrap_or_default()
    }
}

/// Counts the commits of a task, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revision(pub u64);

/// Counts the owners of a task, from 1. The fence names the entry of a result, so that a late owner cannot
/// replace the result of its successor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fence(pub u64);
