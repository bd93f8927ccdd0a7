//! Admission: a call goes to the server when the limit of its tool, and then the limit of the server, permits
//! it.
//!
//! The limits cannot deadlock: every call passes them in this order, and no call holds a permit of the
//! server while it waits for a permit of its tool.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use futures_util::FutureExt as _;
use tokio::task::coop::unconstrained;

use crate::lock::Mutex;
use crate::task::policy::{Concurrency, Limit, Rule, Rules};

mod limiter;
#[cfg(test)]
mod tests;

use limiter::{Limiter, Permit, QueuePosition, QueueSlot};

/// Unused limiters of single tools are removed when there are twice as many as were in use the last
/// time, and never while there are fewer than these.
const TOOLS_MIN: usize = 64;

/// The rules of this replica, and the limits that they set.
#[derive(Debug)]
pub(super) struct Admission {
    /// Replaced whole, so that a call is never judged by a mixture of two sets of rules.
    current: ArcSwap<RuleLimits>,
    tools: Mutex<ToolLimiters>,
}

/// One set of rules, with the limiters that many tools share.
#[derive(Debug)]
struct RuleLimits {
    rules: Arc<Rules>,
    /// The limit of the server, for all tools together.
    server: Option<Arc<Limiter>>,
    /// By the number of the `[[tools]]` entry. An entry without a limit of its own has none.
    entries: HashMap<usize, Arc<Limiter>>,
}

/// The limiters of single tools. Clients choose the names, so a limiter stays only while it is used.
#[derive(Debug)]
struct ToolLimiters {
    by_name: HashMap<Box<str>, Weak<Limiter>>,
    /// The number of limiters at which the unused ones are removed.
    sweep_at: usize,
}

/// Whether a leg may go to the server.
#[derive(Debug)]
pub(super) enum Admittance {
    Now(Permits),
    Queued(QueuedLeg),
}

/// The permits of a leg that is at the server. Dropping them admits other legs. Empty if nothing is limited.
#[derive(Debug, Default)]
pub(super) struct Permits(
    #[expect(dead_code, reason = "held for what dropping it does")] Vec<Permit>,
);

/// The queue is full.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct QueueFull;

/// A leg in a queue. Dropping it leaves the queue.
#[derive(Debug)]
pub(super) struct QueuedLeg {
    /// The limits that the leg has not passed. It is in the queue of the first one.
    ahead: VecDeque<LimitAhead>,
    passed: Vec<Permit>,
}

#[derive(Debug)]
struct LimitAhead {
    limiter: Arc<Limiter>,
    position: Option<QueuePosition>,
    /// Keeps the queue within its bound. `None` for a call that was admitted before.
    slot: Option<QueueSlot>,
}

impl RuleLimits {
    /// The limits of these rules. A limit that the earlier rules have, too, keeps its limiter, and with it the calls that it
    /// counts and those that wait.
    fn new(rules: Arc<Rules>, earlier: Option<&Self>) -> Self {
        let server = rules.server_limit().map(|limit| {
            let kept = earlier.and_then(|earlier| earlier.server.as_ref());
            resized_or_new(kept, limit)
        });
        let mut entries = HashMap::new();
        for (place, rule) in rules.entries().enumerate() {
            let Some(Concurrency::Together(limit)) = rule.concurrency else {
                continue;
            };
            let kept = earlier.and_then(|earlier| {
                let before = earlier.rules.place_of(&rules, place)?;
                earlier.entries.get(&before)
            });
            entries.insert(place, resized_or_new(kept, limit));
        }
        Self {
            rules,
            server,
            entries,
        }
    }
}

fn resized_or_new(kept: Option<&Arc<Limiter>>, limit: Limit) -> Arc<Limiter> {
    kept.map_or_else(
        || Limiter::new(limit),
        |limiter| {
            limiter.resize(limit);
            Arc::clone(limiter)
        },
    )
}

/// The limit that each tool of the rule has for itself.
fn limit_of_each(rule: &Rule) -> Option<Limit> {
    match rule.concurrency? {
        Concurrency::EachTool(limit) => Some(limit),
        Concurrency::Together(_) => None,
    }
}

impl Admission {
    pub(super) fn new(rules: Arc<Rules>) -> Self {
        Self {
            current: ArcSwap::from_pointee(RuleLimits::new(rules, None)),
            tools: Mutex::new(ToolLimiters {
                by_name: HashMap::new(),
                sweep_at: TOOLS_MIN,
            }),
        }
    }

