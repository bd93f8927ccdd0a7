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

use tokio::sync::oneshot;

use super::CallPermit;
use super::admission::Admittance;
use super::call::{AdmitError, CallSpec};
pub use super::call_claim::CallClaim;
use super::carrier::{Carrier, ClaimedRecord, RecordTerms};
use super::follower::{FollowReason, FollowingClient};
use super::report::{self, tool_of};
use super::responder::CallSubscriber;
use super::state::Runner;
use super::waiting::WaitTerms;
use crate::mcp::error::Reason;
use crate::store::StoreError;
use crate::store::ledger::CreateError;
use crate::task::id::TaskId;

/// A record outlives its claim by this time, so that the call of a claim without a record was never begun.
const MARGIN_MS: u64 = 60_000;

/// The longest chain of calls of one name. Only replicas that race make a chain longer than one.
const LINKS_MAX: usize = 32;

/// Why there is no client for a claim. Nothing was sent.
#[derive(Debug)]
pub enum ClaimError {
    /// The key stands for a call that asked for something else.
    OtherCall,
    StoreUnavailable,
    AdmitError(AdmitError),
}

impl From<StoreError> for ClaimError {
    fn from(_: StoreError) -> Self {
        Self::StoreUnavailable
    }
}

impl From<AdmitError> for ClaimError {
    fn from(why: AdmitError) -> Self {
        Self::AdmitError(why)
    }
}

impl Runner {
    /// Begins the call that the claim stands for, or joins it if it was begun before.
    pub async fn call_once(
        self: &Arc<Self>,
        head: CallClaim,
        call: CallSpec,
    ) -> Result<CallSubscriber, ClaimError> {
        let lifetime_ms = head.lifetime_ms(&call.terms.rule);
        let lifetime = Duration::from_millis(lifetime_ms);
        let terms = WaitTerms::of(&call, self.upstream.start_allowance());
        let joins = FollowReason::SameCall(FollowingClient::of(&call.outgoing));
        let mut claim = head;
        let admitted = if self.ledger.has_room(&call.client.caller) {
            self.try_admit(&call)
        } else {
            Err(AdmitError::Quota)
        };
        for _ in 0..LINKS_MAX {
            // A new claim would remain without a call; a call that was begun can be joined.
            if admitted.is_err() && self.kv.find(claim.name).await?.is_none() {
                break;
            }
            let fresh = TaskId::random();
            let value = claim.value(fresh);
            let latest = self.kv.claim(claim.name, value, lifetime).await?;
            let id = match &latest {
                None => fresh,
                Some(latest) => claim.read(latest)?.ok_or(ClaimError::OtherCall)?,
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
                            let made = FollowReason::Call(unauthorized);
                            return Ok(self.follow(loaded, watch, terms, made));
                        }
                        // Another replica made the record first.
                        Begin::Taken => {
                            let loaded = self.ledger.load(id).await?;
                            let loaded = loaded.ok_or(ClaimError::StoreUnavailable)?;
                            return Ok(self.follow(loaded, watch, terms, joins));
                        }
                    }
                }
            }
        }
        match admitted {
            Ok(_) => Err(ClaimError::StoreUnavailable),
            Err(refused) => {
                report::refused(tool_of(&call.outgoing), refused.failure().reason);
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
    ) -> Result<Begin, ClaimError> {
        let tool = tool_of(&call.outgoing).map(str::to_owned);
        let (begins, begun) = oneshot::channel();
        let carrier = Carrier::for_claim(Arc::clone(self), call, admittance);
        self.spawn(carrier.task_id(), carrier.run_claim(record, begins), permit);
        match begun.await {
            Ok(Ok(begun)) => Ok(Begin::Made(Box::new(begun))),
            Ok(Err(CreateError::Taken)) => Ok(Begin::Taken),
            Ok(Err(CreateError::Quota)) => {
                report::refused(tool.as_deref(), Reason::Quota);
                Err(AdmitError::Quota.into())
            }
            // A carrier that panicked drops the sender, and may have made the record before.
            Ok(Err(CreateError::Store(_))) | Err(_) => Err(ClaimError::StoreUnavailable),
        }
    }
}

enum Begin {
    Made(Box<ClaimedRecord>),
    Taken,
}
