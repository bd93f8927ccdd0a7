//! What is kept for clients beside their tasks: small values under names, and logs of what a client
//! may have missed.
//!
//! Part of the port that every store implements. No rule is here: a note is opaque, and gone when it
//! expires.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;

use super::error::StoreError;
use crate::task::state::Digest;

/// Entries that a log holds at most: with the entry of this number after it, an entry goes.
pub const ENTRIES_MAX: u64 = 256;

/// What a note is for. Two kinds never share a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A session of raincheck's own.
    Session,
    /// Which call an idempotency key, or an identical call, stands for.
    Claim,
    /// A client's answer to a question, or that the server has it, for the replica that waits for it.
    Answer,
    /// The events of a held call.
    Events,
    /// Who carries a held call, and whether it is over.
    Hold,
    /// The progress token that a task was asked for with.
    Token,
    /// That a client waits for a request no more.
    Cancel,
    /// On which kind of stream a client has a question.
    Said,
}

impl Kind {
    /// As it is written in keys of stores.
    pub fn letter(self) -> char {
        match self {
            Self::Session => 's',
            Self::Claim => 'k',
            Self::Answer => 'a',
            Self::Events => 'e',
            Self::Hold => 'h',
            Self::Token => 't',
            Self::Cancel => 'x',
            Self::Said => 'q',
        }
    }
}

/// The name of a note. What it is made from may be secret, and cannot be read from it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    pub kind: Kind,
    pub digest: [u8; 16],
}

impl Name {
    pub fn of(kind: Kind, parts: &[&str]) -> Self {
        let digest = *Digest::of(parts).as_bytes();
        Self { kind, digest }
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} note", self.kind)
    }
}

/// The part of a store that keeps notes. Times are Unix milliseconds by the clock of
/// [`Beat::now_ms`](super::Beat::now_ms); a note is never forgotten before its time, and not found
/// after it. Under a name stands a note or a log: which of them, its kind says.
///
/// Every call may be sent again after [`StoreError::Unavailable`], and is the same call then. Until
/// it was, it is in doubt: it may still happen.
///
/// Patience and cancel safety are as with [`Store`](super::Store).
#[async_trait]
pub trait Notes: fmt::Debug + Send + Sync {
    /// Writes a note where none stands. What stands there instead is returned, unless it is this
    /// very value: then it was written by this claim, sent twice. So no two claims of a name may
    /// have the same value.
    ///
    /// Of any number at the same time one writes, and the others are told its value.
    async fn claim(
        &self,
        name: Name,
        value: Bytes,
        expires_ms: u64,
    ) -> Result<Option<Bytes>, StoreError>;

    /// Writes a note, whatever note stood there, with this expiry.
    async fn put(&self, name: Name, value: Bytes, expires_ms: u64) -> Result<(), StoreError>;

    /// Writes a note where that one stands, with this expiry. False where another stands, or none.
    ///
    /// The value itself standing there is taken for this call, sent before: so it counts as done.
    async fn replace(
        &self,
        name: Name,
        stands: Bytes,
        value: Bytes,
        expires_ms: u64,
    ) -> Result<bool, StoreError>;

    async fn find(&self, name: Name) -> Result<Option<Bytes>, StoreError>;

    /// Takes a note or a log away. None there is no error.
    async fn remove(&self, name: Name) -> Result<(), StoreError>;

    /// Writes an entry of a log, whole or not at all, and sets the expiry of all of it. The writer,
    /// of which there is one, numbers them one by one from 1 and bounds how large they are; sent
    /// twice, an entry is written once. Of more than [`ENTRIES_MAX`] the oldest goes.
    async fn append(
        &self,
        log: Name,
        number: u64,
        entry: Bytes,
        expires_ms: u64,
    ) -> Result<(), StoreError>;

    /// Takes the entries of a log out whose numbers are below `first`. None there is no error.
    async fn trim(&self, log: Name, first: u64) -> Result<(), StoreError>;

    /// The entries behind `after`, in order. Empty where there is no such log.
    async fn entries(&self, log: Name, after: u64) -> Result<Vec<(u64, Bytes)>, StoreError>;
}
