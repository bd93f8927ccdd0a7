//! A server that answers a request as soon as it has its head, as Node does where nobody reads the body, and
//! then takes the bytes that the head announced for the body. What follows is the next request.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::scripted::Listening;

/// The head of one request, as it came.
#[derive(Debug, Clone)]
pub(super) struct Head {
    pub(super) line: String,
    pub(super) headers: Vec<(String, String)>,
    /// Why it is none.
    pub(super) fault: Option<&'static str>,
}

impl Head {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers
            .find(|(own, _)| own == name)
            .map(|(_, value)| value.as_str())
    }
}

/// Gone when dropped.
#[derive(Debug)]
pub(super) struct Early {
    listening: Listening,
    seen: Arc<Mutex<Vec<Head>>>,
}

impl Early {
    pub(super) async fn start() -> Self {
        let seen = Arc::<Mutex<Vec<Head>>>::default();
        let into = Arc::clone(&seen);
        let listening = Listening::start(move |stream| serve(stream, Arc::clone(&into)));
        Self {
            listening: listening.await,
            seen,
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.listening.address
    }

    pub(super) fn url(&self) -> String {
        self.listening.url()
    }

    /// The requests of clients: without the look of raincheck at its start.
    pub(super) fn seen(&self) -> Vec<Head> {
        let mut seen = self.seen.lock().unwrap().clone();
        seen.retain(|head| head.header("mcp-method") != Some("server/discover"));
        seen
    }
}

async fn serve(mut stream: TcpStream, seen: Arc<Mutex<Vec<Head>>>) {
    let mut read = Vec::new();
    while let Some(end) = head_end(&mut stream, &mut read).await {
        let rest = read.split_off(end);
        let head = parse(&read);
        read = rest;
        let framing = head.fault.is_none().then(|| framing(&head));
        let is_post = head.line.starts_with("POST ");
        seen.lock().unwrap().push(head);
        let answer = if is_post {
            let json = r#"{"jsonrpc":"2.0","id":1,"result":{"early":true}}"#;
            format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{json}",
                json.len()
            )
        } else {
            "HTTP/1.1 405 No\r\ncontent-length: 0\r\n\r\n".to_owned()
        };
        let is_sent = stream.write_all(answer.as_bytes()).await.is_ok();
        let Some(framing) = framing.filter(|_| is_sent) else {
            return;
        };
        let body = match framing {
            Framing::Length(length) => Some(length),
            Framing::Chunked => chunked_end(&mut stream, &mut read).await,
        };
        let Some(body) = body else { return };
        while read.len() < body {
            if stream.read_buf(&mut read).await.unwrap_or(0) == 0 {
                return;
            }
        }
        read.drain(..body);
    }
}

enum Framing {
    Length(usize),
    Chunked,
}

fn framing(head: &Head) -> Framing {
    match head.header("content-length") {
        _ if head.header("transfer-encoding").is_some() => Framing::Chunked,
        Some(length) => Framing::Length(length.parse().unwrap()),
        None => Framing::Length(0),
    }
}

/// Where the head ends that these bytes begin with.
async fn head_end(stream: &mut TcpStream, read: &mut Vec<u8>) -> Option<usize> {
    loop {
        if let Some(at) = find(read, b"\r\n\r\n") {
            return Some(at + 4);
        }
        if stream.read_buf(read).await.unwrap_or(0) == 0 {
            return None;
        }
    }
}

/// Where the chunks end that these bytes begin with: no trailers are expected.
async fn chunked_end(stream: &mut TcpStream, read: &mut Vec<u8>) -> Option<usize> {
    let mut at = 0;
    loop {
        let line = find(&read[at..], b"\r\n");
        if let Some(line) = line {
            let size = std::str::from_utf8(&read[at..at + line]).ok()?;
            let size = usize::from_str_radix(size, 16).ok()?;
            at += line + 2 + size + 2;
            if size == 0 {
                return Some(at);
            }
        }
        if (line.is_none() || read.len() < at) && stream.read_buf(read).await.unwrap_or(0) == 0 {
            return None;
        }
        while read.len() < at {
            if stream.read_buf(read).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// As strict as it gets.
fn parse(head: &[u8]) -> Head {
    let text = String::from_utf8_lossy(head).into_owned();
    let mut lines = text.trim_end_matches("\r\n").split("\r\n");
    let line = lines.next().unwrap_or_default().to_owned();
    let mut fault = fault_of(&line, &text);
    let mut headers = Vec::new();
    for line in lines {
        let Some((name, value)) = line.split_once(':') else {
            fault = fault.or(Some("a line that is no header"));
            continue;
        };
        let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if name.is_empty() || !name.chars().all(is_token) {
            fault = fault.or(Some("a name that is none"));
        }
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut head = Head {
        line,
        headers,
        fault,
    };
    head.fault = head.fault.or_else(|| fault_of_framing(&head));
    head
}

fn fault_of(line: &str, text: &str) -> Option<&'static str> {
    let bare = text.replace("\r\n", "");
    let parts: Vec<&str> = line.split(' ').collect();
    if bare.contains(|c: char| c.is_control() && c != '\t') {
        Some("a control character")
    } else if parts.len() != 3 || parts[2] != "HTTP/1.1" {
        Some("a line that is no request")
    } else if !["POST", "GET", "DELETE"].contains(&parts[0]) {
        Some("a method that nobody asked for")
    } else {
        None
    }
}

fn fault_of_framing(head: &Head) -> Option<&'static str> {
    let values = |name: &str| {
        let named = head.headers.iter().filter(|(own, _)| own == name);
        named.map(|(_, value)| value.as_str()).collect::<Vec<_>>()
    };
    let (lengths, codings) = (values("content-length"), values("transfer-encoding"));
    if lengths.len() + codings.len() > 1 {
        return Some("two words about where the body ends");
    }
    if codings.iter().any(|coding| *coding != "chunked") {
        return Some("a strange coding");
    }
    let is_number = |length: &&str| length.parse::<usize>().is_ok();
    if !lengths.iter().all(is_number) {
        return Some("a strange length");
    }
    let has_body = !codings.is_empty() || lengths.iter().any(|length| *length != "0");
    if has_body && !head.line.starts_with("POST ") {
        return Some("a body where none belongs");
    }
    if values("host").len() != 1 {
        return Some("not one host");
    }
    None
}
