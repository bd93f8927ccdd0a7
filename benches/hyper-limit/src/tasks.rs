//! Tasks in Redis: a hash each, one script to create it and one to end it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use common::unix_ms;
use http_body_util::BodyExt as _;
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use redis::aio::ConnectionManager;
use redis::{RedisError, Script};
use tokio::task::AbortHandle;
use uuid::Uuid;

use crate::answer::{Body, full, refusal, result};
use crate::forward::Upstream;
use crate::message::Answer;
use crate::time::rfc3339;

const TTL_MS: u64 = 3_600_000;

/// The request is recorded too: after a crash a real product must be able to tell what was running.
const CREATE: &str = "redis.call('HSET',KEYS[1],'s','working','c',ARGV[1],'u',ARGV[1],'n',ARGV[3],'q',ARGV[4]) redis.call('PEXPIRE',KEYS[1],ARGV[2]) return 1";
const END: &str = "if redis.call('HGET',KEYS[1],'s')~='working' then return 0 end redis.call('HSET',KEYS[1],'s',ARGV[1],'r',ARGV[2],'u',ARGV[3]) redis.call('HDEL',KEYS[1],'q') redis.call('PUBLISH',ARGV[4],ARGV[1]) return 1";

pub(crate) struct Tasks {
    upstream: Arc<Upstream>,
    store: Store,
    running: Running,
}

/// The calls that run, by task.
type Running = Arc<Mutex<HashMap<String, AbortHandle>>>;

impl Tasks {
    pub(crate) async fn open(url: &str, upstream: Arc<Upstream>) -> Result<Self, String> {
        let failed = |error: RedisError| format!("{url}: {error}");
        let client = redis::Client::open(url).map_err(failed)?;
        let connection = ConnectionManager::new(client).await.map_err(failed)?;
        Ok(Self {
            upstream,
            store: Store {
                connection,
                create: Arc::new(Script::new(CREATE)),
                end: Arc::new(Script::new(END)),
            },
            running: Arc::default(),
        })
    }

    /// Keeps the task, tells the client of it, and calls the upstream meanwhile.
    #[expect(
        clippy::disallowed_methods,
        reason = "the call outlives the request and ends with the process"
    )]
    pub(crate) async fn create(
        &self,
        parts: Parts,
        body: Bytes,
        id: &str,
        tool: &str,
    ) -> Response<Body> {
        let task = Uuid::new_v4().simple().to_string();
        let now = unix_ms();
        if let Err(error) = self.store.create(&task, now, tool, &body).await {
            return refused_by_store(id, &error);
        }
        let (upstream, store) = (Arc::clone(&self.upstream), self.store.clone());
        let (running, carried) = (Arc::clone(&self.running), task.clone());
        // Locked until the handle is in: the call may end before this request does.
        let mut calls = lock(&self.running);
        let call = tokio::spawn(async move {
            let answer = upstream.forward(parts, full(body)).await;
            let answer = answer.into_body().collect().await;
            let body = answer.map(http_body_util::Collected::to_bytes).ok();
            let (status, payload) = outcome(body.as_deref());
            // A task whose end cannot be kept stays `working` until it expires.
            let _ = store.end(&carried, status, &payload).await;
            lock(&running).remove(&carried);
        });
        calls.insert(task.clone(), call.abort_handle());
        drop(calls);
        let at = rfc3339(now);
        result(
            id,
            &format!(
                r#"{{"resultType":"task","taskId":"{task}","status":"working","createdAt":"{at}","lastUpdatedAt":"{at}","ttlMs":{TTL_MS},"pollIntervalMs":1000}}"#
            ),
        )
    }

    pub(crate) async fn get(&self, id: &str, task: &str) -> Response<Body> {
        let fields = match self.store.get(task).await {
            Ok(fields) => fields,
            Err(error) => return refused_by_store(id, &error),
        };
        let field = |name: &str| fields.get(name).map_or("", String::as_str);
        let at = |name: &str| rfc3339(field(name).parse().unwrap_or_default());
        let status = field("s");
        let payload = match status {
            "" => {
                let message = "Failed to retrieve task: Task not found";
                return refusal(StatusCode::OK, id, -32602, message);
            }
            "completed" => format!(r#","result":{}"#, field("r")),
            "failed" => format!(r#","error":{}"#, field("r")),
            _ => String::new(),
        };
        result(
            id,
            &format!(
                r#"{{"resultType":"complete","taskId":"{task}","status":"{status}","createdAt":"{}","lastUpdatedAt":"{}","ttlMs":{TTL_MS},"pollIntervalMs":1000{payload}}}"#,
                at("c"),
                at("u")
            ),
        )
    }

    pub(crate) async fn cancel(&self, id: &str, task: &str) -> Response<Body> {
        if let Some(call) = lock(&self.running).remove(task) {
            call.abort();
        }
        match self.store.end(task, "cancelled", "").await {
            Ok(()) => result(id, r#"{"resultType":"complete"}"#),
            Err(error) => refused_by_store(id, &error),
        }
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks").finish_non_exhaustive()
    }
}

#[derive(Clone)]
struct Store {
    connection: ConnectionManager,
    create: Arc<Script>,
    end: Arc<Script>,
}

impl Store {
    async fn create(
        &self,
        task: &str,
        now_ms: u64,
        tool: &str,
        request: &[u8],
    ) -> Result<(), RedisError> {
        let mut script = self.create.key(key(task));
        script.arg(now_ms).arg(TTL_MS).arg(tool).arg(request);
        script.invoke_async(&mut self.connection.clone()).await
    }

    async fn end(&self, task: &str, status: &str, payload: &str) -> Result<(), RedisError> {
        let mut script = self.end.key(key(task));
        script
            .arg(status)
            .arg(payload)
            .arg(unix_ms())
            .arg(format!("ev:{task}"));
        script.invoke_async(&mut self.connection.clone()).await
    }

    async fn get(&self, task: &str) -> Result<HashMap<String, String>, RedisError> {
        redis::cmd("HGETALL")
            .arg(key(task))
            .query_async(&mut self.connection.clone())
            .await
    }
}

fn key(task: &str) -> String {
    format!("t:{task}")
}

/// The status of a task whose call was answered so, and what the client gets. `None`: the answer was cut.
fn outcome(body: Option<&[u8]>) -> (&'static str, String) {
    let error = |message: &str| format!(r#"{{"code":-32603,"message":"{message}"}}"#);
    let Some(body) = body else {
        return ("failed", error("upstream cut"));
    };
    match serde_json::from_slice(body) {
        Ok(Answer {
            result: Some(result),
            ..
        }) => ("completed", result.get().to_owned()),
        Ok(Answer {
            error: Some(error), ..
        }) => ("failed", error.get().to_owned()),
        Ok(_) | Err(_) => ("failed", error("bad upstream answer")),
    }
}

fn refused_by_store(id: &str, error: &RedisError) -> Response<Body> {
    let message = format!("store: {error}");
    refusal(StatusCode::INTERNAL_SERVER_ERROR, id, -32603, &message)
}

fn lock(
    calls: &Mutex<HashMap<String, AbortHandle>>,
) -> MutexGuard<'_, HashMap<String, AbortHandle>> {
    calls.lock().unwrap_or_else(PoisonError::into_inner)
}
