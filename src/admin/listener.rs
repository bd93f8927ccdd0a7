//! A small HTTP/1.1 listener for operators and orchestrators: one request for each connection, and no client that
//! is silent keeps another one waiting.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use crate::base::io_reason::io_reason;
use crate::base::printable::printable_json;
use crate::task::events::SUBSCRIPTION_ID;

/// The most open connections; further ones wait to be accepted. An orchestrator sends one request at a time.
const CONNECTIONS_MAX: usize = 256;

/// Connections that have sent no request yet. Beyond this the oldest of them is closed, so that a request never
/// waits behind silent connections.
const SILENT_MAX: usize = 128;

/// The time within which the head of a request must arrive.
const HEADER_TIMEOUT: Duration = Duration::from_secs(3);

/// The time that the last answers may take after the listener has stopped.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// The body of an answer.
pub(super) type AdminBody = UnsyncBoxBody<Bytes, Infallible>;

/// Answers the requests to a listener.
#[async_trait]
pub(super) trait Answers: std::fmt::Debug + Send + Sync + 'static {
    /// Answers one request, which came from that address. The future is dropped if the client goes away.
    async fn answer(&self, request: Request<Incoming>, peer: SocketAddr) -> Response<AdminBody>;
}

/// Bound, and not served yet.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    answers: Arc<dyn Answers>,
}

impl Listener {
    pub(super) async fn bind(address: SocketAddr, answers: impl Answers) -> io::Result<Self> {
        Ok(Self {
            listener: TcpListener::bind(address).await?,
            answers: Arc::new(answers),
        })
    }

    /// The bound address, with the port that the system chose if the configured port is 0.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until `stop`.
    pub async fn serve(self, stop: CancellationToken) {
        let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let connections = TaskTracker::new();
        let accepting = async {
            let mut silent = VecDeque::new();
            loop {
                // The permit comes before the accept, so that further connections stay in the queue of the kernel.
                let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
                    return;
                };
                match self.listener.accept().await {
                    Ok((stream, peer)) => {
                        let answers = Arc::clone(&self.answers);
                        let visitor = Arc::new(Visitor::default());
                        make_room(&mut silent, &visitor);
                        connections.spawn(async move {
                            speak(&*answers, stream, peer, &visitor).await;
                            drop(permit);
                        });
                    }
                    // Most likely out of file descriptors, until other connections end.
                    Err(error) => {
                        warn!(error = %io_reason(&error), "a connection of an operator could not be accepted");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                }
            }
        };
        let _ = stop.run_until_cancelled(accepting).await;
        connections.close();
        let _ = tokio::time::timeout(LAST_ANSWERS, connections.wait()).await;
    }
}

/// One connection.
#[derive(Debug, Default)]
struct Visitor {
    has_asked: AtomicBool,
    sent_away: CancellationToken,
}

/// Adds a new connection, and closes the oldest silent one if there are too many.
fn make_room(silent: &mut VecDeque<Weak<Visitor>>, new: &Arc<Visitor>) {
    // A connection that has ended has left only a weak reference, which goes here, too.
    silent.retain(|visitor| {
        let visitor = visitor.upgrade();
        visitor.is_some_and(|visitor| !visitor.has_asked.load(Ordering::Relaxed))
    });
    if silent.len() >= SILENT_MAX
        && let Some(oldest) = silent.pop_front().and_then(|oldest| oldest.upgrade())
    {
        oldest.sent_away.cancel();
    }
    silent.push_back(Arc::downgrade(new));
}

async fn speak(answers: &dyn Answers, stream: TcpStream, peer: SocketAddr, visitor: &Visitor) {
    let service = service_fn(|request: Request<Incoming>| {
        visitor.has_asked.store(true, Ordering::Relaxed);
        async move {
            // Clients choose where these go, and no operator sends one.
            if request.headers().contains_key(SUBSCRIPTION_ID) {
                let why = "a message of a webhook subscription may not ask here";
                return Ok(error(StatusCode::FORBIDDEN, why));
            }
            Ok::<_, Infallible>(answers.answer(request, peer).await)
        }
    });
    // One request for each connection, so that no idle client holds a connection.
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    let served = visitor.sent_away.run_until_cancelled(served).await;
    if let Some(Err(error)) = served {
        debug!(error = %io_reason(&error), "an operator's connection ended with an error");
    }
}

pub(super) fn json(status: StatusCode, text: String) -> Response<AdminBody> {
    // Texts of clients and servers may be in it, and an operator may read it in a terminal.
    let changed = match printable_json(&text) {
        Cow::Owned(changed) => Some(changed),
        Cow::Borrowed(_) => None,
    };
    let mut response = Response::new(whole(changed.unwrap_or(text)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A body that is there as a whole.
pub(super) fn whole(text: impl Into<Bytes>) -> AdminBody {
    Full::new(text.into()).boxed_unsync()
}

/// Returns an error response with a sentence that explains why a request was not carried out.
pub(super) fn error(status: StatusCode, error: &str) -> Response<AdminBody> {
    json(status, serde_json::json!({ "error": error }).to_string())
}

/// The answer to another method than the one of the path.
pub(super) fn only(method: &'static str) -> Response<AdminBody> {
    let text = format!("this path has {method} only");
    let mut response = error(StatusCode::METHOD_NOT_ALLOWED, &text);
    let headers = response.headers_mut();
    headers.insert(ALLOW, HeaderValue::from_static(method));
    response
}

/// The answer about what is not there, with what is.
pub(super) fn nothing(text: &str) -> Response<AdminBody> {
    error(StatusCode::NOT_FOUND, text)
}
