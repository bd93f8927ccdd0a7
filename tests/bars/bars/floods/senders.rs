//! The clients that flood. Each function floods once and tells what became of it.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

/// The bodies of one flood.
const BODIES: usize = 200;

/// A little less than `body_bytes_max` at its default.
const BODY_BYTES: usize = (4 << 20) - 4096;

/// The clients that do not read.
const DEAF: usize = 60;

/// What is unfinished stays unfinished for so long.
const HELD: Duration = Duration::from_secs(3);

/// Clients that do not read stay for so long: longer than raincheck writes to them.
const DEAF_FOR: Duration = Duration::from_secs(35);

/// A flood is over after so long, whatever became of it.
const PATIENCE: Duration = Duration::from_mins(1);

/// What became of the requests of one flood.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Answered, or waited for as long as the client stayed.
    pub(super) taken: usize,
    /// By 503, or by the end of the connection.
    pub(super) refused: usize,
    pub(super) otherwise: Vec<String>,
}

impl Outcome {
    fn note(&mut self, status: u16) {
        match status {
            200 => self.taken += 1,
            503 => self.refused += 1,
            other => self.otherwise.push(format!("HTTP {other}")),
        }
    }
}

/// Every body comes whole.
pub(super) async fn whole_bodies(address: SocketAddr) -> Outcome {
    let request = Bytes::from(request(address, "work", BODY_BYTES));
    let mut flood = JoinSet::new();
    for _ in 0..BODIES {
        flood.spawn(whole(address, request.clone()));
    }
    let mut outcome = Outcome::default();
    for status in flood.join_all().await {
        match status {
            Ok(status) => outcome.note(status),
            Err(why) => outcome.otherwise.push(why),
        }
    }
    outcome
}

async fn whole(address: SocketAddr, request: Bytes) -> Result<u16, String> {
    let mut stream = TcpStream::connect(address)
        .await
        .map_err(|error| error.to_string())?;
    let (mut reading, mut writing) = stream.split();
    let mut head = [0; 12];
    let answered = async {
        // A refused body is not read to its end: then writing fails, and the answer is there all the same.
        let (_, read) = tokio::join!(writing.write_all(&request), reading.read_exact(&mut head));
        read
    };
    match tokio::time::timeout(PATIENCE, answered).await {
        Ok(Ok(_)) => {
            let status = std::str::from_utf8(&head).ok();
            let status = status.and_then(|head| head.strip_prefix("HTTP/1.1 ")?.parse().ok());
            Ok(status.unwrap_or_default())
        }
        // Refused, and reset before the answer was read.
        Ok(Err(_)) => Ok(503),
        Err(_elapsed) => Err("no answer".to_owned()),
    }
}

/// The last byte of each body does not come.
pub(super) async fn slow_bodies(address: SocketAddr) -> Outcome {
    let mut request = request(address, "work", BODY_BYTES);
    request.pop();
    let request = Bytes::from(request);
    let mut flood = JoinSet::new();
    for _ in 0..BODIES {
        flood.spawn(unfinished(address, request.clone()));
    }
    let mut outcome = Outcome::default();
    let mut open = Vec::new();
    while let Some(sent) = flood.join_next().await {
        match sent.expect("a client") {
            Ok(stream) => open.push(stream),
            Err(()) => outcome.refused += 1,
        }
    }
    outcome.taken = open.len();
    tokio::time::sleep(HELD).await;
    outcome
}

/// The connection, or an error where it was closed or answered before everything was sent.
async fn unfinished(address: SocketAddr, request: Bytes) -> Result<TcpStream, ()> {
    let mut stream = TcpStream::connect(address).await.map_err(|_| ())?;
    let (mut reading, mut writing) = stream.split();
    let refused = tokio::select! {
        _ = reading.read_u8() => true,
        sent = tokio::time::timeout(PATIENCE, writing.write_all(&request)) => !matches!(sent, Ok(Ok(()))),
    };
    if refused { Err(()) } else { Ok(stream) }
}

