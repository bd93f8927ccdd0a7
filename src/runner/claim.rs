//! The same call again: a name that stands for one call, whoever comes with it and however often.
//!
//! A claim is a note that names the record of its call. The record is made under that id before
//! anything is sent, and of two who make it one wins: so a call runs at most once, and a claim whose
//! maker died before there was a record is carried out by whoever comes next. Where a call is over
//! for its name, the next one is claimed under the name of its record.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::call::{Call, NotBegun};
use super::carrier::{Begun, Carrier, Claimed};
use super::seat::Client;
use super::state::Runner;
use super::terms::Terms;
use crate::mcp::error::says_not_run;
use crate::store::StoreError;
use crate::store::kv::{Kind, Name};
use crate::store::ledger::NotCreated;
use crate::task::id::{Caller, TaskId};
use crate::task::policy::Rule;
use crate::task::state::{Digest, Outcome, Task, WhenLeft};

/// How long an idempotency key stands for its call, at least.
const KEY_LIFETIME_MS: u64 = 24 * 60 * 60 * 1000;

/// A record outlives the claim that names it by so much: a claim without a record is one whose call
/// was never begun.
const MARGIN_MS: u64 = 60_000;

/// Calls of one name that are looked through for the newest. Only replicas that race leave more than
/// one to look through.
const LINKS_MAX: usize = 32;

/// What stands for a call.
#[derive(Debug, Clone, Copy)]
pub struct Claim {
    name: Name,
    digest: Digest,
    terms: ClaimTerms,
}

#[derive(Debug, Clone, Copy)]
enum ClaimTerms {
    /// The client chose a key.
    Key,
    /// The call itself, while it runs and so long after.
    Call { window_ms: u64 },
}

/// Why there is no client for a claim. Nothing was sent.
#[derive(Debug)]
pub enum NotClaimed {
    /// The key stands for a call that asked for something else.
    OtherCall,
    StoreUnavailable,
    NotBegun(NotBegun),
}

impl From<StoreError> for NotClaimed {
    fn from(_: StoreError) -> Self {
        Self::StoreUnavailable
    }
}

impl From<NotBegun> for NotClaimed {
    fn from(why: NotBegun) -> Self {
        Self::NotBegun(why)
    }
}

impl Claim {
    /// A key of the client's choice. `digest` is of what it stands for.
    pub fn of_key(caller: &Caller, key: &str, digest: Digest) -> Self {
        Self {
            name: Name::of(Kind::Claim, &["key", &hex(caller.as_bytes()), key]),
            digest,
            terms: ClaimTerms::Key,
        }
    }

    /// The identical call of the same client, which is known as `whose`.
    pub fn of_call(whose: &[u8; 16], digest: Digest, window_ms: u64) -> Self {
        let (whose, call) = (hex(whose), hex(digest.as_bytes()));
        Self {
            name: Name::of(Kind::Claim, &["call", &whose, &call]),
            digest,
            terms: ClaimTerms::Call { window_ms },
        }
    }

    fn lifetime_ms(&self, rule: &Rule) -> u64 {
        match self.terms {
            ClaimTerms::Key => KEY_LIFETIME_MS.max(rule.max_duration_ms),
            ClaimTerms::Call { window_ms } => rule.max_duration_ms.saturating_add(window_ms),
        }
    }

    /// The name under which the call after this one is claimed.
    fn after(self, id: TaskId) -> Self {
        let before = hex(&self.name.digest);
        Self {
            name: Name::of(Kind::Claim, &["after", &before, &id.to_string()]),
            ..self
        }
    }

    fn when_left(&self) -> WhenLeft {
        match self.terms {
            ClaimTerms::Key => WhenLeft::RunsOn,
            ClaimTerms::Call { window_ms } => WhenLeft::RunsFor(window_ms),
        }
    }

    /// Whether the next call of this name is another one.
    fn is_over(&self, task: &Task, now_ms: u64) -> bool {
        let ended = match &task.outcome {
            None => return false,
            // It did not run, so it may.
            Some(Outcome::Failed(error)) if says_not_run(error) => return true,
            Some(ended) => ended,
        };
        match self.terms {
            ClaimTerms::Key => false,
            ClaimTerms::Call { window_ms } => {
                matches!(ended, Outcome::Cancelled)
                    || now_ms >= task.updated_ms.saturating_add(window_ms)
            }
        }
    }

