//! Where a reader gets the events of a call: from memory, if this replica carries the call, else from the log in
//! the store.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::entry::LogEntry;
use super::log::{EventLog, Rest};
use super::owner::LogOwner;
use super::recent::{Backlog, RecentEvents};
use super::takeover::Takeover;
use crate::downstream::outbound::response::Rpc;
use crate::downstream::proxy::Proxy;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::store::StoreError;
use crate::task::id::Incarnation;

/// How often the log of a call that another replica carries is read.
const LOOK: Duration = Duration::from_secs(1);

/// A replica that no other replica saw alive for this long carries nothing any more. Longer than a heartbeat
/// takes to become known.
const LOST_AFTER: Duration = Duration::from_secs(4);

/// How often one reader tries to have the call of a lost owner continued.
const TRIES: u32 = 3;

/// Where a reader gets the events of a call.
pub(super) enum EventSource {
    /// This replica carries the call, and other replicas cannot know of the call yet.
    NotBegun(watch::Receiver<RecentEvents>),
    /// This replica carries the call.
    Local(watch::Receiver<RecentEvents>),
    /// Another replica carries the call, or did.
    Remote(Box<RemoteLog>),
    Over,
}

/// What a source has for a reader.
pub(super) enum Found {
    /// Other replicas can know of the call from here on.
    Begun(watch::Receiver<RecentEvents>),
    /// This replica carries the call on.
    Local(watch::Receiver<RecentEvents>),
    Events(Vec<(u64, LogEntry)>),
    /// An error in place of the call's answer. Nothing follows.
    Lost(String),
    /// Nothing follows.
    Over,
}

impl EventSource {
    pub(super) fn remote(takeover: Takeover) -> Self {
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self::Remote(Box::new(RemoteLog {
            takeover,
            look,
            missed: None,
            tries: 0,
        }))
    }

    /// What comes behind the entry `after`. A client that is too slow for the log misses entries: then `after`
    /// moves on. Cancel safe.
    pub(super) async fn next(
        &mut self,
        proxy: &Arc<Proxy>,
        log: &EventLog,
        after: &mut u64,
    ) -> Found {
        match self {
            Self::NotBegun(recent) => {
                if recent.wait_for(|recent| recent.is_begun).await.is_err() {
                    return Found::Over;
                }
                Found::Begun(recent.clone())
            }
            Self::Local(recent) => local_events(log, recent, after).await,
            Self::Remote(remote) => remote.next(proxy, log, *after).await,
            Self::Over => Found::Over,
        }
    }
}

async fn local_events(
    log: &EventLog,
    recent: &mut watch::Receiver<RecentEvents>,
    after: &mut u64,
) -> Found {
    loop {
        let backlog = recent.borrow_and_update().behind(*after);
        match backlog {
            Backlog::All(entries) if entries.is_empty() => {
                if recent.changed().await.is_err() {
                    return Found::Over;
                }
            }
            Backlog::All(entries) => return Found::Events(entries),
            // A slow client misses what the log no longer has. The answer is never dropped.
            Backlog::Since(first) => match log.behind(*after).await {
                Ok(entries) if !entries.is_empty() => return Found::Events(entries),
                Ok(_) | Err(_) => *after = first - 1,
            },
        }
    }
}

/// The log of a call that another replica carries.
pub(super) struct RemoteLog {
    takeover: Takeover,
    look: Interval,
    /// Since when the owner is missed.
    missed: Option<Instant>,
    /// How often this reader tried to have the call continued here.
    tries: u32,
}

impl RemoteLog {
    async fn next(&mut self, proxy: &Arc<Proxy>, log: &EventLog, after: u64) -> Found {
        loop {
            tokio::select! {
                _ = self.look.tick() => {}
                // The client comes back to another replica.
                () = proxy.closing.cancelled() => return Found::Over,
            }
            // A store that is away is asked again.
            if let Ok(Some(found)) = self.look(proxy, log, after).await {
                return found;
            }
        }
    }

    /// `None`: nothing new.
    async fn look(
        &mut self,
        proxy: &Arc<Proxy>,
        log: &EventLog,
        after: u64,
    ) -> Result<Option<Found>, StoreError> {
        if let Some(recent) = proxy.resumable.find_begun(log.name()) {
            return Ok(Some(Found::Local(recent)));
        }
        if let Some(entries) = events_behind(log, after).await? {
            self.missed = None;
            return Ok(Some(entries));
        }
        let owner = log.owner().await?.filter(|owner| !owner.is_over);
        if let Some(owner) = &owner
            && !self.is_lost(proxy, owner)
        {
            return Ok(None);
        }
        // The owner may have written the last entries between the two reads.
        if let Some(entries) = events_behind(log, after).await? {
            return Ok(Some(entries));
        }
        let Some(owner) = owner else {
            return Ok(Some(Found::Over));
        };
        match log.rest(&owner).await? {
            Rest::Resumable { .. } if self.tries < TRIES => {
                // A takeover takes a moment, here or on the replica of another client of the call.
                self.tries += 1;
                self.missed = None;
                self.takeover.clone().begin(log.clone(), after);
                Ok(None)
            }
            Rest::Answered => Ok(Some(Found::Over)),
            Rest::Resumable { .. } | Rest::Lost => Ok(Some(Found::Lost(lost(&owner)))),
        }
    }

    /// Whether the owner is gone. A call that this replica owns would be found here: an earlier run owned it.
    fn is_lost(&mut self, proxy: &Arc<Proxy>, owner: &LogOwner) -> bool {
        let owner = Incarnation::from_text(&owner.incarnation);
        if owner != *proxy.runner.incarnation() && !proxy.runner.misses(&owner) {
            self.missed = None;
            return false;
        }
        let now = Instant::now();
        let since = *self.missed.get_or_insert(now);
        now.saturating_duration_since(since) >= LOST_AFTER
    }
}

async fn events_behind(log: &EventLog, after: u64) -> Result<Option<Found>, StoreError> {
    let entries = log.behind(after).await?;
    Ok((!entries.is_empty()).then_some(Found::Events(entries)))
}

fn lost(owner: &LogOwner) -> String {
    let failure = Failure::new(Reason::OwnerLost, SideEffect::Unknown);
    Rpc::failure(owner.id.get(), failure).json
}
