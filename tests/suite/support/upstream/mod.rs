//! A scripted MCP server without Tasks, of either era, and everything it saw.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::{HeaderMap, Method, Request, Response};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

use super::http::{self, Body};
use super::{PATIENCE, eventually, within};
use crate::hyper_server;
use crate::scripted::Listening;

mod jobs;
mod legacy;
pub(crate) mod modern;
mod own;
pub(crate) mod own_events;
mod resumable;
mod sessions;
mod tools;
mod wayward;

pub(crate) use legacy::Greeting;
pub(crate) use tools::{FAITHFUL, long_text};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Era {
    #[default]
    Legacy,
    Modern,
}

/// What became of the calls of one nonce.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) started: u32,
    pub(crate) finished: u32,
    /// The proxy told the server, by the era's own signal, that no client waits.
    pub(crate) cancelled: u32,
    /// A modern leg that ended with questions.
    pub(crate) asked: u32,
}

impl Tally {
    pub(crate) fn running(self) -> u32 {
        self.started - self.finished - self.cancelled - self.asked
    }
}

type Calls = BTreeMap<String, Tally>;

/// One request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) verb: Method,
    pub(crate) path: String,
    pub(crate) query: Option<String>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Received {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// Everything that the connections of one server share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    era: Era,
    calls: watch::Sender<Calls>,
    received: watch::Sender<Vec<Received>>,
    released: watch::Sender<BTreeSet<String>>,
    sessions: Mutex<BTreeMap<String, Arc<legacy::Session>>>,
    /// Notifications that belong to no call, by method.
    news: News,
    listeners: watch::Sender<usize>,
    hangs: AtomicBool,
    challenges: AtomicBool,
    /// The `Authorization` that is not accepted any more.
    refused: Mutex<BTreeSet<Vec<u8>>>,
    forbids: AtomicBool,
    /// The HTTP status that calls end with, without a body. 0: their results.
    call_status: AtomicU16,
    keeps_events: AtomicBool,
    numbers_events: AtomicBool,
    tells_late: AtomicBool,
    answers_json: AtomicBool,
    takes_sessions: AtomicBool,
    sessionless: AtomicBool,
    refuses_politely: AtomicBool,
    greeting: Mutex<Greeting>,
    refuses_answers: AtomicBool,
    closes: AtomicBool,
    /// Tools that are listed beside the usual ones.
    extra_tools: Mutex<Vec<&'static str>>,
    /// The list of tools comes in two pages.
    pages: AtomicBool,
    /// The server has events of its own.
    has_events: AtomicBool,
    /// Job tools are listed.
    has_jobs: AtomicBool,
    /// The answers of the tools about jobs.
    jobs: jobs::Answers,
    /// Tasks of the server's own; `None` where it never makes any.
    own: Mutex<Option<own::Tasks>>,
    /// The most calls that ever ran at the same time.
    peak: AtomicU32,
    ways: wayward::Ways,
}

#[derive(Debug)]
struct News(broadcast::Sender<&'static str>);

impl Default for News {
    fn default() -> Self {
        Self(broadcast::Sender::new(64))
    }
}

impl Shared {
    fn tally(&self, nonce: &str, change: impl FnOnce(&mut Tally)) {
        self.calls.send_modify(|calls| {
            change(calls.entry(nonce.to_owned()).or_default());
            let running = calls.values().map(|tally| tally.running()).sum();
            self.peak.fetch_max(running, Ordering::Relaxed);
        });
    }

    fn listen(&self) -> broadcast::Receiver<&'static str> {
        let news = self.news.0.subscribe();
        self.listeners.send_modify(|count| *count += 1);
        news
    }

    async fn released(&self, nonce: &str) {
        let mut released = self.released.subscribe();
        let _ = released.wait_for(|names| names.contains(nonce)).await;
    }
}

/// A running server; gone when dropped, and its connections with it.
#[derive(Debug)]
pub(crate) struct Upstream {
    listening: Listening,
    shared: Arc<Shared>,
}

impl Upstream {
    pub(crate) async fn start(era: Era) -> Self {
        Self::start_at(era, ([127, 0, 0, 1], 0).into()).await
    }

    /// At the address of one that is gone.
    pub(crate) async fn start_at(era: Era, address: SocketAddr) -> Self {
        // The server before gives the port back as soon as its runtime comes to it.
        let bind = async || TcpListener::bind(address).await;
        let listener = eventually(PATIENCE, "a port for the server", bind).await;
        let shared = Arc::new(Shared {
            era,
            ..Shared::default()
        });
        let serving = Arc::clone(&shared);
        let serving = move |stream| serve(stream, Arc::clone(&serving));
        let listening = Listening::until(CancellationToken::new(), listener, serving);
        Self { listening, shared }
    }

    /// From now on the streams of a legacy server can be come back to.
    pub(crate) fn keep_events(&self) {
        self.shared.keeps_events.store(true, Ordering::Relaxed);
    }

    /// The same, but a call's stream tells of it with its second event only.
    pub(crate) fn keep_events_and_tell_late(&self) {
        self.shared.tells_late.store(true, Ordering::Relaxed);
        self.keep_events();
    }

