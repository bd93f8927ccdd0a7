//! Continues a call whose replica died, on the replica that its client comes back to. The server must keep its
//! events: the call is resumed behind the last known one, on the client's session and with its credentials.

use std::sync::Arc;

use futures_util::FutureExt as _;
use hyper::http::request::Parts;
use tokio::sync::watch;
use tokio::time::Instant;

use super::call::{CallerSession, cancel_of};
use super::http_answer::{HttpAnswer, ReadState};
use super::job::CallJob;
use super::log::{EventLog, Rest};
use super::owner::{LogOwner, SealedPoint, StoredOwner};
use super::recent::RecentEvents;
use super::writer::LogWriter;
use crate::downstream::calls::registry::CallKind;
use crate::downstream::proxy::Proxy;
use crate::mcp::error::Reason;
use crate::mcp::headers::LAST_EVENT_ID;
use crate::store::StoreError;
use crate::task::id::{Incarnation, TaskId};
use crate::upstream::relay::ResumePoint;

/// Replicas that may have died one after the other, each before it could continue the call.
const LOST_MAX: usize = 8;

/// The log of a call that this replica owns now.
struct ClaimedLog {
    owner: LogOwner,
    /// The incarnation that owned the log before.
    before: Box<str>,
    stored: StoredOwner,
}

fn expires_ms(owner: &LogOwner) -> u64 {
    owner
        .limits
        .ends_ms
        .saturating_add(owner.limits.retention_ms)
}

/// Continues a call here, for a client that came back to it.
#[derive(Clone)]
pub(super) struct Takeover {
    proxy: Arc<Proxy>,
    /// The head of the request with which the client came back.
    parts: Parts,
    session: CallerSession,
}

impl Takeover {
    pub(super) fn new(proxy: &Arc<Proxy>, parts: &Parts, session: CallerSession) -> Self {
        let mut parts = parts.clone();
        parts.headers.remove(LAST_EVENT_ID);
        Self {
            proxy: Arc::clone(proxy),
            parts,
            session,
        }
    }

    /// Begins in a job of its own, which goes on when the client leaves again. `seen`: the last entry that the
    /// client has.
    pub(super) fn begin(self, log: EventLog, seen: u64) {
        let proxy = Arc::clone(&self.proxy);
        proxy.runner.spawn_tracked(async move {
            if let Err(error) = Box::pin(self.carry_on(log, seen)).await {
                tracing::warn!(%error, "the store did not let a resumable call be taken over");
            }
        });
    }

    async fn carry_on(self, log: EventLog, seen: u64) -> Result<(), StoreError> {
        let Some(owner) = log.owner().await?.filter(|owner| !owner.is_over) else {
            return Ok(());
        };
        let (recent, shown) = watch::channel(RecentEvents::default());
        let key = self.session.key();
        // One takeover at a time on this replica, and then one of all replicas.
        let proxy = &self.proxy;
        let entry = proxy.calls.enter(CallKind::Resumable, key, owner.id.get());
        let registered = entry
            .ok()
            .and_then(|entry| proxy.resumable.begin(log.name(), entry, shown));
        let Some(registration) = registered else {
            return Ok(());
        };
        if !self.is_next(&log, &owner).await? {
            return Ok(());
        }
        // The previous owner, should it live after all, checks the owner note before it writes.
        let checked = Instant::now();
        let Some(claimed) = self.claim(&log).await? else {
            return Ok(());
        };
        let ClaimedLog {
            mut owner,
            before,
            stored,
        } = claimed;
        // Read after the claim, so that the last entries of the previous owner count.
        let rest = log.rest(&owner).await;
        let Ok(Rest::Resumable { event_id, last }) = rest else {
            // The call cannot be continued here: readers must not wait for that.
            owner.is_over = matches!(rest, Ok(Rest::Answered));
            owner.incarnation = before;
            log.write_owner(&owner, Some(&stored), expires_ms(&owner))
                .await?;
            return rest.map(drop);
        };
        tracing::info!("a resumable call is carried on after its replica was lost");
        recent.send_replace(RecentEvents::behind_entry(last));
        // The server may say nothing more before this replica dies: its successor needs the same event id.
        let sealed = log.seal().seal(&event_id);
        owner.point = sealed.map(|sealed| SealedPoint {
            behind: last,
            sealed,
        });
        let items = self.answer(&owner, event_id).items();
        let stop = self.stop(&owner).boxed();
        let writer = LogWriter::new(log, owner, recent, last, checked)
            .with_stored_owner(stored)
            .seen(seen);
        let job = CallJob::new(&self.proxy, writer, registration, key, stop);
        job.run(items).await;
        Ok(())
    }

    /// Names this replica in the owner note as the note is now: the previous owner may have written it at last.
    /// `None`: the call is over, or its owner lives.
    async fn claim(&self, log: &EventLog) -> Result<Option<ClaimedLog>, StoreError> {
        let me = self.proxy.runner.incarnation().as_str();
        for _ in 0..LOST_MAX {
            let stands = log.stored_owner().await?;
            let Some((mut owner, stands)) = stands.filter(|(owner, _)| !owner.is_over) else {
                return Ok(None);
            };
            let before = std::mem::replace(&mut owner.incarnation, me.into());
            let written = log.write_owner(&owner, Some(&stands), expires_ms(&owner));
            if let Some(stored) = written.await? {
                return Ok(Some(ClaimedLog {
                    owner,
                    before,
                    stored,
                }));
            }
        }
        Ok(None)
    }

    /// Whether this replica is the one that continues the call. A claimant that died first is passed over.
    async fn is_next(&self, log: &EventLog, owner: &LogOwner) -> Result<bool, StoreError> {
        let me = self.proxy.runner.incarnation();
        let claimant = format!("{}/{}", TaskId::random(), me.as_str());
        let expires_ms = expires_ms(owner);
        let mut lost = owner.incarnation.to_string();
        for _ in 0..LOST_MAX {
            let first = log.claim_after(&lost, &claimant, expires_ms).await?;
            let Some(first) = first else {
                return Ok(true);
            };
            let first = String::from_utf8_lossy(&first).into_owned();
            let (_, other) = first.split_once('/').unwrap_or_default();
            let other = Incarnation::from_text(other);
            // An older claim of this replica is over: a running one would be registered here.
            if other != *me && !self.proxy.runner.misses(&other) {
                return Ok(false);
            }
            lost = first;
        }
        Ok(false)
    }

    /// The rest of the answer, behind this event of the server.
    fn answer(&self, owner: &LogOwner, event_id: String) -> HttpAnswer {
        let point = ResumePoint {
            event_id,
            retry: None,
        };
        let lost = Reason::OwnerLost;
        let state = ReadState::Cut { point, lost };
        let (upstream, limits) = (&self.proxy.upstream, &owner.limits);
        HttpAnswer::new(upstream, &self.parts, &owner.id, limits.bytes_max, state)
    }

    /// Tells the server that no client waits, in the client's name.
    fn stop(&self, owner: &LogOwner) -> impl Future<Output = ()> + Send + 'static {
        let (upstream, parts) = (Arc::clone(&self.proxy.upstream), self.parts.clone());
        let text = cancel_of(&owner.id);
        async move {
            let told = upstream.tell_as(parts, text).await;
            if told.is_err() {
                tracing::debug!("a server could not be told that no client waits");
            }
        }
    }
}
