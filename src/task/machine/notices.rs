//! The notices of a task's changes for its receivers.

use super::decision::{Rejected, Step};
use crate::task::events::EventMark;
use crate::task::events::replay::{SubscribedNotices, WantedNotices};
use crate::task::events::subscriptions::SUBSCRIPTIONS_MAX;
use crate::task::notices::{NoticeEvent, NoticeState, Notices, ReceiverId};
use crate::task::state::{Status, Task};

/// Adds a notice for each receiver, if the change is one that receivers are notified of.
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

/// Returns the state that is new to receivers that were notified of `before`. Receivers are notified of a task once
/// it was announced to a client.
fn news(before: &Task, after: &Task) -> Option<(NoticeState, bool)> {
    if !after.announced {
        return None;
    }
    let state = told_as(after.status())?;
    let asked = |task: &Task| task.questions.len();
    let reminded = |task: &Task| task.questions.iter().filter(|q| q.reminded).count();
    // No receiver was notified of the task before it was announced, so any state is new then.
    if !before.announced || told_as(before.status()) != Some(state) || asked(after) > asked(before)
    {
        return Some((state, false));
    }
    (reminded(after) > reminded(before)).then_some((state, true))
}

/// Applies the event to the notices of this receiver. The client of the task sees no change.
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

/// Puts the subscriptions of the caller on the record. Those of `replay` receive the present state, too, if they did
/// not receive it before. The client of the task sees no change.
///
/// A subscription that is not wanted stays: the caller's subscriptions may have been read before it was made. If it has
/// ended, its messages are settled untold.
pub(super) fn subscribe(
    mut task: Task,
    SubscribedNotices { wanted, replay }: SubscribedNotices,
    now_ms: u64,
) -> Result<Step, Rejected> {
    let mut is_changed = false;
    let receivers: Vec<_> = wanted.iter().map(|it| it.notices.receiver).collect();
    let present = told_as(task.status()).filter(|_| task.announced);
    let present = present.zip(EventMark::of(&task));
    for WantedNotices { notices, since_ms } in wanted {
        let receiver = notices.receiver;
        let is_news = |mark: EventMark| mark.at_ms > since_ms && replay.has(receiver, mark);
        let replayed = present.filter(|(_, mark)| is_news(*mark));
        let known = |it: &Notices| it.receiver == receiver;
        let place = match task.notices.iter().position(known) {
            Some(place) => place,
            // Nothing more happens to the task.
            None if task.is_ended() && replayed.is_none() => continue,
            None => {
                task.notices.push(notices);
                is_changed = true;
                task.notices.len() - 1
            }
        };
        if let Some((state, _)) = replayed
            && let Some(notices) = task.notices.get_mut(place)
            && notices.may_replay()
        {
            notices.push(state, false, now_ms);
            is_changed = true;
        }
    }
    if is_changed {
        make_room(&mut task.notices, &receivers);
        Ok(Step { task, effect: None })
    } else {
        Err(Rejected::Unchanged)
    }
}

/// Drops subscriptions that are not wanted while there are more than one caller may have: first those for which nothing waits.
fn make_room(all: &mut Vec<Notices>, wanted: &[ReceiverId]) {
    let is_spare = |it: &Notices| it.receiver.is_subscription() && !wanted.contains(&it.receiver);
    while all
        .iter()
        .filter(|it| it.receiver.is_subscription())
        .count()
        > SUBSCRIPTIONS_MAX
    {
        let is_idle = |it: &Notices| is_spare(it) && it.first().is_none();
        let idle = all.iter().position(is_idle);
        let Some(place) = idle.or_else(|| all.iter().position(is_spare)) else {
            return;
        };
        all.remove(place);
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
