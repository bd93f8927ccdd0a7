//! What a server is told over one line: a POST for each message, in order as far as anybody can
//! tell, and never one twice.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use http_body_util::Full;
use hyper::header::HeaderValue;
use hyper::{Response, Uri};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::debug;

use crate::mcp::error::SideEffect;
use crate::upstream::channel::mouth::{Ear, Outbound, Passage, Refusal};
use crate::upstream::heard::{self, Heard};
use crate::upstream::http::{RequestBody, ResponseBody};
use crate::upstream::origin::Origin;

/// Posts of one line that were not acknowledged yet; whoever has more to say waits.
const POSTS_MAX: usize = 64;

/// A message goes when the one before it was acknowledged. A server may acknowledge a request with
/// its answer only, and must hear of a cancel all the same: nobody waits longer.
const ORDER_PATIENCE: Duration = Duration::from_millis(250);

/// How long a server may take to acknowledge what has no answer, and a request after its answer.
const TELL: Duration = Duration::from_secs(30);

/// How often a server that says "later" is asked.
const TRIES: u32 = 3;

pub(super) struct Poster<E> {
    pub(super) origin: Arc<Origin>,
    /// Path and query.
    pub(super) endpoint: Uri,
    pub(super) credentials: Option<HeaderValue>,
    pub(super) ear: Arc<E>,
}

impl<E: Ear> Poster<E> {
    /// Until the line ends. Dropped, it closes the connections of what was not acknowledged.
    pub(super) async fn run(self, mut outbound: mpsc::Receiver<Outbound>) {
        let mut posts = FuturesUnordered::new();
        for number in 0_u64.. {
            let message = loop {
                tokio::select! {
                    message = outbound.recv(), if posts.len() < POSTS_MAX => break message,
                    Some(_) = posts.next() => {}
                }
            };
            let Some(message) = message else { return };
            if message.passage.as_ref().is_some_and(|it| !it.begin()) {
                continue;
            }
            posts.push(self.post(number, message));
            let acknowledged = async {
                while let Some(done) = posts.next().await {
                    if done == number {
                        return;
                    }
                }
            };
            let _ = timeout(ORDER_PATIENCE, acknowledged).await;
        }
    }

    async fn post(&self, number: u64, message: Outbound) -> u64 {
        let Outbound { text, passage } = message;
        let sending = self.send(text.into());
        let sent = match &passage {
            Some(passage) => tokio::select! {
                sent = sending => sent,
                () = settled_for_long(passage) => Ok(()),
            },
            None => timeout(TELL, sending).await.unwrap_or(Ok(())),
        };
        if let Err(refusal) = sent {
            debug!("the server did not take a message");
            self.ear.refused(passage.as_ref(), refusal);
        }
        number
    }

    async fn send(&self, text: Bytes) -> Result<(), Refusal> {
        let mut tries = 0;
        loop {
            tries += 1;
            let response = self.send_once(text.clone()).await?;
            if response.status().is_success() {
                self.origin.http.finish(response.into_body());
                return Ok(());
            }
            match heard::judge(response, self.origin.message_bytes_max).await {
                Heard::Later(pause) if tries < TRIES => tokio::time::sleep(pause).await,
                Heard::Later(_) => return Err(Refusal::Failed(heard::LATER)),
                Heard::Error(error) => return Err(Refusal::Error(error)),
                // In words that are not JSON-RPC a server says that it knows no such session.
                Heard::Refused { failure, .. } if failure.effect == SideEffect::None => {
                    return Err(Refusal::Lost(failure));
                }
                Heard::Refused { failure, .. } => return Err(Refusal::Failed(failure)),
                Heard::Messages(_) => return Ok(()),
            }
        }
    }

    async fn send_once(&self, text: Bytes) -> Result<Response<ResponseBody>, Refusal> {
        let credentials = self.credentials.as_ref();
        let request = self.origin.post(credentials).uri(self.endpoint.clone());
        let body = RequestBody::Ready(Full::new(text));
        let sent = self.origin.send(request, body).await;
        sent.map_err(|failure| match failure.effect {
            SideEffect::None => Refusal::Lost(failure),
            SideEffect::Unknown => Refusal::Failed(failure),
        })
    }
}

/// Nobody waits for the answer any more, and has not for a while.
async fn settled_for_long(passage: &Passage) {
    passage.settled().await;
    tokio::time::sleep(TELL).await;
}
