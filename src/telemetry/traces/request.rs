//! The span of a request of a client: from its first byte to the last byte of its answer, or, where the request made
//! a record, to the end of the record.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::keys;
use super::span::{Span, SpanKind, cut, room};
use super::tracer::{are_on, is_sampled, random, tell};
use crate::base::clock::wall_ns;
use crate::mcp::trace_context::TraceContext;
use crate::mcp::trace_id::{SpanId, TraceId};
use crate::task::state::Task;
use crate::task::trace::TaskTrace;
use crate::telemetry::known_names::{known_method, known_version};
use crate::telemetry::operation_ending::OperationEnding;

/// The terms of a request that are known when it comes.
#[derive(Debug, Clone, Copy)]
pub struct RequestTerms<'r> {
    /// The place in the client's trace.
    pub parent: Option<&'r TraceContext>,
    pub method: &'r str,
    /// The tool or the prompt.
    pub name: Option<&'r str>,
    pub id: &'r str,
    pub version: &'r str,
    pub is_piped: bool,
}

/// The handling of the trace of a request.
#[derive(Debug)]
pub enum Tracing {
    /// The request has a span in this trace.
    Recorded(TraceId),
    /// The trace begins here and is not recorded, which the server learns from the flags.
    LeftOut(TraceContext),
    /// The message stays as it is.
    Untouched,
}

impl Tracing {
    /// The client decides. Where its request has no trace, the ratio decides.
    pub fn of(parent: Option<&TraceContext>, method: &str) -> Self {
        if !are_on() {
            return Self::Untouched;
        }
        match parent {
            Some(parent) if parent.is_sampled => Self::Recorded(parent.trace),
            Some(_) => Self::Untouched,
            None if is_a_wait(method) => Self::Untouched,
            None => {
                let trace = random();
                if is_sampled(&trace) {
                    return Self::Recorded(trace);
                }
                Self::LeftOut(TraceContext {
                    trace,
                    span: random(),
                    is_sampled: false,
                    state: None,
                })
            }
        }
    }
}

