//! Admission: a call goes to the server when the limit of its tool, and then the limit of the server, permits
//! it, and when it has its place there ([`seat`]).
//!
//! The limits cannot deadlock: every call passes them in this order, and no call holds a permit of the
//! server while it waits for a permit of its tool.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use futures_util::FutureExt as _;
use tokio::sync::watch;
use tokio::task::coop::unconstrained;

use super::server::WrappedServer;
use crate::base::lock::Mutex;
use crate::mcp::version::Era;
use crate::task::pauses::{Pause, Pauses};
use crate::task::policy::{Concurrency, Limit, Rule, Rules};
use crate::telemetry::counted::Counted;
use crate::upstream::{Event, Seat, Seating, UpstreamRequest};

mod limiter;
mod pausing;
mod queue_message;
mod seat;
#[cfg(test)]
mod tests;

use limiter::{Limiter, Permit, QueuePosition, QueueSlot};
use pausing::Pausing;
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
    /// The pauses of these rules, for the legs that wait.
    pauses: watch::Sender<Arc<Pauses>>,
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
    /// The tool is paused, and the call cannot wait for the end of that.
    Paused(Arc<Pause>),
}

/// A leg in a queue. Dropping it leaves the queue.
#[derive(Debug)]
pub(super) struct QueuedLeg {
    turn: LegTurn,
    /// `None`: the call was sent before, and a pause is for calls that were not.
    pausing: Option<Pausing>,
    /// `None` until it is certain that the leg waits.
    _waiting: Option<Counted>,
}

/// How far a leg is on its way to the server.
#[derive(Debug)]
struct LegTurn {
    /// The limits that the leg has not passed. It is in the queue of the first one.
    ahead: VecDeque<LimitAhead>,
    passed: Permits,
    seat: SeatTurn,
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
            // A reload may move the entry, so its globs decide which limiter it keeps, and not its number.
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
            pauses: watch::Sender::new(Arc::clone(rules.pauses())),
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

    /// Replaces the pauses. Calls that wait for the end of one that is gone take their turn, and calls that were not sent yet
    /// wait for the end of one that is new.
    pub(super) fn pause(&self, pauses: Pauses) {
        // Locked for the same reason as above, and so that no change of the rules is lost.
        let tools = self.tools.lock();
        let before = self.current.load();
        if **before.rules.pauses() != pauses {
            let pauses = Arc::new(pauses);
            self.replace(&before, before.rules.with_pauses(Arc::clone(&pauses)));
            self.pauses.send_replace(pauses);
        }
        drop(tools);
    }

    fn replace(&self, before: &RuleLimits, rules: Rules) {
        let next = RuleLimits::new(Arc::new(rules), Some(before));
        self.current.store(Arc::new(next));
    }

    /// Admits a new call, or queues the call if the queues have room. While its tool is paused, a call waits in the queue of its
    /// rule, if that has one and the pause ends before the call has to (`ends_ms`).
    pub(super) fn enter(&self, tool: &str, ends_ms: u64) -> Result<Admittance, NotAdmitted> {
        let pause = self.current.load().rules.pauses().of(tool).cloned();
        if let Some(pause) = pause {
            // Not in the queue of the server, which is for all tools.
            let own = self.own_limiter(tool).filter(|_| pause.until_ms < ends_ms);
            let slot = own.and_then(|own| own.slot());
            let slot = slot.ok_or(NotAdmitted::Paused(pause))?;
            let mut leg = QueuedLeg::new(self.limiters(tool), Some(self.pausing(tool)));
            if let Some(first) = leg.turn.ahead.front_mut() {
                first.slot = Some(slot);
            }
            return Ok(Admittance::Queued(leg.counted()));
        }
        let mut admittance = self.queue_new(tool);
        if let Admittance::Queued(queued) = &mut admittance {
            // On a full queue the leg is dropped here, which also gives up the permits and the position that it has
            // taken.
            queued.take_slots()?;
        }
        Ok(admittance)
    }

    /// Admits the first leg of a call, or queues the leg, however long the queue is. It also waits for the end of a pause.
    pub(super) fn queue_new(&self, tool: &str) -> Admittance {
        let pausing = self.pausing(tool);
        if pausing.current().is_some() {
            let leg = QueuedLeg::new(self.limiters(tool), Some(pausing));
            return Admittance::Queued(leg.counted());
        }
        self.line_up(tool, Some(pausing))
    }

    /// Admits a leg of a call that was sent before, or queues the leg, however long the queue is.
    pub(super) fn queue(&self, tool: &str) -> Admittance {
        self.line_up(tool, None)
    }

    fn line_up(&self, tool: &str, pausing: Option<Pausing>) -> Admittance {
        let mut leg = QueuedLeg::new(self.limiters(tool), pausing);
        // The first poll takes the position in the queue, or finds that there is no queue. Unconstrained,
        // because the runtime's budget for this task could make a free permit look taken.
        match unconstrained(leg.turn.within_limits()).now_or_never() {
            Some(()) => Admittance::Now(leg.turn.passed),
            None => Admittance::Queued(leg.counted()),
        }
    }

