//! What receivers hear of a task, through the machine.

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::mcp::json::raw;
use crate::task::cancelled_by::CancelledBy;
use crate::task::events::position::EventPosition;
use crate::task::events::replay::{Replay, ReplayTo, SubscribedNotices, WantedNotices};
use crate::task::events::subscriptions::SUBSCRIPTIONS_MAX;
use crate::task::last_news::LastNews;
use crate::task::machine::Rejected;
use crate::task::machine::tests::{NOW, task};
use crate::task::machine::{self, OwnerEvent, TaskEvent};
use crate::task::state::{Leg, Outcome, Task};

const RETRY: u64 = 900_000;

fn receiver() -> ReceiverId {
    ReceiverId::of("https://hooks.example/in")
}

fn watched(announced: bool) -> Task {
    Task {
        ttl_ms: 10 * RETRY,
        input_timeout_ms: None,
        deadline_ms: NOW + RETRY,
        notices: vec![Notices::new(receiver(), NoticeState::ALL.to_vec(), RETRY)],
        ..task(Leg::Sent(1), announced)
    }
}

fn stepped(task: &Task, event: TaskEvent, now_ms: u64) -> Task {
    machine::step(task, event, now_ms).unwrap().task
}

fn noticed(task: &Task, event: NoticeEvent, now_ms: u64) -> Task {
    stepped(task, TaskEvent::Notice(receiver(), event), now_ms)
}

fn asks(task: &Task, origin: &str, now_ms: u64) -> Task {
    let request = json!({"method": "elicitation/create"}).to_string();
    let asked = OwnerEvent::Asked {
        origin: origin.into(),
        request: raw(request).unwrap(),
    };
    stepped(task, TaskEvent::Owner(task.fence, asked), now_ms)
}

fn cancelled(task: &Task, now_ms: u64) -> Task {
    stepped(
        task,
        TaskEvent::Cancel {
            by: CancelledBy::Client,
        },
        now_ms,
    )
}

fn waiting(task: &Task) -> Vec<(u32, NoticeState)> {
    let waiting = task.notices[0].waiting.iter();
    waiting.map(|it| (it.number, it.state)).collect()
}

#[test]
fn the_commit_of_an_end_says_who_must_hear_of_it() {
    let open = watched(true);
    assert_eq!((waiting(&open), open.notice_ms()), (vec![], None));
    let ended = cancelled(&open, NOW + 5);
    assert_eq!(waiting(&ended), [(1, NoticeState::Cancelled)]);
    // The committer tries at once; any other replica looks when the claim is over.
    assert_eq!(ended.look_ms(), Some(NOW + 5 + CLAIM_MS));
    assert!(ended.notices[0].may_attempt(NOW + 5));
    assert!(!ended.notices[0].may_attempt(NOW + 5 + CLAIM_MS));
    let early = TaskEvent::Notice(receiver(), NoticeEvent::Claimed);
    let early = machine::step(&ended, early, NOW + 6).unwrap_err();
    assert_eq!(early, Rejected::Unchanged);
    let claimed = noticed(&ended, NoticeEvent::Claimed, NOW + 5 + CLAIM_MS);
    assert_eq!(claimed.look_ms(), Some(NOW + 5 + 2 * CLAIM_MS));
    assert_eq!(claimed.updated_ms, ended.updated_ms, "no client sees it");
    let told = noticed(&claimed, NoticeEvent::Settled { number: 1 }, NOW + 6);
    assert_eq!((waiting(&told), told.look_ms()), (vec![], None));
    let again = TaskEvent::Notice(receiver(), NoticeEvent::Settled { number: 1 });
    assert!(machine::step(&told, again, NOW + 7).is_err());
}

