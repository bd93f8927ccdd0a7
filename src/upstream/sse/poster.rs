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
use crate::upstream::failures::{LATER, Postponed};
use crate::upstream::http::cookies::{Cookies, FirstOfName};
use crate::upstream::http::origin::Origin;
use crate::upstream::http::refusal::SessionRefusal;
use crate::upstream::http::{RequestBody, ResponseBody};
use crate::upstream::http_response;
use crate::upstream::http_response::ResponseKind;
use crate::upstream::line::writer::{LineListener, Outbound, SendState, WriteError};
use crate::upstream::request_id::RequestId;
use crate::upstream::translate;

/// The maximum number of POSTs of one line that may wait for their acknowledgement. A writer with one more waits,
/// too.
const POSTS_MAX: usize = 64;

/// The time that a message waits for the acknowledgement of the one before. A server may acknowledge a request
/// only with its answer, and must receive a cancel meanwhile.
const ORDER_PATIENCE: Duration = Duration::from_millis(250);

/// The time that a server may take to acknowledge a message that has no answer, and a request after its answer.
const TELL: Duration = Duration::from_secs(30);

/// The time that a server may take to acknowledge a ping.
const PING_PATIENCE: Duration = Duration::from_secs(10);

/// The number of times that a message is sent to a server that answers "later".
const TRIES: u32 = 3;

pub(super) struct Poster<E> {
    pub(super) origin: Arc<Origin>,
    /// Path and query.
    pub(super) endpoint: Uri,
    pub(super) credentials: LatestCredentials,
    /// The cookies that the server set on the line.
    pub(super) cookies: Cookies,
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
            // Its caller may have withdrawn the message while it waited in the queue.
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
            // After this time the next message goes out beside this one, and the server may get them in any order.
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
            // A server that does not acknowledge in time counts as one that took the message.
            None => timeout(TELL, self.send(text)).await.unwrap_or(Ok(())),
        };
        if let Err(refusal) = sent {
            debug!("the server did not take a message");
            if let Some(refused) = refused {
                let _ = refused.send(failure_of(&refusal));
            }
            let is_lost = matches!(refusal, WriteError::Lost(_));
            self.listener.refused(send_state.as_ref(), refusal);
            // A line on which a message failed takes another one only if the server still takes a ping there.
            if !is_lost && self.ping().await.is_err() {
                self.listener.refused(None, WriteError::Lost(LATER));
            }
        }
        number
    }

    /// Posts a request. When its caller stops waiting, it is not sent again, because its cancel went out.
    async fn send_awaited(&self, text: Bytes, send_state: &SendState) -> Result<(), WriteError> {
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
                Posted::Later(later) if last == 0 || later.is_long => {
                    return Err(WriteError::Failed(later.failure));
                }
                Posted::Later(later) => later.pause,
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = &mut settled => return Ok(()),
            }
        }
        Err(WriteError::Failed(LATER))
    }

    /// Posts a message that has no answer.
    async fn send(&self, text: Bytes) -> Result<(), WriteError> {
        let mut last = LATER;
        for _ in 0..TRIES {
            match self.try_send(text.clone()).await? {
                Posted::Yes => return Ok(()),
                Posted::Later(later) if later.is_long => {
                    return Err(WriteError::Failed(later.failure));
                }
                Posted::Later(later) => {
                    last = later.failure;
                    tokio::time::sleep(later.pause).await;
                }
            }
        }
        Err(WriteError::Failed(last))
    }

    async fn try_send(&self, text: Bytes) -> Result<Posted, WriteError> {
        let response = self.send_once(text).await?;
        if response.status().is_success() {
            self.origin.http.finish(response.into_body());
            return Ok(Posted::Yes);
        }
        let (kind, of_session) =
            http_response::classify_on_session(response, self.origin.message_bytes_max).await;
        let (failure, said) = match kind {
            ResponseKind::Later(later) => return Ok(Posted::Later(later)),
            ResponseKind::Messages(_) => return Ok(Posted::Yes),
            ResponseKind::Error(error) => (
                Failure::new(Reason::UpstreamHttp, SideEffect::None),
                WriteError::Error(error),
            ),
            ResponseKind::Refused { failure, .. } => (failure.clone(), WriteError::Failed(failure)),
        };
        match of_session {
            Some(refusal) if self.is_lost(&refusal).await => {
                Err(WriteError::Lost(failure.with_effect(SideEffect::None)))
            }
            Some(_) | None => Err(said),
        }
    }

    /// Returns `true` if a message that was refused in this way did nothing, because the server does not recognize
    /// the line. Words that prove nothing by themselves come from the transport if a ping is refused in the same
    /// words.
    async fn is_lost(&self, refusal: &SessionRefusal) -> bool {
        refusal.is_certain(true)
            || matches!(self.ping().await, Err(Some(again)) if again == *refusal)
    }

    /// Posts a ping, which runs nothing. `Err`: the server did not take it. The value is the server's refusal, if
    /// that may be about the line.
    async fn ping(&self) -> Result<(), Option<SessionRefusal>> {
        // The answer comes on the stream, where its id must be that of no caller's request.
        let text = translate::request(&RequestId::random(), "ping", "{}");
        let pinging = async {
            let response = self.send_once(text.into()).await.map_err(|_| None)?;
            if response.status().is_success() {
                self.origin.http.finish(response.into_body());
                return Ok(());
            }
            let bytes_max = self.origin.message_bytes_max;
            Err(http_response::classify_on_session(response, bytes_max)
                .await
                .1)
        };
        timeout(PING_PATIENCE, pinging).await.unwrap_or(Err(None))
    }

    async fn send_once(&self, text: Bytes) -> Result<Response<ResponseBody>, WriteError> {
        let credentials = self.credentials.get();
        let mut request = self
            .origin
            .post(credentials.as_ref())
            .uri(self.endpoint.clone());
        let url = || self.origin.url_of(&self.endpoint);
        if let Some(headers) = request.headers_mut() {
            self.cookies.put(headers, FirstOfName::Sessions, url);
        }
        let body = RequestBody::Ready(text);
        let sent = self.origin.send(request, body).await;
        let sent = sent.inspect(|response| self.cookies.take_in(response.headers(), url));
        sent.map_err(|failure| match failure.effect {
            SideEffect::None => WriteError::Lost(failure),
            SideEffect::Unknown => WriteError::Failed(failure),
        })
    }
}

/// Returns the failure that a refused answer means for the call that asked.
fn failure_of(refusal: &WriteError) -> Failure {
    match refusal {
        WriteError::Failed(failure) | WriteError::Lost(failure) => {
            failure.clone().with_effect(SideEffect::Unknown)
        }
        WriteError::Error(_) => Failure::new(Reason::UpstreamHttp, SideEffect::Unknown),
    }
}

/// The server's response to a message that it does not refuse.
enum Posted {
    Yes,
    /// The server wants the message again after this pause.
    Later(Postponed),
}
