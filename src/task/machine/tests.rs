//! Every history of up to six events, and what holds in all of them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::value::RawValue;

use super::*;
use crate::mcp::error::SideEffect;
use crate::task::cancelled_by::CancelledBy;
use crate::task::id::{Caller, TaskId};
use crate::task::input_rule::{AnsweredBy, OnInputTimeout};
use crate::task::on_disconnect::OnDisconnect;
use crate::task::policy::OnOwnerLost;
use crate::task::state::{Payload, Status};

pub(crate) const NOW: u64 = 1_000_000;
const DURATION: u64 = 1_000;

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

pub(crate) fn task(leg: Leg, announced: bool) -> Task {
    Task {
        id: TaskId::from_bytes([7; 16]),
        caller: Caller::from_bytes([1; 16]),
        label: None,
        method: "tools/call".into(),
        name: "tool".into(),
        created_ms: NOW,
        began_ms: None,
        updated_ms: NOW,
        deadline_ms: NOW + DURATION,
        ttl_ms: 2 * DURATION,
        poll_interval_ms: 100,
        input_timeout_ms: Some(300),
        on_input_timeout: OnInputTimeout::Fail,
        input_reminder_ms: None,
        announced,
        listed: false,
        on_disconnect: OnDisconnect::Cancel,
        digest: None,
        owner: Some(Incarnation::from_text("a/1")),
        fence: Fence(1),
        reach: Reach::Shared,
        on_owner_lost: OnOwnerLost::Resume,
        attempts: 0,
        released: false,
        leg,
        sent_ms: None,
        input_wait_ms: 0,
        resume: None,
        job: None,
        questions: Vec::new(),
        round: 0,
        request_state: None,
        status_message: None,
        progress: None,
        messages: Vec::new(),
        outcome: None,
        cancelled_by: None,
        must_tell: false,
        log: None,
        ticket: None,
        trace: None,
        related: Vec::new(),
        notices: Vec::new(),
    }
}

/// The alphabet of the histories. What an event says may depend on the task it meets, as it does
/// in life: an answer is given to a question that was seen.
#[derive(Debug, Clone, Copy)]
enum Symbol {
    Ask,
    AskRound,
    AskNothing,
    AnswerFirst,
    AnswerAll,
    AnswerUnknown,
    Deliver,
    Progress,
    Complete,
    Fail,
    Cancel,
    Tick,
    Announce,
    LateOwner,
    Abandon,
    Told,
    Resumable,
    Release,
    Adopt,
    Rerun,
    Requeue,
    Turn,
}

const ALPHABET: [Symbol; 22] = [
    Symbol::Ask,
    Symbol::AskRound,
    Symbol::AskNothing,
    Symbol::AnswerFirst,
    Symbol::AnswerAll,
    Symbol::AnswerUnknown,
    Symbol::Deliver,
    Symbol::Progress,
    Symbol::Complete,
    Symbol::Fail,
    Symbol::Cancel,
    Symbol::Tick,
    Symbol::Announce,
    Symbol::LateOwner,
    Symbol::Abandon,
    Symbol::Told,
    Symbol::Resumable,
    Symbol::Release,
    Symbol::Adopt,
    Symbol::Rerun,
    Symbol::Requeue,
    Symbol::Turn,
];

fn ended(outcome: Outcome) -> OwnerEvent {
    OwnerEvent::Ended {
        outcome,
        message: None,
        last: LastNews::default(),
    }
}