    /// From now on this `Authorization` is refused.
    pub(crate) fn refuse(&self, authorization: &str) {
        let mut refused = self.shared.refused.lock().unwrap();
        refused.insert(authorization.as_bytes().to_vec());
    }

    /// Ends every stream of a legacy server that is read. The calls go on.
    pub(crate) fn cut(&self) {
        for session in self.shared.sessions.lock().unwrap().values() {
            session.cut();
        }
    }

    /// The same, and nothing can be come back to.
    pub(crate) fn cut_and_forget(&self) {
        for session in self.shared.sessions.lock().unwrap().values() {
            session.forget();
        }
    }

    /// How often a stream was come back to.
    pub(crate) fn resumed(&self) -> usize {
        resumed(&self.shared.received.borrow())
    }

    /// Waits until that was so often.
    pub(crate) async fn until_resumed(&self, times: usize) {
        let mut received = self.shared.received.subscribe();
        let event = received.wait_for(|all| resumed(all) >= times);
        within(PATIENCE, "a stream is come back to", event)
            .await
            .unwrap();
    }

    /// From now on a legacy server answers calls with one JSON body, its head included when they end.
    pub(crate) fn answer_json(&self) {
        self.shared.answers_json.store(true, Ordering::Relaxed);
    }

    /// From now on a modern server refuses what is not modern with status 200.
    pub(crate) fn refuse_politely(&self) {
        self.shared.refuses_politely.store(true, Ordering::Relaxed);
    }

    /// From now on a legacy server treats who opens a session so.
    pub(crate) fn greet(&self, how: Greeting) {
        *self.shared.greeting.lock().unwrap() = how;
    }

    /// From now on a legacy server refuses the answers to its questions.
    pub(crate) fn refuse_answers(&self) {
        self.shared.refuses_answers.store(true, Ordering::Relaxed);
    }

    /// Each connection that is opened from now on is for one request.
    pub(crate) fn close_connections(&self) {
        self.shared.closes.store(true, Ordering::Relaxed);
    }

    /// From now on it has a tool of this name, too, which is listed first.
    pub(crate) fn offer(&self, tool: &'static str) {
        self.shared.extra_tools.lock().unwrap().push(tool);
    }

    /// From now on the server, which must be a modern one, has events of its own.
    pub(crate) fn have_events(&self) {
        self.shared.has_events.store(true, Ordering::Relaxed);
    }

    /// From now on the list of tools comes in two pages.
    pub(crate) fn list_in_pages(&self) {
        self.shared.pages.store(true, Ordering::Relaxed);
    }

    /// From here on a modern server makes tasks of its own for clients that know them.
    pub(crate) fn make_tasks(&self) {
        *self.shared.own.lock().unwrap() = Some(own::Tasks::default());
    }

    pub(crate) fn url(&self) -> String {
        self.listening.url()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listening.address
    }

    /// What became of the calls of this nonce so far.
    pub(crate) fn tally(&self, nonce: &str) -> Tally {
        self.shared
            .calls
            .borrow()
            .get(nonce)
            .copied()
            .unwrap_or_default()
    }

    /// The most calls that ever ran at the same time.
    pub(crate) fn peak(&self) -> u32 {
        self.shared.peak.load(Ordering::Relaxed)
    }

    /// All calls that ever reached a tool.
    pub(crate) fn executions(&self) -> u32 {
        self.shared
            .calls
            .borrow()
            .values()
            .map(|tally| tally.started)
            .sum()
    }

    /// Waits until the calls of this nonce are as wanted.
    pub(crate) async fn until(&self, nonce: &str, what: &str, wanted: impl Fn(Tally) -> bool) {
        let mut calls = self.shared.calls.subscribe();
        let event = calls.wait_for(|calls| wanted(calls.get(nonce).copied().unwrap_or_default()));
        let sentence = format!("the server's calls {nonce:?} {what}");
        within(PATIENCE, &sentence, event).await.unwrap();
    }

    pub(crate) async fn until_started(&self, nonce: &str) {
        self.until(nonce, "started", |tally| tally.started > 0)
            .await;
    }

    /// Waits until no call runs.
    pub(crate) async fn until_idle(&self) {
        within(PATIENCE, "no call runs at the server", self.idle()).await;
    }

    /// The same, for whoever has more to say when it does not come to that.
    pub(crate) async fn idle(&self) {
        let mut calls = self.shared.calls.subscribe();
        let idle = calls.wait_for(|calls| calls.values().all(|tally| tally.running() == 0));
        let _ = idle.await;
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.shared.received.borrow().clone()
    }

    /// The requests without the look of raincheck at its start, which has no credentials.
    pub(crate) fn received_of_clients(&self) -> Vec<Received> {
        let is_look = |one: &Received| {
            one.header("mcp-method") == Some("server/discover")
                && one.header("authorization").is_none()
        };
        let mut all = self.received();
        all.retain(|one| !is_look(one));
        all
    }

