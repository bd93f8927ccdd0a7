//! Which of the tasks that the due index names a sweep looks at, and in which order. Thousands of tasks may be in the
//! index only because a receiver of webhooks is dead: they must not keep other tasks from meeting their deadlines.

use std::collections::HashMap;
use std::vec::IntoIter;

use super::notices::{DueKinds, NoticesLeft};
use crate::task::id::TaskId;
use crate::task::state::Task;

/// The most tasks that are remembered. Any further tasks are read at each sweep that comes so far.
const REMEMBERED_MAX: usize = 16_384;

/// A task that was not looked at for this long has most likely left the index.
const FORGOTTEN_MS: u64 = 5 * 60_000;

/// A task that has not ended is read again after this long: meanwhile a question may have come that waits for less long
/// than the task, or a replica that drains may offer it.
const OPEN_MS: u64 = 5_000;

/// The tasks that a sweep found in the due index only because a receiver must still be notified of them. Later sweeps
/// need not read their records to find that out.
#[derive(Debug, Default)]
pub(super) struct UndeliveredTasks {
    tasks: HashMap<TaskId, LastLook>,
}

#[derive(Debug, Clone, Copy)]
struct LastLook {
    at_ms: u64,
    /// The last time at which its receivers could be notified, or the time of the first look.
    turn_ms: u64,
    /// When the task must be looked at for its own sake.
    due_ms: u64,
    has_ended: bool,
    kinds: DueKinds,
}

impl LastLook {
    /// Returns `true` if the task may have changed since this look.
    fn is_old(&self, now_ms: u64) -> bool {
        !self.has_ended && self.at_ms.saturating_add(OPEN_MS) <= now_ms
    }
}

/// The tasks that the due index names, in the order in which a sweep looks at them.
#[derive(Debug)]
pub(super) struct Looks {
    /// The tasks that may need something else than a receiver: those that were not looked at yet, or whose time has come,
    /// most overdue first. Behind them are those that the last look saw too long ago, so that they keep nothing waiting.
    pub(super) first: Vec<TaskId>,
    pub(super) turns: LookTurns,
}

/// The tasks that only wait for their receivers, those first that wait for longest.
#[derive(Debug)]
pub(super) struct LookTurns(IntoIter<(TaskId, LastLook)>);

impl LookTurns {
    /// The kinds of receivers that each of them waits for.
    pub(super) fn kinds(&self) -> impl Iterator<Item = DueKinds> {
        self.0.as_slice().iter().map(|(_, look)| look.kinds)
    }

    /// The next task that notices are left for. It passes over those before it.
    pub(super) fn next(&mut self, left: &NoticesLeft) -> Option<TaskId> {
        let next = self.0.find(|(_, look)| left.has_some(look.kinds));
        next.map(|(id, _)| id)
    }
}

impl UndeliveredTasks {
    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Splits what the index names.
    pub(super) fn split(&mut self, named: Vec<TaskId>, now_ms: u64) -> Looks {
        // A task whose own time has come is forgotten here, so that it counts among the first again.
        self.tasks.retain(|_, look| {
            now_ms < look.due_ms && now_ms < look.at_ms.saturating_add(FORGOTTEN_MS)
        });
        let (mut first, mut old, mut turns) = (Vec::new(), Vec::new(), Vec::new());
        for id in named {
            match self.tasks.get(&id) {
                None => first.push(id),
                Some(look) if look.is_old(now_ms) => old.push((look.at_ms, id)),
                Some(look) => turns.push((id, *look)),
            }
        }
        old.sort_by_key(|(at_ms, _)| *at_ms);
        first.extend(old.into_iter().map(|(_, id)| id));
        turns.sort_by_key(|(_, look)| look.turn_ms);
        Looks {
            first,
            turns: LookTurns(turns.into_iter()),
        }
    }

