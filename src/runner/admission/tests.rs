//! The order of admission, the bound of the queue, and that no permit is lost.

use std::collections::VecDeque;

use futures_util::FutureExt as _;

use super::*;
use crate::task::glob::Glob;
use crate::task::policy::Rule;

fn limit(at_once: usize, queue: usize) -> Limit {
    Limit { at_once, queue }
}

fn globs(pattern: &str) -> Vec<Glob> {
    vec![Glob::parse(pattern).unwrap()]
}

/// Each tool has two permits; the tools of `ab*` share one permit.
fn admission(server: Option<Limit>) -> Admission {
    let rule = |concurrency| Rule {
        concurrency: Some(concurrency),
        ..Rule::default()
    };
    let entry = rule(Concurrency::Together(limit(1, 2)));
    let each = rule(Concurrency::EachTool(limit(2, 3)));
    let rules = Rules::new(each, vec![(globs("ab*"), entry)]);
    Admission::new(Arc::new(rules.within(server)))
}

fn is_in(leg: &Admittance) -> bool {
    matches!(leg, Admittance::Now(_))
}

fn is_admitted(leg: &mut Admittance) -> bool {
    let Admittance::Queued(queued) = leg else {
        return false;
    };
    match queued.admitted().now_or_never() {
        Some(permits) => {
            *leg = Admittance::Now(permits.unwrap());
            true
        }
        None => false,
    }
}

#[test]
fn nothing_waits_where_nothing_is_limited() {
    let admission = Admission::new(Arc::default());
    assert!(!admission.rules().limits("x"));
    let legs: Vec<_> = (0..100)
        .map(|_| admission.enter("x", u64::MAX, || false).unwrap())
        .collect();
    assert!(legs.iter().all(is_in));
}

#[test]
fn first_come_first_served_and_a_full_queue_refuses() {
    let admission = admission(None);
    let first = admission.enter("x", u64::MAX, || false).unwrap();
    let second = admission.enter("x", u64::MAX, || false).unwrap();
    let mut queue: Vec<_> = (0..3)
        .map(|_| admission.enter("x", u64::MAX, || false).unwrap())
        .collect();
    assert!(is_in(&first) && is_in(&second) && !queue.iter().any(is_in));
    assert_eq!(
        admission.enter("x", u64::MAX, || false).unwrap_err(),
        NotAdmitted::QueueFull
    );
    assert!(
        is_in(&admission.enter("y", u64::MAX, || false).unwrap()),
        "another tool"
    );

    let said = |leg: &Admittance| match leg {
        Admittance::Queued(queued) => queued.message().into_string(),
        Admittance::Now(_) => "now".to_owned(),
    };
    assert_eq!(
        queue.iter().map(said).collect::<Vec<_>>(),
        [
            "Waiting for a free place; it is the next",
            "Waiting for a free place; 1 call is before it",
            "Waiting for a free place; 2 calls are before it",
        ]
    );
    drop(first);
    assert!(
        !is_admitted(&mut queue[2]) && !is_admitted(&mut queue[1]) && is_admitted(&mut queue[0])
    );
    // A leg that leaves the queue keeps the order of the others and frees its queue slot.
    drop(queue.remove(1));
    assert_eq!(said(&queue[1]), "Waiting for a free place; it is the next");
    let mut last = [
        admission.enter("x", u64::MAX, || false).unwrap(),
        admission.enter("x", u64::MAX, || false).unwrap(),
    ];
    assert!(!is_in(&last[0]) && !is_in(&last[1]));
    assert_eq!(
        admission.enter("x", u64::MAX, || false).unwrap_err(),
        NotAdmitted::QueueFull
    );
    drop(second);
    assert!(!is_admitted(&mut last[1]) && !is_admitted(&mut last[0]) && is_admitted(&mut queue[1]));
}

#[test]
fn an_entry_counts_all_its_tools_together() {
    let admission = admission(None);
    let _first = admission.enter("ab", u64::MAX, || false).unwrap();
    assert!(!is_in(&admission.enter("abc", u64::MAX, || false).unwrap()));
}

#[test]
fn who_waits_for_a_tool_takes_no_place_from_others() {
    let admission = admission(Some(limit(2, 2)));
    let slow = admission.enter("ab1", u64::MAX, || false).unwrap();
    let mut next = admission.enter("ab2", u64::MAX, || false).unwrap();
    let other = admission.enter("x", u64::MAX, || false).unwrap();
    assert!(is_in(&slow) && is_in(&other) && !is_in(&next));
    let mut third = admission.enter("x", u64::MAX, || false).unwrap();
    assert!(!is_in(&third));
    assert_eq!(
        admission.enter("y", u64::MAX, || false).unwrap_err(),
        NotAdmitted::QueueFull,
        "in all, two wait"
    );
    // The tool's permit becomes free, and then the server's permit, which `x` asked for first.
    drop(slow);
    assert!(!is_admitted(&mut next) && is_admitted(&mut third));
    drop(other);
    assert!(is_admitted(&mut next));
}

