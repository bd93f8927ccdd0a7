//! STDIO: a client on standard input and output, for clients that only launch commands. The client gets the same
//! server as over HTTP, with one message on each line (2026-07-28 and 2025-11-25 transports, stdio).
//!
//! A line of input is handled like a POST, and each message of the response becomes a line of output. The end of the input
//! means that no further request comes: what was read is answered.

use std::io;
use std::sync::{Arc, Once};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::downstream::calls::registry::CallEntry;
use crate::downstream::dispatch::{RequestClient, post};
use crate::downstream::inbound::request::Inbound;
use crate::downstream::inbound::session_key::SessionKey;
use crate::downstream::outbound::response::Rpc;
use crate::downstream::proxy::Proxy;
use crate::mcp::envelope;
use crate::mcp::error::{Failure, Reason, RpcError, SideEffect};
use crate::mcp::version::Era;
use crate::platform::pipe::output_has_no_reader;
use crate::runner::client_note::ClientNote;

mod answer;
mod client;
mod message;
mod questions;
mod relay;
mod session;
mod unread;

use client::Client;
use message::StdioMessage;
use questions::ServerRequests;
use session::{StdioSession, TELL};

/// Messages that wait for a client that does not read.
const LINES_MAX: usize = 64;

/// Lines that are read ahead while the server answers `initialize`.
const AHEAD_MAX: usize = 16;

/// The one client of this process.
#[derive(Debug)]
pub struct Lines {
    ended: CancellationToken,
    patience: Duration,
}

impl Lines {
    /// `ended` is cancelled when the input has ended and what was read is answered, after `patience` at the latest.
    pub fn new(ended: CancellationToken, patience: Duration) -> Self {
        Self { ended, patience }
    }

    /// Reads until `close` or the end of the input; answers until `stop`, and then for at most `grace`.
    pub async fn serve(
        self,
        proxy: Arc<Proxy>,
        close: CancellationToken,
        stop: CancellationToken,
        grace: Duration,
    ) {
        let (out, lines) = mpsc::channel(LINES_MAX);
        let key = SessionKey::unnamed();
        let client = Arc::new(Client {
            proxy,
            out,
            key,
            session: StdioSession::new(key),
            sign_in: Once::new(),
            requests: TaskTracker::new(),
            streams: TaskTracker::new(),
            questions: ServerRequests::default(),
            telling: tokio::sync::Mutex::default(),
            gone: CancellationToken::new(),
        });
        let gone = client.gone.clone();
        let input_ended = CancellationToken::new();
        let watching = async {
            input_ended.cancelled().await;
            // A client that has died reads no answer. One that lives may still read.
            output_has_no_reader().await;
            gone.cancel();
            // Never done: the select below would drop `serving`, which still has to end the session.
            std::future::pending::<()>().await;
        };
        let serving = async {
            let answered = close.run_until_cancelled(client.take_all(&input_ended, self.patience));
            if answered.await.is_some() {
                self.ended.cancel();
            }
            stop.cancelled().await;
            client.requests.close();
            client.streams.close();
            let last = async { tokio::join!(client.requests.wait(), client.streams.wait()) };
            let _ = tokio::time::timeout(grace, last).await;
            // Drops the requests that took longer than the grace period, so that the writer can end.
            client.gone.cancel();
            client.session.end(&client.proxy).await;
            // The writer ends when the last sender is dropped.
            drop(client);
        };
        let served = async {
            tokio::select! {
                () = serving => {}
                () = watching => {}
            }
        };
        tokio::join!(served, write(lines));
    }
}

/// Writes lines as they come, until every sender is dropped.
async fn write(mut lines: mpsc::Receiver<String>) {
    let mut output = tokio::io::stdout();
    while let Some(line) = lines.recv().await {
        let written = async {
            output.write_all(line.as_bytes()).await?;
            output.flush().await
        };
        if written.await.is_err() {
            // The client reads no more: its end of the input follows.
            return;
        }
    }
}

