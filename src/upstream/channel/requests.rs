//! Many requests over one line: each under an id of ours, each answer to its own.
//!
//! What names a request (an id, a progress token, a subscription) goes to that request. A question
//! names none: it is put only while exactly one request runs that may ask.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};

use serde_json::value::RawValue;
use tokio::sync::{broadcast, mpsc};
use tokio::time::Instant;
use tracing::{debug, warn};

use super::super::discovered::Discovered;
use super::super::failures::UNREACHABLE;
use super::super::message::{ambiguous, cancelled, question, response};
use super::mouth::{Ear, End, Mouth, Outbound, Passage, Refusal};
use super::said::{Notice, Said};
use super::table::{Pending, Table};
use crate::lock::Mutex;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::input::Kind;
use crate::mcp::json::Object;
use crate::mcp::meta::{PROGRESS_TOKEN, SUBSCRIPTION_ID};
use crate::mcp::tools::Tools;
use crate::upstream::cache::Cache;
use crate::upstream::heard::Message;
use crate::upstream::request_id::RequestId;

/// Notifications and questions that wait for whoever made the request; the answer has a place of
/// its own. More are dropped: one reader serves all requests and must not wait for one of them.
const EVENTS_MAX: usize = 16;

/// A notification larger than this is dropped.
const NOTICE_BYTES_MAX: usize = 1 << 20;

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Channel")
    }
}

/// One line, shared by everything that one caller asks.
pub(in crate::upstream) struct Channel {
    mouth: Mouth,
    table: Mutex<Table>,
    next_id: AtomicU64,
    /// What was declared to the server, as JSON; nothing to a modern one.
    capabilities: Arc<str>,
    tools: Arc<Cache<Tools>>,
    /// What a legacy server said of itself.
    pub(in crate::upstream) described: std::sync::OnceLock<Arc<Discovered>>,
    pub(in crate::upstream) log_level: Mutex<Option<Arc<str>>>,
}

