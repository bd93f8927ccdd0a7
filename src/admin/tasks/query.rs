//! The query of an operator for the list of tasks: filters, order, page. Pure.

use std::cmp::Reverse;

use crate::mcp::error::Reason;
use crate::task::history::TaskFilter;
use crate::task::id::TaskId;
use crate::task::state::Status;
use crate::task::tool_pattern::ToolPattern;

use super::summary::ListedTask;
use super::words::{beginning, moment, place, seconds, size, word};

/// The number of tasks on one page, unless the operator sets another one.
const LIMIT: usize = 100;

/// The most tasks on one page.
const LIMIT_MAX: usize = 1_000;

/// Which tasks are listed, in which order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TaskQuery {
    state: Option<StateFilter>,
    pub(super) filter: TaskFilter,
    counts_all: bool,
    sort: TaskOrder,
    limit: Option<usize>,
    pub(super) offset: usize,
    /// The page begins behind this entry of the history.
    pub(super) after: Option<(u64, TaskId)>,
    /// Only failures that nobody has acknowledged.
    pub(super) unacknowledged: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StateFilter {
    Open,
    Ended,
    Is(Status),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum TaskOrder {
    #[default]
    Newest,
    Oldest,
    /// Tasks that wait for an answer first, the longest wait first; then the oldest; then those that have ended, the last end
    /// first.
    Stuck,
    /// The calls that take, or took, the longest time first.
    Longest,
    Tool,
    Caller,
}

const STATES: [(&str, StateFilter); 7] = [
    ("open", StateFilter::Open),
    ("ended", StateFilter::Ended),
    ("working", StateFilter::Is(Status::Working)),
    ("input_required", StateFilter::Is(Status::InputRequired)),
    ("completed", StateFilter::Is(Status::Completed)),
    ("failed", StateFilter::Is(Status::Failed)),
    ("cancelled", StateFilter::Is(Status::Cancelled)),
];

/// The ends of tasks. A completed task whose tool says `isError` is a tool error.
pub(super) const OUTCOMES: [(&str, &str); 4] = [
    ("completed", "completed"),
    ("tool_error", "tool_error"),
    ("failed", "failed"),
    ("cancelled", "cancelled"),
];

const EFFECTS: [(&str, &str); 2] = [("none", "none"), ("unknown", "unknown")];

/// The values of `counts`: either only the tasks that the state filter needs are counted, or ended tasks in any case,
/// which costs a look at each.
const COUNTS: [(&str, bool); 2] = [("read", false), ("all", true)];

const ORDERS: [(&str, TaskOrder); 6] = [
    ("newest", TaskOrder::Newest),
    ("oldest", TaskOrder::Oldest),
    ("stuck", TaskOrder::Stuck),
    ("longest", TaskOrder::Longest),
    ("tool", TaskOrder::Tool),
    ("caller", TaskOrder::Caller),
];

impl TaskQuery {
    /// Reads the query of a URL. An error is a sentence for the operator.
    pub(super) fn read(query: &str) -> Result<Self, String> {
        let mut read = Self::default();
        let filter = &mut read.filter;
        for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
            match &*key {
                "state" => read.state = Some(word("state", &value, &STATES)?),
                "outcome" => filter.end.outcome = Some(word("outcome", &value, &OUTCOMES)?),
                "effect" => filter.end.effect = Some(word("effect", &value, &EFFECTS)?),
                "reason" => {
                    let known = Reason::ALL.map(|reason| (reason.word(), reason.word()));
                    filter.end.reason = Some(word("reason", &value, &known)?);
                }
                "sort" => read.sort = word("sort", &value, &ORDERS)?,
                "counts" => read.counts_all = word("counts", &value, &COUNTS)?,
                "tool" => filter.tool = Some(ToolPattern::of(&value)),
                "caller" => filter.caller = Some(value.into_owned()),
                "replica" => filter.replica = Some(value.into_owned()),
                "id" => filter.id = Some(beginning(&value)?),
                "older" => filter.older_than_ms = seconds("older", &value)?.saturating_mul(1000),
                "since" => filter.since = Some(moment("since", &value)?),
                "until" => filter.until = Some(moment("until", &value)?),
                "limit" => read.limit = Some(size("limit", &value)?),
                "offset" => read.offset = size("offset", &value)?,
                "acknowledged" => {
                    read.unacknowledged = word("acknowledged", &value, &[("false", true)])?;
                }
                "after" => read.after = Some(place(&value)?),
                other => {
                    return Err(format!(
                        "{other} is no filter; there are state, outcome, reason, effect, acknowledged, tool, caller, replica, id, \
                         older (seconds), since, until, sort, limit, offset, after and counts"
                    ));
                }
            }
        }
        let is_open = match read.state {
            None | Some(StateFilter::Ended) => false,
            Some(StateFilter::Open) => true,
            Some(StateFilter::Is(status)) => !status.is_terminal(),
        };
        if is_open && (read.filter.end.is_any() || read.unacknowledged) {
            let why = "an open task has no outcome, reason or effect: take state out";
            return Err(why.to_owned());
        }
        if read.limit == Some(0) {
            return Err("limit=0 shows nothing; it is at least 1".to_owned());
        }
        if let Some(StateFilter::Is(status)) = read.state
            && status.is_terminal()
        {
            read.filter.end.status = Some(status);
        }
        if read.unacknowledged {
            let status = read.state.get_or_insert(StateFilter::Is(Status::Failed));
            if *status == StateFilter::Ended {
                *status = StateFilter::Is(Status::Failed);
            }
            if *status != StateFilter::Is(Status::Failed) || !read.is_about_past() {
                let why = "acknowledged is for lists of failures, the last end first, such as state=failed";
                return Err(why.to_owned());
            }
        }
        if read.after.is_some() && !read.is_about_past() {
            let why = "after is for lists of tasks that have ended, the last end first, such as state=ended";
            return Err(why.to_owned());
        }
        Ok(read)
    }

    pub(super) fn limit(&self) -> usize {
        // A larger page is cut and not refused, because the answer leads to the rest.
        self.limit.unwrap_or(LIMIT).min(LIMIT_MAX)
    }

    /// Returns `true` if the list is a page of the history.
    pub(super) fn is_about_past(&self) -> bool {
        self.wants_ended_only()
            && !self.counts_all
            && self.sort == TaskOrder::Newest
            && self.offset == 0
    }

    fn wants_ended_only(&self) -> bool {
        match self.state {
            Some(StateFilter::Ended) => true,
            Some(StateFilter::Is(status)) => status.is_terminal(),
            // Only a task that has ended passes these.
            None | Some(StateFilter::Open) => self.filter.end.is_any(),
        }
    }

    /// Returns `true` if tasks that have ended can be on the list, or are counted.
    pub(super) fn wants_ended(&self) -> bool {
        self.counts_all || self.state.is_none() || self.wants_ended_only()
    }

    /// Returns `true` if the state of the task, and its end, are those that were asked for.
    pub(super) fn has_state(&self, task: &ListedTask) -> bool {
        match task {
            ListedTask::Open(task) => {
                !self.wants_ended_only()
                    && match self.state {
                        None | Some(StateFilter::Open) => true,
                        Some(StateFilter::Ended) => false,
                        Some(StateFilter::Is(status)) => task.status() == status,
                    }
            }
            ListedTask::Ended(ended) => {
                let group = &ended.group;
                let end = &self.filter.end;
                let has_state = self.state.is_none() || self.wants_ended_only();
                has_state
                    && self.state != Some(StateFilter::Open)
                    && end.passes(&group.outcome, &group.reason, &group.effect)
            }
        }
    }

    /// Puts the tasks into the order that was asked for.
    pub(super) fn order(&self, tasks: &mut [ListedTask], now_ms: u64) {
        match self.sort {
            TaskOrder::Longest => {
                tasks.sort_by_key(|task| (Reverse(task.took_ms(now_ms)), task.id()));
            }
            // Pages need one order of what is equal otherwise.
            TaskOrder::Tool => tasks.sort_by_cached_key(|task| {
                (
                    task.tool().to_owned(),
                    Reverse(task.created_ms()),
                    task.id(),
                )
            }),
            TaskOrder::Caller => tasks
                .sort_by_cached_key(|task| (task.caller(), Reverse(task.created_ms()), task.id())),
            TaskOrder::Newest => {
                tasks.sort_by_key(|task| (Reverse(task.created_ms()), task.id()));
            }
            TaskOrder::Oldest => tasks.sort_by_key(|task| (task.created_ms(), task.id())),
            TaskOrder::Stuck => tasks.sort_by_key(|task| match task {
                ListedTask::Open(task) => {
                    let asked = task.open_questions().map(|(q, _)| q.asked_ms).min();
                    (false, asked.unwrap_or(u64::MAX), task.created_ms)
                }
                ListedTask::Ended(ended) => (true, 0, u64::MAX - ended.times.ended_ms),
            }),
        }
    }
}