#[test]
fn a_task_that_no_client_heard_of_is_not_told_of() {
    let quiet = asks(&watched(false), "1", NOW);
    assert_eq!(waiting(&quiet), []);
    let announced = stepped(&quiet, TaskEvent::Announced, NOW + 1);
    assert_eq!(waiting(&announced), [(1, NoticeState::InputRequired)]);
    assert_eq!(waiting(&cancelled(&watched(false), NOW)), []);
}

#[test]
fn a_receiver_hears_only_of_the_states_that_it_wants() {
    let mut open = watched(true);
    open.notices[0].states = vec![NoticeState::Completed];
    assert_eq!(waiting(&cancelled(&asks(&open, "1", NOW), NOW + 1)), []);
    let ended = OwnerEvent::Ended {
        outcome: Outcome::Cancelled,
        message: None,
        last: LastNews::default(),
    };
    open.notices[0].states = vec![NoticeState::Cancelled];
    let ended = stepped(&open, TaskEvent::Owner(open.fence, ended), NOW);
    assert_eq!(waiting(&ended), [(1, NoticeState::Cancelled)]);
}

#[test]
fn a_receiver_that_is_away_leaves_three_notices_at_most_and_hears_them_in_order() {
    let mut task = asks(&watched(true), "1", NOW);
    let sent = task.notices[0].first().unwrap().clone();
    for (origin, at_ms) in [("2", 1), ("3", 2)] {
        task = asks(&task, origin, NOW + at_ms);
    }
    let question = NoticeState::InputRequired;
    assert_eq!(waiting(&task), [(1, question), (2, question)]);
    // The first may have been sent, and stays as it is: its id depends on it.
    assert_eq!(*task.notices[0].first().unwrap(), sent);
    let latest = task.notices[0].waiting[1].at_ms;
    assert_eq!(latest, task.updated_ms, "the latest question");
    task = cancelled(&task, NOW + 3);
    let end = NoticeState::Cancelled;
    assert_eq!(waiting(&task), [(1, question), (2, question), (3, end)]);
    for (number, left) in [(1, 2), (2, 1), (3, 0)] {
        task = noticed(&task, NoticeEvent::Settled { number }, NOW + 4);
        assert_eq!(waiting(&task).len(), left);
    }
}

#[test]
fn a_reminder_is_told_as_one() {
    let mut task = asks(&watched(true), "1", NOW);
    task.input_reminder_ms = Some(100);
    task = noticed(&task, NoticeEvent::Settled { number: 1 }, NOW + 1);
    task = stepped(&task, TaskEvent::Tick, NOW + 100);
    let first = task.notices[0].first().unwrap();
    assert!(first.is_reminder && first.number == 2);
}

#[test]
fn a_new_question_is_not_told_as_a_reminder() {
    let mut task = asks(&watched(true), "1", NOW);
    task.input_reminder_ms = Some(100);
    task = stepped(&task, TaskEvent::Tick, NOW + 100);
    let last = |task: &Task| task.notices[0].waiting.last().unwrap().clone();
    assert!(last(&task).is_reminder && last(&task).number == 2);
    task = asks(&task, "2", NOW + 101);
    assert!(!last(&task).is_reminder && last(&task).number == 2);
}

fn failed(task: &Task, pause_ms: Option<u64>, random: u8, now_ms: u64) -> Task {
    let failed = NoticeEvent::Failed {
        number: 1,
        pause_ms,
        random,
    };
    noticed(task, failed, now_ms)
}

#[test]
fn attempts_come_ever_less_often_for_a_quarter_of_an_hour() {
    for random in [0, 128, 255] {
        let mut task = cancelled(&watched(true), NOW);
        let (mut now_ms, mut pauses) = (NOW, Vec::new());
        loop {
            task = failed(&task, None, random, now_ms);
            let Some(next_ms) = task.look_ms() else { break };
            pauses.push(next_ms - now_ms);
            now_ms = next_ms;
        }
        assert!(now_ms - NOW <= RETRY, "{random}: {pauses:?}");
        assert!(now_ms - NOW > RETRY - PAUSE_MAX_MS * 5 / 4, "{pauses:?}");
        assert!((10..20).contains(&pauses.len()), "{random}: {pauses:?}");
        assert!(pauses.is_sorted(), "{pauses:?}");
    }
    assert_eq!((pause(1, 0), pause(1, 255)), (1_500, 2_500));
    assert_eq!((pause(40, 0), pause(40, 255)), (90_000, 150_000));
}

