//! Many requests over one line, each under an id of raincheck's. A message that names a request (by id,
//! progress token or subscription) goes to that request. A question names no request, so it is put only while
//! exactly one request runs that may ask.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};

use serde_json::value::RawValue;
use tokio::sync::{broadcast, mpsc};
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::base::lock::Mutex;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::input::InputKind;
use crate::mcp::json::Object;
use crate::mcp::meta::{PROGRESS_TOKEN, SUBSCRIPTION_ID};
use crate::mcp::tools::Tools;
use crate::upstream::cache::Cache;
use crate::upstream::discovery::discovered::Discovered;
use crate::upstream::failures::UNREACHABLE;
use crate::upstream::line::event::{LineEvent, LineNotice};
use crate::upstream::line::state::{LineState, Pending};
use crate::upstream::line::writer::{
    LineEnd, LineListener, LineWriter, Outbound, SendState, WriteError,
};
use crate::upstream::message::{ambiguous, cancelled, question, response};
use crate::upstream::pool::{MayAsk, PooledSession, Questions};
use crate::upstream::reader_queue::{Full, ReaderQueue, SHARED_PATIENCE};
use crate::upstream::request_id::{RequestId, number_of};
use crate::upstream::server_message::{ServerMessage, is_about_notification};

/// Notifications and questions that wait for the reader of one request; the answer has a place of its own. One task
/// reads the line for all requests, and waits only a moment for one of them.
const EVENTS_MAX: usize = 16;

/// A notification larger than this is dropped.
const NOTICE_BYTES_MAX: usize = 1 << 20;

impl fmt::Debug for SharedLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedLine")
    }
}

/// One line, shared by everything that one caller asks.
pub(in crate::upstream) struct SharedLine {
    writer: LineWriter,
    table: Mutex<LineState>,
    next_id: AtomicU64,
    /// The capabilities that were declared to the server, as JSON. Nothing is declared to a modern server.
    capabilities: Arc<str>,
    tools: Arc<Cache<Tools>>,
    /// A legacy server's description of itself.
    pub(in crate::upstream) described: std::sync::OnceLock<Arc<Discovered>>,
    pub(in crate::upstream) log_level: Mutex<Option<Arc<str>>>,
}

