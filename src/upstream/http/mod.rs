//! HTTP to the wrapped server, over connections of raincheck's own: HTTP/1.1 with a pool of idle connections, or
//! HTTP/2. A request that provably was not sent goes out again on a fresh connection, and a request that may have been
//! sent never does. Dropping a response body closes its connection, or resets its stream, which is the cancel signal.

pub(super) mod address;
mod coding;
pub(super) mod connect;
pub(super) mod cookies;
pub(super) mod hop_headers;
mod http1;
mod http2;
mod markup;
pub(super) mod origin;
mod redirect;
pub(super) mod refusal;
mod refusal_text;
mod request_body;
mod response_body;
pub(super) mod same_origin;

use std::time::Duration;

use futures_util::FutureExt as _;
use http_body_util::BodyExt as _;
use hyper::body::Body as _;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::header::{
    AUTHORIZATION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING,
};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::base::io_reason::io_reason;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::failure_detail::FailureDetail;
use crate::net::connection_threads::PerThread;
use crate::telemetry::operations;
use crate::tls::client::is_refused_identity;
use crate::upstream::failures::{INVALID, RESET, UNREACHABLE};
use crate::upstream::http::connect::Connector;
use crate::upstream::http::hop_headers::ViaMark;
use crate::upstream::http::http1::{ConnectionPools, PooledConnection};
use crate::upstream::http::http2::connections::Connections;
use crate::upstream::http::request_body::BoxError;
use crate::upstream::obstacle::{Obstacle, Obstacles};

pub use crate::upstream::http::refusal::SessionRefusal;
pub use crate::upstream::http::request_body::RequestBody;
pub use crate::upstream::http::response_body::ResponseBody;
pub(super) use crate::upstream::http::response_body::decoded;

/// The number of times that a connection is tried while nothing was sent, and the pause after the first failure.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(200);

/// No attempt begins later than this after the first.
const TRYING: Duration = Duration::from_secs(5);

/// The time for which raincheck waits for the end of a stream after its answer.
const LINGER: Duration = Duration::from_millis(200);

/// A response head larger than this is refused.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// The wrapped server's HTTP side.
#[derive(Debug)]
pub struct Http {
    connector: Connector,
    /// The configured headers, set in every request.
    headers: HeaderMap,
    /// Names this process in every request, and no other process.
    mark: ViaMark,
    protocol: Protocol,
    drivers: TaskTracker,
    /// For the operator.
    pub(super) obstacles: Obstacles,
}

/// The version of HTTP that the server is configured to speak, and the connections to it.
#[derive(Debug)]
enum Protocol {
    Http1(ConnectionPools),
    /// Each thread has connections of its own, which it also reads and writes.
    Http2(PerThread<Connections>),
}

impl Http {
    /// `headers`: the configured ones.
    pub(super) fn new(connector: Connector, mut headers: HeaderMap, drivers: TaskTracker) -> Self {
        hop_headers::strip(&mut headers);
        let protocol = if connector.speaks_http2() {
            Protocol::Http2(PerThread::default())
        } else {
            Protocol::Http1(ConnectionPools::default())
        };
        Self {
            connector,
            headers,
            mark: ViaMark::random(),
            protocol,
            drivers,
            obstacles: Obstacles::default(),
        }
    }

    /// Returns `true` if the server is on loopback or a socket.
    pub(super) fn is_local(&self) -> bool {
        self.connector.is_local()
    }

    pub(super) fn configured_names(&self) -> impl Iterator<Item = &HeaderName> {
        self.headers.keys()
    }

    /// The values of the configured headers, which may be secrets.
    pub(super) fn configured_secrets(&self) -> impl Iterator<Item = HeaderValue> {
        self.headers.values().cloned()
    }

    /// Returns `true` if this process sent the request that it received.
    pub(super) fn has_sent(&self, headers: &HeaderMap) -> bool {
        self.mark.is_in(headers)
    }