#[test]
fn the_pause_that_a_receiver_asks_for_counts_within_the_bound() {
    let ended = cancelled(&watched(true), NOW);
    let next = |pause_ms| failed(&ended, Some(pause_ms), 0, NOW).look_ms();
    assert_eq!(next(60_000), Some(NOW + 60_000));
    assert_eq!(next(1), Some(NOW + 1_500), "not sooner than usual");
    // A last attempt at the end of the time, and no further one.
    let at_ms = ended.updated_ms;
    assert_eq!(next(86_400_000), Some(at_ms + RETRY));
    let late = failed(&ended, Some(86_400_000), 0, NOW);
    assert_eq!(failed(&late, Some(1), 0, at_ms + RETRY).look_ms(), None);
}

#[test]
fn no_attempt_comes_after_the_record_is_gone() {
    let mut short = watched(true);
    short.ttl_ms = 5_000;
    let ended = cancelled(&short, NOW + 4_000);
    assert_eq!(failed(&ended, None, 0, NOW + 4_001).look_ms(), None);
}

#[test]
fn what_no_replica_can_try_is_put_off_and_given_up_in_time() {
    let ended = cancelled(&watched(true), NOW);
    let postponed = NoticeEvent::Postponed { number: 1 };
    let later = noticed(&ended, postponed, NOW + 20_000);
    assert_eq!(later.look_ms(), Some(NOW + 20_000 + POSTPONED_MIN_MS));
    // The older it is, the less often it is looked at, and a last time when its time is over.
    let at_ms = ended.updated_ms;
    let old = noticed(&later, postponed, at_ms + RETRY / 2);
    assert_eq!(old.look_ms(), Some(at_ms + RETRY / 2 + RETRY / 8));
    let old = noticed(&later, postponed, at_ms + RETRY - 1);
    assert_eq!(old.look_ms(), Some(at_ms + RETRY));
    assert_eq!(noticed(&old, postponed, at_ms + RETRY).look_ms(), None);
}

#[test]
fn what_is_claimed_after_its_time_is_given_up() {
    let asked = asks(&watched(true), "1", NOW);
    let both = cancelled(&asked, NOW + 60_000);
    let asked_ms = asked.notices[0].first().unwrap().at_ms;
    let late_ms = asked_ms + RETRY + CLAIM_MS;
    let in_time = noticed(&both, NoticeEvent::Claimed, late_ms);
    assert_eq!(waiting(&in_time).len(), 2);
    assert!(in_time.notices[0].may_attempt(late_ms));
    let too_late = noticed(&both, NoticeEvent::Claimed, late_ms + 1);
    assert_eq!(waiting(&too_late), [(2, NoticeState::Cancelled)]);
    // The next has time left, and any replica may claim it.
    assert!(too_late.notices[0].is_due(late_ms + 1));
}

fn subscribed_to(id: &str) -> Notices {
    let receiver = ReceiverId::of_subscription(id);
    Notices::new(receiver, NoticeState::ALL.to_vec(), RETRY)
}

fn subscribed(
    task: &Task,
    wanted: &[Notices],
    replayed: Option<ReceiverId>,
    now_ms: u64,
) -> Result<Task, Rejected> {
    let replay = match replayed {
        None => to(ReceiverId::of("nobody"), 0),
        Some(receiver) => to(receiver, 0),
    };
    subscribed_from(task, wanted, replay, now_ms)
}

