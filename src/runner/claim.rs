//! Claims: a name that stands for one call, so that requests with the same name, from any number of clients,
//! join that call.
//!
//! A claim is a value in the store that names the record of its call. The record is made under that id before
//! anything is sent, and if two replicas make the record, one of them wins: so a call runs at most once. If
//! the replica that made a claim died before it made the record, the next client with the name begins the
//! call. When a name no longer stands for a call that is over, the next call of the name is claimed under a
//! name made from that call's id.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::CallPermit;
use super::admission::Admittance;
use super::call::{CallSpec, NotAdmitted};
use super::carrier::{Carrier, ClaimedRecord, RecordTerms};
use super::follower::CameBy;
use super::report::{self, tool_of};
use super::responder::CallSubscriber;
use super::state::Runner;
use super::waiting::WaitTerms;
use crate::mcp::error::{Reason, says_not_run};
use crate::mcp::hex;
use crate::store::StoreError;
use crate::store::kv::{Kind, Name};
use crate::store::ledger::NotCreated;
use crate::task::digest::Digest;
use crate::task::id::{Caller, TaskId};
use crate::task::on_disconnect::OnDisconnect;
use crate::task::policy::Rule;
use crate::task::state::{Outcome, Task};

/// The shortest time for which an idempotency key stands for its call.
const KEY_LIFETIME_MS: u64 = 24 * 60 * 60 * 1000;

/// A record outlives its claim by this time, so that the call of a claim without a record was never begun.
const MARGIN_MS: u64 = 60_000;

/// The longest chain of calls of one name. Only replicas that race make a chain longer than one.
const LINKS_MAX: usize = 32;

/// The name of a call, and for how long it stands for that call.
#[derive(Debug, Clone, Copy)]
pub struct CallClaim {
    name: Name,
    digest: Digest,
    terms: ClaimTerms,
}

#[derive(Debug, Clone, Copy)]
enum ClaimTerms {
    /// The client chose a key.
    Key,
    /// The call itself is the name, while it runs and for a window after that.
    Call { window_ms: u64 },
}

/// Why there is no client for a claim. Nothing was sent.
#[derive(Debug)]
pub enum NotClaimed {
    /// The key stands for a call that asked for something else.
    OtherCall,
    StoreUnavailable,
    NotAdmitted(NotAdmitted),
}

impl From<StoreError> for NotClaimed {
    fn from(_: StoreError) -> Self {
        Self::StoreUnavailable
    }
}

impl From<NotAdmitted> for NotClaimed {
    fn from(why: NotAdmitted) -> Self {
        Self::NotAdmitted(why)
    }
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