impl Symbol {
    fn event(self, task: &Task) -> TaskEvent {
        let owner = |event| TaskEvent::Owner(task.fence, event);
        let answers = |keys: Vec<Box<str>>| TaskEvent::Answered {
            answers: keys
                .into_iter()
                .map(|key| (key, raw("{\"action\":\"accept\"}")))
                .collect(),
            by: Incarnation::from_text("b/2"),
            waits: task.round % 2 == 1,
            from: AnsweredBy::Client,
        };
        let open = || {
            task.open_questions()
                .map(|(question, _)| question.key.clone())
        };
        let end = |outcome| owner(ended(outcome));
        match self {
            // A legacy server counts its questions, anew in each run.
            Self::Ask => owner(OwnerEvent::Asked {
                origin: run_questions(task).to_string().into(),
                request: raw("{}"),
            }),
            Self::AskRound => owner(OwnerEvent::RoundAsked {
                requests: vec![("a".into(), raw("{}")), ("b".into(), raw("{}"))],
                request_state: Some("s".into()),
            }),
            Self::AskNothing => owner(OwnerEvent::RoundAsked {
                requests: Vec::new(),
                request_state: Some("s".into()),
            }),
            Self::AnswerFirst => answers(open().take(1).collect()),
            Self::AnswerAll => answers(open().collect()),
            Self::AnswerUnknown => answers(vec!["nobody-asked".into()]),
            Self::Deliver => owner(OwnerEvent::Delivered {
                key: first_undelivered(task).unwrap_or_else(|| "none".into()),
            }),
            Self::Progress => owner(OwnerEvent::Progressed {
                message: Some("m".into()),
                progress: None,
                resume: None,
                messages: Vec::new(),
            }),
            Self::Complete => end(Outcome::Completed(Payload::Inline(raw("{}")))),
            Self::Fail => end(Outcome::Failed(raw("{}"))),
            Self::Cancel => TaskEvent::Cancel {
                by: CancelledBy::Client,
            },
            Self::Tick => TaskEvent::Tick,
            Self::Announce => TaskEvent::Announced,
            Self::LateOwner => TaskEvent::Owner(
                Fence(task.fence.0.wrapping_sub(1)),
                ended(Outcome::Cancelled),
            ),
            Self::Abandon => TaskEvent::Abandoned {
                fence: task.fence,
                failure: task.failure(Reason::OwnerLost),
            },
            Self::Told => owner(OwnerEvent::Told),
            Self::Resumable => owner(OwnerEvent::Resumable {
                point: ResumePoint {
                    sealed: "sealed".into(),
                    needs_client: false,
                },
                job: None,
            }),
            Self::Release => owner(OwnerEvent::Released),
            Self::Adopt => claimed(task, TakeoverMode::Resume),
            Self::Rerun => claimed(task, TakeoverMode::Dispatch),
            Self::Requeue => claimed(task, TakeoverMode::Queue),
            Self::Turn => owner(OwnerEvent::Dispatched),
        }
    }
}

fn first_undelivered(task: &Task) -> Option<Box<str>> {
    let first = task.undelivered().next();
    first.map(|(question, _)| question.key.clone())
}

fn run_questions(task: &Task) -> usize {
    task.questions
        .iter()
        .filter(|q| !q.origin.is_empty())
        .count()
}

fn claimed(task: &Task, takeover: TakeoverMode) -> TaskEvent {
    TaskEvent::Claimed {
        fence: task.fence,
        by: Incarnation::from_text("c/3"),
        reach: Reach::Instance("c".into()),
        takeover,
    }
}

/// The facts that one history has shown so far, beside the task itself.
#[derive(Clone, Default)]
struct Seen {
    keys: BTreeSet<Box<str>>,
    answered: BTreeSet<Box<str>>,
}

fn open_keys(task: &Task) -> BTreeSet<Box<str>> {
    task.open_questions()
        .map(|(question, _)| question.key.clone())
        .collect()
}

/// Walks every continuation of a history, depth first, and returns how many it walked.
fn walk(task: &Task, seen: &Seen, now_ms: u64, left: u32) -> u64 {
    if left == 0 {
        return 1;
    }
    let mut walked = 0;
    for letter in ALPHABET {
        // The last tick falls after the deadline.
        let now_ms = if matches!(letter, Symbol::Tick) {
            now_ms + 400
        } else {
            now_ms + 1
        };
        let event = letter.event(task);
        // The last events are most of all events, and repeating them would prove nothing new.
        let again = (left > 1).then(|| event.clone());
        let Ok(Step { task: next, effect }) = step(task, event, now_ms) else {
            walked += 1;
            continue;
        };
        let seen = check(task, &next, effect, letter, seen);
        if let Some(again) = again {
            assert_eq!(
                format!("{next:?}"),
                format!("{:?}", step(task, again, now_ms).unwrap().task),
                "the same question has the same answer"
            );
        }
        walked += walk(&next, &seen, now_ms, left - 1);
    }
    walked
}

