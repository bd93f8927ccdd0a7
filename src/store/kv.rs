//! The key-value part of the store's port: small values under names, and logs of events that a client
//! may have missed.
//!
//! Clients need these beside their tasks (sessions, claims, answers on their way to another replica). The
//! store applies no rule to a value: it is opaque bytes, and it is gone when it expires.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;

use super::error::StoreError;
use crate::task::digest::Digest;
use crate::task::id::{Fence, TaskId};

/// The most entries that a log keeps: entry number `n` removes entry number `n - ENTRIES_MAX`.
pub const ENTRIES_MAX: u64 = 256;

/// The kinds of values. Names of two kinds never collide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A session that raincheck itself gave to a client.
    Session,
    /// The call that an idempotency key stands for.
    Claim,
    /// The call that identical calls stand for. The name follows from the arguments.
    IdenticalCall,
    /// A client's answer to a question, or the fact that the server has the answer, for the replica that
    /// waits for it.
    Answer,
    /// The call that runs on after its client's clock ended, for the same call to find it. The name follows from the
    /// arguments.
    GivenUp,
    /// The log of a resumable call's events.
    Events,
    /// The progress token that a task was created with.
    Token,
    /// The fact that a client no longer waits for a request.
    Cancel,
    /// The kind of stream on which a client was asked a question.
    QuestionStream,
    /// The fingerprint of `store.seal_key`, for as long as replicas run.
    SealKey,
    /// The key of digests that could be guessed, sealed under one seal key.
    DigestKey,
    /// The fact that a replica reads a log which another replica writes.
    LogReader,
    /// The durations of the calls of some tools.
    Durations,
    /// The known client that has a session at the server.
    Client,
    /// The webhook subscriptions of a caller.
    Subscriptions,
    /// The tools that operators have paused.
    Pauses,
    /// The head of the history of ended tasks.
    History,
    /// Some entries of the history.
    HistoryChunk,
    /// The index of some entries of the history.
    HistoryIndex,
    /// The sums of some entries of the history.
    HistorySums,
    /// The failures of one day that somebody has looked at.
    Acknowledgements,
}

impl Kind {
    /// The letter of this kind in the keys of every store. A letter never changes: stored keys have it.
    pub fn letter(self) -> char {
        match self {
            Self::Session => 's',
            Self::Claim => 'k',
            Self::Answer => 'a',
            Self::Events => 'e',
            Self::Token => 't',
            Self::Cancel => 'x',
            Self::QuestionStream => 'q',
            Self::SealKey => 'f',
            Self::IdenticalCall => 'i',
            Self::GivenUp => 'g',
            Self::DigestKey => 'd',
            Self::LogReader => 'r',
            Self::Durations => 'p',
            Self::Client => 'c',
            Self::Subscriptions => 'w',
            Self::Pauses => 'o',
            Self::History => 'h',
            Self::HistoryChunk => 'y',
            Self::HistoryIndex => 'j',
            Self::HistorySums => 'z',
            Self::Acknowledgements => 'b',
        }
    }

    /// Returns the word that sealed values of this kind are bound to. A word never changes, as a letter does not.
    pub fn word(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Claim => "claim",
            Self::Answer => "answer",
            Self::Events => "events",
            Self::Token => "token",
            Self::Cancel => "cancel",
            Self::QuestionStream => "question stream",
            Self::SealKey => "seal key",
            Self::IdenticalCall => "identical call",
            Self::GivenUp => "given up",
            Self::DigestKey => "digest key",
            Self::LogReader => "log reader",
            Self::Durations => "durations",
            Self::Client => "client",
            Self::Subscriptions => "subscriptions",
            Self::Pauses => "pauses",
            Self::History => "history",
            Self::HistoryChunk => "history chunk",
            Self::HistoryIndex => "history index",
            Self::HistorySums => "history sums",
            Self::Acknowledgements => "acknowledgements",
        }
    }
}

