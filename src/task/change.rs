//! The changes that a commit made to a task, in the terms of operators: the one source of the log lines and the
//! metrics of tasks.

use super::input_rule::AnsweredBy;
use super::question::{Question, QuestionStage};
use super::state::{Leg, Task};

/// One change of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskChange {
    Created,
    /// The task was announced to a client.
    Announced,
    /// The call went to the server, for the first time or again.
    Dispatched,
    /// The server asked its client so many questions.
    Asked(usize),
    /// So many questions were answered.
    Answered(usize, AnsweredBy),
    /// A question stayed open for long, and its receivers are notified again.
    Reminded,
    /// The server reported progress.
    Progressed,
    /// The owner left the call to other replicas.
    Released,
    /// Another replica carries the call of a lost owner on.
    TakenOver,
    Ended,
}

/// The changes from `before` to `after`, in the order in which they happened. `before` is `None` for a new
/// record.
pub fn changes(before: Option<&Task>, after: &Task) -> Vec<TaskChange> {
    let asked = |task: &Task| task.questions.len();
    let answered = |task: &Task| task.questions.iter().filter(|q| is_answered(q)).count();
    let mut found = Vec::new();
    // A call with a log is no task to anyone.
    if after.log.is_some() {
        return found;
    }
    let Some(before) = before else {
        found.push(TaskChange::Created);
        if after.announced {
            found.push(TaskChange::Announced);
        }
        if sent(after) > 0 {
            found.push(TaskChange::Dispatched);
        }
        if asked(after) > 0 {
            found.push(TaskChange::Asked(asked(after)));
        }
        // The record of a call whose result alone is kept.
        if after.is_ended() {
            found.push(TaskChange::Ended);
        }
        return found;
    };
    // The end was reported by its own commit. Later ones are about receivers and the server, and change no outcome.
    if before.is_ended() {
        return found;
    }
    if after.announced && !before.announced {
        found.push(TaskChange::Announced);
    }
    let is_left = after.released || after.waits_for_client();
    if is_left && !(before.released || before.waits_for_client()) {
        found.push(TaskChange::Released);
    }
    // The answers to a round raise the fence of a task without an owner: that takes nothing over.
    if after.fence > before.fence && (before.owner.is_some() || before.waits_for_client()) {
        found.push(TaskChange::TakenOver);
    }
    // An end forgets the questions that were not answered.
    if after.is_ended() {
        found.push(TaskChange::Ended);
        return found;
    }
    if after.progress.is_some() && after.progress != before.progress {
        found.push(TaskChange::Progressed);
    }
    // Each commit is one event, so none asks and answers at once.
    if asked(after) > asked(before) {
        found.push(TaskChange::Asked(asked(after) - asked(before)));
    } else if answered(after) > answered(before) {
        let number = answered(after) - answered(before);
        found.push(TaskChange::Answered(
            number,
            last_answered_by(before, after),
        ));
    }
    let reminded = |task: &Task| task.questions.iter().filter(|q| q.reminded).count();
    if reminded(after) > reminded(before) {
        found.push(TaskChange::Reminded);
    }
    if sent(after) > sent(before) {
        found.push(TaskChange::Dispatched);
    }
    found
}

/// Returns the source of the answers to the questions that were open before.
fn last_answered_by(before: &Task, after: &Task) -> AnsweredBy {
    let was_open = |key: &str| before.open_questions().any(|(q, _)| *q.key == *key);
    let answered = after.questions.iter().filter(|q| is_answered(q));
    let mut answered = answered.filter(|q| was_open(&q.key)).map(|q| q.answered_by);
    answered.next_back().unwrap_or_default()
}

/// The number of the last dispatch; 0 before the first.
fn sent(task: &Task) -> u32 {
    match task.leg {
        Leg::Queued => 0,
        Leg::Sent(number) | Leg::Parked(number) => number,
    }
}