    /// The claim of an identical call of the same client, which is known as `whose`.
    pub fn of_call(whose: &[u8; 16], digest: Digest, window_ms: u64) -> Self {
        let (whose, call) = (hex::encode(whose), hex::encode(digest.as_bytes()));
        Self {
            name: Name::of(Kind::IdenticalCall, &["call", &whose, &call]),
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

    /// The claim of the next call of this name, after the call with this id.
    fn after(self, id: TaskId) -> Self {
        let before = hex::encode(&self.name.digest);
        Self {
            name: Name::of(self.name.kind, &["after", &before, &id.to_string()]),
            ..self
        }
    }

    fn on_disconnect(&self) -> OnDisconnect {
        match self.terms {
            ClaimTerms::Key => OnDisconnect::Keep,
            ClaimTerms::Call { window_ms } => OnDisconnect::KeepFor(window_ms),
        }
    }

    /// Whether the name no longer stands for this call. Then the next request with the name begins a new
    /// call.
    fn is_over(&self, task: &Task, now_ms: u64) -> bool {
        let ended = match &task.outcome {
            None => return false,
            // The call did not run, so the next one may.
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

    /// The id of the call that a stored claim names, if the digest is the same.
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
    /// Begins the call that the claim stands for, or joins it if it was begun before.
    pub async fn call_once(
        self: &Arc<Self>,
        head: CallClaim,
        call: CallSpec,
    ) -> Result<CallSubscriber, NotClaimed> {
        let lifetime_ms = head.lifetime_ms(&call.rule);
        let lifetime = Duration::from_millis(lifetime_ms);
        let terms = WaitTerms::of(&call, self.upstream.start_allowance());
        let joins = CameBy::SameCall(Arc::clone(&call.outgoing.capabilities));
        let mut claim = head;
        let admitted = if self.ledger.has_room(&call.caller) {
            self.try_admit(&call)
        } else {
            Err(NotAdmitted::Quota)
        };
        for _ in 0..LINKS_MAX {
            if admitted.is_err() {
                // A new claim would remain without a call; a call that was begun can be joined.
                let latest = self.kv.find(claim.name).await?;
                if latest.is_none() {
                    break;
                }
            }
            let fresh = TaskId::random();
            let value = claim.value(fresh);
            let latest = self.kv.claim(claim.name, value, lifetime).await?;
            let id = match &latest {
                None => fresh,
                Some(latest) => claim.read(latest)?,
            };
            // The watch begins before the record is read: no change is missed.
            let watch = self.watches.watch(vec![id]);
            let known = match latest {
                None => None,
                Some(_) => self.ledger.load(id).await?,
            };
            match known {
                Some(loaded) if claim.is_over(&loaded.task, self.ledger.now_ms()) => {
                    claim = claim.after(id);
                }
                Some(loaded) => return Ok(self.follow(loaded, watch, terms, joins)),
                None => {
                    let record = RecordTerms {
                        id,
                        ttl_ms: lifetime_ms.saturating_add(MARGIN_MS),
                        on_disconnect: claim.on_disconnect(),
                        announced: terms.are_a_task_at_once(),
                    };
                    if claim.name != head.name {
                        // With the head replaced, later requests need not follow the chain of calls that are
                        // over.
                        self.kv.put(head.name, head.value(id), lifetime).await?;
                    }
                    let Ok(admitted) = admitted else { break };
                    match self.begin(call, record, admitted).await? {
                        Begin::Made(begun) => {
                            let (loaded, unauthorized) = begun.followed();
                            let made = CameBy::Call(unauthorized);
                            return Ok(self.follow(loaded, watch, terms, made));
                        }
                        // Another replica made the record first.
                        Begin::Taken => {
                            let loaded = self.ledger.load(id).await?;
                            let loaded = loaded.ok_or(NotClaimed::StoreUnavailable)?;
                            return Ok(self.follow(loaded, watch, terms, joins));
                        }
                    }
                }
            }
        }
        match admitted {
            Ok(_) => Err(NotClaimed::StoreUnavailable),
            Err(refused) => {
                report::refused(tool_of(&call.outgoing), refused.reason());
                Err(refused.into())
            }
        }
    }

    /// Makes the record and sends the call, even if the client goes away.
    async fn begin(
        self: &Arc<Self>,
        call: CallSpec,
        record: RecordTerms,
        (permit, admittance): (CallPermit, Admittance),
    ) -> Result<Begin, NotClaimed> {
        let tool = tool_of(&call.outgoing).map(str::to_owned);
        let (begins, begun) = oneshot::channel();
        let carrier = Carrier::for_claim(Arc::clone(self), call, admittance);
        self.spawn(carrier.task_id(), carrier.run_claim(record, begins), permit);
        match begun.await {
            Ok(Ok(begun)) => Ok(Begin::Made(Box::new(begun))),
            Ok(Err(NotCreated::Taken)) => Ok(Begin::Taken),
            Ok(Err(NotCreated::Quota)) => {
                report::refused(tool.as_deref(), Reason::Quota);
                Err(NotAdmitted::Quota.into())
            }
            Ok(Err(NotCreated::Store(_))) | Err(_) => Err(NotClaimed::StoreUnavailable),
        }
    }
}

enum Begin {
    Made(Box<ClaimedRecord>),
    Taken,
}
