//! The query of an operator for the list of tasks: filters, order, page. Pure.

use crate::base::utc::rfc3339;
use crate::mcp::error::{Reason, own_failure};
use crate::task::state::{Outcome, Status, Task};
use crate::task::tool_pattern::ToolPattern;

use super::summary::outcome_word;

/// The number of tasks on one page, unless the operator sets another one.
const LIMIT: usize = 100;

/// The most tasks on one page.
const LIMIT_MAX: usize = 1_000;

/// Which tasks are listed, in which order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TaskQuery {
    state: Option<StateFilter>,
    outcome: Option<&'static str>,
    reason: Option<&'static str>,
    effect: Option<&'static str>,
    tool: Option<ToolPattern>,
    caller: Option<String>,
    replica: Option<String>,
    older_than_ms: u64,
    since: Option<Moment>,
    until: Option<Moment>,
    counts_all: bool,
    sort: TaskOrder,
    limit: Option<usize>,
    pub(super) offset: usize,
}

/// A time at which a task last changed.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Moment {
    /// So many milliseconds ago.
    Ago(u64),
    /// The beginning of a time in UTC, as lists show it.
    At(String),
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

const ORDERS: [(&str, TaskOrder); 3] = [
    ("newest", TaskOrder::Newest),
    ("oldest", TaskOrder::Oldest),
    ("stuck", TaskOrder::Stuck),
];