fn is_answered(question: &Question) -> bool {
    match question.stage {
        QuestionStage::Answered(_) | QuestionStage::Delivered(_) => true,
        QuestionStage::Open(_) | QuestionStage::Withdrawn => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::value::RawValue;

    use super::*;
    use crate::mcp::error::{Failure, Reason, SideEffect};
    use crate::task::id::Incarnation;
    use crate::task::last_news::LastNews;
    use crate::task::machine::tests::task;
    use crate::task::machine::{OwnerEvent, TakeoverMode, TaskEvent, step};
    use crate::task::progress::Progress;
    use crate::task::state::{Outcome, Payload, Reach};

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    /// Applies the events to a task that waits for its turn, a second apart, and tells the changes of each.
    fn told(events: Vec<TaskEvent>) -> (Task, Vec<Vec<TaskChange>>) {
        let mut now = task(Leg::Queued, true);
        let mut found = vec![changes(None, &now)];
        for event in events {
            let next = step(&now, event, now.updated_ms + 1000).unwrap().task;
            found.push(changes(Some(&now), &next));
            now = next;
        }
        (now, found)
    }

    fn owner(event: OwnerEvent, fence: u64) -> TaskEvent {
        TaskEvent::Owner(crate::task::id::Fence(fence), event)
    }

    fn ended() -> OwnerEvent {
        OwnerEvent::Ended {
            outcome: Outcome::Completed(Payload::Inline(raw("{}"))),
            message: None,
            last: LastNews::default(),
        }
    }

    #[test]
    fn the_life_of_a_task_is_told_change_by_change() {
        let asked = OwnerEvent::Asked {
            origin: "7".into(),
            request: raw("{}"),
        };
        let answered = TaskEvent::Answered {
            answers: BTreeMap::from([("q1".into(), raw("{}"))]),
            by: Incarnation::from_text("a/1"),
            waits: false,
            from: AnsweredBy::Operator,
        };
        let delivered = OwnerEvent::Delivered { key: "q1".into() };
        let (task, found) = told(vec![
            owner(OwnerEvent::Dispatched, 1),
            owner(asked, 1),
            answered,
            owner(delivered, 1),
            owner(ended(), 1),
        ]);
        assert_eq!(
            found,
            [
                vec![TaskChange::Created, TaskChange::Announced],
                vec![TaskChange::Dispatched],
                vec![TaskChange::Asked(1)],
                vec![TaskChange::Answered(1, AnsweredBy::Operator)],
                vec![],
                vec![TaskChange::Ended],
            ]
        );
        assert_eq!(task.sent_ms, Some(task.created_ms + 1000));
        assert_eq!(task.input_wait_ms, 1000);
        let answered_ms = task.questions[0].answered_ms;
        assert_eq!(answered_ms, Some(task.created_ms + 3000));
    }

    #[test]
    fn progress_is_told_when_it_changes() {
        let told_of = |progress: f64| OwnerEvent::Progressed {
            progress: Some(Progress {
                progress,
                total: Some(4.0),
            }),
            message: None,
            resume: None,
            messages: Vec::new(),
        };
        let (_, found) = told(vec![
            owner(OwnerEvent::Dispatched, 1),
            owner(told_of(1.0), 1),
            owner(told_of(2.0), 1),
            owner(ended(), 1),
        ]);
        let progressed = vec![TaskChange::Progressed];
        assert_eq!(found[2..4], [progressed.clone(), progressed]);
        assert_eq!(found[4], [TaskChange::Ended]);
    }

    #[test]
    fn a_lost_owner_is_told_and_a_question_that_nobody_answered_is_waited_for_to_the_end() {
        let asked = OwnerEvent::Asked {
            origin: "7".into(),
            request: raw("{}"),
        };
        let takeover = TaskEvent::Claimed {
            fence: crate::task::id::Fence(1),
            by: Incarnation::from_text("b/1"),
            reach: Reach::Shared,
            takeover: TakeoverMode::Resume,
        };
        let failure = Failure::new(Reason::Deadline, SideEffect::Unknown);
        let abandoned = TaskEvent::Abandoned {
            fence: crate::task::id::Fence(2),
            failure,
        };
        let (task, found) = told(vec![
            owner(OwnerEvent::Dispatched, 1),
            takeover,
            owner(asked, 2),
            abandoned,
        ]);
        assert_eq!(found[2], [TaskChange::TakenOver]);
        assert_eq!(found[4], [TaskChange::Ended]);
        assert_eq!(task.input_wait_ms, 1000);
    }
}
