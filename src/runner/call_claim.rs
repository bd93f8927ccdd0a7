//! The name under which several requests are one call, and the time for which it stands for that call. Pure.

use std::time::Duration;

use bytes::Bytes;

use crate::mcp::error::says_not_run;
use crate::mcp::hex;
use crate::store::StoreError;
use crate::store::kv::{Kind, Name};
use crate::task::digest::Digest;
use crate::task::id::{Caller, TaskId};
use crate::task::on_disconnect::OnDisconnect;
use crate::task::policy::Rule;
use crate::task::state::{Outcome, Task};

/// The shortest time for which an idempotency key stands for its call.
const KEY_LIFETIME_MS: u64 = 24 * 60 * 60 * 1000;

/// The name of a call, and for how long it stands for that call.
#[derive(Debug, Clone, Copy)]
pub struct CallClaim {
    pub(super) name: Name,
    digest: Digest,
    terms: ClaimTerms,
}

/// A call that several clients of one session wait for: the tool is one that can be called again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sharing {
    /// No call of the tool has an effect, so its result can be collected once more after its end.
    pub(super) keeps_result: bool,
}

/// Behind the id in the value of a claim of a call that is shared.
const SHARED: u8 = 1;
const SHARED_WITH_RESULT: u8 = 2;

#[derive(Debug, Clone, Copy)]
enum ClaimTerms {
    /// The client chose a key, or an operator the task.
    Key,
    /// The call itself is the name, while it runs and for a window after that.
    Call { window_ms: u64 },
    /// The call itself is the name, from when its client's clock ended until the same call comes again.
    GivenUp {
        window_ms: u64,
        shared: Option<Sharing>,
    },
}

impl CallClaim {
    /// The claim of a key that the client chose. `digest` is the digest of the call.
    pub fn of_key(caller: &Caller, key: &str, digest: Digest) -> Self {
        Self {
            name: Name::of(Kind::Claim, &["key", &hex::encode(caller.as_bytes()), key]),
            digest,
            terms: ClaimTerms::Key,
        }
    }

    /// The claim of the call that an operator begins in place of the call of this task.
    pub(super) fn of_rerun(id: TaskId, digest: Digest) -> Self {
        Self {
            name: Name::of(Kind::Claim, &["rerun", &id.to_string()]),
            digest,
            terms: ClaimTerms::Key,
        }
    }

    /// The claim of an identical call of the same client, which is known as `whose`.
    pub fn of_call(whose: &[u8; 16], digest: Digest, window_ms: u64) -> Self {
        let (whose, call) = (hex::encode(whose), hex::encode(digest.as_bytes()));
        Self {
            name: Name::of(Kind::IdenticalCall, &["call", &whose, &call]),
            digest,
            terms: ClaimTerms::Call { window_ms },
        }
    }

    /// The claim by which the client that is known as `whose` collects a call that it gave up.
    pub fn of_given_up(whose: &[u8; 16], digest: Digest, window_ms: u64) -> Self {
        let (whose, call) = (hex::encode(whose), hex::encode(digest.as_bytes()));
        Self {
            name: Name::of(Kind::GivenUp, &["call", &whose, &call]),
            digest,
            terms: ClaimTerms::GivenUp {
                window_ms,
                shared: None,
            },
        }
    }

    /// The same claim for a call whose client may wait still. `None`: the claim is of another kind.
    pub(super) fn shared(self, sharing: Sharing) -> Option<Self> {
        let ClaimTerms::GivenUp { window_ms, .. } = self.terms else {
            return None;
        };
        let shared = Some(sharing);
        let terms = ClaimTerms::GivenUp { window_ms, shared };
        Some(Self { terms, ..self })
    }

    /// How the call is shared. `None`: its client has left it.
    pub(super) fn sharing(&self) -> Option<Sharing> {
        match self.terms {
            ClaimTerms::GivenUp { shared, .. } => shared,
            ClaimTerms::Key | ClaimTerms::Call { .. } => None,
        }
    }