    fn value(&self, id: TaskId) -> Bytes {
        Bytes::from([*self.digest.as_bytes(), *id.as_bytes()].concat())
    }

    /// The call that a claim names, where it is one of this digest.
    fn read(&self, value: &[u8]) -> Result<TaskId, NotClaimed> {
        let (digest, id) = value
            .split_first_chunk::<16>()
            .and_then(|(digest, id)| Some((digest, <[u8; 16]>::try_from(id).ok()?)))
            .ok_or(StoreError::Corrupt("a claim"))?;
        if digest != self.digest.as_bytes() {
            return Err(NotClaimed::OtherCall);
        }
        Ok(TaskId::from_bytes(id))
    }
}

impl Runner {
    /// Begins the call that the claim stands for, or joins it where it was begun before.
    pub async fn call_once(
        self: &Arc<Self>,
        head: Claim,
        call: Call,
    ) -> Result<Client, NotClaimed> {
        let lifetime_ms = head.lifetime_ms(&call.rule);
        let lifetime = Duration::from_millis(lifetime_ms);
        let mut terms = Terms::of(&call, self.upstream.start_allowance());
        let mut claim = head;
        for _ in 0..LINKS_MAX {
            if !self.ledger.has_room(&call.caller) {
                // Else each try would leave a claim behind; a call that was begun can be joined.
                let stands = self.notes.find(claim.name).await?;
                if stands.is_none() {
                    return Err(NotBegun::Quota.into());
                }
            }
            let fresh = TaskId::random();
            let value = claim.value(fresh);
            let stands = self.notes.claim(claim.name, value, lifetime).await?;
            let id = match &stands {
                None => fresh,
                Some(stands) => claim.read(stands)?,
            };
            // Watched before it is read: no change is missed.
            let watch = self.watches.watch(vec![id]);
            let known = match stands {
                None => None,
                Some(_) => self.ledger.load(id).await?,
            };
            match known {
                Some(loaded) if claim.is_over(&loaded.task, self.ledger.now_ms()) => {
                    claim = claim.after(id);
                }
                Some(loaded) => return Ok(self.follow(loaded, watch, terms)),
                None => {
                    let claimed = Claimed {
                        id,
                        ttl_ms: lifetime_ms.saturating_add(MARGIN_MS),
                        when_left: claim.when_left(),
                        announced: terms.are_a_task_at_once(),
                    };
                    if claim.name != head.name {
                        // So that nobody has to look through what is over.
                        self.notes.put(head.name, head.value(id), lifetime).await?;
                    }
                    match self.begin(call, claimed).await? {
                        Begin::Made(begun) => {
                            terms = terms.first(begun.unauthorized);
                            return Ok(self.follow(begun.loaded, watch, terms));
                        }
                        // Somebody else came between.
                        Begin::Taken => {
                            let loaded = self.ledger.load(id).await?;
                            let loaded = loaded.ok_or(NotClaimed::StoreUnavailable)?;
                            return Ok(self.follow(loaded, watch, terms));
                        }
                    }
                }
            }
        }
        Err(NotClaimed::StoreUnavailable)
    }

    /// Makes the record and sends the call, whatever becomes of the client.
    async fn begin(self: &Arc<Self>, call: Call, claimed: Claimed) -> Result<Begin, NotClaimed> {
        let (permit, turn) = self.admit(&call)?;
        let (waiting, begun) = oneshot::channel();
        let carrier = Carrier::for_claim(Arc::clone(self), call, turn, claimed, waiting);
        self.spawn(carrier, permit);
        match begun.await {
            Ok(Ok(begun)) => Ok(Begin::Made(Box::new(begun))),
            Ok(Err(NotCreated::Taken)) => Ok(Begin::Taken),
            Ok(Err(NotCreated::Quota)) => Err(NotBegun::Quota.into()),
            Ok(Err(NotCreated::Store(_))) | Err(_) => Err(NotClaimed::StoreUnavailable),
        }
    }
}

enum Begin {
    Made(Box<Begun>),
    Taken,
}

fn hex(bytes: &[u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(*bytes))
}
