//! The admin listener, for operators: health, metrics, tasks, the level of the log, drain. A token protects it off
//! loopback.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::watch;
use tracing::info;

use super::about::about;
use super::admit::{Asker, OperatorToken, admit, is_of_our_page};
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
use super::tools::OperatorTools;
use crate::base::printable::short;
use crate::runner::Runner;
use crate::telemetry::metrics::METRICS;
use crate::telemetry::{limits, log, reloads, resources, waiting};

/// The text format of Prometheus.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The settings of the admin listener.
#[derive(Debug)]
pub struct OperatorSettings {
    pub address: SocketAddr,
    /// The tokens of which a request must send one in `Authorization: Bearer`. Without any, only requests to a loopback
    /// name are answered.
    pub operators: Vec<OperatorToken>,
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
        operators: settings.operators,
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
    operators: Vec<OperatorToken>,
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
        if let Routed::Request(AdminRequest::Board(file)) = &routed
            && !self.operators.is_empty()
        {
            return file.answer();
        }
        let asker = match admit(&self.operators, request.headers(), peer) {
            Ok(asker) => asker,
            Err(refusal) => return *refusal,
        };
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
        if let Err(refusal) = asker.check(request.method()) {
            return *refusal;
        }
        self.act(asked, request, &asker).await
    }
}

impl Operator {
    async fn act(
        &self,
        asked: AdminRequest,
        request: Request<Incoming>,
        asker: &Asker,
    ) -> Response<AdminBody> {
        let query = request.uri().query().unwrap_or_default();
        match asked {
            AdminRequest::Board(file) => file.answer(),
            AdminRequest::Live => answer_json(StatusCode::OK, r#"{"live":true}"#.into()),
            AdminRequest::Ready => ready(&self.health),
            AdminRequest::Metrics => self.metrics(),
            AdminRequest::Events => self.events.answer(),
            AdminRequest::Config => found(&self.reload.settings()),
            AdminRequest::About => found(&self.about(asker)),
            AdminRequest::Tasks => done(self.tasks.list(query).await),
            AdminRequest::Task(id) => done(self.tasks.show(&id, query).await),
            AdminRequest::Cancel(id) => done(self.cancel(&id, query, asker).await),
            AdminRequest::Answer(id) => match read(request.into_body()).await {
                Ok(body) => {
                    let answered = self.tasks.answer(&id, &body).await;
                    done(answered.map(|done| audited("answer", asker, done)))
                }
                Err(why) => error(StatusCode::BAD_REQUEST, why),
            },
            AdminRequest::Acknowledge(id) => match read(request.into_body()).await {
                Ok(body) => {
                    let acknowledged = self.tasks.acknowledge(&id, &body, asker.name()).await;
                    done(acknowledged.map(|done| audited("acknowledge", asker, done)))
                }
                Err(why) => error(StatusCode::BAD_REQUEST, why),
            },
            AdminRequest::Rerun(id) => match read(request.into_body()).await {
                Ok(body) => {
                    let begun = self.tasks.run_again(&id, &body, asker.name()).await;
                    done(begun.map(|done| audited("rerun", asker, done)))
                }
                Err(why) => error(StatusCode::BAD_REQUEST, why),
            },
            AdminRequest::Tools => found(&self.tools.list()),
            AdminRequest::Stats => done(self.tasks.stats(query).await),
            AdminRequest::Pause => match read(request.into_body()).await {
                Ok(body) => done(self.pause(&body, asker).await),
                Err(why) => error(StatusCode::BAD_REQUEST, why),
            },
            AdminRequest::Resume => match read(request.into_body()).await {
                Ok(body) => done(self.resume(&body, asker).await),
                Err(why) => error(StatusCode::BAD_REQUEST, why),
            },
            AdminRequest::Level => found(&json!({ "level": log::filter() })),
            AdminRequest::SetLevel => match read(request.into_body()).await {
                Ok(body) => set_level(&body, asker),
                Err(why) => error(StatusCode::BAD_REQUEST, why),
            },
            AdminRequest::Reload => {
                // Logged before the reload, which writes a line for each change.
                info!(peer = %asker.peer, operator = asker.name(), action = "reload", "an operator acted");
                match self.reload.reload().await {
                    Ok(read) => found(&read),
                    Err(why) => error(StatusCode::CONFLICT, &why),
                }
            }
            AdminRequest::Drain => {
                info!(peer = %asker.peer, operator = asker.name(), action = "drain", "an operator acted");
                self.drain.ask();
                let text = json!({ "draining": true }).to_string();
                answer_json(StatusCode::ACCEPTED, text)
            }
        }
    }

    async fn cancel(&self, id: &str, query: &str, asker: &Asker) -> Result<Value, TaskActionError> {
        let cancelled = self.tasks.cancel(id, query, asker.cancels()).await;
        // While the store is away, the call that this replica carries is stopped all the same.
        if let Err(TaskActionError::Unavailable(why)) = &cancelled {
            let task = short(id);
            info!(peer = %asker.peer, operator = asker.name(), action = "cancel", %task, why, "an operator acted");
        }
        cancelled.map(|done| audited("cancel", asker, done))
    }

    async fn pause(&self, body: &[u8], asker: &Asker) -> Result<Value, TaskActionError> {
        let pause = self.tools.pause(body, asker.name()).await?;
        let (tools, terms) = (&*pause.tools, pause.terms());
        info!(peer = %asker.peer, operator = asker.name(), action = "pause", tools, %terms, "an operator acted");
        Ok(self.tools.list())
    }

    async fn resume(&self, body: &[u8], asker: &Asker) -> Result<Value, TaskActionError> {
        let tools = self.tools.resume(body).await?;
        info!(peer = %asker.peer, operator = asker.name(), action = "resume", tools, "an operator acted");
        Ok(self.tools.list())
    }

    fn about(&self, asker: &Asker) -> Value {
        let readiness = serde_json::from_str(&self.health.readiness().json).unwrap_or_default();
        let (replica, replicas) = self.tasks.replicas();
        about(
            (asker.to_json(), &self.reload.settings()),
            &readiness,
            &replica,
            replicas.as_deref(),
            (&self.tools.paused(), METRICS.store.unacknowledged.get()),
            reloads::last().as_ref(),
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
fn audited(action: &'static str, asker: &Asker, Done { tasks, answer }: Done) -> Value {
    for task in tasks {
        info!(peer = %asker.peer, operator = asker.name(), action, ?task, "an operator acted");
    }
    answer
}

fn set_level(body: &[u8], asker: &Asker) -> Response<AdminBody> {
    let said: Option<Value> = serde_json::from_slice(body).ok();
    let level = said.as_ref().and_then(|said| said.get("level")?.as_str());
    let Some(level) = level else {
        let why = "the body must be {\"level\": \"debug\"}, or levels by module";
        return error(StatusCode::BAD_REQUEST, why);
    };
    let before = log::filter().unwrap_or_default();
    match log::set_filter(level) {
        Ok(()) => {
            info!(peer = %asker.peer, operator = asker.name(), action = "level", level, before, "an operator acted");
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
