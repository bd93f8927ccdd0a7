//! Admission: a call goes to the server when the limit of its tool, and then the limit of the server, permits
//! it, and when it has its place there ([`seat`]).
//!
//! The limits cannot deadlock: every call passes them in this order, and no call holds a permit of the
//! server while it waits for a permit of its tool.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use futures_util::FutureExt as _;
use tokio::sync::Semaphore;
use tokio::task::coop::unconstrained;

use super::server::WrappedServer;
use crate::base::lock::Mutex;
use crate::mcp::version::Era;
use crate::task::pauses::{Pause, Pauses};
use crate::task::policy::{Concurrency, Limit, Rule, Rules};
use crate::telemetry::counted::Counted;
use crate::upstream::{Event, Seat, Seating, UpstreamRequest};

mod limiter;
mod queue_message;
mod seat;
#[cfg(test)]
mod tests;

use limiter::{Limiter, Permit, QueuePosition, QueueSlot};
pub(super) use queue_message::queue_message;
use seat::{SeatTurn, SeatWanted};

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
    /// By the tools of the pause. Closed until the pause ends.
    gates: HashMap<Box<str>, Arc<Limiter>>,
}

/// The limiters of single tools. Clients choose the names, so a limiter stays only while it is used.
#[derive(Debug)]
struct ToolLimiters {
    by_name: HashMap<Box<str>, Weak<Limiter>>,
    /// The number of limiters at which the unused ones are removed.
    sweep_at: usize,
}

/// The decision whether a leg may go to the server.
#[derive(Debug)]
pub(super) enum Admittance {
    Now(Permits),
    Queued(QueuedLeg),
}

/// The permits of a leg that may go to the server. Dropping them admits other legs. Empty if nothing is limited.
#[derive(Debug, Default)]
pub(super) struct Permits {
    limits: Vec<Permit>,
    /// The place of the leg. `None`: the server finds one when the leg is sent.
    seat: Option<Seat>,
}

/// The permits of a leg that is at the server. Dropping them admits other legs.
#[derive(Debug, Default)]
pub(super) struct HeldPermits(Vec<Permit>);

/// Why a call is not admitted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotAdmitted {
    QueueFull,
    /// The tool is paused, and no queue takes the call.
    Paused(Arc<Pause>),
}

/// A leg in a queue. Dropping it leaves the queue.
#[derive(Debug)]
pub(super) struct QueuedLeg {
    /// The limits that the leg has not passed. It is in the queue of the first one.
    ahead: VecDeque<LimitAhead>,
    passed: Permits,
    seat: SeatTurn,
    /// `None` until it is certain that the leg waits.
    _waiting: Option<Counted>,
}

#[derive(Debug)]
struct LimitAhead {
    limiter: Arc<Limiter>,
    /// The pause, where the limiter is its gate.
    pause: Option<Arc<Pause>>,
    position: Option<QueuePosition>,
    /// Keeps the queue within its bound. `None` for a call that was admitted before.
    slot: Option<QueueSlot>,
}

