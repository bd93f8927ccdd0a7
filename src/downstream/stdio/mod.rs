//! A client on our standard input and output, for those that only launch commands: the same server as
//! over HTTP, one message a line (2026-07-28 and 2025-11-25 transports, stdio).
//!
//! Each line in is what an HTTP client would post, each message that would come back is a line out.

use std::io;
use std::sync::{Arc, Once};
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::downstream::calls::registry::CallEntry;
use crate::downstream::dispatch::post;
use crate::downstream::inbound::request::Inbound;
use crate::downstream::inbound::session_key::SessionKey;
use crate::downstream::outbound::response::Rpc;
use crate::downstream::proxy::Front;
use crate::mcp::error::{Failure, Reason, RpcError, SideEffect};
use crate::mcp::version::Era;

mod answer;
mod client;
mod letter;
mod relay;
mod session;

use client::Client;
use letter::{Letter, parts};
use session::{Session, TELL};

/// Messages that wait for a client that does not read.
const LINES_MAX: usize = 64;

/// The one client of this process.
#[derive(Debug)]
pub struct Lines {
    ended: CancellationToken,
}

impl Lines {
    /// `ended` is cancelled when the client closes its side.
    pub fn new(ended: CancellationToken) -> Self {
        Self { ended }
    }

    /// Reads until `close` or the client's end; answers until `stop`, and then for at most `grace`.
    pub async fn serve(
        self,
        front: Arc<Front>,
        close: CancellationToken,
        stop: CancellationToken,
        grace: Duration,
    ) {
        let (out, lines) = mpsc::channel(LINES_MAX);
        let client = Arc::new(Client {
            front,
            out,
            key: SessionKey::unnamed(),
            session: Session::default(),
            sign_in: Once::new(),
            requests: TaskTracker::new(),
            gone: CancellationToken::new(),
        });
        let serving = async {
            let input = tokio::io::BufReader::new(tokio::io::stdin());
            if close
                .run_until_cancelled(client.read(input))
                .await
                .is_some()
            {
                client.gone.cancel();
                self.ended.cancel();
            }
            stop.cancelled().await;
            client.requests.close();
            let _ = tokio::time::timeout(grace, client.requests.wait()).await;
            client.gone.cancel();
            client.session.end(&client.front).await;
            // With the last of it the writer ends.
            drop(client);
        };
        tokio::join!(serving, write(lines));
    }
}

/// Writes lines as they come, until nobody has any.
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
    async fn read(self: &Arc<Self>, mut input: impl AsyncBufRead + Unpin) {
        let bytes_max = self.front.settings.body_bytes_max;
        loop {
            match next_line(&mut input, bytes_max).await {
                Ok(Line::Whole(line)) if line.trim_ascii().is_empty() => {}
                Ok(Line::Whole(line)) => self.take(line.into()).await,
                Ok(Line::TooLong) => {
                    let error = RpcError::invalid_request("Invalid request: the line is too long");
                    self.say(Rpc::error("null", &error).json).await;
                }
                Ok(Line::End) | Err(_) => return,
            }
        }
    }

    /// One message. A request is answered while others are read; all else is taken in order.
    async fn take(self: &Arc<Self>, text: Bytes) {
        let Some(letter) = Letter::read(&text) else {
            let error = RpcError::parse("Parse error: not a JSON-RPC message");
            self.say(Rpc::error("null", &error).json).await;
            return;
        };
        let Some(id) = letter.id.clone() else {
            let cancels = letter.cancels.clone();
            let told = tokio::time::timeout(TELL, Box::pin(self.tell(letter)));
            let _ = self.gone.run_until_cancelled(told).await;
            // To a modern server that is the cancel; many legacy ones never answer what was
            // cancelled.
            if let Some(id) = cancels {
                self.front.calls.cancel(self.key, &id);
            }
            return;
        };
        let entry = match self.register(&id) {
            Ok(entry) => entry,
            Err(error) => {
                self.say(Rpc::error(&id, &error).json).await;
                return;
            }
        };
        let this = Arc::clone(self);
        self.requests.spawn(async move {
            let asked = Box::pin(this.ask(&letter, &id, &entry));
            // Dropped, it is to the call as if its client had hung up.
            tokio::select! {
                () = asked => {}
                () = entry.cancelled() => {}
                () = this.gone.cancelled() => {}
            }
        });
    }

    /// A notification, or the answer to a question of the server.
    async fn tell(self: &Arc<Self>, letter: Letter) {
        if letter.era == Era::Modern {
            return;
        }
        let opens = letter.method.as_deref() == Some("notifications/initialized");
        let (response, _) = self.session.post(&self.front, &letter).await;
        if opens {
            self.session.keep_initialized(letter.text);
            let this = Arc::clone(self);
            let hearing = async move { this.hear().await };
            let closing = self.front.closing.clone();
            self.requests
                .spawn(closing.run_until_cancelled_owned(hearing));
        }
        // What is refused here has no id to be refused under.
        drop(response);
    }

    async fn ask(&self, letter: &Letter, id: &str, entry: &CallEntry) {
        let (heard, resumable) = match letter.era {
            Era::Modern => {
                let message = Inbound::read(&letter.text);
                let headers = letter.modern_headers(&self.front, &message).await;
                let parts = parts(Method::POST, headers);
                let response = post(&self.front, parts, &letter.text, message).await;
                let over = |_: &str| entry.leave();
                (self.relay(response, Some(id), over).await, None)
            }
            Era::Legacy => {
                let (response, named) = self.session.post(&self.front, letter).await;
                let is_handshake = letter.method.as_deref() == Some("initialize");
                // Before the client hears of it: it goes on at once.
                let agree = |answer: &str| {
                    entry.leave();
                    if is_handshake {
                        self.session.agreed(answer, letter, named.clone());
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
        let failure = Failure::new(Reason::UpstreamReset, SideEffect::Unknown);
        entry.leave();
        self.say(Rpc::failure(id, failure).json).await;
    }
}

enum Line {
    Whole(Vec<u8>),
    /// It was read to its end, and forgotten.
    TooLong,
    End,
}

async fn next_line(input: &mut (impl AsyncBufRead + Unpin), bytes_max: usize) -> io::Result<Line> {
    let mut line = Vec::new();
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX);
    let read = (&mut *input)
        .take(limit)
        .read_until(b'\n', &mut line)
        .await?;
    if read == 0 {
        return Ok(Line::End);
    }
    if line.ends_with(b"\n") || line.len() < bytes_max {
        return Ok(Line::Whole(line));
    }
    loop {
        line.clear();
        let read = (&mut *input)
            .take(limit)
            .read_until(b'\n', &mut line)
            .await?;
        if read == 0 || line.ends_with(b"\n") {
            return Ok(Line::TooLong);
        }
    }
}