impl TaskQuery {
    /// Reads the query of a URL. An error is a sentence for the operator.
    pub(super) fn read(query: &str) -> Result<Self, String> {
        let mut read = Self::default();
        for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
            match &*key {
                "state" => read.state = Some(word("state", &value, &STATES)?),
                "outcome" => read.outcome = Some(word("outcome", &value, &OUTCOMES)?),
                "effect" => read.effect = Some(word("effect", &value, &EFFECTS)?),
                "reason" => {
                    let known = Reason::ALL.map(|reason| (reason.word(), reason.word()));
                    read.reason = Some(word("reason", &value, &known)?);
                }
                "sort" => read.sort = word("sort", &value, &ORDERS)?,
                "counts" => read.counts_all = word("counts", &value, &COUNTS)?,
                "tool" => read.tool = Some(ToolPattern::of(&value)),
                "caller" => read.caller = Some(value.into_owned()),
                "replica" => read.replica = Some(value.into_owned()),
                "older" => read.older_than_ms = seconds("older", &value)?.saturating_mul(1000),
                "since" => read.since = Some(moment("since", &value)?),
                "until" => read.until = Some(moment("until", &value)?),
                "limit" => read.limit = Some(size("limit", &value)?),
                "offset" => read.offset = size("offset", &value)?,
                other => {
                    return Err(format!(
                        "{other} is no filter; there are state, outcome, reason, effect, tool, caller, replica, \
                         older (seconds), since, until, sort, limit, offset and counts"
                    ));
                }
            }
        }
        Ok(read)
    }

    pub(super) fn limit(&self) -> usize {
        // A larger page is cut and not refused, because `next_offset` leads to the rest.
        self.limit.unwrap_or(LIMIT).min(LIMIT_MAX)
    }

    /// Returns `true` if tasks that have ended can be on the list, or are counted.
    pub(super) fn wants_ended(&self) -> bool {
        self.counts_all
            || match self.state {
                None | Some(StateFilter::Ended) => true,
                Some(StateFilter::Open) => false,
                Some(StateFilter::Is(status)) => status.is_terminal(),
            }
            || self.is_about_end()
    }

    /// Returns `true` if only tasks that have ended can pass the filters.
    fn is_about_end(&self) -> bool {
        self.outcome.is_some() || self.reason.is_some() || self.effect.is_some()
    }

    /// Returns `true` if the task passes all filters except those of its state and its end, which the counts ignore.
    pub(super) fn counts(&self, task: &Task, now_ms: u64) -> bool {
        let is = |wanted: &Option<String>, text: &str| wanted.as_deref().is_none_or(|w| w == text);
        let replica = task.owner.as_ref().map_or("", |owner| owner.replica());
        let has_changed_since = |moment: &Moment| moment.is_before(task.updated_ms, now_ms);
        self.tool
            .as_ref()
            .is_none_or(|tool| tool.is_match(&task.name))
            && is(&self.replica, replica)
            && self.is_of_caller(task)
            && now_ms.saturating_sub(task.call_began_ms()) >= self.older_than_ms
            && self.since.as_ref().is_none_or(has_changed_since)
            && !self.until.as_ref().is_some_and(has_changed_since)
    }

    /// By the label of the caller, or by the beginning of its hash, which every caller has.
    fn is_of_caller(&self, task: &Task) -> bool {
        self.caller.as_deref().is_none_or(|wanted| {
            task.label.as_deref() == Some(wanted) || task.caller.short() == wanted
        })
    }

    /// Returns `true` if the state of the task, and its end, are those that were asked for.
    pub(super) fn has_state(&self, task: &Task) -> bool {
        let has_state = match self.state {
            None => true,
            Some(StateFilter::Open) => !task.is_ended(),
            Some(StateFilter::Ended) => task.is_ended(),
            Some(StateFilter::Is(status)) => task.status() == status,
        };
        has_state
            && (!self.is_about_end() || task.outcome.as_ref().is_some_and(|it| self.has_end(it)))
    }

    fn has_end(&self, outcome: &Outcome) -> bool {
        // Only failures of raincheck's own have a reason and an effect. An error of the server has neither.
        let (reason, effect) = match outcome {
            Outcome::Failed(error) => own_failure(error).unzip(),
            Outcome::Completed(_) | Outcome::Cancelled => (None, None),
        };
        self.outcome
            .is_none_or(|wanted| outcome_word(outcome) == wanted)
            && self.reason.is_none_or(|wanted| reason == Some(wanted))
            && self.effect.is_none_or(|wanted| effect == Some(wanted))
    }

    /// Puts the tasks into the order that was asked for.
    pub(super) fn order(&self, tasks: &mut [Task]) {
        match self.sort {
            TaskOrder::Newest => tasks.sort_by_key(|task| std::cmp::Reverse(task.created_ms)),
            TaskOrder::Oldest => tasks.sort_by_key(|task| task.created_ms),
            TaskOrder::Stuck => tasks.sort_by_key(|task| {
                let asked = task.open_questions().map(|(q, _)| q.asked_ms).min();
                let place = if task.is_ended() {
                    u64::MAX - task.updated_ms
                } else {
                    task.created_ms
                };
                (task.is_ended(), asked.unwrap_or(u64::MAX), place)
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

fn word<T: Copy>(key: &str, text: &str, words: &[(&str, T)]) -> Result<T, String> {
    let found = words.iter().find(|(word, _)| *word == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        format!("{key}={text} is unknown; there are {}", known.join(", "))
    })
}

impl Moment {
    fn is_before(&self, at_ms: u64, now_ms: u64) -> bool {
        match self {
            Self::Ago(ago_ms) => now_ms.saturating_sub(at_ms) <= *ago_ms,
            Self::At(text) => rfc3339(at_ms) >= *text,
        }
    }
}

/// Reads a number of seconds ago, or a time in UTC: as much of it as there is of `2026-11-30T08:00:00.000Z`, at least the day.
fn moment(key: &str, text: &str) -> Result<Moment, String> {
    const TIME: &str = "0000-00-00T00:00:00.000Z";
    // A larger number is rather a time in another form.
    const AGO_MAX: u64 = 366 * 86_400;
    if let Some(seconds) = text
        .parse()
        .ok()
        .filter(|seconds: &u64| *seconds <= AGO_MAX)
    {
        return Ok(Moment::Ago(seconds.saturating_mul(1000)));
    }
    let like = |(a, b): (u8, u8)| {
        if b == b'0' {
            a.is_ascii_digit()
        } else {
            a == b
        }
    };
    // Without its fraction a time may end with its zone, too.
    let beginning = text.strip_suffix('Z').filter(|text| !text.contains('.'));
    let text = beginning.unwrap_or(text);
    let is_time =
        (10..=TIME.len()).contains(&text.len()) && text.bytes().zip(TIME.bytes()).all(like);
    if is_time {
        return Ok(Moment::At(text.to_owned()));
    }
    Err(format!(
        "{key}={text} is neither a number of seconds (on the command line, 24h) nor a time in UTC, such as 2026-11-30T08:00"
    ))
}

fn seconds(key: &str, text: &str) -> Result<u64, String> {
    let seconds = text.parse();
    seconds.map_err(|_| {
        format!(
            "{key}={text} is not a number of seconds; on the command line, write 90s, 10m or 2h"
        )
    })
}

fn number(key: &str, text: &str) -> Result<u64, String> {
    let number = text.parse();
    number.map_err(|_| format!("{key}={text} is not a whole number"))
}

fn size(key: &str, text: &str) -> Result<usize, String> {
    number(key, text).map(|number| usize::try_from(number).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::error::{Failure, Reason, SideEffect};
    use crate::task::id::TaskId;
    use crate::task::machine::tests::task;
    use crate::task::state::{Leg, Payload};

    fn made(name: &str, created_ms: u64) -> Task {
        Task {
            id: TaskId::random(),
            name: name.into(),
            created_ms,
            ..task(Leg::Sent(1), true)
        }
    }

    #[test]
    fn filters_are_combined() {
        let query = TaskQuery::read("state=open&tool=build&older=10").unwrap();
        assert!(!query.wants_ended());
        let old = made("build", 1_000);
        assert!(query.counts(&old, 11_000) && query.has_state(&old));
        assert!(!query.counts(&old, 10_999), "too young");
        assert!(!query.counts(&made("deploy", 1_000), 11_000));
        let of_a_late_task = Task {
            began_ms: Some(500),
            ..old.clone()
        };
        assert!(query.counts(&of_a_late_task, 10_500), "the age of the call");
        let ended = Task {
            outcome: Some(Outcome::Cancelled),
            ..old
        };
        assert!(query.counts(&ended, 11_000) && !query.has_state(&ended));
        let all = TaskQuery::read("state=open&counts=all").unwrap();
        assert!(all.wants_ended() && !all.has_state(&ended));
        let ended_only = TaskQuery::read("state=cancelled").unwrap();
        assert!(ended_only.wants_ended() && ended_only.has_state(&ended));
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
            assert!(query.wants_ended() && query.counts(&task, 1));
            query.has_state(&task)
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
                .has_state(&made("build", 1))
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
            query.counts(&task, 1_700_000_060_000)
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
            TaskQuery::read(&format!("tool={tool}"))
                .unwrap()
                .counts(&made(name, 1), 1)
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
            query.counts(task, 1)
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
    fn a_tree_is_wanted_by_name() {
        assert_eq!(wants_tree(""), Ok(false));
        assert_eq!(wants_tree("tree=true"), Ok(true));
        assert_eq!(wants_tree("tree=false"), Ok(false));
        assert!(wants_tree("tree=1").is_err() && wants_tree("tre=true").is_err());
    }

    #[test]
    fn the_order_is_as_asked() {
        let names = |query: &str| {
            let mut tasks = vec![made("b", 2), made("a", 1), made("c", 3)];
            TaskQuery::read(query).unwrap().order(&mut tasks);
            let names = tasks.iter().map(|task| task.name.to_string());
            names.collect::<String>()
        };
        assert_eq!(names(""), "cba");
        assert_eq!(names("sort=oldest"), "abc");
        assert_eq!(names("sort=stuck"), "abc");
        let ended = |name: &str, updated_ms| Task {
            outcome: Some(Outcome::Cancelled),
            updated_ms,
            ..made(name, 1)
        };
        let mut tasks = vec![ended("a", 2), ended("b", 3), made("c", 9)];
        TaskQuery::read("sort=stuck").unwrap().order(&mut tasks);
        let order: String = tasks.iter().map(|task| &*task.name).collect();
        assert_eq!(order, "cba", "the last end first");
        assert_eq!(TaskQuery::read("limit=5000").unwrap().limit(), LIMIT_MAX);
    }
}
