//! Reads the tasks of a caller whose events its clients may hear.

use std::sync::Arc;

use super::state::Events;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::proxy::Proxy;
use crate::store::StoreError;
use crate::task::events::EventMark;
use crate::task::id::TaskId;
use crate::task::state::Task;

/// The most tasks of one caller that are looked at: those that expire last.
pub(super) const TASKS_MAX: usize = 1_000;

/// The tasks that a caller has.
pub(super) struct Listed {
    /// Those that expire last first.
    pub(super) tasks: Vec<TaskId>,
    /// The caller has more.
    pub(super) is_cut: bool,
}

/// Names the tasks of the caller.
pub(super) async fn listed(proxy: &Proxy, by: &Requester) -> Result<Listed, StoreError> {
    let mut all = proxy.runner.ledger().store().listed(&by.caller).await?;
    all.sort_unstable_by(|one, other| other.cmp(one));
    let is_cut = all.len() > TASKS_MAX;
    all.truncate(TASKS_MAX);
    let tasks = all.into_iter().map(|(_, id)| id).collect();
    Ok(Listed { tasks, is_cut })
}

/// Reads these tasks, as far as the caller has them and its credential has their scopes.
pub(super) async fn read(
    (proxy, events): (&Arc<Proxy>, &Events),
    by: &Requester,
    ids: Vec<TaskId>,
) -> Result<Vec<Task>, StoreError> {
    let _turn = events.scans.acquire().await;
    let found = proxy.tasks_of(&by.caller).read(ids).await?;
    let is_shown = |task: &Task| Proxy::lacking_scopes(by, &task.name).is_none();
    Ok(found.into_iter().filter(is_shown).collect())
}

/// The events that these tasks have now, in their order.
pub(super) fn in_order(tasks: Vec<Task>) -> Vec<(EventMark, Task)> {
    let marked = tasks.into_iter();
    let mut marked: Vec<_> = marked
        .filter_map(|task| Some((EventMark::of(&task)?, task)))
        .collect();
    marked.sort_unstable_by_key(|(mark, _)| *mark);
    marked
}
