//! The operator's rules: which calls become tasks, when, and for how long.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::glob::Glob;
use super::input_rule::OnInputTimeout;
use super::job_rules::JobRules;
use super::large_results::ResultInline;
use super::pauses::Pauses;
use serde::{Deserialize, Serialize};

/// The longest poll interval that age leads to: a client must still notice the end of a long task soon.
const POLL_INTERVAL_CEILING_MS: u64 = 15_000;

/// The rule by which the calls of a tool become tasks, for clients that declare Tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Every call becomes a task, before the upstream sees the call.
    Always,
    /// A call becomes a task if it is not answered within the grace window.
    Auto,
    Never,
}

impl Mode {
    /// The word for it in the configuration.
    pub fn word(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Auto => "auto",
            Self::Never => "never",
        }
    }
}

/// Where the upstream's questions reach the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputWhen {
    /// The task becomes `input_required`.
    InTask,
    /// The call is answered with the question; its retry becomes the task.
    BeforeTask,
}

impl InputWhen {
    /// The word for it in the configuration.
    pub fn word(self) -> &'static str {
        match self {
            Self::InTask => "in_task",
            Self::BeforeTask => "before_task",
        }
    }
}

/// The actions that another replica may take for a call whose owner is lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnOwnerLost {
    /// The other replica fetches the answer, if the server lets it. It never runs the call again.
    #[default]
    Resume,
    /// The other replica fetches the answer, or else runs the call again: for tools that are safe to repeat.
    Rerun,
    /// The other replica ends the call as failed, with the effect unknown.
    Fail,
}

impl OnOwnerLost {
    /// The word for it in the configuration.
    pub fn word(self) -> &'static str {
        match self {
            Self::Resume => "resume",
            Self::Rerun => "rerun",
            Self::Fail => "fail",
        }
    }
}

/// The number of calls that run at once, and of those that may wait for their turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// More than 0.
    pub at_once: usize,
    /// Calls beyond these are refused.
    pub queue: usize,
}

/// Which calls a rule's limit counts together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concurrency {
    /// The calls of each tool have a limit of their own.
    EachTool(Limit),
    /// The calls of all tools that the `[[tools]]` entry matches share one limit.
    Together(Limit),
}

/// The terms of one call. All durations are milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub mode: Mode,
    /// The longest time for which a call stays unanswered before it becomes a task.
    pub grace_window_ms: u64,
    /// The time that a client without Tasks waits for its call before it gets a ticket, if it has companion
    /// tools. `None`: as the [client](super::clients) needs.
    pub fallback_after_ms: Option<u64>,
    /// Clients that do not declare Tasks are refused.
    pub require_tasks: bool,
    pub input: InputWhen,
    /// The shortest time that a finished task stays.
    pub retention_ms: u64,
    /// The longest time from creation to the end, waiting for answers included.
    pub max_duration_ms: u64,
    pub poll_interval_ms: u64,
    /// The interval follows how long the calls of a tool take, once enough of them are known. False where the operator chose
    /// an interval.
    pub learns_poll_interval: bool,
    /// The time that a poll of a client that has the state of the task waits for a change; 0: it does not wait.
    pub poll_hold_ms: u64,
    /// The longest wait for the answer to a question; `None`: what is left of `max_duration_ms`.
    pub input_timeout_ms: Option<u64>,
    /// The handling of the question when that wait is over.
    pub on_input_timeout: OnInputTimeout,
    /// The time after which receivers are notified of an open question again.
    pub input_reminder_ms: Option<u64>,
    pub result_bytes_max: u64,
    /// Which results go to clients as an excerpt.
    pub result_inline: ResultInline,
    /// The size of the tool's results in `tools/list`, in characters. `None`: as the server lists it.
    pub max_result_size_chars: Option<u32>,
    pub on_owner_lost: OnOwnerLost,
    /// The limits on calls that run at once; `None`: no limit.
    pub concurrency: Option<Concurrency>,
    /// `true` if a waiting client that asked for progress gets progress while the server is silent. `None`: as the
    /// [client](super::clients) needs.
    pub heartbeat: Option<bool>,
    /// The time after the end of this call, or after its client went away, in which an identical call of the same
    /// caller joins it. `None`: no call joins another.
    pub attach_window_ms: Option<u64>,
    /// The time that a call runs on, with its result kept, after its client's clock ended: the same call collects it.
    /// `None`: the call is cancelled.
    pub give_up_window_ms: Option<u64>,
    /// The scopes that a client's credential must have, for a call and for its task.
    pub scopes: Arc<[Box<str>]>,
}

