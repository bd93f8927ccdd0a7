//! The number of calls that run at once and the number that wait: `concurrency` and `queue`, in all sections.

use super::common::PERMITS_MAX;
use super::file;
use super::problem::Problem;
use crate::task::policy::{Concurrency, Limit, Rule};

/// The default of `queue`: how many calls may wait.
const QUEUE: usize = 256;

/// The largest `queue`. Raincheck sends each waiting call its position from time to time, which costs more the longer
/// the queue is.
const QUEUE_MAX: usize = 10_000;

/// The limit of the wrapped server, over all tools.
pub(super) fn in_all(file: &file::Upstream) -> Result<Option<Limit>, Problem> {
    let key = "upstream";
    match file.concurrency {
        Some(at_once) => limit(at_once, file.queue.unwrap_or(QUEUE), key).map(Some),
        None if file.queue.is_some() => Err(unused(key)),
        None => Ok(None),
    }
}

/// The limit of `[tasks]`, which holds for each tool separately.
pub(super) fn of_each_tool(
    tasks: &file::Terms,
    tools: &[file::ToolRule],
) -> Result<Option<Concurrency>, Problem> {
    let key = "tasks";
    match tasks.concurrency {
        Some(at_once) => {
            let limit = limit(at_once, tasks.queue.unwrap_or(QUEUE), key)?;
            Ok(Some(Concurrency::EachTool(limit)))
        }
        // The queue of `[tasks]` is also the default for entries that have a limit without a queue.
        None if tasks.queue.is_some() && !tools.iter().any(file::ToolRule::is_limited) => {
            Err(unused(key))
        }
        None => Ok(None),
    }
}

/// The limit of a `[[tools]]` entry, which holds for all the tools that it matches together. A missing
/// setting is as in `[tasks]`.
pub(super) fn of_entry(
    base: &Rule,
    tasks: &file::Terms,
    terms: &file::Terms,
    key: &str,
) -> Result<Option<Concurrency>, Problem> {
    let queue = terms.queue.or(tasks.queue).unwrap_or(QUEUE);
    match (terms.concurrency, base.concurrency) {
        (Some(at_once), _) => {
            let limit = limit(at_once, queue, key)?;
            Ok(Some(Concurrency::Together(limit)))
        }
        // The entry inherits only the limit, which stays one for each tool.
        (None, Some(Concurrency::EachTool(each) | Concurrency::Together(each))) => {
            let limit = limit(each.at_once, queue, key)?;
            Ok(Some(Concurrency::EachTool(limit)))
        }
        (None, None) if terms.queue.is_some() => Err(unused(key)),
        (None, None) => Ok(None),
    }
}

fn limit(at_once: usize, queue: usize, key: &str) -> Result<Limit, Problem> {
    if at_once == 0 || at_once > PERMITS_MAX {
        return Err(Problem::new(
            format!("{key}.concurrency"),
            "must be from 1 to 1000000; leave it out for no limit",
        ));
    }
    if queue > QUEUE_MAX {
        return Err(Problem::new(
            format!("{key}.queue"),
            "must be from 0 to 10000; the default is 256",
        ));
    }
    Ok(Limit { at_once, queue })
}

fn unused(key: &str) -> Problem {
    Problem::new(
        format!("{key}.queue"),
        "has no effect without concurrency; set that, too, or take it out",
    )
}