#[test]
fn a_leg_that_was_let_in_before_is_never_refused() {
    let admission = admission(Some(limit(1, 0)));
    let first = admission.enter("x", u64::MAX, || false).unwrap();
    assert_eq!(
        admission.enter("x", u64::MAX, || false).unwrap_err(),
        NotAdmitted::QueueFull
    );
    let mut leg = admission.queue("x");
    assert!(!is_admitted(&mut leg));
    drop(first);
    assert!(is_admitted(&mut leg));
}

/// Every end of a leg gives back its permits and slots: after it the limits are as they were.
#[test]
fn no_place_is_lost_in_a_thousand_mixed_ends() {
    let admission = admission(Some(limit(3, 4)));
    let mut legs = VecDeque::new();
    for number in 0..1_000_usize {
        let tool = ["ab1", "ab2", "x", "y"][number % 4];
        legs.extend(admission.enter(tool, u64::MAX, || false));
        for leg in &mut legs {
            is_admitted(leg);
        }
        let at_server = legs.iter().filter(|turn| is_in(turn)).count();
        assert!(at_server <= 3 && legs.len() - at_server <= 4);
        // Removes in turn the oldest leg, the newest leg, and a leg in the queue.
        match number % 3 {
            0 => drop(legs.pop_front()),
            1 => drop(legs.pop_back()),
            _ => drop(legs.remove(number % legs.len().max(1))),
        }
    }
    drop(legs);
    let x: Vec<_> = (0..2)
        .map(|_| admission.enter("x", u64::MAX, || false).unwrap())
        .collect();
    let ab = admission.enter("ab", u64::MAX, || false).unwrap();
    assert!(x.iter().all(is_in) && is_in(&ab));
    let queue: Vec<_> = (0..4)
        .map(|_| admission.enter("y", u64::MAX, || false).unwrap())
        .collect();
    assert!(!queue.iter().any(is_in));
    assert_eq!(
        admission.enter("z", u64::MAX, || false).unwrap_err(),
        NotAdmitted::QueueFull
    );
}

#[test]
fn names_that_nobody_uses_any_more_are_forgotten() {
    let admission = admission(None);
    let _used = admission.enter("used", u64::MAX, || false).unwrap();
    for number in 0..10_000 {
        drop(
            admission
                .enter(&format!("tool {number}"), u64::MAX, || false)
                .unwrap(),
        );
    }
    let tools = admission.tools.lock();
    assert!(tools.by_name.len() <= TOOLS_MIN, "{}", tools.by_name.len());
    assert!(tools.by_name.contains_key("used"));
}

fn limited(entry: Option<Limit>, each: Option<Limit>) -> Arc<Rules> {
    let rule = |concurrency| Rule {
        concurrency,
        ..Rule::default()
    };
    let entry = rule(entry.map(Concurrency::Together));
    let each = rule(each.map(Concurrency::EachTool));
    Arc::new(Rules::new(each, vec![(globs("ab*"), entry)]))
}

#[test]
fn new_rules_count_the_calls_that_run_and_those_that_wait() {
    let admission = Admission::new(limited(Some(limit(2, 2)), Some(limit(2, 2))));
    for tool in ["ab", "x"] {
        admission.change_rules(&limited(Some(limit(2, 2)), Some(limit(2, 2))));
        let [first, second] = [0; 2].map(|_| admission.enter(tool, u64::MAX, || false).unwrap());
        let mut third = admission.enter(tool, u64::MAX, || false).unwrap();
        assert!(is_in(&first) && is_in(&second) && !is_in(&third));

        admission.change_rules(&limited(Some(limit(1, 1)), Some(limit(1, 1))));
        drop(first);
        assert!(!is_admitted(&mut third), "one runs, and one may");
        assert_eq!(
            admission.enter(tool, u64::MAX, || false).unwrap_err(),
            NotAdmitted::QueueFull
        );
        drop(second);
        assert!(is_admitted(&mut third));

        admission.change_rules(&limited(Some(limit(2, 0)), Some(limit(2, 0))));
        assert!(is_in(&admission.enter(tool, u64::MAX, || false).unwrap()));
    }
}

