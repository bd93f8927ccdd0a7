//! Where a reader gets the events of a call: from memory, if this replica carries the call, else from the log in
//! the store.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::takeover::Takeover;
use crate::downstream::outbound::response::Rpc;
use crate::downstream::proxy::Proxy;
use crate::mcp::envelope;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::runner::call_log::entry::LogEntry;
use crate::runner::call_log::log::{EventLog, MARK_LASTS};
use crate::runner::call_log::other_events::OtherEvents;
use crate::runner::call_log::pace::ReadPlace;
use crate::runner::call_log::recent::{Backlog, RecentEvents};
use crate::runner::call_log::standing::CallStanding;
use crate::runner::watch::Watch;
use crate::store::StoreError;
use crate::task::id::Incarnation;

/// The pause between two checks by which a reader of a call that another replica carries decides if it has to ask the
/// store.
const LOOK: Duration = Duration::from_secs(1);

/// The pause after which a reader marks the log of such a call again, and reads the log although it received no
/// notification: a store that failed over to an older copy may have lost the mark, and then no reader is notified of
/// the owner's entries.
const MARK: Duration = Duration::from_secs(MARK_LASTS.as_secs() / 3);

/// A replica that no other replica saw alive for this long carries nothing any more. Longer than a heartbeat
/// takes to become known.
const LOST_AFTER: Duration = Duration::from_secs(4);

/// The number of times that one reader tries to have the call of a lost owner continued.
const TRIES: u32 = 3;

/// Where a reader gets the events of a call.
pub(super) enum EventSource {
    /// This replica carries the call, and other replicas cannot know of the call yet.
    Unannounced(watch::Receiver<RecentEvents>),
    /// This replica carries the call.
    Local(watch::Receiver<RecentEvents>),
    /// Another replica carries the call, or did.
    Remote(Box<RemoteLog>),
    Over,
}

/// The result of a source for a reader.
pub(super) enum FoundEvents {
    /// Other replicas can know of the call from here on.
    Begun(watch::Receiver<RecentEvents>),
    /// This replica carries the call on.
    Local(watch::Receiver<RecentEvents>),
    Events(Vec<(u64, LogEntry)>),
    /// Events behind the last entry that are no messages.
    Others(OtherEvents),
    /// An error in place of the call's answer. Nothing follows.
    Lost(String),
    /// Nothing follows.
    Over,
}

impl EventSource {
    pub(super) fn remote(takeover: Takeover, log: &EventLog) -> Self {
        let mut look = tokio::time::interval(LOOK);
        // One look after a pause is enough: missed ticks must not follow in a burst.
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self::Remote(Box::new(RemoteLog {
            takeover,
            look,
            changes: log.watch(),
            marks_at: Instant::now(),
            owner: None,
            missed: None,
            tries: 0,
        }))
    }

    /// Returns the events behind that place. A client that came back, and is too slow for the log, misses entries:
    /// then the place moves on. Cancel safe.
    pub(super) async fn next(
        &mut self,
        proxy: &Arc<Proxy>,
        log: &EventLog,
        place: &mut ReadPlace,
    ) -> FoundEvents {
        match self {
            Self::Unannounced(recent) => {
                if recent.wait_for(|recent| recent.is_begun).await.is_err() {
                    return FoundEvents::Over;
                }
                FoundEvents::Begun(recent.clone())
            }
            Self::Local(recent) => local_events(log, recent, place).await,
            Self::Remote(remote) => remote.next(proxy, log, place.after).await,
            Self::Over => FoundEvents::Over,
        }
    }
}

async fn local_events(
    log: &EventLog,
    recent: &mut watch::Receiver<RecentEvents>,
    place: &mut ReadPlace,
) -> FoundEvents {
    loop {
        // The writer is blocked while the channel is borrowed, so the guard is dropped before the log is read.
        let (backlog, others) = {
            let recent = recent.borrow_and_update();
            let others = recent.others();
            let is_new = others.count() > place.others;
            let others = is_new.then(|| others.clone());
            (recent.behind(place.after), others)
        };
        match backlog {
            Backlog::All(entries) if entries.is_empty() => {
                if let Some(others) = others {
                    return FoundEvents::Others(others);
                }
                // An error means that the writer is gone. Everything that it showed was read above.
                if recent.changed().await.is_err() {
                    return FoundEvents::Over;
                }
            }
            Backlog::All(entries) => return FoundEvents::Events(entries),
            // A slow client misses what the log no longer has. The answer is never dropped.
            Backlog::Since(first) => match log.behind(place.after).await {
                Ok(entries) if !entries.is_empty() => return FoundEvents::Events(entries),
                // A store that is away must not hold up what memory has.
                Ok(_) | Err(_) => {
                    *place = ReadPlace {
                        after: first - 1,
                        others: 0,
                    };
                }
            },
        }
    }
}

