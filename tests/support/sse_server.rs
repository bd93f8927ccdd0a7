//! A server of the transport of 2024-11-05 that does what the name of the tool says: an event stream
//! for each client, posts beside it, and every answer on the stream. No clocks: what waits, waits for
//! a message.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use hyper::header::HeaderValue;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};

use crate::http_request::WireRequest;
use crate::scripted::{Act, Scripted, chunked};

/// How the next POST of a method is answered instead of being handled.
#[derive(Debug, Clone)]
pub(crate) enum Refusal {
    Status(u16, &'static str),
    /// The connection ends without a response; the message counts as heard.
    Reset,
    /// The message is handled, and acknowledged only after its answer was given.
    Late,
}

#[derive(Debug, Default)]
struct Script {
    /// What the stream names first; `ID` becomes the line's. `None`: nothing.
    endpoint: Option<String>,
    refusals: Vec<(String, Refusal)>,
    /// The value that `Authorization` must have.
    token: Option<String>,
    lines: HashMap<u64, mpsc::Sender<Bytes>>,
    opened: u64,
    /// Calls that wait, by their nonce.
    held: HashMap<String, (u64, Value)>,
    freed: HashSet<String>,
    asked: HashMap<String, (u64, Value)>,
    seen: Vec<(u64, Value)>,
    credentials: Vec<Option<HeaderValue>>,
    queries: Vec<String>,
}

#[derive(Debug, Default)]
struct Inner {
    script: Mutex<Script>,
    changed: Notify,
}

#[derive(Debug)]
pub(crate) struct SseServer {
    inner: Arc<Inner>,
    pub(crate) address: SocketAddr,
    _server: Scripted,
}

impl SseServer {
    pub(crate) async fn start() -> Self {
        Self::at("127.0.0.1:0").await
    }

    pub(crate) async fn at(address: &str) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let inner = Arc::<Inner>::default();
        let answering = Arc::clone(&inner);
        let server = Scripted::on(listener, move |request| answer(&answering, request));
        let server = Self {
            inner,
            address: server.address(),
            _server: server,
        };
        server.endpoint("/message?sessionId=ID");
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/sse", self.address)
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.inner.script.lock().unwrap()
    }

    pub(crate) fn endpoint(&self, endpoint: &str) {
        self.script().endpoint = Some(endpoint.to_owned());
    }

    pub(crate) fn names_no_endpoint(&self) {
        self.script().endpoint = None;
    }

    pub(crate) fn wants(&self, token: &str) {
        self.script().token = Some(token.to_owned());
    }

    pub(crate) fn refuse(&self, method: &str, refusal: Refusal) {
        self.script().refusals.push((method.to_owned(), refusal));
    }

    /// How many streams were opened.
    pub(crate) fn opened(&self) -> u64 {
        self.script().opened
    }

    /// How many are open.
    pub(crate) fn open(&self) -> usize {
        let script = self.script();
        script
            .lines
            .values()
            .filter(|line| !line.is_closed())
            .count()
    }

    /// Ends all streams.
    pub(crate) fn cut(&self) {
        self.script().lines.clear();
    }

    /// The messages of that method, or the calls of that tool.
    pub(crate) fn seen(&self, what: &str) -> Vec<Value> {
        let script = self.script();
        let of = |message: &Value| message["method"] == what || message["params"]["name"] == what;
        let seen = script.seen.iter().map(|(_, message)| message);
        seen.filter(|message| of(message)).cloned().collect()
    }

    /// `Authorization` as it came with each POST.
    pub(crate) fn credentials(&self) -> Vec<Option<HeaderValue>> {
        self.script().credentials.clone()
    }

    /// The query of each request for a stream and of each POST.
    pub(crate) fn queries(&self) -> Vec<String> {
        self.script().queries.clone()
    }

    pub(crate) async fn until(&self, holds: impl Fn(&Self) -> bool) {
        let waiting = async {
            loop {
                let changed = self.inner.changed.notified();
                if holds(self) {
                    return;
                }
                changed.await;
            }
        };
        let waited = tokio::time::timeout(std::time::Duration::from_secs(20), waiting).await;
        waited.expect("it comes true");
    }
}

fn answer(inner: &Arc<Inner>, request: &WireRequest) -> Vec<Act> {
    let authorization = request.headers.get("authorization");
    let token = inner.script.lock().unwrap().token.clone();
    if token.is_some_and(|token| authorization.is_none_or(|given| *given != *token)) {
        let challenge = "401 Unauthorized\r\nwww-authenticate: Bearer realm=\"sse\"";
        return vec![Act::response(challenge, "who are you?")];
    }
    let note_query = || {
        let mut script = inner.script.lock().unwrap();
        script.queries.push(request.query().to_owned());
    };
    match (&*request.method, request.path()) {
        ("GET", "/sse") => {
            note_query();
            open(inner)
        }
        (_, "/sse") => plain(405, "Method Not Allowed"),
        ("GET", path) if path.starts_with("/.well-known/") => plain(200, "metadata"),
        ("POST", "/message" | "/deep/message") => {
            note_query();
            let line = request.query().split('&').next();
            let line = line.and_then(|it| it.split_once('=')?.1.parse().ok());
            let Ok(message) = serde_json::from_slice(&request.body) else {
                return vec![Act::Close];
            };
            let credentials = authorization.cloned();
            inner.script.lock().unwrap().credentials.push(credentials);
            post(inner, line.unwrap_or(0), message)
        }
        _ => plain(404, "Not Found"),
    }
}