#[test]
fn a_limit_that_is_gone_holds_nobody() {
    let admission = Admission::new(limited(Some(limit(1, 1)), Some(limit(1, 1))));
    for tool in ["ab", "x"] {
        admission.change_rules(&limited(Some(limit(1, 1)), Some(limit(1, 1))));
        let first = admission.enter(tool, u64::MAX, || false).unwrap();
        let mut second = admission.enter(tool, u64::MAX, || false).unwrap();
        admission.change_rules(&limited(None, None));
        assert!(is_in(&admission.enter(tool, u64::MAX, || false).unwrap()));
        assert!(!is_admitted(&mut second), "it keeps what it began with");
        drop(first);
        assert!(is_admitted(&mut second));
    }
}

fn paused(tools: &[&str]) -> Pauses {
    tools.iter().fold(Pauses::default(), |pauses, tools| {
        let pause = Pause {
            tools: (*tools).into(),
            since_ms: 0,
            until_ms: 1,
            reason: "".into(),
            by: "".into(),
        };
        pauses.with(pause).unwrap()
    })
}

#[test]
fn a_paused_tool_without_a_queue_begins_no_call_and_the_legs_of_its_calls_go_on() {
    let admission = Admission::new(Arc::default());
    assert!(!admission.rules().may_refuse());
    admission.pause(paused(&["x*"]));
    let rules = admission.rules();
    assert!(rules.limits("x1") && rules.may_refuse() && !rules.limits("y"));
    let refused = admission.enter("x1", u64::MAX, || false).unwrap_err();
    assert!(matches!(refused, NotAdmitted::Paused(pause) if &*pause.tools == "x*"));
    assert!(is_in(&admission.enter("y", u64::MAX, || false).unwrap()));
    assert!(is_in(&admission.queue("x1")), "it was sent before");
    let mut new = admission.queue_new("x1");
    assert!(!is_admitted(&mut new));

    admission.change_rules(&Rules::default());
    let refused = admission.enter("x1", u64::MAX, || false);
    assert!(refused.is_err(), "a reload ends no pause");
    admission.pause(Pauses::default());
    assert!(is_admitted(&mut new) && is_in(&admission.enter("x1", u64::MAX, || false).unwrap()));
    assert!(!admission.rules().may_refuse());
}

#[test]
fn calls_of_a_paused_tool_wait_in_the_queue_of_its_rule_until_the_last_pause_is_over() {
    let admission = admission(Some(limit(9, 1)));
    let running = admission.enter("x", u64::MAX, || false).unwrap();
    admission.pause(paused(&["x", "*"]));
    let enter = || admission.enter("x", u64::MAX, || false);
    let mut queue: Vec<_> = (0..3).map(|_| enter().unwrap()).collect();
    assert!(!queue.iter_mut().any(is_admitted));
    let refused = |ends_ms| admission.enter("x", ends_ms, || false).unwrap_err();
    assert!(matches!(refused(u64::MAX), NotAdmitted::Paused(_)), "full");
    queue.pop();
    assert!(
        matches!(refused(1), NotAdmitted::Paused(_)),
        "it would end before the pause does"
    );
    let Admittance::Queued(leg) = &queue[0] else {
        panic!("it is let in")
    };
    assert!(leg.message().starts_with("The tool is paused until 1970-"));

    // None of them takes the room of another tool in the queue of the server.
    admission.pause(paused(&["x"]));
    assert!(!queue.iter_mut().any(is_admitted));
    assert!(is_in(&admission.enter("y", u64::MAX, || false).unwrap()));
    admission.pause(Pauses::default());
    assert!(is_admitted(&mut queue[0]), "one of two permits is free");
    assert!(!is_admitted(&mut queue[1]));
    drop(running);
    assert!(is_admitted(&mut queue[1]));
}

#[test]
fn a_call_that_waits_already_waits_for_the_end_of_a_new_pause_and_holds_up_no_other_tool() {
    let admission = admission(Some(limit(1, 2)));
    let running = admission.enter("x", u64::MAX, || false).unwrap();
    let [mut paused_call, mut other] =
        ["x", "y"].map(|tool| admission.enter(tool, u64::MAX, || false).unwrap());
    let mut sent_before = admission.queue("x");
    assert!(
        ![&mut paused_call, &mut other, &mut sent_before]
            .map(is_admitted)
            .contains(&true)
    );
    admission.pause(paused(&["x"]));
    drop(running);
    // It was the first in the queue of the server.
    assert!(!is_admitted(&mut paused_call) && is_admitted(&mut other));
    drop(other);
    assert!(!is_admitted(&mut paused_call) && is_admitted(&mut sent_before));
    drop(sent_before);
    admission.pause(Pauses::default());
    assert!(is_admitted(&mut paused_call));
    drop(paused_call);
    assert!(
        is_in(&admission.enter("y", u64::MAX, || false).unwrap()),
        "no permit is lost"
    );
}
