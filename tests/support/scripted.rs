//! The scripted server of the tests: a listener, connections on which a server acts, and a server whose script answers each
//! request with a list of acts. The bytes are the script's own: no HTTP library mends them.
//!
//! A test binary that uses only a part of this file says `#[expect(dead_code, reason = "..")]` at its `mod`.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::http_request::WireRequest;

/// A listener on loopback. Dropping it ends its connections, too.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) address: SocketAddr,
    _stop: DropGuard,
}

impl Listening {
    /// Listens on a free port, and serves each connection so.
    pub(crate) async fn start<F>(serve: impl FnMut(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::until(CancellationToken::new(), listener, serve)
    }

    /// Serves until the token is cancelled, at the latest.
    pub(crate) fn until<F>(
        stop: CancellationToken,
        listener: TcpListener,
        mut serve: impl FnMut(TcpStream) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let address = listener.local_addr().unwrap();
        let stopped = stop.clone();
        let accepting = async move {
            loop {
                // A connection that ended before it was accepted is no fault of the listener.
                if let Ok((stream, _)) = listener.accept().await {
                    let _ = stream.set_nodelay(true);
                    let serving = serve(stream);
                    tokio::spawn(stopped.clone().run_until_cancelled_owned(serving));
                }
            }
        };
        tokio::spawn(stop.clone().run_until_cancelled_owned(accepting));
        Self {
            address,
            _stop: stop.drop_guard(),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }
}

/// One thing that a server does to a request. A list that comes to its end leaves the connection for the next request.
pub(crate) enum Act {
    Send(Bytes),
    /// Sends all that come, one after the other.
    SendAll(BoxStream<'static, Bytes>),
    /// Until this has ended.
    Wait(BoxFuture<'static, ()>),
    /// FIN.
    Close,
    /// RST.
    Reset,
}

/// The state in which acts left a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    Open,
    /// The client hung up before the last act.
    HungUp,
    Closed,
}

impl Act {
    pub(crate) fn send(bytes: impl Into<Bytes>) -> Self {
        Self::Send(bytes.into())
    }

    pub(crate) fn wait(event: impl Future<Output = ()> + Send + 'static) -> Self {
        Self::Wait(Box::pin(event))
    }

    pub(crate) fn pause(pause: Duration) -> Self {
        Self::wait(async move { tokio::time::sleep(pause).await })
    }

    /// Until the client hangs up.
    pub(crate) fn hang() -> Self {
        Self::wait(std::future::pending())
    }

    /// A whole response. Its head begins with the status and ends without a line end: `200 OK\r\nx-own: 1`.
    pub(crate) fn response(head: &str, body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref();
        let head = format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n", body.len());
        Self::send([head.as_bytes(), body].concat())
    }

    /// These bytes again and again.
    pub(crate) fn times(bytes: Bytes, times: usize) -> Self {
        Self::SendAll(stream::repeat(bytes).take(times).boxed())
    }

    /// These bytes again and again, until the client hangs up.
    pub(crate) fn endless(bytes: impl Into<Bytes>, every: Duration) -> Self {
        let bytes = bytes.into();
        let pieces = stream::unfold(Duration::ZERO, move |pause| {
            let bytes = bytes.clone();
            async move {
                tokio::time::sleep(pause).await;
                Some((bytes, every))
            }
        });
        Self::SendAll(pieces.boxed())
    }

    pub(crate) fn chunk(bytes: impl AsRef<[u8]>) -> Self {
        Self::Send(chunked(bytes))
    }

    pub(crate) fn last_chunk() -> Self {
        Self::send("0\r\n\r\n")
    }
}

pub(crate) fn chunked(bytes: impl AsRef<[u8]>) -> Bytes {
    let bytes = bytes.as_ref();
    let length = format!("{:x}\r\n", bytes.len());
    [length.as_bytes(), bytes, b"\r\n"].concat().into()
}

/// A connection to a server: one request after the other, as HTTP/1.1 has it.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    unread: Vec<u8>,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            unread: Vec::new(),
        }
    }

    /// The next request; `None` at the end of the connection.
    pub(crate) async fn next(&mut self) -> Option<WireRequest> {
        WireRequest::read(&mut self.stream, &mut self.unread).await
    }

    pub(crate) async fn play(&mut self, acts: Vec<Act>) -> Left {
        for act in acts {
            let goes_on = match act {
                Act::Send(bytes) => self.send(&bytes).await,
                Act::SendAll(mut pieces) => loop {
                    match self.unless_hung_up(pieces.next()).await {
                        Some(Some(piece)) if self.send(&piece).await => {}
                        Some(None) => break true,
                        _ => break false,
                    }
                },
                Act::Wait(event) => self.unless_hung_up(event).await.is_some(),
                Act::Close => {
                    let _ = self.stream.shutdown().await;
                    return Left::Closed;
                }
                Act::Reset => {
                    let _ = self.stream.set_zero_linger();
                    return Left::Closed;
                }
            };
            if !goes_on {
                return Left::HungUp;
            }
        }
        Left::Open
    }

    async fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).await.is_ok()
    }

    /// Waits for the event. `None`: the client hung up before.
    async fn unless_hung_up<T>(&mut self, event: impl Future<Output = T>) -> Option<T> {
        tokio::pin!(event);
        loop {
            tokio::select! {
                biased;
                output = &mut event => return Some(output),
                read = self.stream.read_buf(&mut self.unread) => {
                    if read.is_ok_and(|count| count > 0) {
                        continue;
                    }
                    return None;
                }
            }
        }
    }
}

/// A server with a script, and all requests that it got.
#[derive(Debug)]
pub(crate) struct Scripted {
    listening: Listening,
    requests: Arc<Mutex<Vec<WireRequest>>>,
}

impl Scripted {
    pub(crate) async fn start<S>(script: S) -> Self
    where
        S: Fn(&WireRequest) -> Vec<Act> + Send + Sync + 'static,
    {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), script)
    }

    pub(crate) fn on<S>(listener: TcpListener, script: S) -> Self
    where
        S: Fn(&WireRequest) -> Vec<Act> + Send + Sync + 'static,
    {
        let (script, requests) = (Arc::new(script), Arc::<Mutex<Vec<_>>>::default());
        let seen = Arc::clone(&requests);
        let listening = Listening::until(CancellationToken::new(), listener, move |stream| {
            let (script, seen) = (Arc::clone(&script), Arc::clone(&seen));
            async move {
                let mut connection = Connection::new(stream);
                while let Some(request) = connection.next().await {
                    let acts = script(&request);
                    seen.lock().unwrap().push(request);
                    if connection.play(acts).await != Left::Open {
                        return;
                    }
                }
            }
        });
        Self {
            listening,
            requests,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listening.address
    }

    pub(crate) fn url(&self) -> String {
        self.listening.url()
    }

    pub(crate) fn requests(&self) -> Vec<WireRequest> {
        self.requests.lock().unwrap().clone()
    }
}