impl Channel {
    pub(in crate::upstream) fn new(
        mouth: Mouth,
        capabilities: Arc<str>,
        tools: Arc<Cache<Tools>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            mouth,
            table: Mutex::new(Table::new()),
            next_id: AtomicU64::new(1),
            capabilities,
            tools,
            described: std::sync::OnceLock::new(),
            log_level: Mutex::default(),
        })
    }

    /// On the line of another one, of which nobody is to hear any more. Late answers to it are nobody's.
    pub(in crate::upstream) fn after(
        first: &Self,
        mouth: Mouth,
        capabilities: Arc<str>,
        tools: Arc<Cache<Tools>>,
    ) -> Arc<Self> {
        let next_id = first.next_id.load(Ordering::Relaxed);
        let channel = Self::new(mouth, capabilities, tools);
        channel.next_id.store(next_id, Ordering::Relaxed);
        channel
    }

    pub(in crate::upstream) fn mouth(&self) -> &Mouth {
        &self.mouth
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }

    pub(in crate::upstream) fn is_open(&self) -> bool {
        self.table().is_open
    }

    /// A call on it has asked its client something and is not over.
    pub(in crate::upstream) fn is_asking(&self) -> bool {
        let table = self.table();
        table.inflight.requests().any(|pending| pending.has_asked)
    }

    /// A question on it may be that of a call for which nobody waits. A server to which nothing was
    /// declared asks nothing.
    pub(in crate::upstream) fn is_doubtful(&self) -> bool {
        &*self.capabilities != "{}" && self.table().inflight.is_doubtful(Instant::now())
    }

    /// Since when nobody has used it; `None` while somebody does.
    pub(in crate::upstream) fn unused_since(&self) -> Option<Instant> {
        let table = self.table();
        let is_used = !table.inflight.is_empty() || table.listeners > 0;
        (!is_used).then_some(table.used)
    }

    /// No question on it could be that of a call before.
    pub(in crate::upstream) fn is_free(&self) -> bool {
        self.table().inflight.is_free(Instant::now())
    }

    /// Takes no more requests and ends the line.
    pub(in crate::upstream) fn close(&self) {
        self.table().is_open = false;
        self.mouth.stop();
    }

    /// A place for one request; `None` where the line has ended.
    pub(in crate::upstream) fn open(self: &Arc<Self>, kind: Asks) -> Option<Ticket> {
        let (events, receiver) = mpsc::channel(EVENTS_MAX + 1);
        let answer = events.clone().try_reserve_owned().ok()?;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let passage = Arc::new(Passage::default());
        let pending = Pending {
            events,
            answer,
            passage: Arc::clone(&passage),
            has_asked: false,
        };
        let mut table = self.table();
        if !table.is_open {
            return None;
        }
        table.inflight.insert(id, kind == Asks::Maybe, pending);
        drop(table);
        Some(Ticket {
            channel: Arc::clone(self),
            id,
            passage,
            said: receiver,
            cancel_on_drop: false,
        })
    }

    /// See [`Mouth::answer`].
    pub(in crate::upstream) async fn answer(&self, text: String) -> Result<(), Failure> {
        self.mouth.answer(text).await
    }

    pub(in crate::upstream) async fn tell(&self, text: String) {
        let message = Outbound {
            text,
            passage: None,
            refused: None,
        };
        self.mouth.say(message).await;
    }

    /// Nobody waits for this request any more. True if the server has to be told.
    fn withdraw(&self, id: u64) -> bool {
        let mut table = self.table();
        let Some((pending, may_ask)) = table.inflight.remove(&id) else {
            return false;
        };
        table.used = Instant::now();
        self.end_if_done(&table);
        let may_run = !pending.passage.withdraw();
        if may_run && may_ask {
            table.inflight.abandon(id, Instant::now());
        }
        may_run
    }

    /// A line that takes no more ends with its last request.
    fn end_if_done(&self, table: &Table) {
        if !table.is_open && table.inflight.is_empty() {
            self.mouth.stop();
        }
    }

    /// Tells the server that nobody waits; nothing, where it never heard of the request.
    pub(in crate::upstream) async fn cancel(&self, id: u64) {
        if self.withdraw(id) {
            self.tell(cancelled(&RequestId::number(id))).await;
        }
    }

    /// The server's changes, until the listener is dropped.
    pub(in crate::upstream) fn listen(self: &Arc<Self>) -> Option<Listener> {
        let mut table = self.table();
        if !table.is_open {
            return None;
        }
        let notices = table.notices.as_ref()?.subscribe();
        table.listeners += 1;
        Some(Listener {
            notices,
            channel: Arc::clone(self),
        })
    }

    fn on_answer(&self, id: &str, answer: impl FnOnce() -> Said) {
        let mut table = self.table();
        let known = id.parse::<u64>().ok();
        let answered = match known {
            Some(id) => table.inflight.remove(&id),
            None if id == "null" => table.inflight.remove_sole(),
            None => None,
        };
        let Some((pending, may_ask)) = answered else {
            if !known.is_some_and(|id| table.inflight.answered_late(&id)) {
                table.ignored += 1;
                debug!(
                    ignored = table.ignored,
                    "an answer to no request of ours was ignored"
                );
            }
            return;
        };
        table.used = Instant::now();
        self.end_if_done(&table);
        drop(table);
        pending.passage.settle();
        if may_ask {
            self.mouth.answered();
        }
        debug!(id, "answered");
        pending.answer.send(answer());
    }

    fn on_notification(&self, method: Box<str>, params: Option<Box<RawValue>>) {
        let size = params.as_ref().map_or(0, |params| params.get().len());
        if size > NOTICE_BYTES_MAX {
            warn!(method = ?&*method, size, "a notification that is too large was dropped");
            return;
        }
        match (&*method, params) {
            ("notifications/progress", Some(params)) => {
                if let Some(id) = token(&params) {
                    self.put(id, Said::Progress(params));
                }
            }
            ("notifications/message", Some(params)) => {
                if let Some(only) = self.table().inflight.only(Instant::now()) {
                    only.put(Said::Log(params));
                }
            }
            (_, params) => {
                if &*method == "notifications/tools/list_changed" {
                    self.tools.clear();
                }
                let subscription = params.as_deref().and_then(subscription);
                let notice = Arc::new(Notice { method, params });
                if let Some(id) = subscription {
                    self.put(id, Said::Notice(notice));
                } else if let Some(notices) = &self.table().notices {
                    // Nobody listens, most likely.
                    let _ = notices.send(notice);
                }
            }
        }
    }

    /// To the request; dropped where it has ended or its reader is slow.
    fn put(&self, id: u64, said: Said) {
        if let Some(pending) = self.table().inflight.get(&id) {
            pending.put(said);
        }
    }

    fn on_request(&self, id: &str, method: &str, params: Option<Box<RawValue>>) {
        let declared = Object::parse(&self.capabilities).unwrap_or_default();
        let may_ask = |kind: Kind| declared.contains(kind.capability());
        let answer = match question(id, method, params, may_ask) {
            Ok(question) => {
                let mut table = self.table();
                if let Some(only) = table.inflight.only_mut(Instant::now())
                    && only.events.try_send(Said::Question(question)).is_ok()
                {
                    only.has_asked = true;
                    return;
                }
                let running = table.inflight.len();
                drop(table);
                warn!(method, running, "a question that names no call was refused");
                ambiguous()
            }
            Err(answer) => answer,
        };
        self.mouth.try_say(response(id, &answer));
    }
}