fn plain(status: u16, text: &str) -> Vec<Act> {
    vec![Act::response(&format!("{status} Said"), text)]
}

fn open(inner: &Arc<Inner>) -> Vec<Act> {
    let mut script = inner.script.lock().unwrap();
    script.opened += 1;
    let line = script.opened;
    let (events, receiver) = mpsc::channel(4096);
    let first = script.endpoint.as_ref().map(|endpoint| {
        let endpoint = endpoint.replace("ID", &line.to_string());
        format!(": hello\n\nevent: endpoint\ndata: {endpoint}\n\n")
    });
    events
        .try_send(first.unwrap_or_else(|| ":\n\n".into()).into())
        .unwrap();
    script.lines.insert(line, events);
    drop(script);
    inner.changed.notify_waiters();
    let reader = Reader {
        events: receiver,
        inner: Arc::clone(inner),
    };
    let events = stream::unfold(reader, |mut reader| async {
        let bytes = reader.events.recv().await?;
        Some((chunked(bytes), reader))
    });
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    vec![
        Act::send(head),
        Act::SendAll(events.boxed()),
        Act::last_chunk(),
    ]
}

/// The client's end of a stream.
struct Reader {
    events: mpsc::Receiver<Bytes>,
    inner: Arc<Inner>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.events.close();
        self.inner.changed.notify_waiters();
    }
}

fn post(inner: &Arc<Inner>, line: u64, message: Value) -> Vec<Act> {
    let method = message["method"].as_str().unwrap_or_default();
    let refusal = {
        let mut script = inner.script.lock().unwrap();
        let at = script.refusals.iter().position(|(of, _)| of == method);
        let refusal = at.map(|at| script.refusals.remove(at).1);
        if !script.lines.contains_key(&line) {
            return plain(404, "Session not found");
        }
        if let Some(Refusal::Status(status, text)) = refusal {
            return plain(status, text);
        }
        script.seen.push((line, message.clone()));
        script.hear(line, &message);
        refusal
    };
    inner.changed.notify_waiters();
    let mut acts = plain(202, "Accepted");
    match refusal {
        Some(Refusal::Reset) => acts = vec![Act::Close],
        Some(Refusal::Late) => {
            let inner = Arc::clone(inner);
            let answered = async move { inner.until_answered(&message["id"]).await };
            acts.insert(0, Act::wait(answered));
        }
        Some(Refusal::Status(..)) | None => {}
    }
    acts
}

impl Inner {
    /// Until no call of that id waits.
    async fn until_answered(&self, id: &Value) {
        loop {
            let changed = self.changed.notified();
            let held = self.script.lock().unwrap().held.clone();
            if !held.values().any(|(_, held)| held == id) {
                return;
            }
            changed.await;
        }
    }
}

impl Script {
    fn write(&self, line: u64, message: &Value) {
        self.event(line, &format!("event: message\ndata: {message}\n\n"));
    }

    fn event(&self, line: u64, text: &str) {
        if let Some(events) = self.lines.get(&line) {
            let _ = events.try_send(text.to_owned().into());
        }
    }