fn check(before: &Task, next: &Task, effect: Option<Effect>, letter: Symbol, seen: &Seen) -> Seen {
    let context = || format!("{letter:?}: {before:#?} -> {next:#?}");
    let mut seen = seen.clone();
    // A terminal state never changes, except for the note that the server was told.
    if before.is_ended() {
        assert!(matches!(letter, Symbol::Told), "{}", context());
        assert_eq!(before.status(), next.status(), "{}", context());
        assert_eq!(before.updated_ms, next.updated_ms, "{}", context());
    } else {
        // Time moves with each change; what is fixed at creation stays.
        assert!(next.updated_ms > before.updated_ms, "{}", context());
    }
    assert_eq!(
        (next.created_ms, next.ttl_ms),
        (before.created_ms, before.ttl_ms)
    );
    assert_eq!(next.deadline_ms, before.deadline_ms);
    assert!(next.announced || !before.announced, "{}", context());
    assert!(next.fence >= before.fence, "{}", context());
    // A key is asked once in a life, and never again after its answer.
    let (was, is) = (open_keys(before), open_keys(next));
    for key in is.difference(&was) {
        assert!(seen.keys.insert(key.clone()), "asked twice: {}", context());
    }
    for key in was.difference(&is) {
        seen.answered.insert(key.clone());
    }
    assert!(
        is.is_disjoint(&seen.answered),
        "asked after its answer: {}",
        context()
    );
    // The status matches what a client can do.
    assert_eq!(
        next.status() == Status::InputRequired,
        !is.is_empty(),
        "{}",
        context()
    );
    // A replica that still has something to do has the task in its index, or nothing is in flight. Every open
    // task will be looked at again.
    assert_eq!(next.due_ms().is_some(), !next.is_ended(), "{}", context());
    assert!(
        next.due_ms().is_none_or(|due| due <= next.deadline_ms),
        "{}",
        context()
    );
    // An offered task is looked at from now on, and every other task not before it is due.
    let looked_at = match next.due_ms() {
        Some(due) if next.is_offered() => Some(due.min(next.updated_ms)),
        due => due,
    };
    assert_eq!(next.look_ms(), looked_at, "{}", context());
    let parked = matches!(next.leg, Leg::Parked(_));
    if !next.is_ended() {
        assert_eq!(next.indexed_for().is_none(), parked, "{}", context());
        assert!(!next.must_tell, "{}", context());
    }
    // A replica that takes over has a new fence, and events under the earlier fence are refused.
    if matches!(letter, Symbol::Adopt | Symbol::Rerun | Symbol::Requeue) {
        assert!(next.fence > before.fence && !next.released);
        let late = TaskEvent::Owner(before.fence, OwnerEvent::Released);
        assert_eq!(step(next, late, NOW).unwrap_err(), Rejected::NotOwner);
    }
    // The resume point is known only while there is a call to resume or to cancel at the server.
    assert!(next.resume.is_none() || !next.is_ended() || next.must_tell);
    check_leg(before, next);
    // A dispatch has an owner and a new leg; a parked round has an open question.
    if effect == Some(Effect::Dispatch) {
        assert_ne!(next.leg, before.leg, "{}", context());
        assert!(next.owner.is_some() && is.is_empty(), "{}", context());
    }
    if parked && !next.is_ended() {
        assert!(!is.is_empty(), "{}", context());
    }
    assert_eq!(
        effect == Some(Effect::CancelUpstream),
        next.must_tell && !before.is_ended()
    );
    seen
}

/// A call that was sent once may have run, whatever comes later; for a leg that waits there is nothing to
/// cancel.
fn check_leg(before: &Task, next: &Task) {
    let may_have_run = |task: &Task| task.failure(Reason::Deadline).effect == SideEffect::Unknown;
    let sent = may_have_run(before) || matches!(next.leg, Leg::Sent(_));
    assert_eq!(may_have_run(next), sent, "{before:#?} -> {next:#?}");
    assert!(next.leg != Leg::Queued || !next.must_tell, "{next:#?}");
}

/// All histories of up to six events from one beginning. Each beginning is a test, because together they take
/// long.
fn every_history_keeps_the_promises(leg: Leg, announced: bool) {
    let walked = walk(&task(leg, announced), &Seen::default(), NOW, 6);
    assert!(walked > 10_000, "the histories were cut short: {walked}");
}