impl Rule {
    /// `ttlMs`, fixed at creation: a working task never expires, and a finished one stays at least for its
    /// retention.
    pub fn ttl_ms(&self) -> u64 {
        self.max_duration_ms.saturating_add(self.retention_ms)
    }

    /// `pollIntervalMs` of a task of this age.
    pub fn poll_interval_at(&self, age_ms: u64) -> u64 {
        poll_interval_at(self.poll_interval_ms, age_ms)
    }
}

impl Default for Rule {
    /// The rule when nothing is configured.
    fn default() -> Self {
        Self {
            mode: Mode::Auto,
            grace_window_ms: 2_000,
            fallback_after_ms: None,
            require_tasks: false,
            input: InputWhen::InTask,
            retention_ms: 3_600_000,
            max_duration_ms: 3_600_000,
            poll_interval_ms: 2_000,
            learns_poll_interval: true,
            poll_hold_ms: 8_000,
            input_timeout_ms: None,
            on_input_timeout: OnInputTimeout::Fail,
            input_reminder_ms: None,
            result_bytes_max: 32 << 20,
            result_inline: ResultInline::Auto,
            max_result_size_chars: None,
            on_owner_lost: OnOwnerLost::Resume,
            concurrency: None,
            heartbeat: None,
            attach_window_ms: None,
            give_up_window_ms: Some(120_000),
            scopes: [].into(),
        }
    }
}

/// The poll interval of a task of this age: the largest doubling of `base_ms` that is not longer than the
/// age, up to 15 s. So clients poll long tasks less often. A base above 15 s stays as it is.
pub fn poll_interval_at(base_ms: u64, age_ms: u64) -> u64 {
    let ceiling = base_ms.max(POLL_INTERVAL_CEILING_MS);
    // Zero would not grow when it is doubled, and the loop would not end.
    let mut interval = base_ms.max(1);
    while interval < ceiling && interval.saturating_mul(2) <= age_ms {
        interval = interval.saturating_mul(2).min(ceiling);
    }
    interval
}

/// All rules. The rule of a tool is the first rule whose globs match its name, or else the defaults.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    // Shared, because every call keeps its rule until its end.
    defaults: Arc<Rule>,
    tools: Vec<(Vec<Glob>, Arc<Rule>)>,
    /// The limit of the server, for all tools together.
    server: Option<Limit>,
    /// `true` if a rule may refuse a call. Computed beforehand, because each request needs it.
    may_refuse: bool,
    /// `true` if a rule wants scopes of the client's credential.
    wants_scopes: bool,
    jobs: Arc<JobRules>,
    pauses: Arc<Pauses>,
}

impl Rules {
    pub fn new(defaults: Rule, tools: Vec<(Vec<Glob>, Rule)>) -> Self {
        let all = || std::iter::once(&defaults).chain(tools.iter().map(|(_, rule)| rule));
        let wants_scopes = all().any(|rule| !rule.scopes.is_empty());
        // A limit refuses the calls that its queue has no room for.
        let refuses = |rule: &Rule| rule.require_tasks || rule.concurrency.is_some();
        Self {
            server: None,
            may_refuse: wants_scopes || all().any(refuses),
            wants_scopes,
            defaults: Arc::new(defaults),
            tools: tools
                .into_iter()
                .map(|(globs, rule)| (globs, Arc::new(rule)))
                .collect(),
            jobs: Arc::default(),
            pauses: Arc::default(),
        }
    }

    /// With rules for tools that start jobs.
    #[must_use]
    pub fn with_jobs(self, jobs: JobRules) -> Self {
        Self {
            jobs: Arc::new(jobs),
            ..self
        }
    }