/// The name of a value or a log. The name is a digest, because its parts may be secret.
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

    /// Returns the id that the change log has for the value ([`tell`](super::Store::tell)) or for the log
    /// ([`append`](KvStore::append)). No task has it.
    pub fn told_as(&self) -> TaskId {
        TaskId::from_bytes(self.digest)
    }

    /// Returns a name: while a value of this name exists, appends to the log are [in the change
    /// log](KvStore::append).
    #[must_use]
    pub fn read_as(&self) -> Self {
        Self {
            kind: Kind::LogReader,
            digest: self.digest,
        }
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} name", self.kind)
    }
}

/// The part of a store that keeps values and logs under names.
///
/// Times are Unix milliseconds by the clock of [`Beat::now_ms`](super::Beat::now_ms). A value is kept
/// until its expiry and is not found after it. A name holds a value or a log, depending on its kind.
///
/// Every call may be repeated after [`StoreError::Unavailable`], and the repetition counts as the same
/// call. Until a call is repeated it is in doubt: it may still happen.
///
/// Timeouts and cancel safety are those of [`Store`](super::Store).
#[async_trait]
pub trait KvStore: fmt::Debug + Send + Sync {
    /// Writes a value if the name is free. Otherwise returns the value of the name.
    ///
    /// Of several claims at the same time exactly one writes, and the others get its value. A claim
    /// that finds its own value returns `None`, because it wrote that value before it was repeated. So
    /// two claims of one name must never carry the same value.
    async fn claim(
        &self,
        name: Name,
        value: Bytes,
        expires_ms: u64,
    ) -> Result<Option<Bytes>, StoreError>;

    /// Writes a value with this expiry over any earlier value.
    async fn put(&self, name: Name, value: Bytes, expires_ms: u64) -> Result<(), StoreError>;

    /// Writes `value` with this expiry if the name holds `expected`. Returns false if the name holds another
    /// value or no value.
    ///
    /// Returns true if the name holds `value` already: an earlier sending of this call wrote it.
    async fn replace(
        &self,
        name: Name,
        expected: Bytes,
        value: Bytes,
        expires_ms: u64,
    ) -> Result<bool, StoreError>;

    async fn find(&self, name: Name) -> Result<Option<Bytes>, StoreError>;

    /// Removes a value or a log. A free name is no error.
    async fn remove(&self, name: Name) -> Result<(), StoreError>;

    /// Appends an entry to a log, whole or not at all, and sets the expiry of the whole log.
    ///
    /// A log has one writer at a time. The writer numbers entries one by one from 1 and bounds their size. An entry
    /// that is sent twice is written once. Beyond [`ENTRIES_MAX`] entries the oldest entry is removed.
    ///
    /// Returns false, and writes nothing, if the log is [fenced off](Self::fence) for this fence.
    ///
    /// If there is a value under [`Name::read_as`], the same write enters [`Name::told_as`] in the change log. So an
    /// append of a log that no other replica reads costs no other replica anything. A replica that writes that value
    /// and reads the log after that misses no entry: it read the entry, or is notified of it.
    async fn append(
        &self,
        log: Name,
        fence: Fence,
        number: u64,
        entry: Bytes,
        expires_ms: u64,
    ) -> Result<bool, StoreError>;

    /// Fences a log off for all earlier fences, and sets the expiry of the whole log. A later fence stays.
    ///
    /// A replica that succeeds the writer of a log calls this before it reads the log: after that, no append of a
    /// writer with an earlier fence changes what the replica read, however late the append arrives. The log may be
    /// empty.
    async fn fence(&self, log: Name, fence: Fence, expires_ms: u64) -> Result<(), StoreError>;

    /// Removes the entries of a log whose numbers are below `first`. A missing log is no error.
    async fn trim(&self, log: Name, first: u64) -> Result<(), StoreError>;

    /// The entries with numbers above `after`, in order. Empty if there is no such log.
    async fn entries(&self, log: Name, after: u64) -> Result<Vec<(u64, Bytes)>, StoreError>;
}
