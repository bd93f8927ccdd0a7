//! The query of an operator for the list of tasks: filters, order, page. Pure.

use crate::task::state::{Status, Task};

/// The number of tasks on one page, unless the operator sets another one.
const LIMIT: usize = 100;

/// The most tasks on one page.
const LIMIT_MAX: usize = 1_000;

/// Which tasks are listed, in which order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TaskQuery {
    state: Option<StateFilter>,
    tool: Option<String>,
    caller: Option<String>,
    replica: Option<String>,
    older_than_ms: u64,
    counts_all: bool,
    sort: TaskOrder,
    limit: Option<usize>,
    pub(super) offset: usize,
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
    /// Tasks that wait for an answer first, the longest wait first; then the oldest.
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
                "sort" => read.sort = word("sort", &value, &ORDERS)?,
                "counts" => read.counts_all = word("counts", &value, &COUNTS)?,
                "tool" => read.tool = Some(value.into_owned()),
                "caller" => read.caller = Some(value.into_owned()),
                "replica" => read.replica = Some(value.into_owned()),
                "older" => read.older_than_ms = number("older", &value)?.saturating_mul(1000),
                "limit" => read.limit = Some(size("limit", &value)?),
                "offset" => read.offset = size("offset", &value)?,
                other => {
                    return Err(format!(
                        "{other} is no filter; there are state, tool, caller, replica, older (seconds), \
                         sort, limit, offset and counts"
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
    }

    /// Returns `true` if the task passes all filters except the state filter, which the counts ignore.
    pub(super) fn counts(&self, task: &Task, now_ms: u64) -> bool {
        let is = |wanted: &Option<String>, text: &str| wanted.as_deref().is_none_or(|w| w == text);
        let replica = task.owner.as_ref().map_or("", |owner| owner.replica());
        is(&self.tool, &task.name)
            && is(&self.replica, replica)
            && self.is_of_caller(task)
            && now_ms.saturating_sub(task.call_began_ms()) >= self.older_than_ms
    }

    /// By the label of the caller, or by the beginning of its hash, which every caller has.
    fn is_of_caller(&self, task: &Task) -> bool {
        self.caller.as_deref().is_none_or(|wanted| {
            task.label.as_deref() == Some(wanted) || task.caller.short() == wanted
        })
    }

    pub(super) fn has_state(&self, task: &Task) -> bool {
        match self.state {
            None => true,
            Some(StateFilter::Open) => !task.is_ended(),
            Some(StateFilter::Ended) => task.is_ended(),
            Some(StateFilter::Is(status)) => task.status() == status,
        }
    }

    /// Puts the tasks into the order that was asked for.
    pub(super) fn order(&self, tasks: &mut [Task]) {
        match self.sort {
            TaskOrder::Newest => tasks.sort_by_key(|task| std::cmp::Reverse(task.created_ms)),
            TaskOrder::Oldest => tasks.sort_by_key(|task| task.created_ms),
            TaskOrder::Stuck => tasks.sort_by_key(|task| {
                let asked = task.open_questions().map(|(q, _)| q.asked_ms).min();
                (task.is_ended(), asked.unwrap_or(u64::MAX), task.created_ms)
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
    use crate::task::id::TaskId;
    use crate::task::machine::tests::task;
    use crate::task::state::{Leg, Outcome};

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
            ("colour=red", "colour is no filter; there are state, tool"),
            ("older=5m", "older=5m is not a whole number"),
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
        assert_eq!(TaskQuery::read("limit=5000").unwrap().limit(), LIMIT_MAX);
    }
}