    /// What a leg follows that was never sent.
    pub(super) fn pausing(&self, tool: &str) -> Pausing {
        Pausing {
            tool: tool.into(),
            pauses: self.pauses.subscribe(),
            limiters: self.limiters(tool),
        }
    }

    /// The limiters in the order in which a call passes them.
    fn limiters(&self, tool: &str) -> Vec<Arc<Limiter>> {
        let server = self.current.load().server.clone();
        self.own_limiter(tool).into_iter().chain(server).collect()
    }

    /// The limiter of the tool's rule.
    fn own_limiter(&self, tool: &str) -> Option<Arc<Limiter>> {
        let current = self.current.load();
        let (rule, entry) = current.rules.for_tool(tool);
        match (rule.concurrency, entry) {
            (Some(Concurrency::EachTool(_)), _) => self.of_tool(tool),
            (Some(Concurrency::Together(_)), Some(entry)) => current.entries.get(&entry).cloned(),
            (Some(Concurrency::Together(_)) | None, _) => None,
        }
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

    /// Asks for a place at the server, after the limits. `pausing`: of a leg that was never sent.
    pub(super) fn with_seat(
        self,
        server: &Arc<dyn WrappedServer>,
        era: Option<Era>,
        outgoing: &UpstreamRequest,
        pausing: impl FnOnce() -> Option<Pausing>,
    ) -> Self {
        let wanted = || {
            Box::new(SeatWanted {
                server: Arc::clone(server),
                era,
                outgoing: outgoing.clone(),
            })
        };
        match self {
            Self::Now(permits) => match server.seat(era, outgoing) {
                Seating::Now(seat) => Self::Now(Permits {
                    seat: Some(seat),
                    ..permits
                }),
                Seating::Waits(wait) => {
                    let mut queued = QueuedLeg::new(Vec::new(), pausing());
                    queued.turn.passed = permits;
                    queued.turn.seat = SeatTurn::Waits(wait, wanted());
                    Self::Queued(queued.counted())
                }
            },
            // The seat comes after the limits: a leg that waits for a limit keeps no session from a call that can go
            // out.
            Self::Queued(mut leg) => {
                leg.turn.seat = SeatTurn::Wanted(wanted());
                Self::Queued(leg)
            }
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
    fn new(limiters: Vec<Arc<Limiter>>, pausing: Option<Pausing>) -> Self {
        Self {
            turn: LegTurn {
                ahead: limiters.into_iter().map(LimitAhead::new).collect(),
                passed: Permits::default(),
                seat: SeatTurn::Anywhere,
            },
            pausing,
            _waiting: None,
        }
    }

    fn counted(self) -> Self {
        Self {
            _waiting: Some(Counted::waiting_call()),
            ..self
        }
    }

    /// Resolves when the leg has passed all limits and has its place at the server, and its tool is not paused. `Err`: it gets none,
    /// and this is the end of the call.
    ///
    /// Cancel safe: passed limits stay passed, and the position in the queue stays.
    pub(super) async fn admitted(&mut self) -> Result<Permits, Event> {
        let Self { turn, pausing, .. } = self;
        let Some(pausing) = pausing else {
            return turn.come().await;
        };
        loop {
            if pausing.current().is_some() {
                // The places go to tools that are not paused.
                turn.begin_anew(&pausing.limiters);
                pausing.over().await;
            }
            tokio::select! {
                biased;
                () = pausing.begun() => {}
                come = turn.come() => return come,
            }
        }
    }

    /// Takes room in every queue that the leg may come to: a call must not be refused half-way.
    fn take_slots(&mut self) -> Result<(), NotAdmitted> {
        for ahead in &mut self.turn.ahead {
            let slot = ahead.limiter.slot();
            ahead.slot = Some(slot.ok_or(NotAdmitted::QueueFull)?);
        }
        Ok(())
    }

    /// Returns the message that a client may receive about the call.
    pub(super) fn message(&self) -> Box<str> {
        if let Some(pause) = self.pausing.as_ref().and_then(Pausing::current) {
            return format!("The tool is paused {}", pause.terms()).into();
        }
        let Some(ahead) = self.turn.ahead.front() else {
            return self.turn.seat.message();
        };
        queue_message(ahead.position.as_ref().map_or(0, QueuePosition::ahead))
    }
}

impl LegTurn {
    /// Resolves when the leg has passed all limits and has its place at the server.
    ///
    /// Cancel safe.
    async fn come(&mut self) -> Result<Permits, Event> {
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

    /// Gives back what the leg has, but for its room in queues. `limiters`: all that the leg passes.
    fn begin_anew(&mut self, limiters: &[Arc<Limiter>]) {
        self.passed = Permits::default();
        for ahead in &mut self.ahead {
            ahead.position = None;
        }
        let passed = limiters.len().saturating_sub(self.ahead.len());
        for limiter in limiters.iter().take(passed).rev() {
            self.ahead.push_front(LimitAhead::new(Arc::clone(limiter)));
        }
        self.seat.begin_anew();
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
