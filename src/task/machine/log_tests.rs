//! The record of a call with a log: its owner may be lost, leave it or come back, and only one carries the call.

use serde_json::value::RawValue;

use super::tests::task;
use super::*;
use crate::mcp::error::SideEffect;
use crate::task::cancelled_by::CancelledBy;
use crate::task::last_news::LastNews;
use crate::task::log_terms::LogTerms;
use crate::task::on_disconnect::OnDisconnect;
use crate::task::state::Payload;

const NOW: u64 = 1_000_100;

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

pub(in crate::task) fn logged() -> Task {
    Task {
        on_disconnect: OnDisconnect::Keep,
        log: Some(Box::new(LogTerms {
            session: Digest::of(&["s"]),
            id: raw("7"),
            began_ms: 0,
            ends_ms: 10,
            retention_ms: 10,
            bytes_max: 10,
            heartbeat: None,
            point: None,
        })),
        ..task(Leg::Sent(1), false)
    }
}

fn claim(task: &Task, by: &str) -> TaskEvent {
    TaskEvent::Claimed {
        fence: task.fence,
        by: Incarnation::from_text(by),
        reach: Reach::Shared,
        takeover: TakeoverMode::Resume,
    }
}

fn apply(task: &Task, event: TaskEvent) -> Task {
    step(task, event, NOW).unwrap().task
}

fn ended() -> OwnerEvent {
    OwnerEvent::Ended {
        outcome: Outcome::Completed(Payload::Inline(raw("null"))),
        message: None,
        last: LastNews::default(),
    }
}

#[test]
fn a_call_that_is_left_or_lost_is_in_no_index_and_stays_due() {
    let task = logged();
    let fence = task.fence;
    for event in [
        TaskEvent::Orphaned { fence },
        TaskEvent::Owner(fence, OwnerEvent::Released),
    ] {
        let left = apply(&task, event);
        assert!(left.indexed_for().is_none() && !left.is_offered() && !left.is_ended());
        assert_eq!(left.due_ms(), Some(left.deadline_ms));
        let late = TaskEvent::Owner(fence, ended());
        assert_eq!(step(&left, late, NOW).unwrap_err(), Rejected::NotOwner);
        let again = TaskEvent::Orphaned { fence };
        assert_eq!(step(&left, again, NOW).unwrap_err(), Rejected::Unchanged);
    }
}

#[test]
fn of_two_that_carry_a_lost_call_on_one_wins_and_the_one_before_writes_nothing() {
    let task = logged();
    let fence = task.fence;
    let lost = apply(&task, TaskEvent::Orphaned { fence });
    for stands in [&task, &lost] {
        let taken = apply(stands, claim(stands, "b/1"));
        assert_eq!(taken.owner, Some(Incarnation::from_text("b/1")));
        assert!(taken.fence > fence);
        let second = step(&taken, claim(stands, "c/1"), NOW);
        assert_eq!(second.unwrap_err(), Rejected::NotOwner);
        let late = TaskEvent::Owner(fence, ended());
        assert_eq!(step(&taken, late, NOW).unwrap_err(), Rejected::NotOwner);
        let point = SealedPoint {
            behind: 3,
            sealed: "p".into(),
        };
        let pointed = TaskEvent::Owner(taken.fence, OwnerEvent::LogPoint(point.clone()));
        let pointed = apply(&taken, pointed);
        assert_eq!(pointed.log.as_ref().unwrap().point, Some(point));
        let over = apply(&pointed, TaskEvent::Owner(pointed.fence, ended()));
        assert!(over.is_ended() && over.indexed_for().is_none());
    }
}

/// Only its owner has the client's session, and tells the server itself.
#[test]
fn the_end_of_a_call_with_a_log_leaves_nothing_to_tell() {
    let task = logged();
    let failure = Failure::new(Reason::OwnerLost, SideEffect::Unknown);
    let fence = task.fence;
    for event in [
        TaskEvent::Cancel {
            by: CancelledBy::Client,
        },
        TaskEvent::Abandoned { fence, failure },
    ] {
        let over = apply(&task, event);
        assert!(over.is_ended() && !over.must_tell && over.indexed_for().is_none());
    }
    let late = task.deadline_ms;
    assert!(!step(&task, TaskEvent::Tick, late).unwrap().task.must_tell);
}

#[test]
fn other_tasks_know_nothing_of_logs() {
    let task = task(Leg::Sent(1), true);
    let fence = task.fence;
    let point = SealedPoint {
        behind: 1,
        sealed: "p".into(),
    };
    for event in [
        TaskEvent::Orphaned { fence },
        TaskEvent::Owner(fence, OwnerEvent::LogPoint(point)),
    ] {
        assert_eq!(step(&task, event, NOW).unwrap_err(), Rejected::Unchanged);
    }
}