/// The log of a call that another replica carries.
pub(super) struct RemoteLog {
    takeover: Takeover,
    look: Interval,
    /// Wakes the reader when the log has another entry, and when the call ends or has another owner.
    changes: Watch,
    /// When to mark next that the log is read here.
    marks_at: Instant,
    /// The owner that notifies readers of its entries, as of the last look that found nothing new. `None`: the store
    /// has to be asked.
    owner: Option<Incarnation>,
    /// Since when the owner is missed.
    missed: Option<Instant>,
    /// The number of times that this reader tried to have the call continued here.
    tries: u32,
}

impl RemoteLog {
    async fn next(&mut self, proxy: &Arc<Proxy>, log: &EventLog, after: u64) -> FoundEvents {
        loop {
            tokio::select! {
                _ = self.look.tick() => if !self.must_look(proxy, log) { continue },
                _ = self.changes.changed() => {}
                // The client comes back to another replica.
                () = proxy.closing.cancelled() => return FoundEvents::Over,
            }
            // A store that is away is asked again.
            if let Ok(Some(found)) = self.look(proxy, log, after).await {
                return found;
            }
        }
    }

    /// Returns `true` if the store has to be asked although there was no notification: the owner may be gone, or does
    /// not send any.
    fn must_look(&self, proxy: &Arc<Proxy>, log: &EventLog) -> bool {
        let owner = self.owner.as_ref();
        let is_carried = owner.is_some_and(|owner| lives(proxy, owner));
        !is_carried
            || Instant::now() >= self.marks_at
            || proxy.resumable.find_begun(log.name()).is_some()
    }

    /// `None`: nothing new.
    async fn look(
        &mut self,
        proxy: &Arc<Proxy>,
        log: &EventLog,
        after: u64,
    ) -> Result<Option<FoundEvents>, StoreError> {
        // Forgotten until this look succeeds: after an error the next tick asks the store again.
        let owner = self.owner.take();
        // Before the log is read, so that no entry is between the two. A full store can be read, too.
        if Instant::now() >= self.marks_at && log.mark_read().await.is_ok() {
            self.marks_at = Instant::now() + MARK;
        }
        if let Some(recent) = proxy.resumable.find_begun(log.name()) {
            return Ok(Some(FoundEvents::Local(recent)));
        }
        if let Some(entries) = events_behind(log, after).await? {
            self.missed = None;
            self.owner = owner;
            return Ok(Some(entries));
        }
        let stands = log.standing().await?;
        if let Some(stands) = &stands
            && !self.is_left(proxy, stands)
        {
            self.owner.clone_from(&stands.owner);
            return Ok(None);
        }
        // The owner may have written the last entries between the two reads.
        if let Some(entries) = events_behind(log, after).await? {
            return Ok(Some(entries));
        }
        let Some(stands) = stands else {
            return Ok(Some(FoundEvents::Over));
        };
        if stands.is_over {
            let error = match &stands.error {
                Some(error) if !log.is_complete().await? => error,
                Some(_) | None => return Ok(Some(FoundEvents::Over)),
            };
            let id = stands.terms.id.get();
            return Ok(Some(FoundEvents::Lost(envelope::error(id, error.get()))));
        }
        if self.tries < TRIES {
            // A takeover takes a moment, here or on the replica of another client of the call.
            self.tries += 1;
            self.missed = None;
            self.takeover.clone().begin(log.clone(), after);
            return Ok(None);
        }
        Ok(Some(FoundEvents::Lost(lost(&stands))))
    }

    /// Returns `true` if the call is over, or no replica carries it. A call that this replica owns would be found
    /// here: an earlier run owned it.
    fn is_left(&mut self, proxy: &Arc<Proxy>, stands: &CallStanding) -> bool {
        if stands.is_over {
            return true;
        }
        let owner = stands.owner.as_ref();
        if owner.is_some_and(|owner| lives(proxy, owner)) {
            self.missed = None;
            return false;
        }
        // Its owner left the call to other replicas, or was found to be lost before.
        if stands.owner.is_none() && self.tries == 0 {
            return true;
        }
        let now = Instant::now();
        let since = *self.missed.get_or_insert(now);
        now.saturating_duration_since(since) >= LOST_AFTER
    }
}

/// Returns `true` if another replica runs as this owner.
fn lives(proxy: &Arc<Proxy>, owner: &Incarnation) -> bool {
    let runner = &proxy.runner;
    owner != runner.incarnation() && !runner.misses(owner)
}

async fn events_behind(log: &EventLog, after: u64) -> Result<Option<FoundEvents>, StoreError> {
    let entries = log.behind(after).await?;
    Ok((!entries.is_empty()).then_some(FoundEvents::Events(entries)))
}

fn lost(stands: &CallStanding) -> String {
    let failure = Failure::new(Reason::OwnerLost, SideEffect::Unknown);
    Rpc::failure(stands.terms.id.get(), failure).json
}
