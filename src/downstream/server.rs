//! The listener: accepts, limits, speaks HTTP, and comes to an orderly end.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::CONNECTION;
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{AcquireError, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use super::cors;
use super::dispatch::handle;
use super::giving_way::{OpenConnection, OpenConnections};
use super::inbound::connection_polls::ConnectionPolls;
use super::lingering::{Lingering, UnreadBody};
use super::open_requests::{CountedBody, OpenRequests};
use super::plaintext;
use super::proxy::Proxy;
use super::response_body::SentBody;
use super::slow_reader::{Patient, Streams};
use crate::auth::identity::Identity;
use crate::base::io_reason::io_reason;
use crate::base::limit_fill::CONNECTIONS;
use crate::net::connection_threads::ConnectionThreads;
use crate::net::socket;
use crate::platform::socket::{bound_unsent, reuse_address};
use crate::sharing::resizable::{ResizablePermit, ResizableSemaphore};
use crate::telemetry::limits::{self, LimitHit};
use crate::tls::kept::Kept;

/// The limits of connections, which may change while the listener serves.
#[derive(Debug)]
pub struct ConnectionLimits {
    /// The connections at the same time.
    connections: Arc<ResizableSemaphore>,
    header_timeout_ms: AtomicU64,
}

impl ConnectionLimits {
    pub fn new(connections_max: usize, header_timeout: Duration) -> Arc<Self> {
        CONNECTIONS.set_limit(connections_max);
        let limits = Self {
            connections: ResizableSemaphore::new(connections_max),
            header_timeout_ms: AtomicU64::default(),
        };
        limits.set_header_timeout(header_timeout);
        Arc::new(limits)
    }

    /// Changes how many connections there may be at the same time.
    pub fn resize(&self, connections_max: usize) {
        CONNECTIONS.set_limit(connections_max);
        self.connections.resize(connections_max);
    }

    /// Changes the limit for connections that begin from now on.
    pub fn set_header_timeout(&self, timeout: Duration) {
        let ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        self.header_timeout_ms.store(ms, Ordering::Relaxed);
    }

    /// Returns the longest time that a request's head may take, and a TLS handshake.
    fn header_timeout(&self) -> Duration {
        Duration::from_millis(self.header_timeout_ms.load(Ordering::Relaxed))
    }
}

/// The settings for the behaviour of a connection.
#[derive(Clone)]
pub struct ListenerSettings {
    pub limits: Arc<ConnectionLimits>,
    /// Cleartext HTTP/2 with prior knowledge, beside HTTP/1.1.
    pub h2c: bool,
    pub tls: Option<Arc<Kept<rustls::ServerConfig>>>,
}

impl std::fmt::Debug for ListenerSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("h2c", &self.h2c)
            .finish_non_exhaustive()
    }
}

/// The state that serves the connections that are accepted from now on.
#[derive(Debug, Clone)]
pub struct Served {
    pub proxy: Arc<Proxy>,
    /// Cancelled when these connections take no new request.
    pub stop: CancellationToken,
}

/// A listener that is bound and not served yet.
#[derive(Debug)]
pub struct BoundListener {
    listener: TcpListener,
    settings: ListenerSettings,
    threads: Arc<ConnectionThreads>,
    connections: TaskTracker,
}

