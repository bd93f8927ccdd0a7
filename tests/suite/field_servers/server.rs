//! A server of each kind that says what a row of a table says, byte for byte: how real servers write their answers.

use futures_util::stream::{self, StreamExt as _};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::broadcast;

use crate::http_request::WireRequest;
use crate::scripted::{Act, Connection, Left, Listening, chunked};
use crate::support::{Config, Proxy};

/// How the server is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Streamable HTTP of 2026-07-28.
    Modern,
    /// Streamable HTTP of 2025, with sessions.
    Legacy,
    /// HTTP+SSE of 2024-11-05.
    Sse,
    /// A program's pipes, in the words of 2025.
    Program,
}

pub(crate) const WAYS: [Way; 4] = [Way::Modern, Way::Legacy, Way::Sse, Way::Program];

/// How a server writes.
#[derive(Clone, Copy)]
pub(crate) struct Writing {
    /// The answer with that id and result.
    pub(crate) message: fn(&str, &str) -> Vec<u8>,
    /// Only calls are answered so.
    pub(crate) calls_only: bool,
    /// The message as a program writes it.
    pub(crate) line: fn(Vec<u8>) -> Vec<u8>,
    /// The message as an event.
    pub(crate) event: fn(Vec<u8>) -> Vec<u8>,
    /// The answer to a POST is JSON, and no stream.
    pub(crate) is_json: bool,
    /// In place of the content type.
    pub(crate) kind: Option<&'static str>,
    /// Further lines of each head.
    pub(crate) head: &'static str,
    /// The body as it is sent.
    pub(crate) body: fn(Vec<u8>) -> Vec<u8>,
    /// A stream stays open behind its answer.
    pub(crate) stays_open: bool,
    /// What a notification is answered with, over HTTP.
    pub(crate) to_notification: &'static str,
    /// A line that a program writes for each notification.
    pub(crate) line_for_notification: &'static str,
}

pub(crate) fn message(id: &str, result: &str) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#).into()
}

pub(crate) const ACCEPTED: &str = "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n";

/// As all servers should write.
pub(crate) const PLAIN: Writing = Writing {
    message,
    calls_only: false,
    line: |message| [message, b"\n".to_vec()].concat(),
    event: |message| [b"event: message\ndata: ", &*message, b"\n\n"].concat(),
    is_json: false,
    kind: None,
    head: "",
    body: |body| body,
    stays_open: false,
    to_notification: ACCEPTED,
    line_for_notification: "",
};

/// The result of every call.
const RESULT: &str =
    r#"{"resultType":"complete","content":[{"type":"text","text":"done"}],"isError":false}"#;

/// What a server of that kind answers. `None`: the method is unknown.
fn result_of(way: Way, method: &str) -> Option<&'static str> {
    Some(match (way, method) {
        (Way::Modern, "server/discover") => {
            r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}"#
        }
        (Way::Legacy | Way::Program, "initialize") => {
            r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"field","version":"1"}}"#
        }
        (Way::Sse, "initialize") => {
            r#"{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"field","version":"1"}}"#
        }
        (_, "tools/list") => {
            r#"{"resultType":"complete","tools":[{"name":"t","inputSchema":{"type":"object"}}],"ttlMs":0,"cacheScope":"private"}"#
        }
        (_, "tools/call") => RESULT,
        (_, "ping") => "{}",
        _ => return None,
    })
}

/// A running server; gone when dropped.
pub(crate) struct FieldServer {
    way: Way,
    listening: Listening,
}

impl FieldServer {
    pub(crate) async fn start(way: Way, writing: Writing) -> Self {
        let (events, _) = broadcast::channel(64);
        let listening = Listening::start(move |stream| {
            let face = Face {
                way,
                writing,
                events: events.clone(),
            };
            face.serve(stream)
        });
        let listening = listening.await;
        Self { way, listening }
    }

    /// raincheck in front of the server.
    pub(crate) async fn behind(&self, config: Config) -> Proxy {
        let address = self.listening.address;
        match self.way {
            Way::Modern | Way::Legacy => config.start(&format!("http://{address}/mcp")).await,
            Way::Sse => config.start(&format!("http://{address}/sse")).await,
            Way::Program => {
                let port = address.port();
                // A program whose pipes are a connection to this test.
                let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; cat <&3 & exec cat >&3");
                let command = format!("command = [\"bash\", \"-c\", {script:?}]");
                config.section("upstream", &command).start("").await
            }
        }
    }
}

