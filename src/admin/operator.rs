//! The admin listener, for operators: health, metrics, tasks, the level of the log, drain. A token protects it off
//! loopback.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use hyper::body::Incoming;
use hyper::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderName, HeaderValue, ORIGIN,
    WWW_AUTHENTICATE,
};
use hyper::{HeaderMap, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::watch;
use tracing::info;

use super::about::about;
use super::body::read;
use super::drain::Drain;
use super::events::EventReaders;
use super::health::Health;
use super::listener::{
    AdminBody, Answers, Listener, error, json as answer_json, nothing, only, whole,
};
use super::probes::ready;
use super::route::{AdminRequest, PATHS, Routed, route};
use super::tasks::{Done, OperatorTasks, TaskActionError};
use super::token::Token;
use super::tools::OperatorTools;
use crate::runner::Runner;
use crate::telemetry::metrics::METRICS;
use crate::telemetry::{limits, log, resources, waiting};

/// The text format of Prometheus.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The settings of the admin listener.
#[derive(Debug)]
pub struct OperatorSettings {
    pub address: SocketAddr,
    /// The token that a request must send in `Authorization: Bearer`. Without it, only requests to a loopback name
    /// are answered.
    pub token: Option<Token>,
    /// `true` if operators see the arguments and results of tasks.
    pub show_payloads: bool,
    pub reload: Arc<dyn Reloads>,
}

/// Reads the settings and their files again.
#[async_trait]
pub trait Reloads: std::fmt::Debug + Send + Sync {
    /// Returns what was read. `Err`: there is a mistake, and nothing was changed.
    async fn reload(&self) -> Result<Value, String>;

    /// The settings that the process runs on, without secrets.
    fn settings(&self) -> Arc<Value>;
}

/// Binds the admin listener.
pub async fn bind(
    settings: OperatorSettings,
    health: Arc<Health>,
    drain: Drain,
    runner: watch::Receiver<Arc<Runner>>,
) -> io::Result<Listener> {
    let operator = Operator {
        health,
        drain,
        token: settings.token,
        tasks: OperatorTasks::new(runner.clone(), settings.show_payloads),
        tools: OperatorTools::new(runner),
        reload: settings.reload,
        events: EventReaders::default(),
    };
    Listener::bind(settings.address, operator).await
}

#[derive(Debug)]
struct Operator {
    health: Arc<Health>,
    drain: Drain,
    token: Option<Token>,
    tasks: OperatorTasks,
    tools: OperatorTools,
    reload: Arc<dyn Reloads>,
    events: EventReaders,
}

#[async_trait]
impl Answers for Operator {
    async fn answer(&self, request: Request<Incoming>, peer: SocketAddr) -> Response<AdminBody> {
        let routed = route(request.method(), request.uri().path());
        // The board asks the operator for the token, so it is shown without.
        if let (Routed::Request(AdminRequest::Board(file)), Some(_)) = (&routed, &self.token) {
            return file.answer();
        }
        if let Err(refusal) = admit(self.token.as_ref(), request.headers()) {
            return *refusal;
        }
        let asked = match routed {
            // A link to the board may stand on any page.
            Routed::Request(AdminRequest::Board(file)) => return file.answer(),
            Routed::Request(asked) => asked,
            Routed::Only(method) => return only(method),
            Routed::Nothing => return nothing(PATHS),
        };
        if !is_of_our_page(request.headers()) {
            return error(
                StatusCode::FORBIDDEN,
                "a page of another origin may not ask here",
            );
        }
        self.act(asked, request, peer).await
    }
}

impl Operator {
    async fn act(
        &self,
        asked: AdminRequest,
        request: Request<Incoming>,
        peer: SocketAddr,
    ) -> Response<AdminBody> {
        let query = request.uri().query().unwrap_or_default();
        match asked {
            AdminRequest::Board(file) => file.answer(),
            AdminRequest::Live => answer_json(StatusCode::OK, r#"{"live":true}"#.into()),
            AdminRequest::Ready => ready(&self.health),
            AdminRequest::Metrics => self.metrics(),
            AdminRequest::Events => self.events.answer(),
            AdminRequest::Config => found(&self.reload.settings()),
            AdminRequest::About => found(&self.about()),
            AdminRequest::Tasks => done(self.tasks.list(query).await),
            AdminRequest::Task(id) => done(self.tasks.show(&id, query).await),
            AdminRequest::Cancel(id) => {
                let cancelled = self.tasks.cancel(&id, query).await;
                done(cancelled.map(|done| audited("cancel", peer, done)))
            }
            AdminRequest::Answer(id) => match read(request.into_body()).await {
                Ok(body) => {
                    let answered = self.tasks.answer(&id, &body).await;
                    done(answered.map(|done| audited("answer", peer, done)))
                }
                Err(why) => error(StatusCode::BAD_REQUEST, why),
            },
            AdminRequest::Acknowledge(id) => match read(request.into_body()).await {
                Ok(body) => {
                    let acknowledged = self.tasks.acknowledge(&id, &body).await;
                    done(acknowledged.map(|done| audited("acknowledge", peer, done)))
                }
                Err(why) => error(StatusCode::BAD_REQUEST, why),
            },
            AdminRequest::Rerun(id) => match read(request.into_body()).await {
                Ok(body) => {
                    let begun = self.tasks.run_again(&id, &body).await;
                    done(begun.map(|done| audited("rerun", peer, done)))
                }
                Err(why) => error(StatusCode::BAD_REQUEST, why),
            },
            AdminRequest::Tools => found(&self.tools.list()),
            AdminRequest::Pause => match read(request.into_body()).await {
                Ok(body) => done(self.pause(&body, peer).await),
                Err(why) => error(StatusCode::BAD_REQUEST, why),
            },
            AdminRequest::Resume => match read(request.into_body()).await {
                Ok(body) => done(self.resume(&body, peer).await),
                Err(why) => error(StatusCode::BAD_REQUEST, why),
            },
            AdminRequest::Level => found(&json!({ "level": log::filter() })),
            AdminRequest::SetLevel => match read(request.into_body()).await {
                Ok(body) => set_level(&body, peer),
                Err(why) => error(StatusCode::BAD_REQUEST, why),
            },
            AdminRequest::Reload => {
                // Logged before the reload, which writes a line for each change.
                info!(%peer, action = "reload", "an operator acted");
                match self.reload.reload().await {
                    Ok(read) => found(&read),
                    Err(why) => error(StatusCode::CONFLICT, &why),
                }
            }
            AdminRequest::Drain => {
                info!(%peer, action = "drain", "an operator acted");
                self.drain.ask();
                let text = json!({ "draining": true }).to_string();
                answer_json(StatusCode::ACCEPTED, text)
            }
        }
    }

    async fn pause(&self, body: &[u8], peer: SocketAddr) -> Result<Value, TaskActionError> {
        let pause = self.tools.pause(body).await?;
        let (tools, terms) = (&*pause.tools, pause.terms());
        info!(%peer, action = "pause", tools, %terms, "an operator acted");
        Ok(self.tools.list())
    }

    async fn resume(&self, body: &[u8], peer: SocketAddr) -> Result<Value, TaskActionError> {
        let tools = self.tools.resume(body).await?;
        info!(%peer, action = "resume", tools, "an operator acted");
        Ok(self.tools.list())
    }

    fn about(&self) -> Value {
        let readiness = serde_json::from_str(&self.health.readiness().json).unwrap_or_default();
        let (replica, replicas) = self.tasks.replicas();
        about(
            &self.reload.settings(),
            &readiness,
            &replica,
            replicas.as_deref(),
            (&self.tools.paused(), METRICS.store.unacknowledged.get()),
        )
    }

    fn metrics(&self) -> Response<AdminBody> {
        self.health.measure();
        waiting::measure();
        limits::measure();
        resources::measure();
        let mut response = Response::new(whole(METRICS.render()));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(METRICS_TYPE));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

/// Logs who did what to which tasks.
fn audited(action: &'static str, peer: SocketAddr, Done { tasks, answer }: Done) -> Value {
    for task in tasks {
        info!(%peer, action, ?task, "an operator acted");
    }
    answer
}

fn set_level(body: &[u8], peer: SocketAddr) -> Response<AdminBody> {
    let said: Option<Value> = serde_json::from_slice(body).ok();
    let level = said.as_ref().and_then(|said| said.get("level")?.as_str());
    let Some(level) = level else {
        let why = "the body must be {\"level\": \"debug\"}, or levels by module";
        return error(StatusCode::BAD_REQUEST, why);
    };
    let before = log::filter().unwrap_or_default();
    match log::set_filter(level) {
        Ok(()) => {
            info!(%peer, action = "level", level, before, "an operator acted");
            found(&json!({ "level": level, "before": before }))
        }
        Err(why) => error(StatusCode::BAD_REQUEST, &why),
    }
}

fn found(value: &Value) -> Response<AdminBody> {
    answer_json(StatusCode::OK, value.to_string())
}

fn done(done: Result<Value, TaskActionError>) -> Response<AdminBody> {
    match done {
        Ok(value) => found(&value),
        Err(TaskActionError::Wrong(why)) => error(StatusCode::BAD_REQUEST, &why),
        Err(TaskActionError::Unknown) => {
            let why = "the store has no such task: it never was, or its retention is over";
            error(StatusCode::NOT_FOUND, why)
        }
        Err(TaskActionError::UnknownBeginning) => {
            let why = "no open task begins like this, and none of the history";
            error(StatusCode::NOT_FOUND, why)
        }
        Err(TaskActionError::Conflict(why)) => error(StatusCode::CONFLICT, &why),
        Err(TaskActionError::Unavailable(why)) => error(StatusCode::SERVICE_UNAVAILABLE, &why),
    }
}

fn admit(token: Option<&Token>, headers: &HeaderMap) -> Result<(), Box<Response<AdminBody>>> {
    let Some(token) = token else {
        // A page in a browser may reach loopback under a name of its own (DNS rebinding).
        return if names_loopback(headers) {
            Ok(())
        } else {
            let text = "without admin.token, ask by a loopback name such as localhost";
            Err(Box::new(error(StatusCode::FORBIDDEN, text)))
        };
    };
    if bearer(headers).is_some_and(|said| token.is(said)) {
        return Ok(());
    }
    let text = "Authorization must be Bearer and admin.token";
    let mut refusal = error(StatusCode::UNAUTHORIZED, text);
    let headers = refusal.headers_mut();
    headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    Err(Box::new(refusal))
}

/// Returns `true` if the request was not sent by a page of another origin. Only browsers send these headers. A page
/// of any origin can make a browser send a POST to loopback, or occupy the readers of events with GETs whose answers
/// the page cannot read.
fn is_of_our_page(headers: &HeaderMap) -> bool {
    let mut sites = headers.get_all(SEC_FETCH_SITE).iter();
    // `none` stands for a request that a person began, such as a bookmark.
    if sites.any(|site| site != "same-origin" && site != "none") {
        return false;
    }
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    headers.get_all(ORIGIN).iter().all(|origin| {
        // The origin `null` has no host, so it is refused.
        let origin = origin.to_str().ok().and_then(|it| it.split_once("://"));
        origin.is_some_and(|(_, origin)| Some(origin) == host)
    })
}

/// The token of the one `Authorization` header.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    // `Authorization` is no list (RFC 9110), so a request with two of them has none that counts.
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
    // `[::1]` has colons, too, so only digits after the last one are a port.
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
        let token = token.map(Token::new);
        let refusal = admit(token.as_ref(), &headers(pairs)).err()?;
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

    #[test]
    fn a_page_of_another_origin_does_not_act() {
        let acts = |pairs: &[(&'static str, &'static str)]| is_of_our_page(&headers(pairs));
        let host = ("host", "localhost:8442");
        assert!(acts(&[host]), "no browser");
        assert!(acts(&[
            host,
            ("origin", "http://localhost:8442"),
            ("sec-fetch-site", "same-origin")
        ]));
        assert!(!acts(&[host, ("origin", "http://evil.example")]));
        assert!(!acts(&[host, ("origin", "http://localhost:3000")]));
        assert!(!acts(&[host, ("origin", "null")]));
        assert!(!acts(&[host, ("sec-fetch-site", "cross-site")]));
    }
}
