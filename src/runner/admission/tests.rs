//! The order of admission, the bound of the queue, and that no permit is lost.

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
    let legs: Vec<_> = (0..100).map(|_| admission.enter("x").unwrap()).collect();
    assert!(legs.iter().all(is_in));
}

#[test]
fn first_come_first_served_and_a_full_queue_refuses() {
    let admission = admission(None);
    let first = admission.enter("x").unwrap();
    let second = admission.enter("x").unwrap();
    let mut queue: Vec<_> = (0..3).map(|_| admission.enter("x").unwrap()).collect();
    assert!(is_in(&first) && is_in(&second) && !queue.iter().any(is_in));
    assert_eq!(admission.enter("x").unwrap_err(), QueueFull);
    assert!(is_in(&admission.enter("y").unwrap()), "another tool");

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
    let mut last = [admission.enter("x").unwrap(), admission.enter("x").unwrap()];
    assert!(!is_in(&last[0]) && !is_in(&last[1]));
    assert_eq!(admission.enter("x").unwrap_err(), QueueFull);
    drop(second);
    assert!(!is_admitted(&mut last[1]) && !is_admitted(&mut last[0]) && is_admitted(&mut queue[1]));
}

#[test]
fn an_entry_counts_all_its_tools_together() {
    let admission = admission(None);
    let _first = admission.enter("ab").unwrap();
    assert!(!is_in(&admission.enter("abc").unwrap()));
}

#[test]
fn who_waits_for_a_tool_takes_no_place_from_others() {
    let admission = admission(Some(limit(2, 2)));
    let slow = admission.enter("ab1").unwrap();
    let mut next = admission.enter("ab2").unwrap();
    let other = admission.enter("x").unwrap();
    assert!(is_in(&slow) && is_in(&other) && !is_in(&next));
    let mut third = admission.enter("x").unwrap();
    assert!(!is_in(&third));
    assert_eq!(
        admission.enter("y").unwrap_err(),
        QueueFull,
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
    let first = admission.enter("x").unwrap();
    assert_eq!(admission.enter("x").unwrap_err(), QueueFull);
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
        legs.extend(admission.enter(tool));
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
    let x: Vec<_> = (0..2).map(|_| admission.enter("x").unwrap()).collect();
    let ab = admission.enter("ab").unwrap();
    assert!(x.iter().all(is_in) && is_in(&ab));
    let queue: Vec<_> = (0..4).map(|_| admission.enter("y").unwrap()).collect();
    assert!(!queue.iter().any(is_in));
    assert_eq!(admission.enter("z").unwrap_err(), QueueFull);
}

#[test]
fn names_that_nobody_uses_any_more_are_forgotten() {
    let admission = admission(None);
    let _used = admission.enter("used").unwrap();
    for number in 0..10_000 {
        drop(admission.enter(&format!("tool {number}")).unwrap());
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
        admission.change_rules(limited(Some(limit(2, 2)), Some(limit(2, 2))));
        let [first, second] = [0; 2].map(|_| admission.enter(tool).unwrap());
        let mut third = admission.enter(tool).unwrap();
        assert!(is_in(&first) && is_in(&second) && !is_in(&third));

        admission.change_rules(limited(Some(limit(1, 1)), Some(limit(1, 1))));
        drop(first);
        assert!(!is_admitted(&mut third), "one runs, and one may");
        assert_eq!(admission.enter(tool).unwrap_err(), QueueFull);
        drop(second);
        assert!(is_admitted(&mut third));

        admission.change_rules(limited(Some(limit(2, 0)), Some(limit(2, 0))));
        assert!(is_in(&admission.enter(tool).unwrap()));
    }
}

#[test]
fn a_limit_that_is_gone_holds_nobody() {
    let admission = Admission::new(limited(Some(limit(1, 1)), Some(limit(1, 1))));
    for tool in ["ab", "x"] {
        admission.change_rules(limited(Some(limit(1, 1)), Some(limit(1, 1))));
        let first = admission.enter(tool).unwrap();
        let mut second = admission.enter(tool).unwrap();
        admission.change_rules(limited(None, None));
        assert!(is_in(&admission.enter(tool).unwrap()));
        assert!(!is_admitted(&mut second), "it keeps what it began with");
        drop(first);
        assert!(is_admitted(&mut second));
    }
}
