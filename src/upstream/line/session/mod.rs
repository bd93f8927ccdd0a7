//! One legacy client with a line of its own. Every message passes as it is, in both directions. The ids are the
//! client's, and the ids of raincheck's own requests are such that no client has (`RequestId::random`). So no
//! id is changed, unless the client uses one twice at the same time. The session only decides on which of the client's
//! streams a message of the server goes, or to which request of raincheck's.

use std::fmt;
use std::sync::{Arc, MutexGuard};

use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::base::lock::Mutex;
use crate::mcp::error::{Failure, Reason};
use crate::mcp::json::{Object, set};
use crate::mcp::meta::PROGRESS_TOKEN;
use crate::upstream::client_session::needed::Needed;
use crate::upstream::credentials::Credentials;
use crate::upstream::inflight::Inflight;
use crate::upstream::line::borrowed::BorrowedRequest;
use crate::upstream::line::borrowed::BorrowedResponder;
use crate::upstream::line::mailbox::{LineMailbox, Mail, ReaderId};
use crate::upstream::line::running;
use crate::upstream::line::running::RunningRequest;
pub use crate::upstream::line::running::SessionEvent;
use crate::upstream::line::writer::{LineWriter, Outbound, SendState};
use crate::upstream::port::Event;
use crate::upstream::reader_queue::{Full, OWN_PATIENCE, ReaderQueue};
use crate::upstream::request_id::RequestId;

mod routing;

/// Messages that wait for the reader of one stream.
const MESSAGES_MAX: usize = 64;

/// Requests of one client at the same time.
const REQUESTS_MAX: usize = 1024;

/// One legacy client's session.
pub struct LineSession {
    pub(in crate::upstream) caller: [u8; 16],
    /// Other messages went over the line before. Not every server accepts `initialize` after them.
    pub goes_on: bool,
    writer: LineWriter,
    table: Mutex<LineSessionState>,
    needed: Needed,
}

struct LineSessionState {
    is_open: bool,
    inflight: Inflight<RequestId, RunningRequest>,
    /// The messages that belong to no request.
    mailbox: LineMailbox,
    used: Instant,
    /// The client has asked something beside `initialize`.
    is_begun: bool,
    /// The wait for the reader whose queue the last message has filled.
    full: Option<Full>,
}

/// Why the session does not accept a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcceptError {
    /// The line has ended, and the session with it.
    Over,
    /// Too many requests are under way, or two came under one id in one moment.
    Busy,
}

/// A request of the client, read as far as it must be.
#[derive(Debug)]
pub struct ClientRequest<'a> {
    pub id: &'a RawValue,
    pub method: &'a str,
    pub params: Option<Object<'a>>,
    /// The whole message.
    pub text: &'a str,
    /// The client reads event streams; if not, only the answer goes to it here.
    pub streams: bool,
}

