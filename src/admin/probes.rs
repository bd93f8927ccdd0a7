//! The probe listener: `/livez`, `/readyz`, `/drain/<token>`, and nothing else.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use tracing::info;

use super::drain::Drain;
use super::health::Health;
use super::listener::{AdminBody, Answers, Listener, json, nothing, only};
use super::token::Token;

/// Binds the probe listener.
pub async fn bind(
    address: SocketAddr,
    health: Arc<Health>,
    drain: Drain,
    token: Option<Token>,
) -> io::Result<Listener> {
    let probes = Probes {
        health,
        drain,
        token,
    };
    Listener::bind(address, probes).await
}

#[derive(Debug)]
struct Probes {
    health: Arc<Health>,
    drain: Drain,
    token: Option<Token>,
}

/// The answer to every other path. It does not reveal whether the process is draining.
const PATHS: &str = "not here: this listener (admin.probes) has GET /livez and /readyz; metrics are at admin.listen";

/// The request, by its method and path.
#[derive(Debug, PartialEq, Eq)]
enum ProbeRequest {
    Live,
    Ready,
    Drain,
    WrongMethod,
    Nothing,
}

#[async_trait]
impl Answers for Probes {
    /// Answers one request. If the future is dropped, a drain that it has started goes on.
    async fn answer(&self, request: Request<Incoming>, _: SocketAddr) -> Response<AdminBody> {
        match self.asked(request.method(), request.uri().path()) {
            ProbeRequest::Live => json(StatusCode::OK, r#"{"live":true}"#.into()),
            ProbeRequest::Ready => ready(&self.health),
            ProbeRequest::Drain => {
                info!("asked to drain");
                self.drain.ask();
                // A preStop hook takes the answer as the end of the drain, so it must not come earlier.
                self.drain.done().await;
                json(StatusCode::OK, r#"{"drained":true}"#.into())
            }
            ProbeRequest::WrongMethod => only("GET"),
            ProbeRequest::Nothing => nothing(PATHS),
        }
    }
}

impl Probes {
    fn asked(&self, method: &Method, path: &str) -> ProbeRequest {
        let asked = match path {
            "/livez" => ProbeRequest::Live,
            "/readyz" => ProbeRequest::Ready,
            // A wrong token falls through to the answer for unknown paths, which does not reveal that there is a drain.
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

/// Answers an orchestrator's request for whether the process is ready.
pub(super) fn ready(health: &Health) -> Response<AdminBody> {
    let readiness = health.readiness();
    let status = if readiness.ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    json(status, readiness.json)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(token: Option<&str>, method: &Method, path: &str) -> ProbeRequest {
        let probes = Probes {
            health: Arc::new(Health::new(false)),
            drain: Drain::default(),
            token: token.map(Token::new),
        };
        probes.asked(method, path)
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