impl Client {
    /// Takes every message of the input, and waits for the answers, at most `patience` from its end on. A longer call ends as
    /// in every drain.
    async fn take_all(self: &Arc<Self>, input_ended: &CancellationToken, patience: Duration) {
        let (ahead, mut lines) = mpsc::channel(AHEAD_MAX);
        let reading = async {
            let input = tokio::io::BufReader::new(tokio::io::stdin());
            self.read(input, ahead).await;
            input_ended.cancel();
        };
        let answering = async {
            while let Some(line) = lines.recv().await {
                self.take(line).await;
            }
            // Behind the last line, because it may answer one of these questions.
            for text in self.questions.end() {
                self.refuse_question(text);
            }
            self.requests.close();
            self.requests.wait().await;
        };
        let in_time = async {
            input_ended.cancelled().await;
            tokio::time::sleep(patience).await;
        };
        tokio::select! {
            _ = async { tokio::join!(reading, answering) } => {}
            () = in_time => {}
        }
    }

    /// Reads the lines of the input to its end.
    async fn read(&self, mut input: impl AsyncBufRead + Unpin, ahead: mpsc::Sender<Bytes>) {
        let bytes_max = &self.proxy.live;
        loop {
            match next_line(&mut input, bytes_max.body_bytes_max()).await {
                Ok(StdioFrame::Whole(line)) if line.trim_ascii().is_empty() => {}
                Ok(StdioFrame::Whole(line)) => {
                    let _ = ahead.send(line.into()).await;
                }
                Ok(StdioFrame::TooLong(id)) => {
                    let error = RpcError::invalid_request("Invalid request: the line is too long");
                    let id = id.as_deref().unwrap_or("null");
                    self.say(Rpc::error(id, &error).json).await;
                }
                Ok(StdioFrame::End) | Err(_) => return,
            }
        }
    }

    /// Takes one message. Requests are answered while others are read; all other messages are handled in order.
    async fn take(self: &Arc<Self>, text: Bytes) {
        let Some(sent) = StdioMessage::read(&text) else {
            let error = RpcError::parse("Parse error: not a JSON-RPC message");
            let message = Inbound::read(&text);
            let id = message.request_id().map(|id| id.get().into());
            let id = id.or_else(|| unread::id_of(&text, &text));
            let id = id.as_deref().unwrap_or("null");
            self.say(Rpc::error(id, &error).json).await;
            return;
        };
        let Some(id) = sent.id.clone() else {
            if let Some(answered) = &sent.answers {
                self.questions.answered(answered);
            }
            // Dropping the request cancels it at a modern server. Many legacy servers never answer a cancelled
            // request.
            let telling = self.telling.lock().await;
            if let Some((id, how)) = &sent.cancels {
                self.proxy.calls.cancel(self.key, id, *how);
            }
            let told = tokio::time::timeout(TELL, Box::pin(self.tell(sent)));
            let _ = self.gone.run_until_cancelled(told).await;
            drop(telling);
            return;
        };
        // A ping may come before the session that it would need to reach the server.
        let is_ping = sent.era == Era::Legacy && sent.method.as_deref() == Some("ping");
        if is_ping && !self.session.has_agreed() {
            self.say(envelope::result(&id, "{}")).await;
            return;
        }
        // Before the next line is taken, so that a cancel in that line finds this request.
        let entry = match self.register(&id) {
            Ok(entry) => entry,
            Err(error) => {
                self.say(Rpc::error(&id, &error).json).await;
                return;
            }
        };
        let this = Arc::clone(self);
        let agreed = sent.is_handshake().then(CancellationToken::new);
        let agreeing = agreed.clone();
        self.requests.spawn(async move {
            // A guard, so that a handshake that fails or is dropped never blocks the lines behind it.
            let _agreed = agreeing.clone().map(CancellationToken::drop_guard);
            let note = ClientNote::default();
            let asking = this.ask((&sent, &note), &id, &entry, agreeing.as_ref());
            let mut asked = Box::pin(asking);
            // Dropping the request is to the call as if its client had hung up.
            tokio::select! {
                // A cancel also ends what the call waits for, and the client must not get an error for that.
                biased;
                how = entry.cancelled() => {
                    note.leaves(how);
                    // The server is told of the cancel first. Nothing more is said under the id meanwhile.
                    drop(this.telling.lock().await);
                }
                () = &mut asked => {}
                () = this.gone.cancelled() => {}
            }
        });
        // What a client sends without waiting for the answer belongs to the session that this opens.
        if let Some(agreed) = agreed {
            agreed.cancelled().await;
        }
    }

