//! Why a store gave no answer.

/// Why the store gave no answer. After `Unavailable` a write is *in doubt*: it may or may not have
/// happened, and may still happen; only a retry with the same nonce settles it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the store cannot be asked: {0}")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The store answered that it has no room; nothing was written.
    #[error("the store is full")]
    Full,
    /// The record is of a newer raincheck, which this one must not change.
    #[error("the task was written by a newer raincheck")]
    Newer,
    /// The store holds something that this program did not write.
    #[error("the store holds an unreadable entry: {0}")]
    Corrupt(&'static str),
}

/// The store's own word for why it refuses, as its documentation explains it: a code and a sentence.
#[derive(Debug, thiserror::Error)]
#[error("{code} {detail}")]
pub struct Refusal {
    pub code: String,
    pub detail: String,
}

impl StoreError {
    /// In a word: tells one kind of failure from another.
    pub fn kind(&self) -> &str {
        match self {
            Self::Unavailable(why) => match why.downcast_ref::<Refusal>() {
                Some(refusal) => &refusal.code,
                None => "away",
            },
            Self::Full => "full",
            Self::Newer => "newer",
            Self::Corrupt(what) => what,
        }
    }
}
