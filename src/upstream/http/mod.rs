//! HTTP to the wrapped server, over connection pools of raincheck's own. A pool is a stack: taking and
//! giving back cost the same however many calls are open. A request that provably was not sent goes out again
//! on a fresh connection, and a request that may have been sent never does. Dropping a response body closes its
//! connection, which is the cancel signal.

pub(super) mod connect;
pub(super) mod hop_headers;
pub(super) mod origin;
pub(super) mod refusal;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{
    AUTHORIZATION, CONTENT_LENGTH, EXPECT, HeaderMap, HeaderValue, TRANSFER_ENCODING,
};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::connection_threads::PerThread;
use crate::failpoint::{Point, hit};
use crate::io_reason::io_reason;
use crate::lock::Mutex;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::tls::client::is_refused_identity;
use crate::upstream::failures::{INVALID, RESET, UNREACHABLE};
use crate::upstream::http::connect::Connector;
use crate::upstream::http::hop_headers::ViaMark;
use crate::upstream::obstacle::{Obstacle, Obstacles};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Common servers close an idle connection after 5 s, so raincheck gives it up before.
const IDLE: Duration = Duration::from_secs(4);

/// How many idle connections each thread keeps. Others are closed after use.
const IDLE_MAX: usize = 256;

/// How often a connection is tried while nothing was sent, and the pause after the first failure.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(200);

/// No attempt begins later than this after the first.
const TRYING: Duration = Duration::from_secs(5);

/// How long raincheck waits for the end of a stream after its answer.
const LINGER: Duration = Duration::from_millis(200);

/// A response head larger than this is refused.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// The body of a request to the wrapped server.
#[derive(Debug)]
pub enum RequestBody {
    Ready(Full<Bytes>),
    /// A call of a tool.
    Call(Full<Bytes>),
}

impl RequestBody {
    pub fn empty() -> Self {
        Self::Ready(Full::default())
    }

    pub fn json(text: String) -> Self {
        Self::Ready(Full::from(text))
    }

    pub(super) fn call(text: String) -> Self {
        Self::Call(Full::from(text))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Self::Ready(body) => Pin::new(body)
                .poll_frame(context)
                .map_err(|never| match never {}),
            Self::Call(body) => {
                hit(Point::SentAfter);
                Pin::new(body)
                    .poll_frame(context)
                    .map_err(|never| match never {})
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Ready(body) | Self::Call(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Ready(body) | Self::Call(body) => body.size_hint(),
        }
    }
}

/// The wrapped server's HTTP side.
#[derive(Debug)]
pub struct Http {
    connector: Connector,
    /// The configured headers, set in every request.
    headers: HeaderMap,
    /// Names this process in every request, and no other process.
    mark: ViaMark,
    pools: PerThread<ConnectionPool>,
    drivers: TaskTracker,
    /// For the operator.
    pub(super) obstacles: Obstacles,
}

impl Http {
    pub(super) fn new(connector: Connector, headers: HeaderMap, drivers: TaskTracker) -> Self {
        Self {
            connector,
            headers,
            mark: ViaMark::random(),
            pools: PerThread::default(),
            drivers,
            obstacles: Obstacles::default(),
        }
    }

    /// Whether the server is on loopback or a socket.
    pub(super) fn is_local(&self) -> bool {
        self.connector.is_local()
    }

    /// Whether this process sent the request that it received.
    pub(super) fn has_sent(&self, headers: &HeaderMap) -> bool {
        self.mark.is_in(headers)
    }

    /// Whether a client's credentials go to the server unless the operator says otherwise: the server is local, and no
    /// configured header replaces them.
    pub(super) fn takes_credentials(&self) -> bool {
        self.connector.is_local() && !self.headers.contains_key(AUTHORIZATION)
    }

    /// Sends one request. If the future is dropped, the connection is closed, so that the server sees that the
    /// caller no longer waits.
    ///
    /// The request is boxed because each future on its way would keep room for a copy of it.
    pub async fn send(
        &self,
        mut request: Box<Request<RequestBody>>,
    ) -> Result<Response<ResponseBody>, Failure> {
        for (name, value) in &self.headers {
            request.headers_mut().insert(name, value.clone());
        }
        frame(&mut request);
        self.mark.put(request.headers_mut());
        while let Some(connection) = self.idle().await {
            match self.send_over(connection, request).await {
                Ok(response) => return Ok(response),
                // The server closed the connection before it took anything.
                Err(NotSent::Request(back)) => request = back,
                Err(NotSent::Failed(failure)) => return Err(failure),
                // The handshake of this connection is long over, so the failure proves nothing.
                Err(NotSent::Refused) => return Err(RESET),
            }
        }
        Box::pin(self.send_anew(request)).await
    }

