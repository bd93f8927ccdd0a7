//! The table of faults: what the server does, and how its call must end.

use super::script::{Act, Asked, page};

mod bodies;
mod floods;
mod refusals;
mod slow;
mod streams;
mod wire;

/// A result above this fails its call, in the configuration that the table is made for.
pub(crate) const RESULT_BYTES_MAX: usize = 1 << 20;

/// One way to misbehave. Absent wants: of no meaning in that era.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    pub(crate) tool: &'static str,
    pub(crate) legacy: Option<Want>,
    pub(crate) modern: Option<Want>,
    /// What is done to the call.
    pub(super) post: fn(&Asked) -> Vec<Act>,
    /// What is done to who comes back to its stream after that event.
    pub(super) get: fn(&Asked, &str) -> Vec<Act>,
}

/// How a call ends, and what the server saw of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Want {
    pub(crate) end: End,
    /// How often the call was sent.
    pub(crate) sent: u32,
    /// How often its stream was come back to.
    pub(crate) fetched: u32,
    /// The server was told by its era's signal that no client waits.
    pub(crate) cancelled: bool,
    /// What the server's own requests were answered with.
    pub(crate) answers: &'static [&'static str],
    /// What the status message says meanwhile.
    pub(crate) says: Option<&'static str>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum End {
    /// With this very call's answer.
    Completed,
    /// Reason and effect.
    Failed(&'static str, &'static str),
    /// The server's own error, which has this code.
    Refused(i64),
}

/// What a task says while its server is busy.
pub(crate) const BUSY: &str = "The server is busy";

pub(crate) const RESET: Want = failed("upstream_reset", "unknown");
pub(crate) const INVALID: Want = failed("upstream_invalid", "unknown");
pub(crate) const TOO_LARGE: Want = failed("upstream_too_large", "unknown");
pub(crate) const TOO_DEEP: Want = failed("upstream_too_deep", "unknown");
pub(crate) const NOT_RUN: Want = failed("upstream_http", "none");
pub(crate) const DEADLINE: Want = failed("deadline", "unknown").cancelled();
pub(crate) const COMPLETED: Want = want(End::Completed);

pub(crate) const fn failed(reason: &'static str, effect: &'static str) -> Want {
    want(End::Failed(reason, effect))
}

const fn want(end: End) -> Want {
    Want {
        end,
        sent: 1,
        fetched: 0,
        cancelled: false,
        answers: &[],
        says: None,
    }
}

impl Want {
    pub(crate) const fn sent(mut self, times: u32) -> Self {
        self.sent = times;
        self
    }

    const fn fetched(mut self, times: u32) -> Self {
        self.fetched = times;
        self
    }

    const fn cancelled(mut self) -> Self {
        self.cancelled = true;
        self
    }

    const fn answered(mut self, answers: &'static [&'static str]) -> Self {
        self.answers = answers;
        self
    }

    pub(crate) const fn says(mut self, words: &'static str) -> Self {
        self.says = Some(words);
        self
    }
}

/// Every fault of a server that can be reached.
pub(crate) fn all() -> Vec<Fault> {
    let mut all = wire::faults();
    all.extend(refusals::faults());
    all.extend(bodies::faults());
    all.extend(streams::faults());
    all.extend(slow::faults());
    all.extend(floods::faults());
    all
}

/// In both eras alike, by the tool that must not run twice.
fn fault(name: &'static str, want: Want, post: fn(&Asked) -> Vec<Act>) -> Fault {
    Fault {
        name,
        tool: "work",
        legacy: Some(want),
        modern: Some(want),
        post,
        get: |_, _| vec![page(405, &[])],
    }
}

impl Fault {
    /// A modern server meets another end.
    fn modern(mut self, want: Want) -> Self {
        self.modern = Some(want);
        self
    }

    fn only_legacy(mut self) -> Self {
        self.modern = None;
        self
    }

    fn only_modern(mut self) -> Self {
        self.legacy = None;
        self
    }

    /// By another tool: `read` may run again, `brief` has little time.
    fn by(mut self, tool: &'static str) -> Self {
        self.tool = tool;
        self
    }

    /// Not among others, who might be sent over the connection that it closes.
    fn apart(mut self) -> Self {
        (self.legacy, self.modern) = (None, None);
        self
    }

    fn resumed(mut self, get: fn(&Asked, &str) -> Vec<Act>) -> Self {
        self.get = get;
        self
    }
}
