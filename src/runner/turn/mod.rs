//! WHOSE TURN IT IS: a call goes to the server when the limit of its tool, and then the limit of the
//! server, has a place for it.
//!
//! Two limits cannot wait for each other: they are always passed in this order, and a place of the
//! server is never held while a place of a tool is waited for.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use futures_util::FutureExt as _;
use tokio::task::coop::unconstrained;
use tokio::time::Instant;

use crate::lock::Mutex;
use crate::task::policy::{Concurrency, Limit, Rules};

mod gate;
#[cfg(test)]
mod tests;

use gate::{Gate, Number, Place, Room};

/// Gates of single tools are looked through for unused ones when there are twice as many as were
/// used the last time, and never for fewer than these.
const TOOLS_MIN: usize = 64;

/// The limits of this replica.
#[derive(Debug)]
pub(super) struct Gates {
    rules: Arc<Rules>,
    in_all: Option<Arc<Gate>>,
    /// By the number of the `[[tools]]` entry; an entry without a limit of its own has none.
    entries: HashMap<usize, Arc<Gate>>,
    tools: Mutex<Tools>,
}

/// The gates of single tools, while anybody uses them: clients choose the names.
#[derive(Debug)]
struct Tools {
    by_name: HashMap<Box<str>, Weak<Gate>>,
    /// Looked through when there are so many.
    sweep_at: usize,
}

/// Where a call stands.
#[derive(Debug)]
pub(super) enum Turn {
    /// Nothing of it is at the server, and it waits for no place there.
    Over,
    Waits(Waiting),
    /// Its leg may go out, and holds these places until it has ended.
    Has(#[expect(dead_code, reason = "held for what dropping it does")] Places),
    /// The store did not take that the leg goes out: it asks for its turn again at this time.
    Again(Instant),
}

/// Held while a leg is at the server; free again when dropped. Empty where nothing is limited.
#[derive(Debug, Default)]
pub(super) struct Places(
    #[expect(dead_code, reason = "held for what dropping it does")] Vec<Place>,
);

/// The queue is full.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

/// A call in a queue; it leaves when this is dropped.
#[derive(Debug)]
pub(super) struct Waiting {
    /// The limits that it has to pass. Of the first it has drawn a number.
    ahead: VecDeque<Ahead>,
    had: Vec<Place>,
}

#[derive(Debug)]
struct Ahead {
    gate: Arc<Gate>,
    number: Option<Number>,
    /// So that the queue holds no more than it may; a call that was let in before needs none.
    room: Option<Room>,
}

impl Gates {
    pub(super) fn new(rules: Arc<Rules>, in_all: Option<Limit>) -> Self {
        let entries = rules.entries().enumerate();
        let entries = entries.filter_map(|(place, rule)| match rule.concurrency? {
            Concurrency::Together(limit) => Some((place, Gate::new(limit))),
            Concurrency::EachTool(_) => None,
        });
        Self {
            in_all: in_all.map(Gate::new),
            entries: entries.collect(),
            tools: Mutex::new(Tools {
                by_name: HashMap::new(),
                sweep_at: TOOLS_MIN,
            }),
            rules,
        }
    }

    /// Whether calls of this tool are counted at all.
    pub(super) fn limits(&self, tool: &str) -> bool {
        self.in_all.is_some() || self.rules.for_tool(tool).0.concurrency.is_some()
    }

    /// A turn for a new call, at once or later.
    pub(super) fn enter(&self, tool: &str) -> Result<Turn, Full> {
        let mut turn = self.queue(tool);
        if let Turn::Waits(waiting) = &mut turn {
            waiting.take_room()?;
        }
        Ok(turn)
    }

    /// A turn for a leg of a call that was let in before: however long the queue is.
    pub(super) fn queue(&self, tool: &str) -> Turn {
        let mut waiting = self.line_up(tool);
        // Asked once: it stands in the queue from here on, or there is none.
        // The runtime's budget for this task says nothing about the queue.
        match unconstrained(waiting.passed()).now_or_never() {
            Some(places) => Turn::Has(places),
            None => Turn::Waits(waiting),
        }
    }