impl BoundListener {
    pub fn bind(
        address: SocketAddr,
        settings: ListenerSettings,
        threads: Arc<ConnectionThreads>,
    ) -> io::Result<Self> {
        let listener = listen(address)?;
        Ok(Self {
            listener,
            settings,
            threads,
            connections: TaskTracker::new(),
        })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Accepts until `close`; serves what was accepted until `stop`, and until the `stop` of what serves it, when no new
    /// request is taken on it. Returns with the last connection, at most `grace` after `stop`.
    pub async fn serve(
        self,
        served: watch::Receiver<Served>,
        close: CancellationToken,
        stop: CancellationToken,
        grace: Duration,
    ) {
        let permits = &self.settings.limits.connections;
        let open = OpenConnections::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = close.cancelled() => break,
            };
            match accepted {
                Ok((stream, peer)) => {
                    // Beyond the limit further clients wait in the kernel's queue.
                    let permit = tokio::select! {
                        permit = permit(permits, &open) => permit,
                        () = close.cancelled() => break,
                    };
                    let (proxy, stop) = {
                        let served = served.borrow();
                        // A token of its own: each time that a connection is woken, it looks at the token under its lock.
                        (Arc::clone(&served.proxy), served.stop.child_token())
                    };
                    let registered = open.enter(peer);
                    let connection = Connection {
                        proxy,
                        open: Arc::clone(&registered.connection),
                        settings: self.settings.clone(),
                        stop,
                        streams: self.connections.clone(),
                    };
                    let serving = |stream| async move {
                        let stop = connection.stop.clone();
                        tokio::select! {
                            () = connection.serve(stream) => {}
                            () = registered.connection.gives_way(stop) => {
                                debug!("a connection without a whole request gave way to another one");
                            }
                        }
                        // They live as long as the connection: dropped here, they give its place to the next one.
                        drop((registered, permit));
                    };
                    self.threads.spawn(&self.connections, stream, serving);
                }
                // Out of descriptors, most likely: others must end first.
                Err(error) => {
                    warn!(error = %io_reason(&error), "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        // Closed before the wait, so that further clients are refused at once and do not sit in the kernel's queue.
        drop(self.listener);
        stop.cancelled().await;
        self.connections.close();
        let _ = timeout(grace, self.connections.wait()).await;
    }
}

/// The pause between two looks for connections that may give way.
const LOOK: Duration = Duration::from_millis(100);

/// Waits for room for one more connection. Connections without a whole request give way.
async fn permit(
    permits: &Arc<ResizableSemaphore>,
    open: &OpenConnections,
) -> Result<ResizablePermit, AcquireError> {
    if let Ok(permit) = permits.try_take() {
        return Ok(permit);
    }
    limits::refused(LimitHit::Connections);
    // The same future in each round: a new one would go to the end of the queue.
    let mut taking = pin!(Arc::clone(permits).take());
    loop {
        open.make_room();
        if let Ok(permit) = timeout(LOOK, taking.as_mut()).await {
            return permit;
        }
    }
}

/// The most connections that wait to be accepted; the system may allow fewer. Beyond them the kernel drops a client's
/// first packet, and the client tries again after a second. The standard library's 128 are too few where some hundred
/// clients connect at once.
const WAITING_MAX: u32 = 1024;

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    reuse_address(&socket)?;
    socket.bind(address)?;
    socket.listen(WAITING_MAX)
}

/// The number of bytes that a client may leave unread before nothing more is prepared for it, beside the piece that
/// is being sent; and the largest request head.
const UNSENT_MAX: usize = 64 * 1024;

/// The same in the kernel, beside what is on its way.
const UNREAD_MAX: u32 = 256 * 1024;

/// The bounds of the requests that one HTTP/2 connection may make at once, and of the bytes that it may send before
/// they are read.
const STREAMS_MAX: u32 = 128;
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 256 * 1024;
const HEADER_LIST_MAX: u32 = 16 * 1024;

struct Connection {
    proxy: Arc<Proxy>,
    open: Arc<OpenConnection>,
    settings: ListenerSettings,
    stop: CancellationToken,
    /// The jobs that run on the connection.
    streams: TaskTracker,
}

impl Connection {
    async fn serve(self, stream: TcpStream) {
        if let Err(error) = socket::prepare(&stream) {
            debug!(error = %io_reason(&error), "a connection was gone at once");
            return;
        }
        // What the kernel takes for a client that does not read counts nowhere.
        // Where the option cannot be set, the kernel only takes more.
        let _ = bound_unsent(&socket2::SockRef::from(&stream), UNREAD_MAX);
        if let Some(tls) = self.settings.tls.clone() {
            return Box::pin(self.serve_tls(stream, &tls)).await;
        }
        let (stream, unread_body) = self.unhurried(stream);
        self.speak(stream, unread_body, None).await;
    }

    async fn serve_tls(self, stream: TcpStream, tls: &Kept<rustls::ServerConfig>) {
        let header_timeout = self.settings.limits.header_timeout();
        // One deadline for the first byte and the handshake: a silent client must not have the time twice.
        let deadline = Instant::now() + header_timeout;
        let is_plain = match timeout_at(deadline, plaintext::speaks_http(&stream)).await {
            Ok(Ok(is_plain)) => is_plain,
            Ok(Err(error)) => {
                return debug!(error = %io_reason(&error), "a connection ended before its TLS handshake");
            }
            Err(_elapsed) => return debug!("a TLS handshake did not begin in time"),
        };
        let (stream, unread_body) = self.unhurried(stream);
        if is_plain {
            // The refused request may have a body, which is not read.
            unread_body.set();
            return plaintext::refuse(stream, header_timeout).await;
        }
        let handshake = TlsAcceptor::from(tls.current()).accept(stream);
        match timeout_at(deadline, handshake).await {
            Ok(Ok(stream)) => {
                let client = self.client(stream.get_ref().1);
                self.speak(stream, unread_body, client).await;
            }
            Ok(Err(error)) => debug!(error = %io_reason(&error), "a TLS handshake failed"),
            Err(_elapsed) => debug!("a TLS handshake took too long"),
        }
    }

    /// The stream, with patience for a client that reads slowly or is still sending a body that raincheck refused.
    fn unhurried(&self, stream: TcpStream) -> (Lingering<Patient<TcpStream>>, UnreadBody) {
        let unread_body = UnreadBody::default();
        let stream = Patient::new(stream, Arc::clone(&self.proxy.room));
        (Lingering::new(stream, unread_body.clone()), unread_body)
    }

    /// The client that the certificate of this connection names.
    fn client(&self, tls: &rustls::ServerConnection) -> Option<Arc<Identity>> {
        let certificate = tls.peer_certificates()?.first()?;
        self.proxy.auth.as_ref()?.by_certificate(certificate)
    }

    async fn speak<S>(self, stream: S, unread_body: UnreadBody, client: Option<Arc<Identity>>)
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        if self.settings.h2c {
            return Box::pin(self.speak_either(stream, unread_body, client)).await;
        }
        let (proxy, open) = (Arc::clone(&self.proxy), Arc::clone(&self.open));
        let service = service_fn(move |mut request| {
            identified(&mut request, client.as_ref());
            let (proxy, unread_body) = (Arc::clone(&proxy), unread_body.clone());
            let open = Arc::clone(&open);
            async move { Ok::<_, Infallible>(answer(proxy, request, open, &unread_body).await) }
        });
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder
            .max_buf_size(UNSENT_MAX)
            .timer(TokioTimer::new())
            .header_read_timeout(self.settings.limits.header_timeout());
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        until_stopped(connection, self.stop).await;
    }

    /// Speaks HTTP/1.1 or HTTP/2, according to the first bytes.
    async fn speak_either<S>(
        self,
        stream: S,
        unread_body: UnreadBody,
        client: Option<Arc<Identity>>,
    ) where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let (proxy, connection) = (Arc::clone(&self.proxy), Arc::clone(&self.open));
        let streams = Streams::new(Arc::clone(&proxy.room), self.streams);
        let open = OpenRequests::default();
        let counted = open.clone();
        let polls = ConnectionPolls::default();
        let service = service_fn(move |mut request| {
            identified(&mut request, client.as_ref());
            request.extensions_mut().insert(polls.clone());
            // Counted before the future is polled: until then the connection would look idle.
            let (proxy, request_open) = (Arc::clone(&proxy), counted.begin());
            let (unread_body, connection) = (unread_body.clone(), Arc::clone(&connection));
            async move {
                let response = answer(proxy, request, connection, &unread_body).await;
                Ok::<_, Infallible>(response.map(|body| CountedBody::new(body, request_open)))
            }
        });
        let mut builder = hyper_util::server::conn::auto::Builder::new(streams);
        builder
            .http1()
            .max_buf_size(UNSENT_MAX)
            .timer(TokioTimer::new())
            .header_read_timeout(self.settings.limits.header_timeout());
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(HEADER_LIST_MAX)
            // Room for one piece of a stream: a body that is asked for the piece after the next
            // knows that the one before was sent.
            .max_send_buf_size(1);
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        let limit = self.settings.limits.header_timeout();
        // Neither the first bytes nor what is between two requests has a limit of its own there.
        let idle = self.stop.child_token();
        let watching = async {
            open.is_idle_for(limit).await;
            idle.cancel();
            // The peer may never say that it heard.
            open.is_idle_for(limit).await;
        };
        tokio::select! {
            () = until_stopped(connection, idle.clone()) => {}
            () = watching => debug!("a connection that asked for nothing was closed"),
        }
    }
}

