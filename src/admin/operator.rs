//! The admin listener, for operators: health and metrics. A token protects it off loopback.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderValue, WWW_AUTHENTICATE,
};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};

use super::health::Health;
use super::listener::{Answers, Listener, json, nothing, only_get};
use super::probes::ready;
use super::token::Token;
use crate::telemetry::metrics::METRICS;

/// The text format of Prometheus.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Binds the admin listener. `token` is what a request must name in `Authorization: Bearer`; without a token only
/// requests to a loopback name are answered.
pub async fn bind(
    address: SocketAddr,
    health: Arc<Health>,
    token: Option<Token>,
) -> io::Result<Listener> {
    Listener::bind(address, Operator { health, token }).await
}

#[derive(Debug)]
struct Operator {
    health: Arc<Health>,
    token: Option<Token>,
}

#[async_trait]
impl Answers for Operator {
    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if let Err(refusal) = self.admit(request.headers()) {
            return *refusal;
        }
        let path = request.uri().path();
        if !matches!(path, "/livez" | "/readyz" | "/metrics") {
            return nothing();
        }
        if request.method() != Method::GET {
            return only_get();
        }
        match path {
            "/livez" => json(StatusCode::OK, r#"{"live":true}"#.into()),
            "/readyz" => ready(&self.health),
            _ => self.metrics(),
        }
    }
}

impl Operator {
    fn admit(&self, headers: &HeaderMap) -> Result<(), Box<Response<Full<Bytes>>>> {
        let Some(token) = &self.token else {
            // A page in a browser may reach loopback under a name of its own (DNS rebinding).
            return if names_loopback(headers) {
                Ok(())
            } else {
                let text =
                    r#"{"error":"without admin.token, ask by a loopback name such as localhost"}"#;
                Err(Box::new(json(StatusCode::FORBIDDEN, text.into())))
            };
        };
        if bearer(headers).is_some_and(|said| token.is(said)) {
            return Ok(());
        }
        let text = r#"{"error":"name admin.token in Authorization: Bearer"}"#;
        let mut refusal = json(StatusCode::UNAUTHORIZED, text.into());
        let headers = refusal.headers_mut();
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        Err(Box::new(refusal))
    }

    fn metrics(&self) -> Response<Full<Bytes>> {
        let is_ready = self.health.readiness().ready;
        METRICS.process.ready.set(is_ready.into());
        let mut response = Response::new(Full::new(METRICS.render().into()));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(METRICS_TYPE));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

/// The token of the one `Authorization` header.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (all.next(), all.next()) else {
        return None;
    };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then_some(token.trim())
}

fn names_loopback(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let Some(host) = host else { return false };
    let without_port = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        Some(_) | None => host,
    };
    let name = without_port.trim_matches(['[', ']']);
    name.eq_ignore_ascii_case("localhost")
        || name
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn admits(token: Option<&str>, pairs: &[(&'static str, &'static str)]) -> Option<StatusCode> {
        let operator = Operator {
            health: Arc::new(Health::new(false)),
            token: token.map(Token::new),
        };
        let refusal = operator.admit(&headers(pairs)).err()?;
        Some(refusal.status())
    }

    #[test]
    fn without_a_token_only_loopback_names_are_answered() {
        for host in [
            "localhost",
            "LOCALHOST:8442",
            "127.0.0.1:8442",
            "[::1]:8442",
            "127.9.9.9",
        ] {
            assert_eq!(admits(None, &[("host", host)]), None, "{host}");
        }
        for host in [
            "evil.example:8442",
            "10.0.0.1",
            "localhost.evil.example",
            "",
        ] {
            let refused = admits(None, &[("host", host)]);
            assert_eq!(refused, Some(StatusCode::FORBIDDEN), "{host}");
        }
        assert_eq!(admits(None, &[]), Some(StatusCode::FORBIDDEN));
    }

    #[test]
    fn with_a_token_only_the_token_is_answered() {
        let token = Some("correct-horse-battery");
        let said = |value| admits(token, &[("authorization", value), ("host", "localhost")]);
        assert_eq!(said("Bearer correct-horse-battery"), None);
        assert_eq!(said("bearer  correct-horse-battery"), None);
        for wrong in [
            "Bearer correct-horse-batterx",
            "Bearer",
            "Bearer ",
            "correct-horse-battery",
            "Basic eDp5",
        ] {
            assert_eq!(said(wrong), Some(StatusCode::UNAUTHORIZED), "{wrong}");
        }
        let twice = [
            ("authorization", "Bearer correct-horse-battery"),
            ("authorization", "Bearer x"),
        ];
        assert_eq!(admits(token, &twice), Some(StatusCode::UNAUTHORIZED));
        assert_eq!(
            admits(token, &[("host", "localhost")]),
            Some(StatusCode::UNAUTHORIZED)
        );
    }
}