    /// Notes that a look has found a task that only waits for its receivers. Without a turn, because the sweep had no
    /// notices left, it keeps its place among those that wait.
    pub(super) fn note(&mut self, task: &Task, has_turn: bool, now_ms: u64) {
        let before = self.tasks.get(&task.id);
        if before.is_none() && self.tasks.len() >= REMEMBERED_MAX {
            return;
        }
        let kept_ms = before.filter(|_| !has_turn).map(|look| look.turn_ms);
        let look = LastLook {
            at_ms: now_ms,
            turn_ms: kept_ms.unwrap_or(now_ms),
            due_ms: task.due_ms().unwrap_or(u64::MAX),
            has_ended: task.is_ended(),
            kinds: DueKinds::of(task, now_ms),
        };
        self.tasks.insert(task.id, look);
    }

    /// The task does not wait, or not only for its receivers.
    pub(super) fn forget(&mut self, id: TaskId) {
        self.tasks.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;
    use crate::runner::notices::SWEPT_MAX;
    use crate::task::machine::tests::{NOW, task};
    use crate::task::notices::{Notices, ReceiverId};
    use crate::task::state::{Leg, Outcome};

    /// An open task whose receiver must hear of a question.
    fn open(receiver: ReceiverId) -> Task {
        let notice = json!({"number": 1, "state": "input_required", "at_ms": NOW});
        let notices: Notices = from_value(json!({
            "receiver": receiver, "states": [], "retry_ms": 1, "waiting": [notice], "look_ms": NOW,
        }))
        .unwrap();
        Task {
            id: TaskId::random(),
            deadline_ms: NOW + 60_000,
            notices: vec![notices],
            ..task(Leg::Sent(1), true)
        }
    }

    fn made(receiver: ReceiverId) -> Task {
        Task {
            outcome: Some(Outcome::Cancelled),
            ..open(receiver)
        }
    }

    fn configured() -> ReceiverId {
        ReceiverId::of("https://hooks.example/in")
    }

    fn subscribed() -> ReceiverId {
        ReceiverId::of_subscription("s")
    }

    fn ids(looks: &Looks) -> Vec<TaskId> {
        let turns = looks.turns.0.as_slice();
        turns.iter().map(|(id, _)| *id).collect()
    }

    #[test]
    fn what_waits_for_its_receivers_comes_last_and_each_in_its_turn() {
        let [a, b, c, new] = [(); 4].map(|()| made(configured()));
        let mut undelivered = UndeliveredTasks::default();
        undelivered.note(&a, true, NOW + 1);
        undelivered.note(&b, true, NOW);
        undelivered.note(&c, true, NOW);
        let looks = undelivered.split(vec![a.id, b.id, c.id, new.id], NOW + 1);
        assert_eq!(looks.first, [new.id]);
        assert_eq!(ids(&looks), [b.id, c.id, a.id]);
        undelivered.forget(b.id);
        let looks = undelivered.split(vec![a.id, b.id], NOW + 1);
        assert_eq!((ids(&looks), looks.first), (vec![a.id], vec![b.id]));
    }

    #[test]
    fn without_a_turn_a_task_keeps_its_place() {
        let [a, b] = [(); 2].map(|()| made(configured()));
        let mut undelivered = UndeliveredTasks::default();
        undelivered.note(&a, true, NOW);
        undelivered.note(&b, true, NOW + 1);
        undelivered.note(&a, false, NOW + 2);
        assert_eq!(
            ids(&undelivered.split(vec![b.id, a.id], NOW + 2)),
            [a.id, b.id]
        );
        undelivered.note(&a, true, NOW + 3);
        assert_eq!(
            ids(&undelivered.split(vec![b.id, a.id], NOW + 3)),
            [b.id, a.id]
        );
    }

    #[test]
    fn a_task_that_is_due_itself_comes_in_its_order() {
        let (due, other) = (open(configured()), open(configured()));
        let due_ms = due.due_ms().unwrap();
        let mut undelivered = UndeliveredTasks::default();
        undelivered.note(&due, true, due_ms - 1);
        let looks = undelivered.split(vec![due.id, other.id], due_ms - 1);
        assert_eq!(looks.first, [other.id]);
        let looks = undelivered.split(vec![due.id, other.id], due_ms);
        assert_eq!(looks.first, [due.id, other.id]);
    }

    /// A question that comes after the look may wait for less long than the task, and no sweep hears of it.
    #[test]
    fn an_open_task_is_read_again_soon_because_its_due_time_may_move() {
        let (task, later) = (open(configured()), open(configured()));
        let (ended, new) = (made(configured()), open(configured()));
        let mut undelivered = UndeliveredTasks::default();
        undelivered.note(&ended, true, NOW);
        undelivered.note(&later, true, NOW + 1);
        undelivered.note(&task, true, NOW);
        assert!(task.due_ms().unwrap() > NOW + OPEN_MS + 1, "not due itself");
        let named = vec![later.id, task.id, ended.id, new.id];
        let looks = undelivered.split(named.clone(), NOW + OPEN_MS - 1);
        assert_eq!(looks.first, [new.id]);
        let looks = undelivered.split(named.clone(), NOW + OPEN_MS);
        assert_eq!(looks.first, [new.id, task.id]);
        let looks = undelivered.split(named, NOW + OPEN_MS + 1);
        assert_eq!(looks.first, [new.id, task.id, later.id]);
        assert_eq!(ids(&looks), [ended.id]);
    }

    /// Each kind has notices of its own, and the tasks that find none left are passed over.
    #[test]
    fn neither_clients_nor_operators_keep_the_others_waiting() {
        const MANY: usize = 5_000;
        for (crowd, few) in [(configured(), subscribed()), (subscribed(), configured())] {
            let mut undelivered = UndeliveredTasks::default();
            let waiting: Vec<Task> = (0..MANY).map(|_| made(crowd)).collect();
            let late: Vec<Task> = (0..10).map(|_| made(few)).collect();
            for task in &waiting {
                undelivered.note(task, true, NOW);
            }
            for task in &late {
                undelivered.note(task, true, NOW + 1);
            }
            let named = waiting.iter().chain(&late).map(|task| task.id);
            let mut looks = undelivered.split(named.collect(), NOW + 2);
            assert_eq!(looks.first, []);
            let mut left = NoticesLeft::of_each(SWEPT_MAX);
            let kept = left.take_for(looks.turns.kinds());
            // What comes first takes all that is left of the one kind, and only 10 of the other were kept back.
            assert_eq!(std::mem::take(left.of(crowd)), SWEPT_MAX / 2);
            assert_eq!(std::mem::take(left.of(few)), SWEPT_MAX - late.len());
            left.give_back(&kept);
            let mut told = Vec::new();
            while let Some(id) = looks.turns.next(&left) {
                let is_late = late.iter().any(|task| task.id == id);
                *left.of(if is_late { few } else { crowd }) -= 1;
                told.push(id);
            }
            let oldest = waiting.iter().take(SWEPT_MAX / 2).chain(&late);
            assert!(told.into_iter().eq(oldest.map(|task| task.id)));
        }
    }

    /// A task that both kinds wait for has its turn while either has notices left, and a receiver that has heard all
    /// counts for nothing.
    #[test]
    fn a_task_waits_for_those_who_must_hear_of_it_now() {
        let mut both = made(configured());
        let mut heard = made(configured());
        both.notices.extend(made(subscribed()).notices);
        heard.notices = vec![Notices::new(configured(), Vec::new(), 1)];
        heard.notices.extend(made(subscribed()).notices);
        let mut left = NoticesLeft::of_each(1);
        *left.of(subscribed()) = 0;
        assert!(left.has_some(DueKinds::of(&both, NOW)));
        assert!(!left.has_some(DueKinds::of(&heard, NOW)));
        *left.of(subscribed()) = 1;
        assert!(left.has_some(DueKinds::of(&heard, NOW)));
        assert!(!left.has_some(DueKinds::of(&heard, NOW - 1)));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut undelivered = UndeliveredTasks::default();
        for _ in 0..=REMEMBERED_MAX {
            undelivered.note(&made(configured()), true, NOW);
        }
        assert_eq!(undelivered.len(), REMEMBERED_MAX);
        undelivered.split(Vec::new(), NOW + FORGOTTEN_MS);
        assert_eq!(undelivered.len(), 0);
    }
}