    /// Returns `true` if the claim is of a call that its client gave up.
    pub fn is_of_given_up(&self) -> bool {
        self.give_up_window().is_some()
    }

    /// The time that a given-up call runs on. `None`: the claim is of another kind.
    pub(super) fn give_up_window(&self) -> Option<Duration> {
        match self.terms {
            ClaimTerms::GivenUp { window_ms, .. } => Some(Duration::from_millis(window_ms)),
            ClaimTerms::Key | ClaimTerms::Call { .. } => None,
        }
    }

    pub(super) fn lifetime_ms(&self, rule: &Rule) -> u64 {
        match self.terms {
            // The claim must outlive the call: once it has expired, the same key begins a second run.
            ClaimTerms::Key => KEY_LIFETIME_MS.max(rule.max_duration_ms),
            ClaimTerms::Call { window_ms } | ClaimTerms::GivenUp { window_ms, .. } => {
                // The window begins when the call ends, which may be as late as its longest duration.
                rule.max_duration_ms.saturating_add(window_ms)
            }
        }
    }

    /// The claim of the next call of this name, after the call with this id.
    pub(super) fn after(self, id: TaskId) -> Self {
        let before = hex::encode(&self.name.digest);
        Self {
            name: Name::of(self.name.kind, &["after", &before, &id.to_string()]),
            ..self
        }
    }

    pub(super) fn on_disconnect(&self) -> OnDisconnect {
        match self.terms {
            ClaimTerms::Key => OnDisconnect::Keep,
            ClaimTerms::Call { window_ms } | ClaimTerms::GivenUp { window_ms, .. } => {
                OnDisconnect::KeepFor(window_ms)
            }
        }
    }

    /// Returns `true` if the name no longer stands for this call. Then the next request with the name begins a new call.
    pub(super) fn is_over(&self, task: &Task, now_ms: u64) -> bool {
        let ended = match &task.outcome {
            None => return false,
            // The call did not run, so the next one may.
            Some(Outcome::Failed(error)) if says_not_run(error) => return true,
            Some(ended) => ended,
        };
        match self.terms {
            // A repeated key gets the outcome of its call as long as the claim exists, so nothing runs twice.
            ClaimTerms::Key => false,
            ClaimTerms::Call { window_ms } | ClaimTerms::GivenUp { window_ms, .. } => {
                // A cancelled call has no result to share, so the next same call runs.
                matches!(ended, Outcome::Cancelled)
                    || now_ms >= task.updated_ms.saturating_add(window_ms)
            }
        }
    }

    pub(super) fn value(&self, id: TaskId) -> Bytes {
        let shared: &[u8] = match self.sharing() {
            None => &[],
            Some(sharing) if sharing.keeps_result => &[SHARED_WITH_RESULT],
            Some(_) => &[SHARED],
        };
        // The digest comes along, so that a key that comes again with another call is noticed and refused.
        Bytes::from([self.digest.as_bytes(), id.as_bytes().as_slice(), shared].concat())
    }

    /// Reads the id of the call that a stored claim names. `None`: the call has another digest.
    pub(super) fn read(&self, value: &[u8]) -> Result<Option<TaskId>, StoreError> {
        let read = value.split_first_chunk::<16>().and_then(|(digest, rest)| {
            let (id, shared) = rest.split_first_chunk::<16>()?;
            (shared.len() <= 1).then_some((digest, id))
        });
        let (digest, id) = read.ok_or(StoreError::Corrupt("a claim"))?;
        let is_this_call = digest == self.digest.as_bytes();
        Ok(is_this_call.then(|| TaskId::from_bytes(*id)))
    }

    /// Reads how the call of a stored claim is shared.
    pub(super) fn read_sharing(value: &[u8]) -> Option<Sharing> {
        let kind = *value.get(32)?;
        let keeps_result = kind == SHARED_WITH_RESULT;
        Some(Sharing { keeps_result })
    }
}