    fn result(&self, line: u64, id: &Value, result: &Value) {
        self.write(line, &json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    fn text(&self, line: u64, id: &Value, text: &str) {
        self.result(
            line,
            id,
            &json!({"content": [{"type": "text", "text": text}]}),
        );
    }

    fn hear(&mut self, line: u64, message: &Value) {
        let id = &message["id"];
        match message["method"].as_str() {
            Some("initialize") => self.result(
                line,
                id,
                &json!({"protocolVersion": "2024-11-05", "capabilities": {"tools": {"listChanged": true}},
                       "serverInfo": {"name": "sse-fixture", "version": "1"}, "instructions": "mind the gap"}),
            ),
            Some("tools/list") => {
                let tool = |name| json!({"name": name, "inputSchema": {"type": "object"}});
                let tools: Vec<Value> = TOOLS.split(' ').map(tool).collect();
                self.result(line, id, &json!({"tools": tools}));
            }
            Some("tools/call") => self.call(line, id, &message["params"]),
            Some("ping") => self.result(line, id, &json!({})),
            Some(_) if !id.is_null() => {
                let error = json!({"code": -32601, "message": "Method not found"});
                self.write(line, &json!({"jsonrpc": "2.0", "id": id, "error": error}));
            }
            Some(_) => {}
            None => {
                let asked = id.as_str().and_then(|id| self.asked.remove(id));
                let Some((line, call)) = asked else { return };
                let code = &message["error"]["code"];
                let text = if code.is_null() {
                    let name = message["result"]["content"]["name"].as_str();
                    name.map(str::to_owned)
                } else {
                    Some(format!("refused {code}"))
                };
                self.text(line, &call, &text.unwrap_or_else(|| "{}".into()));
            }
        }
    }

    fn call(&mut self, line: u64, id: &Value, params: &Value) {
        let arguments = &params["arguments"];
        match params["name"].as_str().unwrap_or_default() {
            "echo" => self.text(line, id, arguments["text"].as_str().unwrap_or_default()),
            "line" => self.text(line, id, &line.to_string()),
            "hold" => {
                let nonce = arguments["nonce"].as_str().unwrap_or_default();
                if self.freed.contains(nonce) {
                    self.text(line, id, nonce);
                } else {
                    self.held.insert(nonce.to_owned(), (line, id.clone()));
                }
            }
            "release" => {
                for nonce in arguments["nonces"].as_array().into_iter().flatten() {
                    let nonce = nonce.as_str().unwrap();
                    self.freed.insert(nonce.to_owned());
                    if let Some((line, id)) = self.held.remove(nonce) {
                        self.text(line, &id, nonce);
                    }
                }
                self.text(line, id, "released");
            }
            "progress" => {
                let token = &params["_meta"]["progressToken"];
                for (token, step) in [(token, 1), (&json!("foreign"), 2), (token, 3)] {
                    let params = json!({"progressToken": token, "progress": step, "total": 3});
                    let method = "notifications/progress";
                    self.write(
                        line,
                        &json!({"jsonrpc": "2.0", "method": method, "params": params}),
                    );
                }
                self.text(line, id, "done");
            }
            "ask" => {
                let question = format!("q{}", self.seen.len());
                self.asked.insert(question.clone(), (line, id.clone()));
                let method = arguments["method"].as_str().unwrap_or("elicitation/create");
                let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
                let params = json!({"message": "Your name?", "requestedSchema": schema});
                self.write(
                    line,
                    &json!({"jsonrpc": "2.0", "id": question, "method": method, "params": params}),
                );
            }
            "changed" => {
                let method = "notifications/tools/list_changed";
                for line in self.lines.keys() {
                    self.write(*line, &json!({"jsonrpc": "2.0", "method": method}));
                }
                self.text(line, id, "changed");
            }
            other => self.misbehave(line, id, other, arguments),
        }
    }

    fn misbehave(&mut self, line: u64, id: &Value, tool: &str, arguments: &Value) {
        match tool {
            "junk" => {
                self.event(
                    line,
                    "data: no JSON\n\ndata:\n\nevent: other\ndata: {\"id\":1}\n\nid: 7\n\n",
                );
                self.event(
                    line,
                    "event: endpoint\ndata: http://127.0.0.1:9/elsewhere\n\n",
                );
                let answer = json!({"content": [{"type": "text", "text": "clean"}]});
                let answer = json!({"jsonrpc": "2.0", "id": id, "result": answer});
                // The default type, over several lines.
                let pretty = serde_json::to_string_pretty(&answer).unwrap();
                self.event(
                    line,
                    &format!("data: {}\r\n\r\n", pretty.replace('\n', "\r\ndata: ")),
                );
            }
            "twice" => {
                self.text(line, id, "first");
                self.text(line, id, "second");
            }
            "wrong_id" => self.text(line, &json!(id.as_u64().unwrap_or(0) + 1000), "wrong"),
            "unreadable" => {
                let half = r#"{"content":[{"type":"text","text":"\ud83d"}]}"#;
                self.event(
                    line,
                    &format!("data: {{\"id\":{id},\"result\":{half}}}\n\n"),
                );
            }
            "not_utf8" => {
                let bytes = Bytes::from_static(b"data: \xff\xfe\n\n");
                let _ = self.lines[&line].try_send(bytes);
            }
            "last_words" => {
                let answer = json!({"content": [{"type": "text", "text": "last"}]});
                let answer = json!({"jsonrpc": "2.0", "id": id, "result": answer});
                let mut frame = format!("data: {answer}\n\n").into_bytes();
                frame.extend_from_slice(b"data: \xff\xfe\n\n");
                let _ = self.lines[&line].try_send(frame.into());
            }
            "long" => {
                let bytes = arguments["bytes"]
                    .as_u64()
                    .and_then(|n| usize::try_from(n).ok());
                // It may hold the answer to any call. A long text would be read over.
                self.event(line, &format!("data: [{}\n\n", "x".repeat(bytes.unwrap())));
            }
            "large" => {
                let bytes = arguments["bytes"].as_u64().unwrap();
                self.text(line, id, &"x".repeat(usize::try_from(bytes).unwrap()));
            }
            "cut" => drop(self.lines.remove(&line)),
            _ => {
                let error = json!({"code": -32602, "message": "Unknown tool"});
                self.write(line, &json!({"jsonrpc": "2.0", "id": id, "error": error}));
            }
        }
    }
}

const TOOLS: &str = "echo line hold release progress ask changed junk twice wrong_id unreadable not_utf8 last_words long cut";