fn to(receiver: ReceiverId, from_ms: u64) -> Replay {
    Replay::To(Arc::new(ReplayTo {
        receiver,
        after: EventPosition::at(0),
        from_ms,
    }))
}

/// Each subscription hears of what happens after `NOW - 1`.
fn subscribed_from(
    task: &Task,
    wanted: &[Notices],
    replay: Replay,
    now_ms: u64,
) -> Result<Task, Rejected> {
    let wanted = wanted.iter().map(|it| WantedNotices {
        notices: it.clone(),
        since_ms: NOW - 1,
    });
    let wanted = wanted.collect();
    let event = TaskEvent::Subscribed(SubscribedNotices { wanted, replay });
    machine::step(task, event, now_ms).map(|step| step.task)
}

fn receivers(task: &Task) -> Vec<ReceiverId> {
    task.notices.iter().map(|it| it.receiver).collect()
}

#[test]
fn subscriptions_come_beside_those_before_even_if_a_stale_reader_does_not_know_them() {
    let (a, b) = (subscribed_to("a"), subscribed_to("b"));
    let open = watched(true);
    let first = subscribed(&open, std::slice::from_ref(&a), None, NOW).unwrap();
    assert_eq!(receivers(&first), [receiver(), a.receiver]);
    assert_eq!(first.updated_ms, open.updated_ms, "no client sees it");
    let again = subscribed(&first, std::slice::from_ref(&a), None, NOW);
    assert_eq!(again.unwrap_err(), Rejected::Unchanged);
    let second = subscribed(&first, std::slice::from_ref(&b), None, NOW).unwrap();
    assert_eq!(receivers(&second), [receiver(), a.receiver, b.receiver]);
    // Two clients subscribe at the same time: one of them read the subscriptions before the other's was there.
    let late = subscribed(&second, std::slice::from_ref(&a), None, NOW);
    assert_eq!(late.unwrap_err(), Rejected::Unchanged);
    let ended = cancelled(&second, NOW + 1);
    assert!(ended.notices.iter().all(|it| it.first().is_some()));
    // The task has ended, so a receiver that comes now hears nothing of it.
    assert!(subscribed(&ended, &[a, b], None, NOW + 2).is_err());
}

#[test]
fn a_record_has_at_most_as_many_subscriptions_as_a_caller() {
    let named = |number: usize| subscribed_to(&number.to_string());
    let ended = cancelled(&watched(true), NOW);
    for mut task in [watched(true), ended] {
        for number in 0..3 * SUBSCRIPTIONS_MAX {
            let own = named(number);
            let id = own.receiver;
            task = subscribed(&task, &[own], Some(id), NOW + 1).unwrap();
            if task.notices_of(id).unwrap().first().is_some() && number > 0 {
                let settled = TaskEvent::Notice(id, NoticeEvent::Settled { number: 1 });
                task = stepped(&task, settled, NOW + 2);
            }
            let there = receivers(&task);
            assert!(there.len() <= 1 + SUBSCRIPTIONS_MAX, "{}", there.len());
            assert!(there.contains(&receiver()) && there.contains(&id));
        }
        // What waits goes last.
        let waits = named(0).receiver;
        assert_eq!(receivers(&task).contains(&waits), task.is_ended());
    }
}

#[test]
fn what_ends_between_a_look_and_its_commit_is_told() {
    let a = subscribed_to("a");
    let wanted = std::slice::from_ref(&a);
    let ended = cancelled(&watched(true), NOW);
    let at_ms = ended.updated_ms;
    let told = subscribed_from(&ended, wanted, to(a.receiver, at_ms), NOW + 9).unwrap();
    assert!(told.notices_of(a.receiver).unwrap().first().is_some());
    let earlier = subscribed_from(&ended, wanted, to(a.receiver, at_ms + 1), NOW + 9);
    assert_eq!(earlier.unwrap_err(), Rejected::Unchanged);
    // A new task ends before it is looked at again.
    let told = subscribed_from(&ended, wanted, Replay::ToAll, NOW + 9).unwrap();
    assert!(told.notices_of(a.receiver).unwrap().first().is_some());
}