    /// Returns `true` if a client's credentials go to the server unless the operator says otherwise: the server is local, and no
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
        // `insert` replaces a client's header of the same name: the operator's value counts.
        for (name, value) in &self.headers {
            request.headers_mut().insert(name, value.clone());
        }
        frame(&mut request);
        self.mark.put(request.headers_mut());
        match &self.protocol {
            Protocol::Http1(pools) => self.send_http1(pools, request).await,
            Protocol::Http2(connections) => {
                // Boxed, so that a request over HTTP/1.1 has no room for it.
                Box::pin(self.send_http2(connections.here(), request)).await
            }
        }
    }

    async fn send_http1(
        &self,
        pools: &ConnectionPools,
        mut request: Box<Request<RequestBody>>,
    ) -> Result<Response<ResponseBody>, Failure> {
        while let Some(taken) = pools.take().await {
            match self.send_over(taken, request).await {
                Ok(response) => return Ok(response),
                // The server closed the connection before it took anything.
                Err(SendError::Request(back)) => request = back,
                Err(SendError::Failed(failure)) => return Err(failure),
                // The handshake of this connection is long over, so the failure proves nothing.
                Err(SendError::Refused) => return Err(RESET),
            }
        }
        // Boxed, so that a request over an idle connection has no room for it.
        Box::pin(self.send_anew(pools, request)).await
    }

    /// Sends a request over a new connection.
    async fn send_anew(
        &self,
        pools: &ConnectionPools,
        mut request: Box<Request<RequestBody>>,
    ) -> Result<Response<ResponseBody>, Failure> {
        let mut pause = PAUSE;
        let given_up = Instant::now() + TRYING;
        for last in (0..TRIES).rev() {
            // Boxed, so that a call that waits for its answer has no room for it.
            // The error is dropped: `connect` has noted it as an obstacle, and the connector has logged it.
            if let Ok(sender) = Box::pin(self.connect()).await {
                let copy = self.copy(&request);
                match self
                    .send_over((pools.made(sender), Instant::now()), request)
                    .await
                {
                    Ok(response) => return Ok(response),
                    Err(SendError::Request(back)) => request = back,
                    Err(SendError::Failed(failure)) => return Err(failure),
                    Err(SendError::Refused) => {
                        tracing::warn!("the server did not accept the client certificate");
                        let refused = Obstacle::NoConnection(REFUSED.into());
                        self.obstacles.note_connection(Some(refused));
                        // The files may have a renewed certificate by now, which the next attempt then shows.
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
        // The body is shared, so a copy costs its headers only.
        self.connector
            .speaks_tls()
            .then(|| Box::new(request.clone()))
    }

    /// Reads the rest of a body whose answer is known, so that its connection can be used again. A body that
    /// does not end soon is closed.
    pub(super) fn finish(&self, mut body: ResponseBody) {
        if body.is_end_stream() {
            // Dropping the body gives its connection, or its place there, to the next request.
            return;
        }
        // A job, because the caller has its answer already and must not wait until the stream ends.
        self.drivers.spawn(async move {
            let rest = async { while let Some(Ok(_)) = body.frame().await {} };
            let _ = tokio::time::timeout(LINGER, rest).await;
        });
    }

    async fn send_over(
        &self,
        (mut connection, sent): (PooledConnection, Instant),
        request: Box<Request<RequestBody>>,
    ) -> Result<Response<ResponseBody>, SendError> {
        let method = request.method().clone();
        match connection.sender.try_send_request(unboxed(request)).await {
            Ok(response) if is_ambiguous(response.headers()) => Err(SendError::Failed(
                INVALID.with_detail(FailureDetail::Text(AMBIGUOUS)),
            )),
            Ok(response) => {
                operations::responded(&method, sent);
                if !response.status().is_success() {
                    self.obstacles
                        .note_status(&method, response.status(), response.headers());
                }
                Ok(response.map(|incoming| ResponseBody::over_http1(incoming, connection)))
            }
            Err(mut error) => match error.take_message() {
                // hyper returns the request only if it has written nothing of it.
                Some(request) => Err(SendError::Request(Box::new(request))),
                None if is_refused_identity(error.error()) => Err(SendError::Refused),
                None => Err(SendError::Failed(broken(error.error()))),
            },
        }
    }

    /// Returns `true` if a connection to the server comes about. Nothing is sent over it.
    pub(super) async fn can_connect(&self) -> bool {
        self.connect().await.is_ok()
    }

    async fn connect(&self) -> Result<SendRequest<RequestBody>, BoxError> {
        // This runs as a job, because the caller may give up before the connection is there.
        let connecting = self.connector.connecting();
        self.obstacles.note_connection(Some(connecting));
        let connected = self.connector.connect().await;
        let error = connected.as_ref().err();
        let obstacle = error.map(|error| self.connector.obstacle(error));
        self.obstacles.note_connection(obstacle);
        let stream = connected?;
        let (sender, connection) = Builder::new()
            .max_buf_size(HEAD_BYTES_MAX)
            .handshake(TokioIo::new(stream))
            .await?;
        self.drive(connection);
        Ok(sender)
    }

    /// Reads and writes a connection until it ends.
    fn drive<E: std::fmt::Display>(
        &self,
        connection: impl Future<Output = Result<(), E>> + Send + 'static,
    ) {
        // An async block would have room for what it took and again for what it awaits.
        self.drivers.spawn(connection.map(|ended| {
            if let Err(error) = ended {
                tracing::debug!(error = %io_reason(&error), "an upstream connection ended with an error");
            }
        }));
    }
}

/// Lets hyper frame a request by its body. If a client's `Content-Length` were longer than the body, the server
/// would take the next request on the connection, another client's, for the rest of the body. The other headers of the client's
/// connection are gone by now.
fn frame(request: &mut Request<RequestBody>) {
    // The extensions of a client's request are not for the server, above all an upgrade that the client asked
    // for.
    request.extensions_mut().clear();
    let headers = request.headers_mut();
    headers.remove(CONTENT_LENGTH);
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

enum SendError {
    Request(Box<Request<RequestBody>>),
    /// The request was written and not read: the server does not accept raincheck's certificate.
    Refused,
    Failed(Failure),
}

/// Returns `true` if two headers say where the body ends (RFC 9112, 6.3). Another reader may believe the other header,
/// and take the rest for an answer.
fn is_ambiguous(headers: &HeaderMap) -> bool {
    headers.contains_key(TRANSFER_ENCODING) && headers.contains_key(CONTENT_LENGTH)
}

const REFUSED: &str = "it wants a client certificate, and not the one that it got, if any";

const AMBIGUOUS: &str = "it has both Content-Length and Transfer-Encoding";

/// The limit of the number of headers is hyper's.
const HEAD_TOO_LARGE: &str = "its head has more than 100 headers, or more than 64 KiB";

fn broken(error: &hyper::Error) -> Failure {
    if error.is_parse_too_large() {
        // The request was written before the head was read, so the tool may have run.
        let detail = FailureDetail::Text(HEAD_TOO_LARGE);
        return Failure::new(Reason::UpstreamTooLarge, SideEffect::Unknown).with_detail(detail);
    }
    if error.is_parse() {
        return INVALID.with_detail(FailureDetail::Text(NOT_HTTP));
    }
    RESET
}

const NOT_HTTP: &str = "its head is not valid HTTP/1.1";