/// Adds to the request the identity that the certificate of its connection names.
fn identified(request: &mut Request<Incoming>, client: Option<&Arc<Identity>>) {
    if let Some(client) = client {
        request.extensions_mut().insert(Arc::clone(client));
    }
}

/// Answers one request, over either protocol.
async fn answer(
    proxy: Arc<Proxy>,
    request: Request<Incoming>,
    connection: Arc<OpenConnection>,
    unread_body: &UnreadBody,
) -> Response<SentBody> {
    let version = request.version();
    let room = Arc::clone(&proxy.room);
    let page = cors::page(request.headers()).map(|page| (page, Arc::clone(&proxy)));
    // Apart: what a request takes is given back while its stream of events lasts.
    let (answered, admitted) = Box::pin(handle(proxy, request, connection)).await;
    // Only a refusal that leaves a body unread closes its connection. HTTP/2 resets the one stream instead.
    if version != Version::HTTP_2 && answered.0.headers().contains_key(CONNECTION) {
        unread_body.set();
    }
    let mut response = SentBody::of(answered, admitted, &room, version);
    if let Some((page, proxy)) = page {
        cors::settle(&proxy.settings.names, page, &mut response);
    }
    response
}

/// Serves a connection to its end; once stopped, it takes no new request.
async fn until_stopped<C>(connection: C, stop: CancellationToken)
where
    C: GracefulConnection,
    C::Error: std::fmt::Display,
{
    tokio::pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = stop.cancelled() => {
            // The response under way is still sent. `BoundListener::serve` bounds this by its grace period.
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    // Why a connection ended matters only to somebody who debugs a client.
    if let Err(error) = served {
        debug!(error = %io_reason(&error), "a connection ended with an error");
    }
}