/// The gate of a pause. The queues of the limits behind it bound how many calls wait.
const CLOSED: Limit = Limit {
    at_once: 0,
    queue: Semaphore::MAX_PERMITS,
};
const OPEN: Limit = Limit {
    at_once: Semaphore::MAX_PERMITS,
    queue: Semaphore::MAX_PERMITS,
};

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
            // A reload may move the entry, so its globs decide which limiter it keeps, and not its number.
            let kept = earlier.and_then(|earlier| {
                let before = earlier.rules.place_of(&rules, place)?;
                earlier.entries.get(&before)
            });
            entries.insert(place, resized_or_new(kept, limit));
        }
        let gate = |pause: &Arc<Pause>| {
            let kept = earlier.and_then(|earlier| earlier.gates.get(&pause.tools));
            let gate = kept.map_or_else(|| Limiter::new(CLOSED), Arc::clone);
            (pause.tools.clone(), gate)
        };
        let gates = rules.pauses().iter().map(gate).collect();
        Self {
            rules,
            server,
            entries,
            gates,
        }
    }

    /// Lets the calls go that wait for the end of a pause which is not in force any more.
    fn open_gates(&self, before: &Self) {
        for (tools, gate) in &before.gates {
            if !self.gates.contains_key(tools) {
                gate.resize(OPEN);
            }
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
    pub(super) fn change_rules(&self, rules: &Rules) {
        // Locked until the rules are replaced, so that no call makes a limiter from the rules of before.
        let tools = self.tools.lock();
        // Only limiters in use are resized. Any other one is made anew from the new rules at the next call.
        for (name, limiter) in &tools.by_name {
            let limit = limit_of_each(rules.for_tool(name).0);
            if let (Some(limiter), Some(limit)) = (limiter.upgrade(), limit) {
                limiter.resize(limit);
            }
        }
        let before = self.current.load();
        // What operators paused stays so.
        let rules = rules.with_pauses(Arc::clone(before.rules.pauses()));
        self.replace(&before, rules);
        drop(tools);
    }

    /// Replaces the pauses. Calls that wait for the end of one that is gone take their turn.
    pub(super) fn pause(&self, pauses: Pauses) {
        // Locked for the same reason as above, and so that no change of the rules is lost.
        let tools = self.tools.lock();
        let before = self.current.load();
        if **before.rules.pauses() != pauses {
            let rules = before.rules.with_pauses(Arc::new(pauses));
            self.replace(&before, rules);
        }
        drop(tools);
    }

    fn replace(&self, before: &RuleLimits, rules: Rules) {
        let next = Arc::new(RuleLimits::new(Arc::new(rules), Some(before)));
        self.current.store(Arc::clone(&next));
        next.open_gates(before);
    }

    /// Admits a new call, or queues the call if the queues have room. While its tool is paused, a call waits in the queue of its
    /// limit, if it has one.
    pub(super) fn enter(&self, tool: &str) -> Result<Admittance, NotAdmitted> {
        let pause = self.current.load().rules.pauses().of(tool).cloned();
        let refused = || {
            let paused = pause.clone().map(NotAdmitted::Paused);
            paused.unwrap_or(NotAdmitted::QueueFull)
        };
        if pause.is_some() && self.limiters(tool).is_empty() {
            return Err(refused());
        }
        let mut admittance = self.queue_new(tool);
        if let Admittance::Queued(queued) = &mut admittance {
            // On a full queue the leg is dropped here, which also gives up the permits and the position that it has
            // taken.
            queued.take_slots().ok_or_else(refused)?;
        }
        Ok(admittance)
    }

    /// Admits the first leg of a call, or queues the leg, however long the queue is. It also waits for the end of a pause.
    pub(super) fn queue_new(&self, tool: &str) -> Admittance {
        let gate = self.gate(tool);
        let limits = self.limiters(tool).into_iter().map(LimitAhead::new);
        Self::line_up(gate.into_iter().chain(limits).collect())
    }

    /// Admits a leg of a call that was sent before, or queues the leg, however long the queue is.
    pub(super) fn queue(&self, tool: &str) -> Admittance {
        let limits = self.limiters(tool).into_iter().map(LimitAhead::new);
        Self::line_up(limits.collect())
    }

    fn line_up(ahead: VecDeque<LimitAhead>) -> Admittance {
        let mut leg = QueuedLeg {
            ahead,
            passed: Permits::default(),
            seat: SeatTurn::Anywhere,
            _waiting: None,
        };
        // The first poll takes the position in the queue, or finds that there is no queue. Unconstrained,
        // because the runtime's budget for this task could make a free permit look taken.
        match unconstrained(leg.within_limits()).now_or_never() {
            Some(()) => Admittance::Now(leg.passed),
            None => Admittance::Queued(leg.counted()),
        }
    }

    /// The gate of the tool's pause.
    fn gate(&self, tool: &str) -> Option<LimitAhead> {
        let current = self.current.load();
        let pause = current.rules.pauses().of(tool)?;
        Some(LimitAhead {
            pause: Some(Arc::clone(pause)),
            ..LimitAhead::new(Arc::clone(current.gates.get(&pause.tools)?))
        })
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
            // The threshold is twice what is left, so that a sweep costs each new limiter only a little.
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

    /// Asks for a place at the server, after the limits.
    pub(super) fn with_seat(
        self,
        server: &Arc<dyn WrappedServer>,
        era: Option<Era>,
        outgoing: &UpstreamRequest,
    ) -> Self {
        match self {
            Self::Now(permits) => match server.seat(era, outgoing) {
                Seating::Now(seat) => Self::Now(Permits {
                    seat: Some(seat),
                    ..permits
                }),
                Seating::Waits(wait) => {
                    let queued = QueuedLeg {
                        ahead: VecDeque::new(),
                        passed: permits,
                        seat: SeatTurn::Waits(wait),
                        _waiting: None,
                    };
                    Self::Queued(queued.counted())
                }
            },
            // The seat comes after the limits: a leg that waits for a limit keeps no session from a call that can go
            // out.
            Self::Queued(leg) => Self::Queued(QueuedLeg {
                seat: SeatTurn::Wanted(Box::new(SeatWanted {
                    server: Arc::clone(server),
                    era,
                    outgoing: outgoing.clone(),
                })),
                ..leg
            }),
        }
    }

    pub(super) fn is_queued(&self) -> bool {
        matches!(self, Self::Queued(_))
    }
}

impl Permits {
    /// Returns the place for the request that is sent now, and what the leg holds while it is at the server.
    pub(super) fn take_place(self) -> (Option<Seat>, HeldPermits) {
        (self.seat, HeldPermits(self.limits))
    }
}

impl From<HeldPermits> for Permits {
    /// For the next leg of the call.
    fn from(HeldPermits(limits): HeldPermits) -> Self {
        Self { limits, seat: None }
    }
}

impl QueuedLeg {
    fn counted(self) -> Self {
        Self {
            _waiting: Some(Counted::waiting_call()),
            ..self
        }
    }

    /// Resolves when the leg has passed all limits and has its place at the server. `Err`: it gets none, and this is the
    /// end of the call.
    ///
    /// Cancel safe: passed limits stay passed, and the position in the queue stays.
    pub(super) async fn admitted(&mut self) -> Result<Permits, Event> {
        self.within_limits().await;
        // The permits stay in `passed` until the seat is there, so that a poll that is cancelled here loses none of
        // them.
        self.passed.seat = self.seat.seat().await?;
        Ok(std::mem::take(&mut self.passed))
    }

    async fn within_limits(&mut self) {
        while let Some(ahead) = self.ahead.front_mut() {
            let line_up = || ahead.limiter.line_up();
            // The position outlives this future, so that a poll which is cancelled does not join the queue at its end
            // again.
            let position = ahead.position.get_or_insert_with(line_up);
            let permit = position.permit().await;
            self.passed.limits.push(permit);
            // This also returns the slot: from here on the leg takes no room in this queue.
            self.ahead.pop_front();
        }
    }

    /// Takes room in every queue that the leg may come to: a call must not be refused half-way. `None`: a queue is full.
    fn take_slots(&mut self) -> Option<()> {
        for ahead in &mut self.ahead {
            ahead.slot = Some(ahead.limiter.slot()?);
        }
        Some(())
    }

    /// Returns the message that a client may receive about the call.
    pub(super) fn message(&self) -> Box<str> {
        let Some(ahead) = self.ahead.front() else {
            return self.seat.message();
        };
        if let Some(pause) = &ahead.pause {
            return format!("The tool is paused {}", pause.terms()).into();
        }
        queue_message(ahead.position.as_ref().map_or(0, QueuePosition::ahead))
    }
}

impl LimitAhead {
    fn new(limiter: Arc<Limiter>) -> Self {
        Self {
            limiter,
            pause: None,
            position: None,
            slot: None,
        }
    }
}
