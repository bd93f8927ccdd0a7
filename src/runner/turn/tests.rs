//! Who is let in, in which order, and that no place is lost.

use super::*;
use crate::task::glob::Glob;
use crate::task::policy::Rule;

fn limit(at_once: usize, queue: usize) -> Limit {
    Limit { at_once, queue }
}

fn globs(pattern: &str) -> Vec<Glob> {
    vec![Glob::parse(pattern).unwrap()]
}

/// Each tool has two places, those of `ab*` one together.
fn gates(in_all: Option<Limit>) -> Gates {
    let rule = |concurrency| Rule {
        concurrency: Some(concurrency),
        ..Rule::default()
    };
    let entry = rule(Concurrency::Together(limit(1, 2)));
    let each = rule(Concurrency::EachTool(limit(2, 3)));
    let rules = Rules::new(each, vec![(globs("ab*"), entry)]);
    Gates::new(Arc::new(rules), in_all)
}

fn is_in(turn: &Turn) -> bool {
    matches!(turn, Turn::Has(_))
}

fn comes(gates: &Gates, turn: &mut Turn) -> bool {
    match turn.come(gates, "x").now_or_never() {
        Some(places) => {
            *turn = Turn::Has(places);
            true
        }
        None => false,
    }
}

#[test]
fn nothing_waits_where_nothing_is_limited() {
    let gates = Gates::new(Arc::default(), None);
    assert!(!gates.limits("x"));
    let turns: Vec<_> = (0..100).map(|_| gates.enter("x").unwrap()).collect();
    assert!(turns.iter().all(is_in));
}

#[test]
fn first_come_first_served_and_a_full_queue_refuses() {
    let gates = gates(None);
    let first = gates.enter("x").unwrap();
    let second = gates.enter("x").unwrap();
    let mut queue: Vec<_> = (0..3).map(|_| gates.enter("x").unwrap()).collect();
    assert!(is_in(&first) && is_in(&second) && !queue.iter().any(is_in));
    assert_eq!(gates.enter("x").unwrap_err(), Full);
    assert!(is_in(&gates.enter("y").unwrap()), "another tool");

    let said = |turn: &Turn| turn.message().unwrap().into_string();
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
        !comes(&gates, &mut queue[2])
            && !comes(&gates, &mut queue[1])
            && comes(&gates, &mut queue[0])
    );
    // Whoever goes away leaves the rest as it was, and room for another one.
    drop(queue.remove(1));
    assert_eq!(said(&queue[1]), "Waiting for a free place; it is the next");
    let mut last = [gates.enter("x").unwrap(), gates.enter("x").unwrap()];
    assert!(!is_in(&last[0]) && !is_in(&last[1]));
    assert_eq!(gates.enter("x").unwrap_err(), Full);
    drop(second);
    assert!(
        !comes(&gates, &mut last[1])
            && !comes(&gates, &mut last[0])
            && comes(&gates, &mut queue[1])
    );
}

#[test]
fn an_entry_counts_all_its_tools_together() {
    let gates = gates(None);
    let _first = gates.enter("ab").unwrap();
    assert!(!is_in(&gates.enter("abc").unwrap()));
}

#[test]
fn who_waits_for_a_tool_takes_no_place_from_others() {
    let gates = gates(Some(limit(2, 2)));
    let slow = gates.enter("ab1").unwrap();
    let mut next = gates.enter("ab2").unwrap();
    let other = gates.enter("x").unwrap();
    assert!(is_in(&slow) && is_in(&other) && !is_in(&next));
    let mut third = gates.enter("x").unwrap();
    assert!(!is_in(&third));
    assert_eq!(gates.enter("y").unwrap_err(), Full, "in all, two wait");
    // The tool's place is free, and then the server's, which `x` asked for first.
    drop(slow);
    assert!(!comes(&gates, &mut next) && comes(&gates, &mut third));
    drop(other);
    assert!(comes(&gates, &mut next));
}

#[test]
fn a_leg_that_was_let_in_before_is_never_refused() {
    let gates = gates(Some(limit(1, 0)));
    let first = gates.enter("x").unwrap();
    assert_eq!(gates.enter("x").unwrap_err(), Full);
    let mut leg = gates.queue("x");
    assert!(!comes(&gates, &mut leg));
    drop(first);
    assert!(comes(&gates, &mut leg));
}

/// Every way out gives back what was taken: after it the limits are as they were.
#[test]
fn no_place_is_lost_in_a_thousand_mixed_ends() {
    let gates = gates(Some(limit(3, 4)));
    let mut turns = VecDeque::new();
    for number in 0..1_000_usize {
        let tool = ["ab1", "ab2", "x", "y"][number % 4];
        turns.extend(gates.enter(tool));
        for turn in &mut turns {
            comes(&gates, turn);
        }
        let at_server = turns.iter().filter(|turn| is_in(turn)).count();
        assert!(at_server <= 3 && turns.len() - at_server <= 4);
        // Now the oldest, now the newest, now somebody who waits.
        match number % 3 {
            0 => drop(turns.pop_front()),
            1 => drop(turns.pop_back()),
            _ => drop(turns.remove(number % turns.len().max(1))),
        }
    }
    drop(turns);
    let x: Vec<_> = (0..2).map(|_| gates.enter("x").unwrap()).collect();
    let ab = gates.enter("ab").unwrap();
    assert!(x.iter().all(is_in) && is_in(&ab));
    let queue: Vec<_> = (0..4).map(|_| gates.enter("y").unwrap()).collect();
    assert!(!queue.iter().any(is_in));
    assert_eq!(gates.enter("z").unwrap_err(), Full);
}

#[test]
fn names_that_nobody_uses_any_more_are_forgotten() {
    let gates = gates(None);
    let _used = gates.enter("used").unwrap();
    for number in 0..10_000 {
        drop(gates.enter(&format!("tool {number}")).unwrap());
    }
    let tools = gates.tools.lock();
    assert!(tools.by_name.len() <= TOOLS_MIN, "{}", tools.by_name.len());
    assert!(tools.by_name.contains_key("used"));
}