/// A text of a client. What is known takes no memory.
fn known_or_own(known: fn(&str) -> Option<&'static str>, text: &str) -> Cow<'static, str> {
    known(text).map_or_else(|| Cow::Owned(text.to_owned()), Cow::Borrowed)
}

/// Returns `true` if clients send such a request again and again, or have it open for hours. It has a span only where
/// its client traces.
fn is_a_wait(method: &str) -> bool {
    method.starts_with("tasks/") || matches!(method, "ping" | "subscriptions/listen")
}

/// The part that exports the span when it ends.
mod teller {
    /// The answer to the request.
    pub(super) const ANSWER: u8 = 0;
    /// The answer; and there may be a record that exports the span, too.
    pub(super) const DOUBT: u8 = 1;
    /// The record.
    pub(super) const RECORD: u8 = 2;
    /// The span was exported.
    pub(super) const NONE: u8 = 3;
}

/// The span of a request that is not over.
#[derive(Debug)]
pub struct RequestSpan {
    ids: TaskTrace,
    method: Cow<'static, str>,
    name: Box<str>,
    began_ns: u64,
    /// 0: not sent by a carrier.
    sent_ns: AtomicU64,
    teller: AtomicU8,
    about: OnceLock<(TraceId, SpanId)>,
}

impl RequestSpan {
    /// Begins the span.
    pub fn new(trace: TraceId, terms: RequestTerms<'_>) -> Self {
        let (parent, state) = match terms.parent {
            Some(parent) => (Some(parent.span), parent.state.clone()),
            None => (None, None),
        };
        Self {
            ids: TaskTrace {
                trace,
                span: random(),
                parent,
                sent: random(),
                state,
                request: cut(terms.id).into(),
                version: known_or_own(known_version, cut(terms.version)),
                sent_ms: None,
                is_piped: terms.is_piped,
            },
            method: known_or_own(known_method, cut(terms.method)),
            name: cut(terms.name.unwrap_or_default()).into(),
            began_ns: wall_ns(),
            sent_ns: AtomicU64::new(0),
            teller: AtomicU8::new(teller::ANSWER),
            about: OnceLock::new(),
        }
    }

    /// Returns the trace context that the server receives with a request that passes.
    pub fn context(&self) -> TraceContext {
        self.ids.to_server().at(self.ids.span)
    }

    /// Returns the trace context that the server receives with a request of a carrier.
    pub fn to_server(&self) -> TraceContext {
        self.ids.to_server()
    }

    /// A carrier sends the request now, for the first time or again.
    pub fn sent(&self) {
        let relaxed = Ordering::Relaxed;
        // Only the first time counts.
        let _ = self
            .sent_ns
            .compare_exchange(0, wall_ns(), relaxed, relaxed);
    }

    /// Returns the part of the trace for the record of the call, which exports the span from now on. Returns `None`
    /// if the span was exported. `began_ms` is when the call began by the clock of records.
    pub fn of_record(&self, began_ms: u64) -> Option<Box<TaskTrace>> {
        let told = self.teller.swap(teller::RECORD, Ordering::AcqRel);
        if told == teller::NONE {
            // The answer has exported the span already, so the record must not export it again.
            self.teller.store(told, Ordering::Release);
            return None;
        }
        let sent_ns = Some(self.sent_ns.load(Ordering::Relaxed)).filter(|sent| *sent > 0);
        // The clocks of this machine and of the store may differ, so only a span of the one is added to a time of the
        // other.
        let waited = sent_ns.map(|sent| sent.saturating_sub(self.began_ns) / 1_000_000);
        Some(Box::new(TaskTrace {
            sent_ms: waited.map(|waited| began_ms.saturating_add(waited)),
            ..self.ids.clone()
        }))
    }

    /// Notes that there is no record after all, or that the store did not answer whether there is one.
    pub fn not_recorded(&self) {
        self.teller.store(teller::DOUBT, Ordering::Release);
    }

    /// The request is about this task.
    pub fn about(&self, task: &Task) {
        if let Some(trace) = &task.trace {
            let _ = self.about.set((trace.trace, trace.span));
        }
    }

    /// Ends the span when the answer is over, and exports it, unless a record does.
    fn end(&self, ending: OperationEnding) {
        let held = self.teller.load(Ordering::Acquire);
        if held >= teller::RECORD {
            return;
        }
        let (none, relaxed) = (teller::NONE, Ordering::Relaxed);
        let exchanged = self
            .teller
            .compare_exchange(held, none, Ordering::AcqRel, relaxed);
        // The record has taken the span over meanwhile, and exports it.
        if exchanged.is_err() {
            return;
        }
        let (kind, code) = ending.labels();
        let end_ns = wall_ns();
        let sent_ns = self.sent_ns.load(Ordering::Relaxed);
        // Two spans must not have one id: the record that may be there has this span's.
        let id = if held == teller::DOUBT {
            random()
        } else {
            self.ids.span
        };
        if sent_ns > 0 {
            let mut sent = Span {
                id: self.ids.sent,
                parent: Some(id),
                ..whole(&self.ids, &self.method, &self.name, SpanKind::Client)
            };
            (sent.begin_ns, sent.end_ns) = (sent_ns, end_ns);
            sent.ended(&kind, &code);
            tell(sent);
        }
        let mut span = Span {
            id,
            link: self.about.get().copied(),
            ..whole(&self.ids, &self.method, &self.name, SpanKind::Server)
        };
        (span.begin_ns, span.end_ns) = (self.began_ns, end_ns);
        span.ended(&kind, &code);
        tell(span);
    }
}

/// The span of an operation, without its times and its end.
pub(super) fn whole<'s>(
    ids: &'s TaskTrace,
    method: &'s str,
    name: &'s str,
    kind: SpanKind,
) -> Span<'s> {
    let space = if name.is_empty() { "" } else { " " };
    let mut span = Span {
        trace: ids.trace,
        id: ids.span,
        parent: ids.parent,
        state: ids.state.as_deref(),
        name: [cut(method), space, cut(name)],
        kind,
        begin_ns: 0,
        end_ns: 0,
        attributes: room(),
        link: None,
        is_error: false,
    };
    span.say(&keys::METHOD, method);
    match method {
        "tools/call" => {
            span.say(&keys::OPERATION, "execute_tool");
            span.say(&keys::TOOL, name);
        }
        "prompts/get" => span.say(&keys::PROMPT, name),
        _ => {}
    }
    if kind == SpanKind::Server {
        span.say(&keys::VERSION, &ids.version);
        span.say(&keys::REQUEST_ID, &ids.request);
        span.say(&keys::TRANSPORT, if ids.is_piped { "pipe" } else { "tcp" });
    }
    span
}

/// Ends the span of a request with its answer. Dropped before, the client did not wait for the answer.
#[derive(Debug)]
pub struct SpanGuard(Arc<RequestSpan>);

impl SpanGuard {
    pub fn new(span: Arc<RequestSpan>) -> Self {
        Self(span)
    }

    /// Ends the span with the ending of the answer.
    pub fn end(self, ending: OperationEnding) {
        // The drop that follows ends the span once more. That has no effect, because the span is exported already.
        self.0.end(ending);
    }
}

impl Drop for SpanGuard {
    fn drop(&mut self) {
        self.0.end(OperationEnding::Cancelled);
    }
}
