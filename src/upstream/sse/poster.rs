//! Posts the messages of one line: in order, as far as acknowledgements show it, and none twice.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use hyper::{Response, Uri};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::debug;

use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::upstream::credentials::LatestCredentials;
use crate::upstream::failures::LATER;
use crate::upstream::http::origin::Origin;
use crate::upstream::http::{RequestBody, ResponseBody};
use crate::upstream::http_response;
use crate::upstream::http_response::ResponseKind;
use crate::upstream::line::writer::{LineListener, NotTaken, Outbound, SendState};

/// How many POSTs of one line may wait for their acknowledgement. A writer with one more waits, too.
const POSTS_MAX: usize = 64;

/// How long a message waits for the acknowledgement of the one before. A server may acknowledge a request only
/// with its answer, and must hear of a cancel meanwhile.
const ORDER_PATIENCE: Duration = Duration::from_millis(250);

/// How long a server may take to acknowledge a message that has no answer, and a request after its answer.
const TELL: Duration = Duration::from_secs(30);

/// How often a server that says "later" is asked.
const TRIES: u32 = 3;

pub(super) struct Poster<E> {
    pub(super) origin: Arc<Origin>,
    /// Path and query.
    pub(super) endpoint: Uri,
    pub(super) credentials: LatestCredentials,
    pub(super) listener: Arc<E>,
}

impl<E: LineListener> Poster<E> {
    /// Posts messages until the line ends. When the future is dropped, the connections of POSTs that were not
    /// acknowledged are closed.
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
            if message.send_state.as_ref().is_some_and(|it| !it.begin()) {
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
        let Outbound {
            text,
            send_state,
            refused,
        } = message;
        let text = Bytes::from(text);
        let sent = match &send_state {
            Some(send_state) => self.send_awaited(text, send_state).await,
            None => timeout(TELL, self.send(text)).await.unwrap_or(Ok(())),
        };
        if let Err(refusal) = sent {
            debug!("the server did not take a message");
            if let Some(refused) = refused {
                let _ = refused.send(failure_of(&refusal));
            }
            self.listener.refused(send_state.as_ref(), refusal);
        }
        number
    }

    /// Posts a request. When its caller stops waiting, it is not sent again, because its cancel went out.
    async fn send_awaited(&self, text: Bytes, send_state: &SendState) -> Result<(), NotTaken> {
        let settled = send_state.settled();
        tokio::pin!(settled);
        for last in (0..TRIES).rev() {
            let sending = self.try_send(text.clone());
            tokio::pin!(sending);
            let tried = tokio::select! {
                tried = &mut sending => tried,
                () = &mut settled => {
                    // A server may acknowledge a request only with its answer.
                    let _ = timeout(TELL, sending).await;
                    return Ok(());
                }
            };
            let pause = match tried? {
                Posted::Yes => return Ok(()),
                Posted::Later(_) if last == 0 => break,
                Posted::Later(pause) => pause,
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = &mut settled => return Ok(()),
            }
        }
        Err(NotTaken::Failed(LATER))
    }

    /// Posts a message that has no answer.
    async fn send(&self, text: Bytes) -> Result<(), NotTaken> {
        for _ in 0..TRIES {
            match self.try_send(text.clone()).await? {
                Posted::Yes => return Ok(()),
                Posted::Later(pause) => tokio::time::sleep(pause).await,
            }
        }
        Err(NotTaken::Failed(LATER))
    }

    async fn try_send(&self, text: Bytes) -> Result<Posted, NotTaken> {
        let response = self.send_once(text).await?;
        if response.status().is_success() {
            self.origin.http.finish(response.into_body());
            return Ok(Posted::Yes);
        }
        match http_response::classify_response(response, self.origin.message_bytes_max).await {
            ResponseKind::Later(pause) => Ok(Posted::Later(pause)),
            ResponseKind::Error(error) => Err(NotTaken::Error(error)),
            // A server says without JSON-RPC that it knows no such session.
            ResponseKind::Refused {
                failure,
                is_session_lost: true,
                ..
            } => Err(NotTaken::Lost(failure)),
            ResponseKind::Refused { failure, .. } => Err(NotTaken::Failed(failure)),
            ResponseKind::Messages(_) => Ok(Posted::Yes),
        }
    }

    async fn send_once(&self, text: Bytes) -> Result<Response<ResponseBody>, NotTaken> {
        let credentials = self.credentials.get();
        let request = self
            .origin
            .post(credentials.as_ref())
            .uri(self.endpoint.clone());
        let body = RequestBody::Ready(text);
        let sent = self.origin.send(request, body).await;
        sent.map_err(|failure| match failure.effect {
            SideEffect::None => NotTaken::Lost(failure),
            SideEffect::Unknown => NotTaken::Failed(failure),
        })
    }
}

/// What a refused answer means for the call that asked.
fn failure_of(refusal: &NotTaken) -> Failure {
    match refusal {
        NotTaken::Failed(failure) | NotTaken::Lost(failure) => {
            failure.clone().with_effect(SideEffect::Unknown)
        }
        NotTaken::Error(_) => Failure::new(Reason::UpstreamHttp, SideEffect::Unknown),
    }
}

/// What a server does with a message that it does not refuse.
enum Posted {
    Yes,
    /// The server wants the message again after this pause.
    Later(Duration),
}
