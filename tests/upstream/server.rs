//! A server of both eras whose answers are scripted, byte for byte where it matters.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use hyper::header::HeaderMap;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub(crate) use super::reply::Reply;
use crate::http_request::WireRequest;
use crate::scripted::{Act, Connection, Left, Listening, chunked};

/// What is waited for here takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// A request that came.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) what: String,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("(absent)", |value| value.to_str().unwrap())
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.headers.contains_key(name)
    }

    pub(crate) fn id(&self) -> String {
        let body: Value = serde_json::from_str(&self.body).unwrap_or_default();
        body["id"].to_string()
    }
}

#[derive(Default)]
struct Script {
    seen: Vec<Seen>,
    first: VecDeque<Reply>,
    always: Option<Reply>,
    streams: VecDeque<Reply>,
    resumed: VecDeque<Reply>,
    by_method: HashMap<&'static str, VecDeque<Reply>>,
    discover: Option<Reply>,
    sessions: usize,
    stateless: bool,
    last_call_id: String,
}

#[derive(Default)]
struct Inner {
    script: Mutex<Script>,
    connections: AtomicUsize,
    /// Of which its client still has its end.
    open: AtomicUsize,
    hung_up: AtomicUsize,
    /// Something that can be asked for changed.
    changed: Notify,
    closing: Mutex<CancellationToken>,
    answered: Notify,
    /// Calls that a stream waits for, see [`Reply::on_call`].
    awaited: AtomicUsize,
    called: Notify,
}

pub(crate) struct Server {
    inner: Arc<Inner>,
    listening: Listening,
}

impl Server {
    pub(crate) async fn start(reply: Reply) -> Self {
        let script = Script {
            always: Some(reply),
            ..Script::default()
        };
        let inner = Arc::new(Inner {
            script: Mutex::new(script),
            awaited: AtomicUsize::new(1),
            ..Inner::default()
        });
        let serving = Arc::clone(&inner);
        let listening = Listening::start(move |stream| serve(stream, Arc::clone(&serving)));
        Self {
            inner,
            listening: listening.await,
        }
    }

    pub(crate) fn url(&self) -> String {
        self.listening.url()
    }

    pub(crate) fn authority(&self) -> String {
        self.listening.address.to_string()
    }

    fn script<T>(&self, with: impl FnOnce(&mut Script) -> T) -> T {
        with(&mut self.inner.script.lock().unwrap())
    }

    pub(crate) fn first(&self, replies: Vec<Reply>) {
        self.script(|s| s.first = replies.into());
    }

    pub(crate) fn always(&self, reply: Reply) {
        self.script(|s| s.always = Some(reply));
    }

    /// The streams on which the server speaks unasked.
    pub(crate) fn on_get(&self, replies: Vec<Reply>) {
        self.script(|s| s.streams = replies.into());
    }

    /// What is left of streams that were cut.
    pub(crate) fn on_resume(&self, replies: Vec<Reply>) {
        self.script(|s| s.resumed = replies.into());
    }

    /// The last one stays.
    pub(crate) fn on_method(&self, method: &'static str, replies: Vec<Reply>) {
        self.script(|s| s.by_method.insert(method, replies.into()));
    }

    pub(crate) fn on_discover(&self, reply: Reply) {
        self.script(|s| s.discover = Some(reply));
    }

    /// So many calls must have come before a stream with [`Reply::on_call`] goes on.
    pub(crate) fn await_calls(&self, calls: usize) {
        self.inner.awaited.store(calls, Ordering::SeqCst);
    }

    pub(crate) fn without_sessions(&self) {
        self.script(|s| s.stateless = true);
    }

    pub(crate) fn count(&self, what: &str) -> usize {
        self.script(|s| s.seen.iter().filter(|seen| seen.what == what).count())
    }

    pub(crate) fn calls(&self) -> usize {
        self.count("tools/call")
    }