    /// The rules that apply to calls from now on.
    pub(super) fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.current.load().rules)
    }

    /// Replaces the rules. Calls that were admitted go on, and count in the limits that stay.
    pub(super) fn change_rules(&self, rules: Arc<Rules>) {
        // Locked until the rules are replaced, so that no call makes a limiter from the rules of before.
        let tools = self.tools.lock();
        for (name, limiter) in &tools.by_name {
            let limit = limit_of_each(rules.for_tool(name).0);
            if let (Some(limiter), Some(limit)) = (limiter.upgrade(), limit) {
                limiter.resize(limit);
            }
        }
        let next = RuleLimits::new(rules, Some(&self.current.load()));
        self.current.store(Arc::new(next));
        drop(tools);
    }

    /// Admits a new call, or queues the call if the queues have room.
    pub(super) fn enter(&self, tool: &str) -> Result<Admittance, QueueFull> {
        let mut admittance = self.queue(tool);
        if let Admittance::Queued(queued) = &mut admittance {
            queued.take_slots()?;
        }
        Ok(admittance)
    }

    /// Admits a leg of a call that was admitted before, or queues the leg, however long the queue is.
    pub(super) fn queue(&self, tool: &str) -> Admittance {
        let limiters = self.limiters(tool).into_iter();
        let mut leg = QueuedLeg {
            ahead: limiters.map(LimitAhead::new).collect(),
            passed: Vec::new(),
        };
        // The first poll takes the position in the queue, or finds that there is no queue. Unconstrained,
        // because the runtime's budget for this task could make a free permit look taken.
        match unconstrained(leg.admitted()).now_or_never() {
            Some(permits) => Admittance::Now(permits),
            None => Admittance::Queued(leg),
        }
    }

    /// The limiters in the order in which a call passes them.
    fn limiters(&self, tool: &str) -> Vec<Arc<Limiter>> {
        let current = self.current.load();
        let (rule, entry) = current.rules.for_tool(tool);
        let own = match (rule.concurrency, entry) {
            (Some(Concurrency::EachTool(_)), _) => self.of_tool(tool),
            (Some(Concurrency::Together(_)), Some(entry)) => current.entries.get(&entry).cloned(),
            (Some(Concurrency::Together(_)) | None, _) => None,
        };
        own.into_iter().chain(current.server.clone()).collect()
    }

    fn of_tool(&self, name: &str) -> Option<Arc<Limiter>> {
        let mut tools = self.tools.lock();
        if let Some(limiter) = tools.by_name.get(name).and_then(Weak::upgrade) {
            return Some(limiter);
        }
        // Under the lock: the rules may have changed since the caller read them.
        let limit = limit_of_each(self.current.load().rules.for_tool(name).0)?;
        if tools.by_name.len() >= tools.sweep_at {
            tools
                .by_name
                .retain(|_, limiter| limiter.strong_count() > 0);
            tools.sweep_at = (tools.by_name.len() * 2).max(TOOLS_MIN);
        }
        let limiter = Limiter::new(limit);
        tools.by_name.insert(name.into(), Arc::downgrade(&limiter));
        Some(limiter)
    }
}

impl Admittance {
    /// Admits a request that no limit counts.
    pub(super) fn unlimited() -> Self {
        Self::Now(Permits::default())
    }

    pub(super) fn is_queued(&self) -> bool {
        matches!(self, Self::Queued(_))
    }
}

impl QueuedLeg {
    /// Resolves when the leg has passed all limits.
    ///
    /// Cancel safe: passed limits stay passed, and the position in the queue stays.
    pub(super) async fn admitted(&mut self) -> Permits {
        while let Some(ahead) = self.ahead.front_mut() {
            let line_up = || ahead.limiter.line_up();
            let position = ahead.position.get_or_insert_with(line_up);
            let permit = position.permit().await;
            self.passed.push(permit);
            self.ahead.pop_front();
        }
        Permits(std::mem::take(&mut self.passed))
    }

    /// Takes room in every queue that the leg may come to: a call must not be refused half-way.
    fn take_slots(&mut self) -> Result<(), QueueFull> {
        for ahead in &mut self.ahead {
            ahead.slot = Some(ahead.limiter.slot().ok_or(QueueFull)?);
        }
        Ok(())
    }

    /// What a client may be told of the call.
    pub(super) fn message(&self) -> Box<str> {
        let position = self.ahead.front().and_then(|ahead| ahead.position.as_ref());
        queue_message(position.map_or(0, QueuePosition::ahead))
    }
}

/// What a client may be told of a call with so many calls before it.
pub(super) fn queue_message(ahead: usize) -> Box<str> {
    match ahead {
        0 => "Waiting for a free place; it is the next".into(),
        1 => "Waiting for a free place; 1 call is before it".into(),
        calls => format!("Waiting for a free place; {calls} calls are before it").into(),
    }
}

impl LimitAhead {
    fn new(limiter: Arc<Limiter>) -> Self {
        Self {
            limiter,
            position: None,
            slot: None,
        }
    }
}
