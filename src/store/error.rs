//! Why a store gave no answer.

use crate::base::io_reason::io_reason;

/// Why a store gave no answer.
///
/// After `Unavailable` a write is *in doubt*: it may have happened or may still happen. Only the same
/// write with the same nonce settles it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the store cannot be asked: {}", io_reason(.0))]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The store answered that it has no room; nothing was written.
    #[error("the store is full")]
    Full,
    /// A newer raincheck wrote the record, so this raincheck must not change it.
    #[error("the task was written by a newer raincheck")]
    Newer,
    /// The entry is sealed under a key that this process does not have. Replicas with the key can read it.
    #[error("the entry is sealed under a key that this replica does not have")]
    UnknownKey,
    /// The store holds something that this program did not write.
    #[error("the store holds an unreadable entry: {0}")]
    Corrupt(&'static str),
}

/// An error that the store itself returned: a code that its documentation explains, and a sentence.
#[derive(Debug, thiserror::Error)]
#[error("{code} {detail}")]
pub struct StoreRefusal {
    pub code: String,
    pub detail: String,
}

impl StoreError {
    /// One word for the kind of failure, for logs that report each kind once.
    pub fn kind(&self) -> &str {
        match self {
            Self::Unavailable(why) => match why.downcast_ref::<StoreRefusal>() {
                Some(refusal) => &refusal.code,
                None => "away",
            },
            Self::Full => "full",
            Self::Newer => "newer",
            Self::UnknownKey => "sealed",
            Self::Corrupt(what) => what,
        }
    }
}