    /// The requests of one JSON-RPC method.
    pub(crate) fn requests(&self, method: &str) -> Vec<Received> {
        let mut all = self.received();
        all.retain(|received| received.json()["method"] == method);
        all
    }

    /// How often that tool was called.
    pub(crate) fn calls_of(&self, tool: &str) -> usize {
        let calls = self.requests("tools/call");
        let of_tool = calls
            .iter()
            .filter(|it| it.json()["params"]["name"] == tool);
        of_tool.count()
    }

    /// Waits for so many requests of one JSON-RPC method.
    pub(crate) async fn until_received(&self, method: &str, count: usize) {
        let mut received = self.shared.received.subscribe();
        let event = received.wait_for(|all| {
            let of_method = |one: &&Received| one.json()["method"] == method;
            all.iter().filter(of_method).count() >= count
        });
        let sentence = format!("{count} requests {method:?} at the server");
        within(PATIENCE, &sentence, event).await.unwrap();
    }

    /// Waits until a client listens to the messages that belong to no call.
    pub(crate) async fn until_listened(&self) {
        self.until_listening(1).await;
    }

    /// Waits until that was so often begun.
    pub(crate) async fn until_listening(&self, times: usize) {
        let mut listeners = self.shared.listeners.subscribe();
        let event = listeners.wait_for(|count| *count >= times);
        within(PATIENCE, "somebody listens at the server", event)
            .await
            .unwrap();
    }

    /// Lets the tool `held` of this nonce come to its end.
    pub(crate) fn release(&self, nonce: &str) {
        self.shared.released.send_modify(|names| {
            names.insert(nonce.to_owned());
        });
    }

    /// Sends a notification on every stream that is open for such.
    pub(crate) fn tell(&self, method: &'static str) {
        let _ = self.shared.news.0.send(method);
    }

    /// From now on every call runs to its end, and is answered with this status and nothing else. 429: it may come again in a second.
    /// 0: calls are answered as usual again.
    pub(crate) fn end_calls_with(&self, status: u16) {
        self.shared.call_status.store(status, Ordering::Relaxed);
    }
}

fn resumed(all: &[Received]) -> usize {
    let is_one = |one: &&Received| one.header("last-event-id").is_some();
    all.iter().filter(is_one).count()
}

pub(crate) const CHALLENGE: &str =
    r#"Bearer resource_metadata="http://127.0.0.1/.well-known/oauth-protected-resource""#;

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let keeps_alive = !shared.closes.load(Ordering::Relaxed);
    // A client that leaves is a connection that fails; the tallies tell of it.
    hyper_server::serve(stream, keeps_alive, move |request| {
        wayward::handle(Arc::clone(&shared), request)
    })
    .await;
}

async fn handle(shared: Arc<Shared>, request: Request<Incoming>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let Ok(body) = body.collect().await else {
        return http::empty(400);
    };
    let body = body.to_bytes();
    shared.received.send_modify(|all| {
        all.push(Received {
            verb: parts.method.clone(),
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().map(str::to_owned),
            headers: parts.headers.clone(),
            body: body.clone(),
        });
    });
    if shared.hangs.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
    if parts.uri.path().starts_with("/.well-known/") {
        return http::json(200, r#"{"resource":"http://127.0.0.1/mcp"}"#.to_owned());
    }
    let authorization = parts.headers.get("authorization");
    if authorization.is_some_and(|it| shared.refused.lock().unwrap().contains(it.as_bytes())) {
        return http::json(401, r#"{"error":"invalid_token"}"#.to_owned());
    }
    let challenges = shared.challenges.load(Ordering::Relaxed);
    if challenges && !parts.headers.contains_key("authorization") {
        let mut response = http::json(401, r#"{"error":"invalid_token"}"#.to_owned());
        response
            .headers_mut()
            .insert("www-authenticate", CHALLENGE.parse().unwrap());
        return response;
    }
    if parts.uri.path() != "/mcp" {
        return http::empty(404);
    }
    let is_alice = (parts.headers.get("authorization")).is_some_and(|it| it == "Bearer alice");
    if shared.forbids.load(Ordering::Relaxed) && !is_alice {
        return http::forbidden(&body);
    }
    if parts.method == Method::POST && !http::accepts_both(&parts) {
        return http::empty(406);
    }
    let status = shared.call_status.load(Ordering::Relaxed);
    if status > 0
        && let Some(tool) = http::called(&body)
    {
        shared.tally(&tool, |tally| {
            tally.started += 1;
            tally.finished += 1;
        });
        let mut response = http::empty(status);
        if status == 429 {
            let headers = response.headers_mut();
            headers.insert("retry-after", hyper::http::HeaderValue::from_static("1"));
        }
        return response;
    }
    let takes_sessions = shared.takes_sessions.load(Ordering::Relaxed);
    let version = parts.headers.get("mcp-protocol-version");
    match shared.era {
        Era::Modern if takes_sessions && version.is_none_or(|version| version != "2026-07-28") => {
            legacy::handle(&shared, &parts, &body).await
        }
        Era::Legacy => legacy::handle(&shared, &parts, &body).await,
        Era::Modern => modern::handle(&shared, &parts, &body).await,
    }
}