    fn line_up(&self, tool: &str) -> Waiting {
        Waiting {
            ahead: self.of(tool).into_iter().map(Ahead::new).collect(),
            had: Vec::new(),
        }
    }

    /// The limits in the order in which they are passed.
    fn of(&self, tool: &str) -> Vec<Arc<Gate>> {
        let (rule, entry) = self.rules.for_tool(tool);
        let own = match (rule.concurrency, entry) {
            (Some(Concurrency::EachTool(limit)), _) => Some(self.of_tool(tool, limit)),
            (Some(Concurrency::Together(_)), Some(entry)) => self.entries.get(&entry).cloned(),
            (Some(Concurrency::Together(_)) | None, _) => None,
        };
        own.into_iter().chain(self.in_all.clone()).collect()
    }

    fn of_tool(&self, name: &str, limit: Limit) -> Arc<Gate> {
        let mut tools = self.tools.lock();
        if let Some(gate) = tools.by_name.get(name).and_then(Weak::upgrade) {
            return gate;
        }
        if tools.by_name.len() >= tools.sweep_at {
            tools.by_name.retain(|_, gate| gate.strong_count() > 0);
            tools.sweep_at = (tools.by_name.len() * 2).max(TOOLS_MIN);
        }
        let gate = Gate::new(limit);
        tools.by_name.insert(name.into(), Arc::downgrade(&gate));
        gate
    }
}

impl Turn {
    /// Of a request that no limit is for.
    pub(super) fn free() -> Self {
        Self::Has(Places::default())
    }

    /// Resolves with the places of a call of this tool that waits, when it has them. Never, if it
    /// does not wait.
    ///
    /// Cancel safe.
    pub(super) async fn come(&mut self, gates: &Gates, tool: &str) -> Places {
        if let Self::Again(at) = self {
            tokio::time::sleep_until(*at).await;
            *self = Self::Waits(gates.line_up(tool));
        }
        match self {
            Self::Waits(waiting) => waiting.passed().await,
            Self::Over | Self::Has(_) | Self::Again(_) => std::future::pending().await,
        }
    }

    /// It does not go out now.
    pub(super) fn waits(&self) -> bool {
        match self {
            Self::Waits(_) | Self::Again(_) => true,
            Self::Over | Self::Has(_) => false,
        }
    }

    /// What a client may be told of a call that waits.
    pub(super) fn message(&self) -> Option<Box<str>> {
        let before = match self {
            Self::Waits(waiting) => waiting.before(),
            Self::Again(_) => 0,
            Self::Over | Self::Has(_) => return None,
        };
        Some(match before {
            0 => "Waiting for a free place; it is the next".into(),
            1 => "Waiting for a free place; 1 call is before it".into(),
            calls => format!("Waiting for a free place; {calls} calls are before it").into(),
        })
    }
}

impl Waiting {
    /// Resolves when all limits are passed.
    ///
    /// Cancel safe: what was passed stays passed, and the place in the queue is kept.
    async fn passed(&mut self) -> Places {
        while let Some(ahead) = self.ahead.front_mut() {
            let number = ahead.number.get_or_insert_with(|| ahead.gate.draw());
            let place = number.called().await;
            self.had.push(place);
            self.ahead.pop_front();
        }
        Places(std::mem::take(&mut self.had))
    }

    /// In every queue that it may come to: it is not to be sent away half-way.
    fn take_room(&mut self) -> Result<(), Full> {
        for ahead in &mut self.ahead {
            ahead.room = Some(ahead.gate.room().ok_or(Full)?);
        }
        Ok(())
    }

    /// How many are before it in the queue that it stands in.
    fn before(&self) -> usize {
        let number = self.ahead.front().and_then(|ahead| ahead.number.as_ref());
        number.map_or(0, Number::before)
    }
}

impl Ahead {
    fn new(gate: Arc<Gate>) -> Self {
        Self {
            gate,
            number: None,
            room: None,
        }
    }
}
