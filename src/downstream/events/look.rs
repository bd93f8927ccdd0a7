//! A look at the tasks of a caller: which events they have now.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::StreamExt as _;

use super::request::{EventFilter, WantedTasks};
use super::state::{AskedAt, Events};
use crate::downstream::inbound::requester::Requester;
use crate::downstream::proxy::Proxy;
use crate::store::{ListPlace, StoreError};
use crate::task::events::position::{EventPosition, TOLD_MAX};
use crate::task::events::{EventMark, occurrence};
use crate::task::id::TaskId;
use crate::task::state::Task;

/// The most tasks of one caller that are looked at: those that expire last.
pub(super) const TASKS_MAX: usize = 1_000;

/// A position names all events that one look can return, so that an end which the look just missed is still news for
/// the next.
const _: () = assert!(
    TASKS_MAX <= TOLD_MAX,
    "a look finds more than a position names"
);

/// One event that was not sent yet.
#[derive(Debug, Clone)]
pub(super) struct EventNews {
    pub(super) mark: EventMark,
    /// As JSON, without its cursor and without `_meta`.
    pub(super) event: String,
}

/// The result of a look.
#[derive(Debug, Default)]
pub(super) struct EventLook {
    /// In the order of the events.
    pub(super) news: Vec<EventNews>,
    /// Tasks of which no further event can be sent: they have ended, or the client does not receive their events.
    pub(super) settled: BTreeSet<TaskId>,
    /// The caller has more tasks than were looked at.
    pub(super) is_cut: bool,
}

/// Why a look found nothing.
#[derive(Debug)]
pub(super) enum LookError {
    /// No turn became free in time.
    NoTurn,
    Store(StoreError),
}

impl From<StoreError> for LookError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Looks for one client.
pub(super) struct EventLooker {
    pub(super) proxy: Arc<Proxy>,
    pub(super) events: Arc<Events>,
    pub(super) by: Requester,
    pub(super) filter: EventFilter,
}

impl EventLooker {
    pub(super) fn asked_at(&self) -> AskedAt {
        let now_ms = self.proxy.runner.ledger().now_ms();
        AskedAt {
            now_ms,
            visible_ms: self.events.visible_until(now_ms),
        }
    }

    /// Returns the time that the record of a task is there after its end.
    pub(super) fn kept_ms(&self) -> u64 {
        self.by.rules.retention_ms_min()
    }

    /// Reads the tasks that are not settled, each for a moment: of the records, the events that are news stay. The list is
    /// read in the same turn, because it may be longer than what is read of it.
    pub(super) async fn look(
        &self,
        position: &EventPosition,
        settled: &BTreeSet<TaskId>,
    ) -> Result<EventLook, LookError> {
        let turn = self.events.look_turn(self.by.caller).await;
        let _turn = turn.ok_or(LookError::NoTurn)?;
        let mut look = EventLook::default();
        let mut places = self.places().await?;
        look.is_cut = places.len() > TASKS_MAX;
        places.truncate(TASKS_MAX);
        places.retain(|(_, id)| {
            let is_settled = settled.contains(id);
            if is_settled {
                // Kept only while the list has the task, so that the set never outgrows the list.
                look.settled.insert(*id);
            }
            !is_settled
        });
        let reading = self.proxy.tasks_of(&self.by.caller).reading(places);
        tokio::pin!(reading);
        while let Some((_, found)) = reading.next().await {
            if let Some(task) = found? {
                look.add(&task, position, self.is_for_client(&task));
            }
        }
        // The list is in the order of expiry, but a position can only move on in the order of events.
        look.news.sort_unstable_by_key(|news| news.mark);
        Ok(look)
    }

    /// Where the tasks are in the caller's list, and one more place where there are too many. One task is read without the list.
    pub(super) async fn places(&self) -> Result<Vec<ListPlace>, StoreError> {
        match self.filter.tasks {
            WantedTasks::NoTask => Ok(Vec::new()),
            // The task is read by its id, so any place will do.
            WantedTasks::One(id) => Ok(vec![(u64::MAX, id)]),
            WantedTasks::All => {
                let store = self.proxy.runner.ledger().store();
                // One more than is looked at, so that a longer list is noticed.
                store.listed(&self.by.caller, None, TASKS_MAX + 1).await
            }
        }
    }

    /// The name of a task's tool never changes, nor do the rights of a request.
    fn is_for_client(&self, task: &Task) -> bool {
        self.filter.admits(&task.name) && Proxy::lacking_scopes(&self.by, &task.name).is_none()
    }
}

impl EventLook {
    fn add(&mut self, task: &Task, position: &EventPosition, is_for_client: bool) {
        if task.is_ended() || !is_for_client {
            self.settled.insert(task.id);
        }
        let mark = EventMark::of(task).filter(|mark| position.is_news(*mark));
        if let Some(mark) = mark.filter(|_| is_for_client) {
            let event = occurrence(task, mark);
            self.news.push(EventNews { mark, event });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::machine::tests::task;
    use crate::task::state::{Leg, Outcome};

    #[test]
    fn what_can_tell_nothing_more_is_settled() {
        let (mut look, position) = (EventLook::default(), EventPosition::at(0));
        let mut working = task(Leg::Sent(1), true);
        working.updated_ms = 7;
        look.add(&working, &position, true);
        assert!(look.settled.is_empty() && look.news.is_empty());
        let mut ended = working.clone();
        ended.outcome = Some(Outcome::Cancelled);
        look.add(&ended, &EventPosition::at(7), true);
        assert!(
            look.settled.contains(&ended.id) && look.news.is_empty(),
            "told before"
        );
        look.add(&ended, &position, true);
        assert_eq!(look.news.len(), 1);
        let mut others = EventLook::default();
        others.add(&working, &position, false);
        others.add(&ended, &position, false);
        assert!(others.settled.contains(&ended.id) && others.news.is_empty());
    }
}
