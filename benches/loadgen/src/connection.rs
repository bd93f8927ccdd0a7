//! A small HTTP/1.1 client over one TCP connection. It costs less than a library, so that more of the machine is left for
//! what is measured.

use std::net::{IpAddr, SocketAddr};

use bytes::{Buf as _, BytesMut};
use httparse::{EMPTY_HEADER, Header, Response, Status};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream, lookup_host};

use crate::body::{Framing, Taken};

/// The space that a read has at least.
const READ_MIN: usize = 2048;
const READ: usize = 16_384;
const HEADERS_MAX: usize = 48;

#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: BytesMut,
    framing: Framing,
    /// Another request can be sent.
    pub(crate) is_alive: bool,
}

/// The head of a response.
#[derive(Debug, Default)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) is_event_stream: bool,
    pub(crate) session: Option<String>,
}

impl Connection {
    pub(crate) async fn open(host: &str, source: Option<IpAddr>) -> Result<Self, String> {
        let mut addresses = lookup_host(host)
            .await
            .map_err(|error| format!("resolve {host}: {error}"))?;
        let address = addresses.next().ok_or("no address")?;
        let stream = connect(address, source)
            .await
            .map_err(|error| format!("connect: {error}"))?;
        let _ = stream.set_nodelay(true);
        Ok(Self {
            stream,
            buffer: BytesMut::with_capacity(READ_MIN * 2),
            framing: Framing::Done,
            is_alive: true,
        })
    }

    pub(crate) async fn send(&mut self, request: &[u8]) -> Result<(), String> {
        self.stream.write_all(request).await.map_err(|error| {
            self.is_alive = false;
            format!("write: {error}")
        })
    }

    /// The head of the next response that is not interim.
    pub(crate) async fn head(&mut self) -> Result<Head, String> {
        loop {
            if let Some(read) = read_head(&self.buffer)? {
                self.buffer.advance(read.bytes);
                if (100..200).contains(&read.head.status) {
                    continue;
                }
                self.framing = read.framing;
                self.is_alive = !read.closes && self.framing != Framing::UntilClosed;
                return Ok(read.head);
            }
            if self.fill().await? == 0 {
                self.is_alive = false;
                return Err("closed before response".to_owned());
            }
        }
    }

    /// Appends the next piece of the body to `out`. False at the end.
    pub(crate) async fn piece(&mut self, out: &mut Vec<u8>) -> Result<bool, String> {
        loop {
            match self.framing.take(&mut self.buffer, out)? {
                Taken::Piece => return Ok(true),
                Taken::End => return Ok(false),
                Taken::NeedsMore => {}
            }
            if self.fill().await? == 0 {
                if self.framing == Framing::UntilClosed {
                    self.framing = Framing::Done;
                    return Ok(false);
                }
                self.is_alive = false;
                return Err("body cut".to_owned());
            }
        }
    }

    pub(crate) async fn body(&mut self) -> Result<Vec<u8>, String> {
        let mut body = Vec::with_capacity(512);
        while self.piece(&mut body).await? {}
        Ok(body)
    }

    async fn fill(&mut self) -> Result<usize, String> {
        if self.buffer.capacity() - self.buffer.len() < READ_MIN {
            self.buffer.reserve(READ);
        }
        let read = self.stream.read_buf(&mut self.buffer).await;
        read.map_err(|error| {
            self.is_alive = false;
            format!("read: {error}")
        })
    }
}

async fn connect(address: SocketAddr, source: Option<IpAddr>) -> std::io::Result<TcpStream> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    if let Some(source) = source {
        socket.bind(SocketAddr::new(source, 0))?;
    }
    socket.connect(address).await
}

/// A head that is whole.
struct ReadHead {
    head: Head,
    framing: Framing,
    /// The server closes the connection after the response.
    closes: bool,
    bytes: usize,
}

fn read_head(buffer: &[u8]) -> Result<Option<ReadHead>, String> {
    let mut headers = [EMPTY_HEADER; HEADERS_MAX];
    let mut response = Response::new(&mut headers);
    let parsed = response.parse(buffer);
    let Status::Complete(bytes) = parsed.map_err(|error| format!("http: {error}"))? else {
        return Ok(None);
    };
    let mut read = ReadHead {
        head: Head {
            status: response.code.unwrap_or_default(),
            ..Head::default()
        },
        framing: Framing::UntilClosed,
        closes: false,
        bytes,
    };
    for header in response.headers.iter() {
        read.note(header);
    }
    if matches!(read.head.status, 204 | 304) {
        read.framing = Framing::Done;
    }
    Ok(Some(read))
}

impl ReadHead {
    fn note(&mut self, header: &Header<'_>) {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        let value = std::str::from_utf8(header.value).unwrap_or_default().trim();
        let has = |word: &str| value.to_ascii_lowercase().contains(word);
        if is("content-length") {
            // A length beside chunks counts for nothing.
            if let (Framing::UntilClosed, Ok(length)) = (&self.framing, value.parse()) {
                self.framing = Framing::of_length(length);
            }
        } else if is("transfer-encoding") && has("chunked") {
            self.framing = Framing::Chunk(0);
        } else if is("content-type") {
            self.head.is_event_stream = has("text/event-stream");
        } else if is("mcp-session-id") {
            self.head.session = Some(value.to_owned());
        } else if is("connection") {
            self.closes = has("close");
        }
    }
}