impl LineSession {
    pub(in crate::upstream) fn new(
        writer: LineWriter,
        caller: [u8; 16],
        goes_on: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            caller,
            goes_on,
            writer,
            table: Mutex::new(LineSessionState {
                is_open: true,
                inflight: Inflight::default(),
                mailbox: LineMailbox::default(),
                used: Instant::now(),
                is_begun: false,
                full: None,
            }),
            needed: Needed::default(),
        })
    }

    /// The client shows these credentials now, perhaps a renewed token.
    pub fn renew(&self, credentials: Option<&Credentials>) {
        self.writer.renew(credentials);
    }

    pub(in crate::upstream) fn needed(&self) -> &Needed {
        &self.needed
    }

    fn table(&self) -> MutexGuard<'_, LineSessionState> {
        self.table.lock()
    }

    pub(in crate::upstream) fn is_open(&self) -> bool {
        self.table().is_open
    }

    /// Since when the client has been silent. `None` while the client waits for anything.
    pub(in crate::upstream) fn unused_since(&self) -> Option<Instant> {
        let table = self.table();
        let waits = |running: &RunningRequest| running.reader.is_there();
        let is_used = table.inflight.requests().any(waits) || table.mailbox.is_read();
        (!is_used).then_some(table.used)
    }

    /// Since when the client has been silent. `None` also while a request runs: the client may come back for
    /// the answer.
    pub(in crate::upstream) fn idle_since(&self) -> Option<Instant> {
        let is_running = !self.table().inflight.is_empty();
        self.unused_since().filter(|_| !is_running)
    }

    /// The client has asked nothing beside `initialize` and loses nothing with the session, or it has closed the stream on
    /// which it listened, as clients do when they leave.
    pub(in crate::upstream) fn may_be_left(&self) -> bool {
        let table = self.table();
        !table.is_begun || table.mailbox.is_left()
    }

    /// Ends the session, which its client does not need any more. Requests of raincheck's that run there fail,
    /// and none is accepted afterwards.
    pub fn close(&self) {
        let mut table = self.table();
        table.is_open = false;
        let is_borrowed = |running: &RunningRequest| {
            matches!(running.reader, running::RequestReader::Borrowed(_))
        };
        // Calls of raincheck's end now and do not wait until the process is gone. The client's own end with the line.
        let borrowed = table.inflight.remove_where(is_borrowed);
        drop(table);
        self.writer.stop();
        for running in borrowed {
            running.end(Reason::UpstreamReset);
        }
    }

    /// Passes a request on. What the server says about it ends with the answer. If the receiver is dropped
    /// before, the call runs on, as legacy calls do.
    pub async fn ask(
        &self,
        asked: &ClientRequest<'_>,
    ) -> Result<mpsc::Receiver<SessionEvent>, AcceptError> {
        // Wait before the request counts as running: if the future is dropped here, nothing was sent.
        let room = self.writer.room().await.ok_or(AcceptError::Over)?;
        let (said, receiver) = mpsc::channel(MESSAGES_MAX + 1);
        // Reserved before anything is sent, so that the answer always has a place.
        let answer = said
            .clone()
            .try_reserve_owned()
            .map_err(|_| AcceptError::Over)?;
        let meta = asked
            .params
            .as_ref()
            .and_then(|params| params.get_object("_meta"));
        let token = meta.and_then(|meta| meta.get(PROGRESS_TOKEN));
        let (mut id, mut text) = (id_of(asked.id), asked.text.to_owned());
        // Some clients use one id for requests at the same time, each of which has a stream of its own.
        let is_used = self.table().inflight.get(&id).is_some();
        let renamed = is_used.then(RequestId::random);
        if let Some(renamed) = &renamed {
            text = set(&text, "id", renamed.as_json()).map_err(|_| AcceptError::Busy)?;
            id = renamed.clone();
        }
        let running = RunningRequest {
            reader: running::RequestReader::Client {
                id: asked.id.to_owned(),
                renamed,
                said: ReaderQueue::new(said, OWN_PATIENCE),
                answer,
            },
            send_state: Arc::default(),
            token: token.filter(|_| asked.streams).map(id_of),
            is_handshake: asked.method == "initialize",
        };
        let may_ask = asked.streams
            && matches!(
                asked.method,
                "tools/call" | "prompts/get" | "resources/read"
            );
        let send_state = self.run(id, may_ask, running)?;
        room.send(Outbound {
            text,
            send_state: Some(send_state),
            refused: None,
        });
        Ok(receiver)
    }

    /// Sends a request of raincheck's over the client's line. What the server says about it ends with the
    /// answer.
    pub(in crate::upstream) async fn carry(
        &self,
        request: BorrowedRequest,
    ) -> Result<mpsc::Receiver<Event>, AcceptError> {
        // The wait comes before the request counts as running: if the future is dropped here, nothing was sent.
        let room = self.writer.room().await.ok_or(AcceptError::Over)?;
        let (responder, receiver) = BorrowedResponder::new().ok_or(AcceptError::Over)?;
        let running = RunningRequest {
            reader: running::RequestReader::Borrowed(responder),
            send_state: Arc::default(),
            // The id is the progress token, too.
            token: Some(request.id.clone()),
            is_handshake: false,
        };
        let send_state = self.run(request.id, request.may_ask, running)?;
        room.send(Outbound {
            text: request.text,
            send_state: Some(send_state),
            refused: None,
        });
        Ok(receiver)
    }

    fn run(
        &self,
        id: RequestId,
        may_ask: bool,
        running: RunningRequest,
    ) -> Result<Arc<SendState>, AcceptError> {
        let mut table = self.table();
        table.used = Instant::now();
        if !table.is_open {
            return Err(AcceptError::Over);
        }
        if table.inflight.len() >= REQUESTS_MAX || table.inflight.get(&id).is_some() {
            return Err(AcceptError::Busy);
        }
        let send_state = Arc::clone(&running.send_state);
        // A session with nothing but `initialize` is the first to make room (`SILENT_LEFT`).
        table.is_begun |= !running.is_handshake;
        table.mailbox.is_asked();
        table.inflight.insert(id, may_ask, running);
        Ok(send_state)
    }

    /// Gives up a request of raincheck's. True if the server has to be told.
    pub(in crate::upstream) fn withdraw(&self, id: &RequestId) -> bool {
        let withdrawn = self.table().inflight.remove(id);
        withdrawn.is_some_and(|(running, _)| !running.send_state.withdraw())
    }

    /// See [`LineWriter::answer`].
    pub(in crate::upstream) async fn answer(&self, text: String) -> Result<(), Failure> {
        self.writer.answer(text).await
    }

    /// Passes on that the client has cancelled its request, of which no answer is passed. Many servers never answer a cancelled
    /// request, so it must not wait for one. Of several requests under that id, none is cancelled. False where the session is
    /// over.
    pub async fn cancel(&self, id: &RawValue, text: String) -> bool {
        let id = id_of(id);
        let is_of = |running: &RunningRequest| running.reader.is_of_client(&id);
        let cancelled = {
            let mut table = self.table();
            if table.inflight.requests().filter(|it| is_of(it)).count() > 1 {
                return true;
            }
            table.inflight.remove_where(is_of).pop()
        };
        let renamed = cancelled.as_ref().and_then(|it| it.reader.renamed());
        let renamed = renamed.and_then(|id| cancel_of(&text, id));
        let told = self.tell(renamed.unwrap_or(text)).await;
        if let Some(running) = cancelled {
            // If the request was not written yet, it never will be.
            running.send_state.withdraw();
        }
        told
    }

    /// Passes a notification or an answer on. False where the session is over.
    pub async fn tell(&self, text: String) -> bool {
        {
            let mut table = self.table();
            table.used = Instant::now();
            if !table.is_open {
                return false;
            }
        }
        let message = Outbound {
            text,
            send_state: None,
            refused: None,
        };
        self.writer.say(message).await;
        true
    }

    /// Reads the messages that belong to no request, until the session ends or another reader comes.
    pub fn read_mailbox(self: &Arc<Self>) -> MailboxReader {
        let reader = self.table().mailbox.read();
        MailboxReader {
            session: Arc::clone(self),
            reader,
        }
    }
}