    /// Sends a request over a new connection.
    async fn send_anew(
        &self,
        mut request: Box<Request<RequestBody>>,
    ) -> Result<Response<ResponseBody>, Failure> {
        let mut pause = PAUSE;
        let given_up = Instant::now() + TRYING;
        for last in (0..TRIES).rev() {
            // Boxed, so that a call that waits for its answer has no room for it.
            if let Ok(connection) = Box::pin(self.connect()).await {
                let copy = self.copy(&request);
                match self.send_over(connection, request).await {
                    Ok(response) => return Ok(response),
                    Err(NotSent::Request(back)) => request = back,
                    Err(NotSent::Failed(failure)) => return Err(failure),
                    Err(NotSent::Refused) => {
                        tracing::warn!("the upstream did not accept the client certificate");
                        let refused = Obstacle::NoConnection(REFUSED.into());
                        self.obstacles.note_connection(Some(refused));
                        self.connector.read_anew().await;
                        request = copy.ok_or(UNREACHABLE)?;
                    }
                }
            }
            let next = Instant::now() + pause;
            if last == 0 || next >= given_up {
                break;
            }
            tokio::time::sleep_until(next).await;
            pause *= 4;
        }
        Err(UNREACHABLE)
    }

    /// Handles a refused client certificate. With TLS 1.3 a server refuses it after the request was written.
    /// Then the request is sent again, if it can be repeated.
    fn copy(&self, request: &Request<RequestBody>) -> Option<Box<Request<RequestBody>>> {
        let body = match request.body() {
            _ if !self.connector.speaks_tls() => return None,
            RequestBody::Ready(body) => RequestBody::Ready(body.clone()),
            RequestBody::Call(body) => RequestBody::Call(body.clone()),
        };
        let mut copy = Request::new(body);
        copy.method_mut().clone_from(request.method());
        copy.uri_mut().clone_from(request.uri());
        copy.headers_mut().clone_from(request.headers());
        Some(Box::new(copy))
    }

    /// Reads the rest of a body whose answer is known, so that its connection can be used again. A body that
    /// does not end soon is closed.
    pub(super) fn finish(&self, mut body: ResponseBody) {
        if body.is_end_stream() {
            return;
        }
        self.drivers.spawn(async move {
            let rest = async { while let Some(Ok(_)) = body.frame().await {} };
            let _ = tokio::time::timeout(LINGER, rest).await;
        });
    }

    async fn send_over(
        &self,
        PooledConnection { mut sender, pool }: PooledConnection,
        request: Box<Request<RequestBody>>,
    ) -> Result<Response<ResponseBody>, NotSent> {
        let method = request.method().clone();
        match sender.try_send_request(unboxed(request)).await {
            Ok(response) if is_ambiguous(response.headers()) => Err(NotSent::Failed(INVALID)),
            Ok(response) => {
                if !response.status().is_success() {
                    self.obstacles
                        .note_status(&method, response.status(), response.headers());
                }
                let home = Some(PooledConnection { sender, pool });
                Ok(response.map(|incoming| ResponseBody { incoming, home }))
            }
            Err(mut error) => match error.take_message() {
                Some(request) => Err(NotSent::Request(Box::new(request))),
                None if is_refused_identity(error.error()) => Err(NotSent::Refused),
                None => Err(NotSent::Failed(broken(error.error()))),
            },
        }
    }

    /// An idle connection. One of this thread comes first. A connection of another thread is taken before a new one is
    /// made, because some servers serve one connection at a time.
    async fn idle(&self) -> Option<PooledConnection> {
        let here = self.pools.here();
        if let Some(sender) = here.take().await {
            let pool = Arc::clone(here);
            return Some(PooledConnection { sender, pool });
        }
        for pool in self.pools.all() {
            if let Some(sender) = pool.take().await {
                let pool = Arc::clone(pool);
                return Some(PooledConnection { sender, pool });
            }
        }
        None
    }

