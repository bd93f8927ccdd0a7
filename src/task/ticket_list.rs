//! The calls of a client without Tasks, as a result of a tool: for a model that lost a ticket. Pure.

use std::cmp::Reverse;
use std::fmt::Write as _;

use super::state::Task;
use super::ticket::{CompanionNames, CompanionTool, IsError, call_of, named, tool_result};
use crate::mcp::json::Writer;
use crate::mcp::version::Era;

/// The most calls in one list.
const CALLS_MAX: usize = 20;

/// Lists open calls, the newest first, and behind them those that have ended, the last end first. `has_more`: the client
/// has further calls, which expire sooner.
pub fn list(
    names: &CompanionNames,
    client_era: Era,
    mut tasks: Vec<Task>,
    (has_more, now_ms): (bool, u64),
) -> String {
    tasks.sort_by_key(|task| {
        let since_ms = if task.is_ended() {
            task.updated_ms
        } else {
            task.created_ms
        };
        (task.is_ended(), Reverse(since_ms))
    });
    let left_out = has_more || tasks.len() > CALLS_MAX;
    // Cut after the sort, so that calls that have ended are left out first.
    tasks.truncate(CALLS_MAX);
    let text = text(names, &tasks, (left_out, now_ms));
    let tickets: Vec<_> = tasks.iter().map(|task| entry(task, now_ms)).collect();
    let mut out = Writer::object();
    out.raw("tickets", &format!("[{}]", tickets.join(",")));
    out.str("message", &text);
    tool_result(client_era, &text, Some(&out.end()), IsError::No)
}

fn text(names: &CompanionNames, tasks: &[Task], (left_out, now_ms): (bool, u64)) -> String {
    if tasks.is_empty() {
        return "There are no calls of yours with a ticket: none was made here, or all have expired."
            .to_owned();
    }
    let mut text = "Your calls with a ticket, those that run first:".to_owned();
    for task in tasks {
        let _ = write!(text, "\nTicket {} for {}: ", task.id, call_of(task));
        let _ = if task.is_ended() {
            let ended_s = now_ms.saturating_sub(task.updated_ms) / 1000;
            write!(text, "{}, {ended_s} s ago.", task.status().word())
        } else {
            let age_s = now_ms.saturating_sub(task.created_ms) / 1000;
            write!(text, "{}, for {age_s} s.", task.status().word())
        };
    }
    if left_out {
        text.push_str("\nThere are more, which are not shown.");
    }
    let result = names.of(CompanionTool::Result);
    let _ = write!(text, "\nCall {result} with a ticket for its result.");
    text
}

fn entry(task: &Task, now_ms: u64) -> String {
    let mut out = named(task);
    let age_s = now_ms.saturating_sub(task.created_ms) / 1000;
    out.number("secondsSinceTicket", age_s);
    out.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::machine::tests::task;
    use crate::task::state::{Leg, Outcome};
    use crate::task::ticket_terms::TicketTerms;

    fn made(created_ms: u64, ended_ms: Option<u64>) -> Task {
        let mut task = task(Leg::Sent(1), true);
        task.id = crate::task::id::TaskId::random();
        task.created_ms = created_ms;
        task.updated_ms = ended_ms.unwrap_or(created_ms);
        task.outcome = ended_ms.map(|_| Outcome::Cancelled);
        let params = r#"{"arguments":{"n":1}}"#;
        task.ticket = Some(Box::new(TicketTerms::new(params, None)));
        task
    }

    fn listed(tasks: Vec<Task>) -> String {
        let names = CompanionNames::free(&"our_".into(), |_| false).unwrap();
        let list = list(&names, Era::Legacy, tasks, (false, 100_000));
        let list: serde_json::Value = serde_json::from_str(&list).unwrap();
        let text = list["content"][0]["text"].as_str().unwrap();
        assert_eq!(list["structuredContent"]["message"], text);
        text.to_owned()
    }

    #[test]
    fn what_runs_comes_before_what_has_ended_and_each_the_newest_first() {
        let tasks = vec![
            made(10_000, Some(50_000)),
            made(20_000, None),
            made(9_000, Some(60_000)),
            made(30_000, None),
        ];
        let ids: Vec<_> = [3, 1, 2, 0].map(|at: usize| tasks[at].id).into();
        let name = tasks[0].name.clone();
        let expected = format!(
            "Your calls with a ticket, those that run first:\n\
             Ticket {} for {name} {{\"n\":1}}: working, for 70 s.\n\
             Ticket {} for {name} {{\"n\":1}}: working, for 80 s.\n\
             Ticket {} for {name} {{\"n\":1}}: cancelled, 40 s ago.\n\
             Ticket {} for {name} {{\"n\":1}}: cancelled, 50 s ago.\n\
             Call task_result with a ticket for its result.",
            ids[0], ids[1], ids[2], ids[3]
        );
        assert_eq!(listed(tasks), expected);
    }

    #[test]
    fn a_long_list_says_that_it_goes_on() {
        let text = listed((0..30).map(|_| made(1_000, None)).collect());
        assert_eq!(text.matches("Ticket ").count(), CALLS_MAX);
        assert!(text.contains("There are more, which are not shown."));
        assert!(listed(Vec::new()).starts_with("There are no calls of yours"));
    }
}