    /// Gives the server the answer to a request that the client can answer no more.
    pub(super) fn refuse_question(self: &Arc<Self>, text: String) {
        let this = Arc::clone(self);
        self.requests.spawn(async move {
            if let Some(refusal) = StdioMessage::read(&Bytes::from(text)) {
                let told = this.session.post(&this.proxy, &refusal);
                let told = tokio::time::timeout(TELL, Box::pin(told));
                let _ = this.gone.run_until_cancelled(told).await;
            }
        });
    }

    /// Takes a notification, or the answer to a question of the server.
    async fn tell(self: &Arc<Self>, sent: StdioMessage) {
        if sent.era == Era::Modern {
            return;
        }
        let opens = sent.method.as_deref() == Some("notifications/initialized");
        let (response, _) = self.session.post(&self.proxy, &sent).await;
        if opens {
            // A session that is opened again needs this message, too.
            self.session.keep_initialized(sent.text);
            let this = Arc::clone(self);
            let hearing = async move { this.hear().await };
            let closing = self.proxy.closing.clone();
            self.streams
                .spawn(closing.run_until_cancelled_owned(Box::pin(hearing)));
        }
        // A refusal is dropped: there is no id to answer under.
        drop(response);
    }

    async fn ask(
        self: &Arc<Self>,
        (sent, note): (&StdioMessage, &ClientNote),
        id: &str,
        entry: &CallEntry,
        agreed: Option<&CancellationToken>,
    ) {
        let (heard, resumable) = match sent.era {
            Era::Modern => {
                let message = Inbound::read(&sent.text);
                let headers = sent.modern_headers(&self.proxy, &message).await;
                let mut parts = self.session.parts(headers);
                parts.extensions.insert(note.clone());
                let posted = post(
                    &self.proxy,
                    parts,
                    RequestClient::default(),
                    &sent.text,
                    message,
                )
                .await;
                let response = session::answered(posted);
                // Before the answer is written, because the client may use the id again at once.
                let over = |_: &str| entry.leave();
                (self.relay(response, Some(id), over).await, None)
            }
            Era::Legacy => {
                let (response, named) = self.session.post(&self.proxy, sent).await;
                // Noted before the client gets the answer, because the client goes on at once.
                let agree = |answer: &str| {
                    entry.leave();
                    if let Some(agreed) = agreed {
                        self.session.agreed(answer, sent, named.clone());
                        agreed.cancel();
                    }
                };
                let heard = self.relay(response, Some(id), agree).await;
                let event = heard.last_event_id.clone();
                (heard, event)
            }
        };
        if heard.answer.is_some() {
            return;
        }
        if let Some(event) = resumable
            && self.resume(id, event, heard.retry).await
        {
            return;
        }
        // Without an answer under its id, the client would wait for ever.
        let failure = Failure::new(Reason::UpstreamReset, SideEffect::Unknown);
        entry.leave();
        self.say(Rpc::failure(id, failure).json).await;
    }
}

enum StdioFrame {
    Whole(Vec<u8>),
    /// The line was read to its end and dropped. The id of the request, if it is one.
    TooLong(Option<Box<str>>),
    End,
}

async fn next_line(
    input: &mut (impl AsyncBufRead + Unpin),
    bytes_max: usize,
) -> io::Result<StdioFrame> {
    let mut line = Vec::new();
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX);
    let read = (&mut *input)
        .take(limit)
        .read_until(b'\n', &mut line)
        .await?;
    if read == 0 {
        return Ok(StdioFrame::End);
    }
    // The last line of the input may come without a line end.
    if line.ends_with(b"\n") || line.len() < bytes_max {
        return Ok(StdioFrame::Whole(line));
    }
    let begin = line.get(..unread::LOOKED_AT).unwrap_or(&line).to_vec();
    loop {
        // Dropped piece by piece, so that a line without an end takes no more memory than two whole ones.
        line.drain(..line.len().saturating_sub(unread::LOOKED_AT));
        let read = (&mut *input)
            .take(limit)
            .read_until(b'\n', &mut line)
            .await?;
        if read == 0 || line.ends_with(b"\n") {
            return Ok(StdioFrame::TooLong(unread::id_of(&begin, &line)));
        }
    }
}