    async fn connect(&self) -> Result<PooledConnection, BoxError> {
        // This runs as a job, because the caller may give up before the connection is there.
        let connecting = self.connector.connecting();
        self.obstacles.note_connection(Some(connecting));
        let connected = self.connector.connect().await;
        let error = connected.as_ref().err();
        let obstacle = error.map(|error| self.connector.obstacle(error));
        self.obstacles.note_connection(obstacle);
        let stream = connected?;
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(HEAD_BYTES_MAX)
            .handshake(TokioIo::new(stream))
            .await?;
        // An async block would have room for what it took and again for what it awaits.
        self.drivers.spawn(connection.map(|ended| {
            if let Err(error) = ended {
                tracing::debug!(error = %io_reason(&error), "an upstream connection ended with an error");
            }
        }));
        let pool = Arc::clone(self.pools.here());
        Ok(PooledConnection { sender, pool })
    }
}

/// Lets hyper frame a request by its body. If a client's `Content-Length` were longer than the body, the server
/// would take the next request on the connection, another client's, for the rest of the body.
fn frame(request: &mut Request<RequestBody>) {
    // The extensions of a client's request are not for the server, above all an upgrade that the client asked
    // for.
    request.extensions_mut().clear();
    hop_headers::strip(request.headers_mut());
    let headers = request.headers_mut();
    headers.remove(CONTENT_LENGTH);
    headers.remove(EXPECT);
    // hyper sends no length for an empty body, and some servers refuse a POST without a length.
    if request.method() == Method::POST && request.body().is_end_stream() {
        let headers = request.headers_mut();
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
}

/// Gives back the box, which otherwise stays for as long as its request waits for the answer.
#[expect(clippy::boxed_local, reason = "it ends the box")]
fn unboxed<T>(boxed: Box<T>) -> T {
    *boxed
}

enum NotSent {
    Request(Box<Request<RequestBody>>),
    /// The request was written and not read: the server does not accept raincheck's certificate.
    Refused,
    Failed(Failure),
}

/// Whether two headers say where the body ends (RFC 9112, 6.3). Another reader may believe the other header,
/// and take the rest for an answer.
fn is_ambiguous(headers: &HeaderMap) -> bool {
    headers.contains_key(CONTENT_LENGTH) && headers.contains_key(TRANSFER_ENCODING)
}

const REFUSED: &str = "it wants a client certificate, and not the one that it got, if any";

fn broken(error: &hyper::Error) -> Failure {
    let reason = if error.is_parse_too_large() {
        Reason::UpstreamTooLarge
    } else if error.is_parse() {
        Reason::UpstreamInvalid
    } else {
        Reason::UpstreamReset
    };
    Failure::new(reason, SideEffect::Unknown)
}

/// A connection in use, and the pool that it goes back to: that of the thread which serves it.
#[derive(Debug)]
struct PooledConnection {
    sender: SendRequest<RequestBody>,
    pool: Arc<ConnectionPool>,
}

#[derive(Debug, Default)]
struct ConnectionPool {
    /// The idle connections, the newest last.
    idle: Mutex<VecDeque<(SendRequest<RequestBody>, Instant)>>,
}

impl ConnectionPool {
    /// A connection that is ready. The one that was used last comes first.
    async fn take(&self) -> Option<SendRequest<RequestBody>> {
        loop {
            let newest = self.idle.lock().pop_back();
            let (mut sender, since) = newest?;
            if Instant::now().saturating_duration_since(since) >= IDLE {
                // All other connections are older.
                self.idle.lock().clear();
                return None;
            }
            if sender.is_ready() {
                return Some(sender);
            }
            // The driver of the connection has not yet seen the end of the last response.
            let ready = tokio::time::timeout(Duration::from_millis(50), sender.ready()).await;
            if matches!(ready, Ok(Ok(()))) {
                return Some(sender);
            }
        }
    }

    fn give_back(&self, sender: SendRequest<RequestBody>) {
        if sender.is_closed() {
            return;
        }
        let now = Instant::now();
        let mut idle = self.idle.lock();
        while idle
            .front()
            .is_some_and(|(_, since)| now.saturating_duration_since(*since) >= IDLE)
        {
            idle.pop_front();
        }
        if idle.len() < IDLE_MAX {
            idle.push_back((sender, now));
        }
    }
}

/// A response body. When it is read to its end, its connection goes back to the pool. When it is dropped
/// before, the connection is closed.
#[derive(Debug)]
pub struct ResponseBody {
    incoming: Incoming,
    home: Option<PooledConnection>,
}

impl ResponseBody {
    fn go_home(&mut self) {
        if let Some(PooledConnection { sender, pool }) = self.home.take() {
            pool.give_back(sender);
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.incoming).poll_frame(context));
        match &frame {
            None => this.go_home(),
            Some(Ok(_)) if this.incoming.is_end_stream() => this.go_home(),
            Some(Ok(_)) => {}
            Some(Err(_)) => this.home = None,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        // An empty body is at its end before it was polled.
        if self.incoming.is_end_stream() {
            self.go_home();
        }
    }
}