impl SharedLine {
    pub(in crate::upstream) fn new(
        writer: LineWriter,
        capabilities: Arc<str>,
        tools: Arc<Cache<Tools>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            writer,
            table: Mutex::new(LineState::new()),
            next_id: AtomicU64::new(1),
            capabilities,
            tools,
            described: std::sync::OnceLock::new(),
            log_level: Mutex::default(),
        })
    }

    /// Takes over the line of `first`, which hears no more. Late answers to the requests of `first` are
    /// ignored.
    pub(in crate::upstream) fn after(
        first: &Self,
        writer: LineWriter,
        capabilities: Arc<str>,
        tools: Arc<Cache<Tools>>,
    ) -> Arc<Self> {
        let next_id = first.next_id.load(Ordering::Relaxed);
        let line = Self::new(writer, capabilities, tools);
        // A late answer to `first` must not have the id of a request of this line.
        line.next_id.store(next_id, Ordering::Relaxed);
        if let Some(described) = first.described.get() {
            let _ = line.described.set(Arc::clone(described));
        }
        line
    }

    pub(in crate::upstream) fn writer(&self) -> &LineWriter {
        &self.writer
    }

    fn table(&self) -> MutexGuard<'_, LineState> {
        self.table.lock()
    }

    pub(in crate::upstream) fn is_open(&self) -> bool {
        self.table().is_open
    }

    /// Takes no more requests and ends the line.
    pub(in crate::upstream) fn close(&self) {
        self.table().is_open = false;
        self.writer.stop();
    }

    /// Begins one request. `None` if the line has ended.
    pub(in crate::upstream) fn open(self: &Arc<Self>, kind: MayAsk) -> Option<LineTicket> {
        let (events, receiver) = mpsc::channel(EVENTS_MAX + 1);
        // The place of the answer is taken now, so that the end of a call never waits for its reader.
        let answer = events.clone().try_reserve_owned().ok()?;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let send_state = Arc::new(SendState::default());
        let pending = Pending {
            events: ReaderQueue::new(events, SHARED_PATIENCE),
            answer,
            send_state: Arc::clone(&send_state),
            has_asked: false,
        };
        let mut table = self.table();
        if !table.is_open {
            return None;
        }
        table.inflight.insert(id, kind == MayAsk::Maybe, pending);
        drop(table);
        Some(LineTicket {
            line: Arc::clone(self),
            id,
            send_state,
            said: receiver,
            cancel_on_drop: false,
        })
    }

    /// See [`LineWriter::answer`].
    pub(in crate::upstream) async fn answer(&self, text: String) -> Result<(), Failure> {
        self.writer.answer(text).await
    }

    pub(in crate::upstream) async fn tell(&self, text: String) {
        let message = Outbound {
            text,
            send_state: None,
            refused: None,
        };
        self.writer.say(message).await;
    }

    /// Gives the request up. Returns `true` if the server has to be notified.
    fn withdraw(&self, id: u64) -> bool {
        let mut table = self.table();
        let Some((pending, may_ask)) = table.inflight.remove(&id) else {
            return false;
        };
        self.end_if_done(&table);
        let may_run = !pending.send_state.withdraw();
        // A request that was withdrawn before it was written never runs, so it cannot ask.
        if may_run && may_ask {
            table.inflight.abandon(id, Instant::now());
        }
        may_run
    }

    /// Ends the line after its last request, if it takes no more requests.
    fn end_if_done(&self, table: &LineState) {
        if !table.is_open && table.inflight.is_empty() {
            self.writer.stop();
        }
    }

    /// Cancels the request at the server, if the server may have received it.
    pub(in crate::upstream) async fn cancel(&self, id: u64) {
        if self.withdraw(id) {
            self.tell(cancelled(&RequestId::number(id))).await;
        }
    }

    /// The notifications that name no request. `None` if the line has ended.
    pub(in crate::upstream) fn notices(&self) -> Option<broadcast::Receiver<Arc<LineNotice>>> {
        let table = self.table();
        let notices = table.notices.as_ref().filter(|_| table.is_open)?;
        Some(notices.subscribe())
    }

    fn on_answer(&self, id: &str, answer: impl FnOnce() -> LineEvent) {
        let mut table = self.table();
        let known = number_of(id);
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
        self.end_if_done(&table);
        drop(table);
        pending.send_state.settle();
        // Only a call counts for `LineHealth`: a handshake does not show that the program works.
        if may_ask {
            self.writer.answered();
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
                    self.put(id, LineEvent::Progress(params));
                }
            }
            ("notifications/message", Some(params)) => {
                let mut table = self.table();
                let only = table.inflight.only(Instant::now());
                table.full = only.and_then(|only| only.put(LineEvent::Log(params)));
            }
            (_, params) => {
                if &*method == "notifications/tools/list_changed" {
                    self.tools.clear();
                }
                let subscription = params.as_deref().and_then(subscription);
                let notice = Arc::new(LineNotice { method, params });
                if let Some(id) = subscription {
                    self.put(id, LineEvent::Notice(notice));
                } else if let Some(notices) = &self.table().notices {
                    // Fails where there is no listener.
                    let _ = notices.send(notice);
                }
            }
        }
    }

    /// Gives an event to a request. The event is dropped if the request has ended, or if its reader is slow.
    fn put(&self, id: u64, said: LineEvent) {
        let mut table = self.table();
        let pending = table.inflight.get(&id);
        table.full = pending.and_then(|pending| pending.put(said));
    }

    fn on_request(&self, id: &str, method: &str, params: Option<Box<RawValue>>) {
        let declared = Object::parse(&self.capabilities).unwrap_or_default();
        let may_ask = |kind: InputKind| declared.contains(kind.capability());
        let answer = match question(id, method, params, may_ask) {
            Ok(question) => {
                let mut table = self.table();
                if let Some(only) = table.inflight.only_mut(Instant::now())
                    && only.events.put(LineEvent::Question(question))
                {
                    only.has_asked = true;
                    table.full = only.events.full();
                    return;
                }
                let running = table.inflight.len();
                drop(table);
                warn!(method, running, "a question that names no call was refused");
                ambiguous()
            }
            Err(answer) => answer,
        };
        // The task that reads the line must not wait, so the answer is dropped if the server does not read.
        self.writer.try_say(response(id, &answer));
    }
}

impl PooledSession for SharedLine {
    fn is_open(&self) -> bool {
        Self::is_open(self)
    }

    fn questions(&self) -> Questions {
        let (table, now) = (self.table(), Instant::now());
        Questions {
            may_come: !table.inflight.is_free(now),
            has_asked: table.inflight.requests().any(|pending| pending.has_asked),
            // A server to which nothing was declared asks nothing.
            is_doubtful: &*self.capabilities != "{}" && table.inflight.is_doubtful(now),
        }
    }

    fn close_unused(self: &Arc<Self>) {
        self.close();
    }
}