/// Every body on one HTTP/2 connection; `ends`: it comes whole.
pub(super) async fn one_http2_connection(address: SocketAddr, ends: bool) -> Outcome {
    let body = Bytes::from(body("work", BODY_BYTES));
    let mut outcome = Outcome::default();
    let Ok(stream) = TcpStream::connect(address).await else {
        outcome.otherwise.push("no connection".to_owned());
        return outcome;
    };
    let shaken = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (sender, connection) = shaken.expect("an HTTP/2 connection");
    let connection = tokio::spawn(connection);
    let mut flood = JoinSet::new();
    for _ in 0..BODIES {
        flood.spawn(http2_request(sender.clone(), address, body.clone(), ends));
    }
    let patience = if ends { PATIENCE } else { HELD };
    // A slow body is never answered: the flood is over when nothing is refused any more.
    while let Ok(Some(answered)) = tokio::time::timeout(patience, flood.join_next()).await {
        match answered.expect("a client") {
            Ok(status) => outcome.note(status),
            Err(why) => outcome.otherwise.push(why),
        }
    }
    if ends {
        let unanswered = flood.len();
        outcome
            .otherwise
            .extend((0..unanswered).map(|_| "no answer".to_owned()));
    } else {
        outcome.taken += flood.len();
    }
    connection.abort();
    outcome
}

async fn http2_request(
    mut sender: http2::SendRequest<StreamBody<Pieces>>,
    address: SocketAddr,
    body: Bytes,
    ends: bool,
) -> Result<u16, String> {
    sender.ready().await.map_err(|error| error.to_string())?;
    let sent = if ends { body.len() } else { body.len() - 1 };
    let pieces = (0..sent).step_by(PIECE).map(move |from| {
        let piece = body.slice(from..sent.min(from + PIECE));
        Ok(Frame::data(piece))
    });
    let pieces = stream::iter(pieces);
    let body = if ends {
        pieces.boxed()
    } else {
        pieces.chain(stream::pending()).boxed()
    };
    let mut request = hyper::Request::post(format!("http://{address}/mcp"));
    for (name, value) in headers("work") {
        request = request.header(name, value);
    }
    let request = request.body(StreamBody::new(body)).expect("a request");
    let response = sender.send_request(request).await;
    let response = response.map_err(|error| format!("{error:?}"))?;
    let status = response.status().as_u16();
    let _ = response.into_body().collect().await;
    Ok(status)
}

/// A body as it is sent.
type Pieces = BoxStream<'static, std::io::Result<Frame<Bytes>>>;

const PIECE: usize = 64 << 10;

/// Clients that ask for a large result and do not read it.
pub(super) async fn deaf_clients(address: SocketAddr) -> Outcome {
    let request = Bytes::from(request(address, "large", 16));
    let mut flood = JoinSet::new();
    for _ in 0..DEAF {
        flood.spawn(deaf(address, request.clone()));
    }
    let mut outcome = Outcome::default();
    for asked in flood.join_all().await {
        match asked {
            Ok(_) => outcome.taken += 1,
            Err(why) => outcome.otherwise.push(why.to_string()),
        }
    }
    outcome
}

async fn deaf(address: SocketAddr, request: Bytes) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    SockRef::from(&socket).set_recv_buffer_size(4096)?;
    let mut stream = socket.connect(address).await?;
    stream.write_all(&request).await?;
    tokio::time::sleep(DEAF_FOR).await;
    Ok(stream)
}

/// The bytes of a call over HTTP/1.1.
fn request(address: SocketAddr, tool: &str, bytes: usize) -> Vec<u8> {
    let body = body(tool, bytes);
    let headers = headers(tool).map(|(name, value)| format!("{name}: {value}\r\n"));
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: {address}\r\ncontent-length: {}\r\n{}\r\n",
        body.len(),
        headers.concat()
    );
    (head + &body).into_bytes()
}

fn headers(tool: &str) -> [(&'static str, String); 5] {
    [
        ("content-type", "application/json".to_owned()),
        ("accept", "application/json, text/event-stream".to_owned()),
        ("mcp-protocol-version", "2026-07-28".to_owned()),
        ("mcp-method", "tools/call".to_owned()),
        ("mcp-name", tool.to_owned()),
    ]
}

/// A call of a client without Tasks, whose arguments are of that size.
fn body(tool: &str, bytes: usize) -> String {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "floods", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let arguments = json!({"text": "x".repeat(bytes)});
    let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string()
}