    /// The rules for tools that start jobs.
    pub fn jobs(&self) -> &JobRules {
        &self.jobs
    }

    /// With these tools paused, in place of those before.
    #[must_use]
    pub fn with_pauses(&self, pauses: Arc<Pauses>) -> Self {
        Self {
            pauses,
            ..self.clone()
        }
    }

    /// The tools that operators have paused.
    pub fn pauses(&self) -> &Arc<Pauses> {
        &self.pauses
    }

    /// With a limit of calls at the server, for all tools together.
    #[must_use]
    pub fn within(self, server: Option<Limit>) -> Self {
        Self {
            server,
            // A call for which the queue of the limit has no room is refused.
            may_refuse: self.may_refuse || server.is_some(),
            ..self
        }
    }

    /// The limit of calls at the server, for all tools together.
    pub fn server_limit(&self) -> Option<Limit> {
        self.server
    }

    /// Returns `true` if calls of this tool may have to wait for their turn, or be refused.
    pub fn limits(&self, tool: &str) -> bool {
        self.server.is_some()
            || self.for_tool(tool).0.concurrency.is_some()
            || self.pauses.of(tool).is_some()
    }

    /// The `[[tools]]` entry with the globs of that entry of other rules.
    pub fn place_of(&self, other: &Self, place: usize) -> Option<usize> {
        let (globs, _) = other.tools.get(place)?;
        self.tools.iter().position(|(own, _)| own == globs)
    }

    /// The rule of a tool, and the number of its `[[tools]]` entry, counted from 0; `None`: the defaults.
    pub fn for_tool(&self, name: &str) -> (&Arc<Rule>, Option<usize>) {
        self.tools
            .iter()
            .enumerate()
            .find(|(_, (globs, _))| globs.iter().any(|glob| glob.is_match(name)))
            .map_or((&self.defaults, None), |(place, (_, rule))| {
                (rule, Some(place))
            })
    }

    /// The largest result that any rule lets pass.
    pub fn result_bytes_max(&self) -> u64 {
        let tools = self.tools.iter().map(|(_, rule)| rule.result_bytes_max);
        tools.fold(self.defaults.result_bytes_max, u64::max)
    }

    /// Returns the shortest time for which the record of a task is there after the task has ended, whatever its tool.
    pub fn retention_ms_min(&self) -> u64 {
        let tools = self.tools.iter().map(|(_, rule)| rule.retention_ms);
        tools.fold(self.defaults.retention_ms, u64::min)
    }

    /// Returns `true` if any rule changes `tools/list`: the size of results, or the tools of jobs. Otherwise the list stays as it is.
    pub fn edits_list(&self) -> bool {
        let mut rules = std::iter::once(self.defaults()).chain(self.entries());
        !self.jobs.is_empty() || rules.any(|rule| rule.max_result_size_chars.is_some())
    }

    /// Returns `true` if a call of any tool may be refused. Then no message may reach the server unread.
    pub fn may_refuse(&self) -> bool {
        self.may_refuse || !self.pauses.is_empty()
    }

    /// Returns `true` if any call needs a scope.
    pub fn wants_scopes(&self) -> bool {
        self.wants_scopes
    }

    /// All scopes that a call may need, each once.
    pub fn scopes(&self) -> impl Iterator<Item = &str> {
        let rules = std::iter::once(self.defaults()).chain(self.entries());
        let all: BTreeSet<&str> = rules
            .flat_map(|rule| rule.scopes.iter().map(AsRef::as_ref))
            .collect();
        all.into_iter()
    }

    /// The rules of the `[[tools]]` entries.
    pub fn entries(&self) -> impl Iterator<Item = &Rule> {
        self.tools.iter().map(|(_, rule)| &**rule)
    }