#[test]
fn what_was_given_up_may_be_told_again() {
    let (a, id) = (subscribed_to("a"), ReceiverId::of_subscription("a"));
    let wanted = std::slice::from_ref(&a);
    let open = subscribed(&watched(true), wanted, None, NOW).unwrap();
    let ended = cancelled(&open, NOW + 1);
    let over_ms = ended.updated_ms + RETRY + CLAIM_MS + 1;
    let failed = NoticeEvent::Failed {
        number: 1,
        pause_ms: None,
        random: 0,
    };
    let postponed = NoticeEvent::Postponed { number: 1 };
    for event in [NoticeEvent::Claimed, failed, postponed] {
        let given_up = stepped(&ended, TaskEvent::Notice(id, event), over_ms);
        assert!(given_up.notices_of(id).unwrap().first().is_none());
        let again = subscribed(&given_up, wanted, Some(id), over_ms).unwrap();
        assert!(again.notices_of(id).unwrap().first().is_some(), "{event:?}");
    }
}

#[test]
fn the_present_state_is_replayed_once_to_who_was_not_told() {
    let (a, id) = (subscribed_to("a"), ReceiverId::of_subscription("a"));
    let (wanted, replayed) = (std::slice::from_ref(&a), Some(id));
    let ended = cancelled(&watched(true), NOW);
    let told = subscribed(&ended, wanted, replayed, NOW + 9).unwrap();
    let first = told.notices_of(id).unwrap().first().unwrap().clone();
    assert_eq!(first.state, NoticeState::Cancelled);
    assert!(subscribed(&told, wanted, replayed, NOW + 10).is_err());
    let number = first.number;
    let of = |task: &Task, event| stepped(task, TaskEvent::Notice(id, event), NOW + 11);
    let settled = of(&told, NoticeEvent::Settled { number });
    assert!(subscribed(&settled, wanted, replayed, NOW + 12).is_err());
    // The subscription had ended when its turn came.
    let unheard = of(&told, NoticeEvent::Unheard { number });
    assert_eq!(unheard.look_ms(), ended.look_ms());
    let again = subscribed(&unheard, wanted, replayed, NOW + 13).unwrap();
    assert!(again.notices_of(id).unwrap().first().is_some());
    // No receiver hears of a task that no client heard of.
    let quiet = cancelled(&watched(false), NOW);
    let quiet = subscribed(&quiet, wanted, replayed, NOW + 1);
    assert!(quiet.is_err() || quiet.unwrap().notices_of(id).unwrap().first().is_none());
}

#[test]
fn the_names_of_subscriptions_and_of_operators_receivers_never_meet() {
    for number in 0..200_000 {
        let text = number.to_string();
        assert!(ReceiverId::of_subscription(&text).is_subscription());
        assert!(!ReceiverId::of(&text).is_subscription(), "{text}");
    }
}

#[test]
fn an_id_names_one_notice_of_one_receiver() {
    let task = cancelled(&watched(true), NOW);
    let first = task.notices[0].first().unwrap();
    let id = message_id(task.id, receiver(), first);
    assert!(id.starts_with("msg_") && id.len() == 36, "{id}");
    assert!(!id.contains(&task.id.to_string()[..8]), "{id}");
    assert_eq!(id, message_id(task.id, receiver(), first));
    let other = ReceiverId::of("https://hooks.example/other");
    assert_ne!(id, message_id(task.id, other, first));
    // The store lost the commit, and the task came to another end, or later to the same.
    let mut again = first.clone();
    again.at_ms += 1;
    assert_ne!(id, message_id(task.id, receiver(), &again));
    again = first.clone();
    again.state = NoticeState::Failed;
    assert_ne!(id, message_id(task.id, receiver(), &again));
}
