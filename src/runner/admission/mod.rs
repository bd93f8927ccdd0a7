//! Admission: a call goes to the server when the limit of its tool, and then the limit of the server, permits
//! it, and when it has its place there ([`seat`]).
//!
//! The limits cannot deadlock: every call passes them in this order, and no call holds a permit of the
//! server while it waits for a permit of its tool.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use tokio::sync::watch;

use super::server::WrappedServer;
use crate::base::lock::Mutex;
use crate::mcp::version::Era;
use crate::task::pauses::{Pause, Pauses};
use crate::task::policy::{Concurrency, Limit, Rule, Rules};
use crate::upstream::{Seating, UpstreamRequest};

mod limiter;
mod pausing;
mod permits;
mod queue_message;
mod queued_leg;
mod seat;
#[cfg(test)]
mod tests;

use limiter::Limiter;
use pausing::{LegLimits, Pausing};
pub(super) use permits::{HeldPermits, Permits};
pub(super) use queue_message::queue_message;
pub(super) use queued_leg::QueuedLeg;
use seat::SeatWanted;

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
    /// The reads of the shared pauses, numbered as they began.
    reads: AtomicU64,
    /// The latest read whose pauses count; 0: none.
    read: Mutex<u64>,
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
    Queued(Box<QueuedLeg>),
}

/// Why a call is not admitted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotAdmitted {
    QueueFull,
    /// The tool is paused, and the call cannot wait for the end of that.
    Paused(Arc<Pause>),
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
            reads: AtomicU64::new(0),
            read: Mutex::new(0),
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

    /// Returns the number of a read of the shared pauses, which begins now.
    pub(super) fn begin_read(&self) -> u64 {
        self.reads.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns `true` if the shared pauses were read once.
    pub(super) fn has_read_pauses(&self) -> bool {
        *self.read.lock() > 0
    }

    /// Takes over what the read of that number found, unless what a later read found counts already. Returns the pauses before, if
    /// they changed. `None`: what was found cannot be read.
    pub(super) fn take_pauses(
        &self,
        number: u64,
        found: Option<Pauses>,
        now_ms: u64,
    ) -> Option<Arc<Pauses>> {
        let mut read = self.read.lock();
        if number < *read {
            return None;
        }
        *read = number;
        self.pause(found?.in_force(now_ms))
    }

    /// Ends the pauses that are over. Returns the pauses before, if there are such.
    pub(super) fn end_pauses(&self, now_ms: u64) -> Option<Arc<Pauses>> {
        // Locked, so that no newer pauses are replaced.
        let _read = self.read.lock();
        let pauses = Pauses::clone(self.current.load().rules.pauses());
        self.pause(pauses.in_force(now_ms))
    }

    /// Replaces the pauses. Calls that wait for the end of one that is gone take their turn, and calls that were not sent yet
    /// wait for the end of one that is new. Returns the pauses before, if they changed.
    fn pause(&self, pauses: Pauses) -> Option<Arc<Pauses>> {
        // Locked for the same reason as above, and so that no change of the rules is lost.
        let _tools = self.tools.lock();
        let before = self.current.load();
        if **before.rules.pauses() == pauses {
            return None;
        }
        let pauses = Arc::new(pauses);
        self.replace(&before, before.rules.with_pauses(Arc::clone(&pauses)));
        self.pauses.send_replace(pauses);
        Some(Arc::clone(before.rules.pauses()))
    }

    fn replace(&self, before: &RuleLimits, rules: Rules) {
        let next = RuleLimits::new(Arc::new(rules), Some(before));
        self.current.store(Arc::new(next));
    }

    /// Admits a new call, or queues the call if the queues have room. While its tool is paused, a call waits in the queue of its
    /// rule, if that has one and the pause ends before the call has to (`ends_ms`). A call that `goes_on` was begun at
    /// the server before, and no pause holds it.
    pub(super) fn enter(
        &self,
        tool: &str,
        ends_ms: u64,
        goes_on: impl Fn() -> bool,
    ) -> Result<Admittance, NotAdmitted> {
        let limits = self.limits_of(tool);
        let pause = self.current.load().rules.pauses().of(tool).cloned();
        if let Some(pause) = pause.filter(|_| !goes_on()) {
            // Not in the queue of the server, which is for all tools.
            let own = limits.own().filter(|_| pause.until_ms < ends_ms);
            let slot = own.and_then(|own| own.slot());
            let slot = slot.ok_or(NotAdmitted::Paused(pause))?;
            let mut leg = QueuedLeg::new(&limits);
            leg.keep_room(slot);
            leg.pausing = Some(self.pausing(tool, limits));
            return Ok(Admittance::Queued(leg.counted()));
        }
        match QueuedLeg::new(&limits).line_up() {
            Ok(permits) => Ok(Admittance::Now(permits)),
            Err(mut leg) => {
                // On a full queue the leg is dropped here, which also gives up the permits and the position that it has
                // taken.
                leg.take_slots().ok_or(NotAdmitted::QueueFull)?;
                leg.pausing = (!goes_on()).then(|| self.pausing(tool, limits));
                Ok(Admittance::Queued(leg))
            }
        }
    }

    /// Admits the first leg of a call, or queues the leg, however long the queue is. It also waits for the end of a pause.
    pub(super) fn queue_new(&self, tool: &str) -> Admittance {
        let limits = self.limits_of(tool);
        let leg = QueuedLeg::new(&limits);
        let is_paused = self.current.load().rules.pauses().of(tool).is_some();
        let lined_up = if is_paused {
            Err(leg.counted())
        } else {
            leg.line_up()
        };
        lined_up.map_or_else(
            |mut leg| {
                leg.pausing = Some(self.pausing(tool, limits));
                Admittance::Queued(leg)
            },
            Admittance::Now,
        )
    }

    /// Admits a leg of a call that was sent before, or queues the leg, however long the queue is.
    pub(super) fn queue(&self, tool: &str) -> Admittance {
        let lined_up = QueuedLeg::new(&self.limits_of(tool)).line_up();
        lined_up.map_or_else(Admittance::Queued, Admittance::Now)
    }

    /// What a leg follows that was never sent, and has passed its limits.
    pub(super) fn pausing_of(&self, tool: &str) -> Pausing {
        self.pausing(tool, self.limits_of(tool))
    }

    fn pausing(&self, tool: &str, limits: LegLimits) -> Pausing {
        Pausing {
            tool: tool.into(),
            pauses: self.pauses.subscribe(),
            limits,
        }
    }

    /// The limits that a leg of this tool passes.
    fn limits_of(&self, tool: &str) -> LegLimits {
        let own = self.own_limiter(tool);
        let server = self.current.load().server.clone();
        LegLimits {
            has_own: own.is_some(),
            in_order: own.into_iter().chain(server).collect(),
        }
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
                    let queued = QueuedLeg::behind_limits(permits, wait, wanted(), pausing());
                    Self::Queued(queued)
                }
            },
            // The seat comes after the limits: a leg that waits for a limit keeps no session from a call that can go
            // out.
            Self::Queued(mut leg) => {
                leg.want(wanted());
                Self::Queued(leg)
            }
        }
    }

    pub(super) fn is_queued(&self) -> bool {
        matches!(self, Self::Queued(_))
    }
}