impl LineListener for SharedLine {
    fn heard(&self, message: ServerMessage, _text: &str) {
        match message {
            // Only streams of events have such.
            ServerMessage::Primed => {}
            ServerMessage::Result { id, result } => {
                self.on_answer(&id, || LineEvent::Result(result));
            }
            ServerMessage::Error { id, error } if is_about_notification(&id, &error) => {
                debug!("the server refused a notification");
            }
            ServerMessage::Error { id, error } => self.on_answer(&id, || LineEvent::Error(error)),
            ServerMessage::Unreadable { id, failure, .. } => {
                let reason = failure.reason.word();
                warn!(reason, "the server wrote an answer that cannot be read");
                self.on_answer(&id, || LineEvent::Failed(failure));
            }
            ServerMessage::Notification { method, params } => self.on_notification(method, params),
            ServerMessage::Request { id, method, params } => self.on_request(&id, &method, params),
        }
    }

    fn full(&self) -> Option<Full> {
        self.table().full.take()
    }

    fn refused(&self, send_state: Option<&Arc<SendState>>, refusal: WriteError) {
        let mut table = self.table();
        let said = match refusal {
            WriteError::Failed(failure) => LineEvent::Failed(failure),
            WriteError::Error(error) => LineEvent::Refused(error),
            WriteError::Lost(failure) => {
                // Other requests of the line may still be answered, so it ends after the last of them.
                table.is_open = false;
                LineEvent::Unsent(failure)
            }
        };
        let is_it =
            |pending: &Pending| send_state.is_some_and(|it| Arc::ptr_eq(it, &pending.send_state));
        let refused = table.inflight.remove_where(is_it);
        self.end_if_done(&table);
        drop(table);
        // A request has a send_state of its own.
        if let Some(refused) = refused.into_iter().next() {
            refused.answer.send(said);
        }
    }

    fn over(&self, end: LineEnd) {
        let mut table = self.table();
        table.is_open = false;
        table.notices = None;
        let pending = table.inflight.take_all();
        drop(table);
        // All are withdrawn before the first is failed, because the reason depends on how many had begun.
        let begun: Vec<_> = pending
            .into_iter()
            .map(|pending| (pending.send_state.withdraw(), pending.answer))
            .collect();
        let running = begun.iter().filter(|(is_unsent, _)| !is_unsent).count();
        for (is_unsent, answer) in begun {
            if is_unsent {
                answer.send(LineEvent::Unsent(UNREACHABLE));
                continue;
            }
            // If several requests run, the answer that was too large may be any of theirs.
            let reason = if end == LineEnd::TooLarge && running == 1 {
                Reason::UpstreamTooLarge
            } else {
                Reason::UpstreamReset
            };
            answer.send(LineEvent::Failed(Failure::new(reason, SideEffect::Unknown)));
        }
    }
}

/// One request under way. If it is dropped before its answer, the request is given up.
pub(in crate::upstream) struct LineTicket {
    line: Arc<SharedLine>,
    pub(in crate::upstream) id: u64,
    send_state: Arc<SendState>,
    said: mpsc::Receiver<LineEvent>,
    /// `true` if dropping it notifies the server, too.
    pub(in crate::upstream) cancel_on_drop: bool,
}

impl LineTicket {
    /// Sends the request, which bears the ticket's id. Waits while the server does not read.
    pub(in crate::upstream) async fn send(&self, text: String) {
        let message = Outbound {
            text,
            send_state: Some(Arc::clone(&self.send_state)),
            refused: None,
        };
        self.line.writer.say(message).await;
    }

    /// The next event of the request. Nothing follows an answer. Cancel safe.
    pub(in crate::upstream) async fn next(&mut self) -> LineEvent {
        let reset = LineEvent::Failed(Failure::new(Reason::UpstreamReset, SideEffect::Unknown));
        self.said.recv().await.unwrap_or(reset)
    }
}

impl Drop for LineTicket {
    fn drop(&mut self) {
        if self.line.withdraw(self.id) && self.cancel_on_drop {
            // A drop cannot wait: if the server does not read, it gets no cancel.
            self.line
                .writer
                .try_say(cancelled(&RequestId::number(self.id)));
        }
    }
}

fn token(params: &RawValue) -> Option<u64> {
    let params = Object::parse(params.get()).ok()?;
    number_of(params.get(PROGRESS_TOKEN)?.get())
}

fn subscription(params: &RawValue) -> Option<u64> {
    let meta = Object::parse(params.get()).ok()?.get_object("_meta")?;
    number_of(meta.get(SUBSCRIPTION_ID)?.get())
}
