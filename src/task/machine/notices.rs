//! Which changes of a task its receivers hear of.

use super::decision::{Rejected, Step};
use crate::task::notices::{NoticeEvent, NoticeState, Notices, ReceiverId, SubscribedNotices};
use crate::task::state::{Status, Task};

/// Adds a notice for each receiver, if the change is one that receivers hear of.
pub(super) fn keep(before: &Task, after: &mut Task) {
    if after.notices.is_empty() {
        return;
    }
    if let Some((state, is_reminder)) = news(before, after) {
        let at_ms = after.updated_ms;
        for notices in &mut after.notices {
            notices.push(state, is_reminder, at_ms);
        }
    }
}

/// The state that is new to those who were told of `before`. A task is told of once a client heard of it.
fn news(before: &Task, after: &Task) -> Option<(NoticeState, bool)> {
    if !after.announced {
        return None;
    }
    let state = told_as(after.status())?;
    let asked = |task: &Task| task.questions.len();
    let reminded = |task: &Task| task.questions.iter().filter(|q| q.reminded).count();
    if !before.announced || told_as(before.status()) != Some(state) || asked(after) > asked(before)
    {
        return Some((state, false));
    }
    (reminded(after) > reminded(before)).then_some((state, true))
}

/// What the event does to the notices of this receiver. The client of the task sees no change.
pub(super) fn step(
    mut task: Task,
    receiver: ReceiverId,
    event: NoticeEvent,
    now_ms: u64,
) -> Result<Step, Rejected> {
    let life_ms = task.created_ms.saturating_add(task.ttl_ms);
    let mut all = task.notices.iter_mut();
    let notices = all.find(|it| it.receiver == receiver);
    if notices.is_some_and(|notices| notices.step(event, life_ms, now_ms)) {
        Ok(Step { task, effect: None })
    } else {
        Err(Rejected::Unchanged)
    }
}

/// Puts the subscriptions of the caller on the record, in place of those that it has no more. `replayed` hears of the present
/// state, too, if it was not told of it. The client of the task sees no change.
pub(super) fn subscribe(
    mut task: Task,
    SubscribedNotices { wanted, replayed }: SubscribedNotices,
    now_ms: u64,
) -> Result<Step, Rejected> {
    let is_wanted = |it: &Notices| wanted.iter().any(|wanted| wanted.receiver == it.receiver);
    let mut is_changed = false;
    if !task.is_ended() {
        let before = task.notices.len();
        task.notices
            .retain(|it| !it.receiver.is_subscription() || is_wanted(it));
        is_changed = task.notices.len() != before;
    }
    let state = told_as(task.status()).filter(|_| task.announced);
    for wanted in wanted {
        let replays = state.filter(|_| replayed == Some(wanted.receiver));
        let known = |it: &Notices| it.receiver == wanted.receiver;
        let place = match task.notices.iter().position(known) {
            Some(place) => place,
            // Nothing more happens to the task.
            None if task.is_ended() && replays.is_none() => continue,
            None => {
                task.notices.push(wanted);
                is_changed = true;
                task.notices.len() - 1
            }
        };
        if let Some(state) = replays
            && let Some(notices) = task.notices.get_mut(place)
            && notices.may_replay()
        {
            notices.push(state, false, now_ms);
            is_changed = true;
        }
    }
    if is_changed {
        Ok(Step { task, effect: None })
    } else {
        Err(Rejected::Unchanged)
    }
}

fn told_as(status: Status) -> Option<NoticeState> {
    match status {
        Status::Working => None,
        Status::InputRequired => Some(NoticeState::InputRequired),
        Status::Completed => Some(NoticeState::Completed),
        Status::Failed => Some(NoticeState::Failed),
        Status::Cancelled => Some(NoticeState::Cancelled),
    }
}