impl Ear for Channel {
    fn heard(&self, message: Message, _text: &str) {
        match message {
            // Only streams of events have such.
            Message::Primed => {}
            Message::Result { id, result } => self.on_answer(&id, || Said::Result(result)),
            Message::Error { id, error } => self.on_answer(&id, || Said::Error(error)),
            Message::Unreadable { id, failure, .. } => {
                let reason = failure.reason.word();
                warn!(reason, "the server wrote an answer that cannot be read");
                self.on_answer(&id, || Said::Failed(failure));
            }
            Message::Notification { method, params } => self.on_notification(method, params),
            Message::Request { id, method, params } => self.on_request(&id, &method, params),
        }
    }

    fn refused(&self, passage: Option<&Arc<Passage>>, refusal: Refusal) {
        let mut table = self.table();
        let said = match refusal {
            Refusal::Failed(failure) => Said::Failed(failure),
            Refusal::Error(error) => Said::Refused(error),
            Refusal::Lost(failure) => {
                table.is_open = false;
                Said::Unsent(failure)
            }
        };
        let is_it = |pending: &Pending| passage.is_some_and(|it| Arc::ptr_eq(it, &pending.passage));
        let refused = table.inflight.remove_where(is_it);
        table.used = Instant::now();
        self.end_if_done(&table);
        drop(table);
        // A request has a passage of its own.
        if let Some(refused) = refused.into_iter().next() {
            refused.answer.send(said);
        }
    }

    fn over(&self, end: End) {
        let mut table = self.table();
        table.is_open = false;
        table.notices = None;
        let pending = table.inflight.take_all();
        drop(table);
        let begun: Vec<_> = pending
            .into_iter()
            .map(|pending| (pending.passage.withdraw(), pending.answer))
            .collect();
        let running = begun.iter().filter(|(is_unsent, _)| !is_unsent).count();
        for (is_unsent, answer) in begun {
            if is_unsent {
                answer.send(Said::Unsent(UNREACHABLE));
                continue;
            }
            // With several it cannot be told whose answer it was.
            let reason = if end == End::TooLarge && running == 1 {
                Reason::UpstreamTooLarge
            } else {
                Reason::UpstreamReset
            };
            answer.send(Said::Failed(Failure::new(reason, SideEffect::Unknown)));
        }
    }
}

/// Whether a request may ask the client something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum Asks {
    Maybe,
    Never,
}

/// One request under way. Dropped before its answer, nobody waits for it.
pub(in crate::upstream) struct Ticket {
    channel: Arc<Channel>,
    pub(in crate::upstream) id: u64,
    passage: Arc<Passage>,
    said: mpsc::Receiver<Said>,
    /// Whether dropping it tells the server, too.
    pub(in crate::upstream) cancel_on_drop: bool,
}

impl Ticket {
    /// Sends the request, which bears the ticket's id. Waits while the server does not read.
    pub(in crate::upstream) async fn send(&self, text: String) {
        let message = Outbound {
            text,
            passage: Some(Arc::clone(&self.passage)),
            refused: None,
        };
        self.channel.mouth.say(message).await;
    }

    /// Cancel safe. An answer is the last.
    pub(in crate::upstream) async fn next(&mut self) -> Said {
        let reset = Said::Failed(Failure::new(Reason::UpstreamReset, SideEffect::Unknown));
        self.said.recv().await.unwrap_or(reset)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.channel.withdraw(self.id) && self.cancel_on_drop {
            self.channel
                .mouth
                .try_say(cancelled(&RequestId::number(self.id)));
        }
    }
}

/// Hears the changes of the server that name no request. The line lives while somebody listens.
pub(in crate::upstream) struct Listener {
    pub(in crate::upstream) notices: broadcast::Receiver<Arc<Notice>>,
    pub(in crate::upstream) channel: Arc<Channel>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut table = self.channel.table();
        table.listeners = table.listeners.saturating_sub(1);
        table.used = Instant::now();
    }
}

fn token(params: &RawValue) -> Option<u64> {
    let params = Object::parse(params.get()).ok()?;
    params.get(PROGRESS_TOKEN)?.get().parse().ok()
}

fn subscription(params: &RawValue) -> Option<u64> {
    let meta = Object::parse(params.get()).ok()?.get_object("_meta")?;
    meta.get(SUBSCRIPTION_ID)?.get().parse().ok()
}
