//! The probe listener: `/livez`, `/readyz`, `/drain/<token>`, and nothing else.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use std::{fmt, io};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use super::drain::Drain;
use super::health::Health;

/// The most open connections; further ones wait to be accepted. An orchestrator sends one request at a time.
const CONNECTIONS_MAX: usize = 256;

/// Connections that have sent no request yet. Beyond this the oldest of them is closed, so that a probe never
/// waits behind silent connections.
const SILENT_MAX: usize = 128;

/// How long the head of a request may take.
const HEADER_TIMEOUT: Duration = Duration::from_secs(3);

/// How long the last answers may take after the listener has stopped.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// The probe listener, bound and not served yet.
#[derive(Debug)]
pub struct Probes {
    listener: TcpListener,
    answers: Arc<ProbeService>,
}

#[derive(Debug)]
struct ProbeService {
    health: Arc<Health>,
    drain: Drain,
    token: Option<DrainToken>,
}

/// The secret in the path of a drain request. A client that knows it can stop the process.
pub struct DrainToken(Box<[u8]>);

impl DrainToken {
    pub fn new(text: &str) -> Self {
        Self(text.as_bytes().into())
    }

    /// Compares in a time that depends only on the length.
    fn is(&self, text: &str) -> bool {
        verify_slices_are_equal(&self.0, text.as_bytes()).is_ok()
    }
}

impl fmt::Debug for DrainToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl Probes {
    pub async fn bind(
        address: SocketAddr,
        health: Arc<Health>,
        drain: Drain,
        token: Option<DrainToken>,
    ) -> io::Result<Self> {
        Ok(Self {
            listener: TcpListener::bind(address).await?,
            answers: Arc::new(ProbeService {
                health,
                drain,
                token,
            }),
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
                let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
                    return;
                };
                match self.listener.accept().await {
                    Ok((stream, _)) => {
                        let answers = Arc::clone(&self.answers);
                        let visitor = Arc::new(Visitor::default());
                        make_room(&mut silent, &visitor);
                        connections.spawn(async move {
                            answers.speak(stream, &visitor).await;
                            drop(permit);
                        });
                    }
                    // Most likely out of file descriptors, until other connections end.
                    Err(error) => {
                        warn!(%error, "a probe could not be accepted");
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

/// The request, by its method and path.
#[derive(Debug, PartialEq, Eq)]
enum ProbeRequest {
    Live,
    Ready,
    Drain,
    WrongMethod,
    Nothing,
}

impl ProbeService {
    async fn speak(self: Arc<Self>, stream: TcpStream, visitor: &Visitor) {
        let service = service_fn(|request: Request<Incoming>| {
            visitor.has_asked.store(true, Ordering::Relaxed);
            let answers = Arc::clone(&self);
            async move { Ok::<_, Infallible>(answers.answer(&request).await) }
        });
        // One request for each connection, so that no idle client holds a connection.
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service);
        let served = visitor.sent_away.run_until_cancelled(served).await;
        if let Some(Err(error)) = served {
            debug!(%error, "a probe's connection ended with an error");
        }
    }

    /// Answers one request. If the future is dropped, a drain that it has started goes on.
    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        match self.asked(request.method(), request.uri().path()) {
            ProbeRequest::Live => json(StatusCode::OK, r#"{"live":true}"#.into()),
            ProbeRequest::Ready => {
                let readiness = self.health.readiness();
                let status = if readiness.ready {
                    StatusCode::OK
                } else {
                    StatusCode::SERVICE_UNAVAILABLE
                };
                json(status, readiness.json)
            }
            ProbeRequest::Drain => {
                info!("asked to drain");
                self.drain.ask();
                self.drain.done().await;
                json(StatusCode::OK, r#"{"drained":true}"#.into())
            }
            ProbeRequest::WrongMethod => {
                let mut response = json(StatusCode::METHOD_NOT_ALLOWED, "{}".into());
                let headers = response.headers_mut();
                headers.insert(ALLOW, HeaderValue::from_static("GET"));
                response
            }
            ProbeRequest::Nothing => json(StatusCode::NOT_FOUND, "{}".into()),
        }
    }

    fn asked(&self, method: &Method, path: &str) -> ProbeRequest {
        let asked = match path {
            "/livez" => ProbeRequest::Live,
            "/readyz" => ProbeRequest::Ready,
            path if self.is_drain(path) => ProbeRequest::Drain,
            _ => return ProbeRequest::Nothing,
        };
        if method == Method::GET {
            asked
        } else {
            ProbeRequest::WrongMethod
        }
    }

    fn is_drain(&self, path: &str) -> bool {
        let said = path.strip_prefix("/drain/");
        self.token
            .as_ref()
            .zip(said)
            .is_some_and(|(token, said)| token.is(said))
    }
}

fn json(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(token: Option<&str>, method: &Method, path: &str) -> ProbeRequest {
        let answers = ProbeService {
            health: Arc::new(Health::new(false)),
            drain: Drain::default(),
            token: token.map(DrainToken::new),
        };
        answers.asked(method, path)
    }

    #[test]
    fn three_paths_are_served() {
        let get = |path| asked(Some("correct-horse-battery"), &Method::GET, path);
        assert_eq!(get("/livez"), ProbeRequest::Live);
        assert_eq!(get("/readyz"), ProbeRequest::Ready);
        assert_eq!(get("/drain/correct-horse-battery"), ProbeRequest::Drain);
        for path in [
            "/",
            "/livez/",
            "/mcp",
            "/metrics",
            "/drain",
            "/drain/",
            "/drain/correct-horse-batterx",
            "/drain/correct-horse-battery/",
            "/drain//correct-horse-battery",
        ] {
            assert_eq!(get(path), ProbeRequest::Nothing, "{path}");
        }
    }

    #[test]
    fn without_a_token_there_is_no_drain() {
        assert_eq!(asked(None, &Method::GET, "/drain/"), ProbeRequest::Nothing);
        assert_eq!(asked(None, &Method::GET, "/drain/x"), ProbeRequest::Nothing);
    }

    /// A wrong token must look the same whatever the method is.
    #[test]
    fn other_methods_are_refused_where_there_is_something() {
        let post = |path| asked(Some("correct-horse-battery"), &Method::POST, path);
        assert_eq!(post("/livez"), ProbeRequest::WrongMethod);
        assert_eq!(
            post("/drain/correct-horse-battery"),
            ProbeRequest::WrongMethod
        );
        assert_eq!(post("/drain/wrong"), ProbeRequest::Nothing);
    }
}