/// A message of a client. Strings of which only half of a pair is left are no text of Rust's.
fn read(message: &[u8]) -> Value {
    let text = String::from_utf8_lossy(message);
    let text = text.replace("\\ud83d", "?").replace("\\ude00", "?");
    serde_json::from_str(&text).unwrap_or_default()
}

/// One connection to the server.
struct Face {
    way: Way,
    writing: Writing,
    /// What is said on the streams of HTTP+SSE.
    events: broadcast::Sender<Vec<u8>>,
}

impl Face {
    async fn serve(self, stream: TcpStream) {
        match self.way {
            Way::Program => self.lines(stream).await,
            Way::Modern | Way::Legacy | Way::Sse => self.http(stream).await,
        }
    }

    /// The answer to a message, as this server writes it. `None`: it wants none.
    fn answer(&self, message: &Value) -> Option<Vec<u8>> {
        let method = message["method"].as_str()?;
        let id = message.get("id")?.to_string();
        let Some(result) = result_of(self.way, method) else {
            let error = r#"{"code":-32601,"message":"Method not found"}"#;
            return Some(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#).into());
        };
        if self.writing.calls_only && method != "tools/call" {
            return Some(self::message(&id, result));
        }
        Some((self.writing.message)(&id, result))
    }

    async fn lines(self, stream: TcpStream) {
        let (reader, mut write) = stream.into_split();
        let mut lines = BufReader::new(reader).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let message = read(line.as_bytes());
            if message.get("id").is_none() {
                let line = self.writing.line_for_notification;
                let _ = write.write_all(line.as_bytes()).await;
            }
            if let Some(answer) = self.answer(&message) {
                let is_call = message["method"] == "tools/call";
                let line = if self.writing.calls_only && !is_call {
                    (PLAIN.line)(answer)
                } else {
                    (self.writing.line)(answer)
                };
                let _ = write.write_all(&line).await;
            }
        }
    }

    async fn http(self, stream: TcpStream) {
        let mut connection = Connection::new(stream);
        while let Some(request) = connection.next().await {
            let acts = match (&*request.method, self.way) {
                ("GET", Way::Sse) => self.event_stream(),
                ("POST", Way::Sse) if request.target == "/sse" => {
                    vec![empty("405 Method Not Allowed")]
                }
                ("POST", _) => self.post(&request),
                ("DELETE", _) => vec![empty("200 OK")],
                _ => vec![empty("405 Method Not Allowed")],
            };
            if connection.play(acts).await != Left::Open {
                return;
            }
        }
    }

    fn post(&self, request: &WireRequest) -> Vec<Act> {
        let message = read(&request.body);
        let Some(answer) = self.answer(&message) else {
            return vec![Act::send(self.writing.to_notification)];
        };
        if self.way == Way::Sse {
            let _ = self.events.send((self.writing.event)(answer));
            return vec![empty("202 Accepted")];
        }
        let is_call = message["method"] == "tools/call";
        let writing = if self.writing.calls_only && !is_call {
            &PLAIN
        } else {
            &self.writing
        };
        let (kind, text) = if writing.is_json {
            ("content-type: application/json\r\n", answer)
        } else {
            (
                "content-type: text/event-stream\r\n",
                (writing.event)(answer),
            )
        };
        let session = if message["method"] == "initialize" && self.way == Way::Legacy {
            "mcp-session-id: s\r\n"
        } else {
            ""
        };
        let kind = writing.kind.unwrap_or(kind);
        let head = format!(
            "HTTP/1.1 200 OK\r\n{kind}{session}{}transfer-encoding: chunked\r\n\r\n",
            writing.head
        );
        let body = chunked((writing.body)(text));
        let end = if writing.stays_open {
            Act::hang()
        } else {
            Act::last_chunk()
        };
        vec![Act::send([head.as_bytes(), &body].concat()), end]
    }

    /// The stream of one client of HTTP+SSE, until it goes away.
    fn event_stream(&self) -> Vec<Act> {
        let endpoint = b"event: endpoint\ndata: /message\n\n".to_vec();
        let first = (self.writing.body)(endpoint);
        let kind = self
            .writing
            .kind
            .unwrap_or("content-type: text/event-stream\r\n");
        let head = format!("HTTP/1.1 200 OK\r\n{kind}{}\r\n", self.writing.head);
        let bytes = [head.as_bytes(), &first].concat();
        let events = stream::unfold(self.events.subscribe(), |mut events| async {
            let event = events.recv().await.ok()?;
            Some((event.into(), events))
        });
        vec![Act::send(bytes), Act::SendAll(events.boxed()), Act::Close]
    }
}

fn empty(status: &str) -> Act {
    Act::response(status, "")
}