impl fmt::Debug for LineSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LineSession")
    }
}

/// Reads the messages of a session that belong to no request. What is not read when the reader is dropped waits
/// for the next reader.
#[derive(Debug)]
pub struct MailboxReader {
    session: Arc<LineSession>,
    reader: ReaderId,
}

impl MailboxReader {
    /// The next message. `None` when the session has ended, or another reader has come. Cancel safe.
    pub async fn next(&mut self) -> Option<String> {
        loop {
            let found = self.session.table().mailbox.next(&self.reader);
            match found {
                Mail::Message(message) => return Some(message),
                Mail::End => return None,
                Mail::Nothing => self.reader.woken().await,
            }
        }
    }
}

impl Drop for MailboxReader {
    fn drop(&mut self) {
        let mut table = self.session.table();
        table.mailbox.leave(&self.reader);
        // The client was there until now, so its silence begins here.
        table.used = Instant::now();
    }
}

/// Returns the cancel for the id under which the server has the request.
fn cancel_of(text: &str, id: &RequestId) -> Option<String> {
    let message = Object::parse(text).ok()?;
    let params = set(message.get("params")?.get(), "requestId", id.as_json()).ok()?;
    set(text, "params", &params).ok()
}

fn id_of(raw: &RawValue) -> RequestId {
    RequestId::read(raw.get())
}