#[test]
fn every_history_of_a_task_keeps_the_promises() {
    every_history_keeps_the_promises(Leg::Sent(1), true);
}

#[test]
fn every_history_of_a_call_before_its_task_keeps_the_promises() {
    every_history_keeps_the_promises(Leg::Sent(1), false);
}

#[test]
fn every_history_of_a_task_that_waits_for_its_turn_keeps_the_promises() {
    every_history_keeps_the_promises(Leg::Queued, true);
}

#[test]
fn a_late_owner_changes_nothing() {
    let mut task = task(Leg::Sent(1), true);
    task.fence = Fence(2);
    let late = TaskEvent::Owner(Fence(1), OwnerEvent::Told);
    assert_eq!(step(&task, late, NOW).unwrap_err(), Rejected::NotOwner);
}

#[test]
fn an_unanswered_question_ends_the_task_at_its_own_deadline() {
    let asked = step(
        &task(Leg::Sent(1), true),
        Symbol::Ask.event(&task(Leg::Sent(1), true)),
        NOW,
    );
    let asked = asked.unwrap().task;
    assert_eq!(asked.due_ms(), Some(NOW + 300));
    assert!(step(&asked, TaskEvent::Tick, NOW + 299).is_err());
    let ended = step(&asked, TaskEvent::Tick, NOW + 300).unwrap();
    assert_eq!(ended.task.status(), Status::Failed);
    assert_eq!(ended.effect, Some(Effect::CancelUpstream));
}

#[test]
fn the_same_retry_repeats_and_another_does_not() {
    let start = task(Leg::Sent(1), false);
    let asked = step(&start, Symbol::Ask.event(&start), NOW).unwrap().task;
    let with = |answer: &str| BTreeMap::from([(Box::from("q1"), raw(answer))]);
    assert!(repeats(&asked, &with("{\"a\":1}")));
    let by = Incarnation::from_text("b/2");
    let answered = step(
        &asked,
        TaskEvent::Answered {
            answers: with("{\"a\":1}"),
            by,
            waits: false,
            from: AnsweredBy::Client,
        },
        NOW,
    )
    .unwrap()
    .task;
    assert!(repeats(&answered, &with("{\"a\":1}")));
    assert!(!repeats(&answered, &with("{\"a\":2}")));
    let delivered = TaskEvent::Owner(Fence(1), OwnerEvent::Delivered { key: "q1".into() });
    let delivered = step(&answered, delivered, NOW).unwrap().task;
    assert!(repeats(&delivered, &with("{\"a\":1}")));
    assert!(!repeats(&delivered, &with("{\"a\":2}")));
}

#[test]
fn questions_are_bounded_over_a_life() {
    let mut task = task(Leg::Sent(1), true);
    for _ in 0..QUESTIONS_MAX {
        task = step(&task, Symbol::Ask.event(&task), NOW).unwrap().task;
    }
    let refused = step(&task, Symbol::Ask.event(&task), NOW).unwrap_err();
    assert_eq!(refused, Rejected::TooManyQuestions);
}

#[test]
fn a_question_told_again_by_a_resumed_stream_is_the_same_question() {
    let start = task(Leg::Sent(1), true);
    let ask = |origin: &str| {
        TaskEvent::Owner(
            Fence(1),
            OwnerEvent::Asked {
                origin: origin.into(),
                request: raw("{}"),
            },
        )
    };
    let asked = step(&start, ask("0"), NOW).unwrap().task;
    assert_eq!(
        step(&asked, ask("0"), NOW).unwrap_err(),
        Rejected::Unchanged
    );
    // Another run counts anew.
    let again = Task {
        on_owner_lost: OnOwnerLost::Rerun,
        ..asked
    };
    let repeated = TaskEvent::Owner(Fence(1), OwnerEvent::Repeated);
    let again = step(&again, repeated.clone(), NOW).unwrap();
    assert_eq!(again.effect, Some(Effect::Dispatch));
    assert_eq!(again.task.status(), Status::Working);
    let asked = step(&again.task, ask("0"), NOW).unwrap().task;
    assert_eq!(&*asked.open_questions().next().unwrap().0.key, "q2");
    // And not for ever.
    let last = step(&asked, repeated.clone(), NOW).unwrap().task;
    assert_eq!(step(&last, repeated, NOW).unwrap_err(), Rejected::Unchanged);
}