    /// The `[[tools]]` entries that never apply, each with an earlier entry that applies in its place. Numbers count
    /// from 0.
    pub fn hidden(&self) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        for (place, (globs, _)) in self.tools.iter().enumerate() {
            let earlier = self.tools.iter().take(place).enumerate();
            let by = |glob: &Glob| {
                let mut earlier = earlier.clone();
                let covers = |(_, (wide, _)): &(usize, &(Vec<Glob>, Arc<Rule>))| {
                    wide.iter().any(|wide| wide.covers(glob))
                };
                earlier.find(covers).map(|(by, _)| by)
            };
            // One glob that no earlier entry covers keeps the entry in use.
            let hiding: Option<Vec<usize>> = globs.iter().map(by).collect();
            found.extend(hiding.and_then(|by| Some((place, *by.first()?))));
        }
        found
    }

    /// The `[[tools]]` entries whose globs match none of these names. Numbers count from 0.
    pub fn without_tools<'n>(
        &self,
        names: &'n [String],
    ) -> impl Iterator<Item = usize> + use<'_, 'n> {
        let entries = self.tools.iter().enumerate();
        entries
            .filter(|(_, (globs, _))| {
                let mut names = names.iter();
                !names.any(|name| globs.iter().any(|glob| glob.is_match(name)))
            })
            .map(|(place, _)| place)
    }

    pub fn defaults(&self) -> &Rule {
        &self.defaults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn globs(patterns: &[&str]) -> Vec<Glob> {
        let parsed = patterns.iter().map(|pattern| Glob::parse(pattern).unwrap());
        parsed.collect()
    }

    fn with_mode(mode: Mode) -> Rule {
        Rule {
            mode,
            ..Rule::default()
        }
    }

    #[test]
    fn the_first_rule_that_matches_wins() {
        let rules = Rules::new(
            Rule::default(),
            vec![
                (globs(&["build_docs"]), with_mode(Mode::Never)),
                (globs(&["build_*", "deploy"]), with_mode(Mode::Always)),
            ],
        );
        let seen = |name| {
            let (rule, place) = rules.for_tool(name);
            (rule.mode, place)
        };
        assert_eq!(seen("build_docs"), (Mode::Never, Some(0)));
        assert_eq!(seen("build_all"), (Mode::Always, Some(1)));
        assert_eq!(seen("deploy"), (Mode::Always, Some(1)));
        assert_eq!(seen("deploy2"), (Mode::Auto, None));
    }

    #[test]
    fn an_entry_behind_a_wider_one_is_found_and_so_is_one_without_tools() {
        let entry = |patterns: &[&str]| (globs(patterns), Rule::default());
        let rules = Rules::new(
            Rule::default(),
            vec![
                entry(&["build_*"]),
                entry(&["build_docs", "build_d*"]),
                entry(&["build_docs", "deploy"]),
                entry(&["*"]),
                entry(&["drop"]),
            ],
        );
        assert_eq!(rules.hidden(), [(1, 0), (4, 3)]);
        let names = ["deploy", "list"].map(str::to_owned);
        let without: Vec<usize> = rules.without_tools(&names).collect();
        assert_eq!(without, [0, 1, 4]);
    }

    #[test]
    fn the_poll_interval_doubles_with_age_up_to_fifteen_seconds() {
        let at = |age_ms| poll_interval_at(2_000, age_ms);
        assert_eq!(at(0), 2_000);
        assert_eq!(at(3_999), 2_000);
        assert_eq!(at(4_000), 4_000);
        assert_eq!(at(8_000), 8_000);
        assert_eq!(at(16_000), 15_000);
        assert_eq!(at(u64::MAX), 15_000);
    }

    #[test]
    fn a_poll_interval_above_the_ceiling_is_the_operators_wish() {
        assert_eq!(poll_interval_at(60_000, 0), 60_000);
        assert_eq!(poll_interval_at(60_000, u64::MAX), 60_000);
    }

    #[test]
    fn the_poll_interval_never_falls_and_never_hangs() {
        for base in [0, 1, 7, 200, 14_999, 15_000, 15_001, u64::MAX] {
            let mut last = 0;
            for age in (0..200_000).step_by(97) {
                let interval = poll_interval_at(base, age);
                assert!(interval >= last && interval >= base && interval > 0);
                last = interval;
            }
        }
    }

    #[test]
    fn a_task_lives_as_long_as_it_may_run_and_then_its_retention() {
        assert_eq!(Rule::default().ttl_ms(), 7_200_000);
    }
}