/// Returns `true` if the request also applies to the tasks that name the task of the URL.
pub(super) fn wants_tree(query: &str) -> Result<bool, String> {
    let mut wants = false;
    for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
        if key != "tree" {
            return Err(format!("{key} is unknown here; there is tree"));
        }
        wants = word("tree", &value, &[("true", true), ("false", false)])?;
    }
    Ok(wants)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::error::{Failure, Reason, SideEffect};
    use crate::task::history::EndedTask;
    use crate::task::machine::tests::task;
    use crate::task::state::{Leg, Outcome, Payload, Task};

    fn listed(task: &Task) -> ListedTask {
        let entry = EndedTask::of(task).map(|ended| ended.encode());
        match entry {
            Some(entry) => ListedTask::Ended(Box::new(EndedTask::decode(task.id, &entry).unwrap())),
            None => ListedTask::Open(Box::new(task.clone())),
        }
    }

    fn counts(query: &TaskQuery, task: &Task, now_ms: u64) -> bool {
        match listed(task) {
            ListedTask::Open(task) => query.filter.passes_running(&task, now_ms),
            ListedTask::Ended(ended) => query.filter.passes_ended(&ended, false, now_ms),
        }
    }

    fn made(name: &str, created_ms: u64) -> Task {
        Task {
            id: TaskId::random(),
            name: name.into(),
            created_ms,
            ..task(Leg::Sent(1), true)
        }
    }

    /// The names of these tasks in the order of the query.
    fn ordered(query: &str, tasks: &[Task]) -> String {
        let mut tasks: Vec<ListedTask> = tasks.iter().map(listed).collect();
        TaskQuery::read(query).unwrap().order(&mut tasks, 1_000);
        let names = tasks.iter().map(|task| match task {
            ListedTask::Open(task) => &*task.name,
            ListedTask::Ended(ended) => &*ended.group.tool,
        });
        names.collect()
    }

    #[test]
    fn filters_are_combined() {
        let query = TaskQuery::read("state=open&tool=build&older=10").unwrap();
        assert!(!query.wants_ended());
        let old = made("build", 1_000);
        assert!(counts(&query, &old, 11_000) && query.has_state(&listed(&old)));
        assert!(!counts(&query, &old, 10_999), "too young");
        assert!(!counts(&query, &made("deploy", 1_000), 11_000));
        let of_a_late_task = Task {
            began_ms: Some(500),
            ..old.clone()
        };
        assert!(
            counts(&query, &of_a_late_task, 10_500),
            "the age of the call"
        );
        let ended = Task {
            outcome: Some(Outcome::Cancelled),
            ..old
        };
        assert!(counts(&query, &ended, 11_000) && !query.has_state(&listed(&ended)));
        let all = TaskQuery::read("state=open&counts=all").unwrap();
        assert!(all.wants_ended() && !all.has_state(&listed(&ended)));
        let ended_only = TaskQuery::read("state=cancelled").unwrap();
        assert!(ended_only.wants_ended() && ended_only.has_state(&listed(&ended)));
    }

    #[test]
    fn an_end_is_found_by_its_words() {
        let ended = |outcome: &str| {
            let raw = |text: &str| serde_json::value::RawValue::from_string(text.into()).unwrap();
            Some(match outcome {
                "tool_error" => Outcome::Completed(Payload::Inline(raw(r#"{"isError":true}"#))),
                "failed" => Outcome::Failed(
                    Failure::new(Reason::OwnerLost, SideEffect::Unknown)
                        .to_error()
                        .to_raw(),
                ),
                _ => Outcome::Cancelled,
            })
        };
        let finds = |query: &str, outcome: &str| {
            let task = Task {
                outcome: ended(outcome),
                ..made("build", 1)
            };
            let query = TaskQuery::read(query).unwrap();
            assert!(query.wants_ended() && counts(&query, &task, 1));
            query.has_state(&listed(&task))
        };
        assert!(
            finds("outcome=tool_error", "tool_error") && finds("state=completed", "tool_error")
        );
        assert!(!finds("outcome=completed", "tool_error") && !finds("outcome=failed", "cancelled"));
        assert!(finds("effect=unknown&reason=owner_lost", "failed"));
        assert!(!finds("effect=none", "failed") && !finds("reason=deadline", "failed"));
        assert!(!finds("effect=unknown", "cancelled"));
        assert!(
            !TaskQuery::read("effect=none")
                .unwrap()
                .has_state(&listed(&made("build", 1)))
        );
    }

    #[test]
    fn a_time_is_counted_from_now_or_written_as_lists_show_it() {
        // 2023-11-14T22:13:20.000Z
        let task = Task {
            updated_ms: 1_700_000_000_000,
            ..made("build", 1)
        };
        let finds = |query: &str| {
            let query = TaskQuery::read(query).unwrap();
            counts(&query, &task, 1_700_000_060_000)
        };
        assert!(finds("since=60") && !finds("since=59"));
        assert!(finds("until=59") && !finds("until=60"));
        assert!(finds("since=2023-11-14") && finds("since=2023-11-14T22:13:20.000Z"));
        assert!(!finds("since=2023-11-14T22:13:20.001Z") && !finds("until=2023-11-14"));
        assert!(finds("since=2023-11-14T22:13&until=2023-11-14T22:14"));
        assert!(finds("since=2023-11-14T22:13:20Z") && !finds("since=2023-11-14T22:13:21Z"));
    }

    #[test]
    fn a_tool_is_found_by_its_name_and_by_a_glob() {
        let finds = |tool: &str, name: &str| {
            let query = TaskQuery::read(&format!("tool={tool}")).unwrap();
            counts(&query, &made(name, 1), 1)
        };
        assert!(finds("build", "build") && finds("b*", "build") && !finds("b", "build"));
        assert!(finds("[x", "[x") && finds("[x]", "[x]") && !finds("[x", "x"));
    }

    #[test]
    fn a_caller_is_found_by_its_label_and_by_its_hash() {
        let of_alice = Task {
            label: Some("alice".into()),
            ..made("build", 1)
        };
        let finds = |caller: &str, task: &Task| {
            let query = TaskQuery::read(&format!("caller={caller}")).unwrap();
            counts(&query, task, 1)
        };
        assert!(finds("alice", &of_alice) && finds("01010101", &of_alice));
        assert!(!finds("bob", &of_alice));
        assert!(!finds("alice", &made("build", 1)), "it has no label");
    }

    #[test]
    fn a_mistake_is_answered_with_what_there_is() {
        for (query, said) in [
            ("state=busy", "state=busy is unknown; there are open, ended"),
            (
                "colour=red",
                "colour is no filter; there are state, outcome",
            ),
            (
                "older=5m",
                "older=5m is not a number of seconds; on the command line",
            ),
            (
                "outcome=bad",
                "outcome=bad is unknown; there are completed, tool_error",
            ),
            (
                "since=yesterday",
                "since=yesterday is neither a number of seconds (on",
            ),
            (
                "until=2026-11-30 08:00",
                "until=2026-11-30 08:00 is neither",
            ),
        ] {
            let refused = TaskQuery::read(query).unwrap_err();
            assert!(refused.starts_with(said), "{refused}");
        }
    }

    #[test]
    fn a_page_of_the_history_leads_to_the_next() {
        let id = TaskId::random();
        let next = super::super::words::place_text((7, id));
        let query = TaskQuery::read(&format!("state=failed&after={next}")).unwrap();
        assert_eq!(query.after, Some((7, id)));
        assert!(query.is_about_past());
        for other in [
            "",
            "state=open",
            "state=ended&sort=oldest",
            "state=ended&counts=all",
        ] {
            assert!(!TaskQuery::read(other).unwrap().is_about_past(), "{other}");
        }
        let wrong = TaskQuery::read(&format!("after={next}")).unwrap_err();
        assert!(wrong.starts_with("after is for lists of tasks that have ended"));
        let wrong = TaskQuery::read("state=ended&after=7").unwrap_err();
        assert!(wrong.starts_with("after=7 is not what"), "{wrong}");
    }

    #[test]
    fn a_tree_is_wanted_by_name() {
        assert_eq!(wants_tree(""), Ok(false));
        assert_eq!(wants_tree("tree=true"), Ok(true));
        assert_eq!(wants_tree("tree=false"), Ok(false));
        assert!(wants_tree("tree=1").is_err() && wants_tree("tre=true").is_err());
    }

    #[test]
    fn the_order_is_as_asked() {
        let names = |query: &str| ordered(query, &[made("b", 2), made("a", 1), made("c", 3)]);
        assert_eq!(names(""), "cba");
        assert_eq!(names("sort=oldest"), "abc");
        assert_eq!(names("sort=stuck"), "abc");
        assert_eq!(names("sort=longest"), "abc");
        assert_eq!(names("sort=tool"), "abc");
        let of = |name: &str, label: &str| Task {
            label: Some(label.into()),
            ..made(name, 1)
        };
        let of_some = [of("a", "bob"), of("b", "alice")];
        assert_eq!(ordered("sort=caller", &of_some), "ba");
        let ended = |name: &str, updated_ms| Task {
            outcome: Some(Outcome::Cancelled),
            updated_ms,
            ..made(name, 1)
        };
        let order = ordered("sort=stuck", &[ended("a", 2), ended("b", 3), made("c", 9)]);
        assert_eq!(order, "cba", "the last end first");
        assert_eq!(TaskQuery::read("limit=5000").unwrap().limit(), LIMIT_MAX);
    }
}