    pub(crate) fn last(&self, what: &str) -> Seen {
        let last = self.script(|s| s.seen.iter().rfind(|seen| seen.what == what).cloned());
        last.unwrap_or_else(|| panic!("no {what} came"))
    }

    pub(crate) fn ids_are_unique(&self) -> bool {
        self.script(|s| {
            let calls = s.seen.iter().filter(|seen| seen.what == "tools/call");
            let mut ids = HashSet::new();
            calls.map(Seen::id).all(|id| ids.insert(id))
        })
    }

    pub(crate) fn connections(&self) -> usize {
        self.inner.connections.load(Ordering::SeqCst)
    }

    /// Calls whose client went away while they hung.
    pub(crate) fn hung_up(&self) -> usize {
        self.inner.hung_up.load(Ordering::SeqCst)
    }

    /// Closes those on which nothing is asked, and returns when their clients know.
    pub(crate) async fn close_connections(&self) {
        std::mem::take(&mut *self.inner.closing.lock().unwrap()).cancel();
        self.until(|server| server.inner.open.load(Ordering::SeqCst) == 0)
            .await;
    }

    pub(crate) async fn until(&self, holds: impl Fn(&Self) -> bool) {
        let comes_true = async {
            loop {
                let changed = self.inner.changed.notified();
                tokio::pin!(changed);
                // Heard from here on: no change is missed.
                changed.as_mut().enable();
                if holds(self) {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(PATIENCE, comes_true)
            .await
            .expect("it comes true");
    }
}

async fn serve(stream: TcpStream, inner: Arc<Inner>) {
    inner.connections.fetch_add(1, Ordering::SeqCst);
    inner.open.fetch_add(1, Ordering::SeqCst);
    answer_all(Connection::new(stream), &inner).await;
    inner.open.fetch_sub(1, Ordering::SeqCst);
    inner.changed.notify_waiters();
}

async fn answer_all(mut connection: Connection, inner: &Arc<Inner>) {
    loop {
        let closing = inner.closing.lock().unwrap().clone();
        let request = tokio::select! {
            () = closing.cancelled() => {
                let _ = connection.stream.shutdown().await;
                let _ = connection.stream.read_to_end(&mut Vec::new()).await;
                return;
            }
            request = connection.next() => request,
        };
        let Some(request) = request else {
            return;
        };
        let method = request.method.clone();
        let seen = Seen::of(request);
        let reply = inner.decide(&method, seen.clone());
        inner.changed.notify_waiters();
        match connection.play(inner.acts(seen, reply)).await {
            Left::Open => {}
            Left::Closed => return,
            Left::HungUp => {
                inner.hung_up.fetch_add(1, Ordering::SeqCst);
                inner.changed.notify_waiters();
                return;
            }
        }
    }
}

impl Seen {
    fn of(request: WireRequest) -> Self {
        let json = request.json();
        let what = match json["method"].as_str() {
            _ if request.headers.contains_key("last-event-id") => "resume".into(),
            _ if request.method != "POST" => request.method,
            Some(method) => method.to_owned(),
            None => "answer".into(),
        };
        Self {
            what,
            path: request.target,
            headers: request.headers,
            body: String::from_utf8(request.body).unwrap(),
        }
    }
}

impl Inner {
    fn decide(&self, method: &str, seen: Seen) -> Reply {
        let mut script = self.script.lock().unwrap();
        let (what, id, body) = (seen.what.clone(), seen.id(), seen.body.clone());
        script.seen.push(seen);
        if let Some(replies) = script.by_method.get_mut(what.as_str()) {
            let last = replies.len() == 1;
            let reply = if last {
                replies.front().cloned()
            } else {
                replies.pop_front()
            };
            return reply.unwrap();
        }
        match what.as_str() {
            "GET" | "resume" => {
                let scripted = match what.as_str() {
                    "GET" => &mut script.streams,
                    _ => &mut script.resumed,
                };
                let reply = scripted.pop_front();
                reply.unwrap_or_else(|| Reply::sse_open(": nothing\n\n"))
            }
            "DELETE" => Reply::json(200, ""),
            "answer" => {
                self.answered.notify_one();
                Reply::json(202, "")
            }
            "initialize" => {
                script.sessions += 1;
                let reply = Reply::result(INITIALIZED);
                let id = format!("s{}", script.sessions);
                if script.stateless {
                    return reply;
                }
                reply.header("mcp-session-id", String::leak(id))
            }
            "server/discover" => {
                let reply = script.discover.clone();
                reply.unwrap_or_else(|| Reply::result(DISCOVERED))
            }
            "tools/list" if body.contains("cursor") => Reply::result(r#"{"tools":[{"name":"b"}]}"#),
            "tools/list" => Reply::result(FIRST_PAGE),
            "logging/setLevel" | "resources/subscribe" => Reply::result("{}"),
            "subscriptions/listen" => Reply::events(LISTENED),
            "tools/call" => {
                script.last_call_id = id;
                let calls = script.seen.iter().filter(|s| s.what == "tools/call");
                if calls.count() >= self.awaited.load(Ordering::SeqCst) {
                    self.called.notify_one();
                }
                let first = script.first.pop_front();
                first.or_else(|| script.always.clone()).unwrap()
            }
            _ if method == "POST" => Reply::json(202, ""),
            other => panic!("{other} came"),
        }
    }

    fn acts(self: &Arc<Self>, seen: Seen, reply: Reply) -> Vec<Act> {
        let mut acts = vec![Act::pause(reply.after)];
        if let Some(raw) = reply.raw {
            acts.extend([Act::send(raw), Act::Close]);
            return acts;
        }
        if reply.hang {
            acts.push(Act::hang());
            return acts;
        }
        let mut head = format!(
            "HTTP/1.1 {} X\r\ntransfer-encoding: chunked\r\n",
            reply.status
        );
        for (name, value) in &reply.headers {
            let _ = write!(head, "{name}: {}\r\n", value.to_str().unwrap());
        }
        acts.push(Act::send(head + "\r\n"));
        let inner = Arc::clone(self);
        if reply.on_call {
            acts.push(Act::wait(async move { inner.called.notified().await }));
        }
        let inner = Arc::clone(self);
        if let Some(question) = reply.asks {
            acts.push(Act::chunk(format!("data: {question}\n\n")));
            acts.push(Act::wait(async move { inner.answered.notified().await }));
        }
        let inner = Arc::clone(self);
        if !reply.body.is_empty() {
            // The call that a stream is about may come while the stream waits for it.
            let body = stream::once(async move {
                let id = match seen.what.as_str() {
                    "GET" | "resume" => inner.script.lock().unwrap().last_call_id.clone(),
                    _ => seen.id(),
                };
                chunked(reply.body.replace("ID", &id))
            });
            acts.push(Act::SendAll(body.boxed()));
        }
        acts.push(if reply.open {
            Act::hang()
        } else {
            Act::last_chunk()
        });
        acts
    }
}

pub(crate) const INITIALIZED: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{"logging":{},
    "tools":{"listChanged":true},"resources":{"subscribe":true}},
    "serverInfo":{"name":"fixture","version":"1"},"instructions":"do"}"#;
pub(crate) const DISCOVERED: &str = r#"{"resultType":"complete","supportedVersions":["2026-07-28"],
    "capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private","instructions":"do",
    "_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fixture","version":"1"}}}"#;
const FIRST_PAGE: &str = r#"{"tools":[{"name":"a","inputSchema":{"type":"object","properties":
    {"r":{"type":"string","x-mcp-header":"Region"}}}}],"nextCursor":"2"}"#;
const LISTENED: &[&str] = &[
    r#"{"method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":ID},"notifications":{"toolsListChanged":true}}}"#,
    r#"{"method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":ID}}}"#,
    r#"{"id":ID,"result":{"resultType":"complete"}}"#,
];
