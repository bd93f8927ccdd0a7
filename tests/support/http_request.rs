//! Reads a request from the wire, for servers that answer byte by byte. The client is assumed to be
//! well-behaved.

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _};

#[derive(Debug, Clone)]
pub(crate) struct WireRequest {
    pub(crate) method: String,
    /// The path and the query.
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl WireRequest {
    /// The next request of a connection; `None` at its end, or where it speaks no HTTP. What came behind the request stays
    /// in `unread`.
    pub(crate) async fn read<T>(stream: &mut T, unread: &mut Vec<u8>) -> Option<Self>
    where
        T: AsyncRead + Unpin,
    {
        let end = loop {
            let first = unread.first();
            if first.is_some_and(|byte| !byte.is_ascii_uppercase()) {
                return None;
            }
            if let Some(at) = unread.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            more(stream, unread).await?;
        };
        let head: Vec<u8> = unread.drain(..end).collect();
        let mut request = Self::of_head(std::str::from_utf8(&head).ok()?)?;
        let length = request.header("content-length");
        let length: usize = length.map_or(Some(0), |length| length.parse().ok())?;
        while unread.len() < length {
            more(stream, unread).await?;
        }
        request.body = unread.drain(..length).collect();
        Some(request)
    }

    fn of_head(head: &str) -> Option<Self> {
        let mut lines = head.lines().filter(|line| !line.is_empty());
        let mut words = lines.next()?.split(' ');
        let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut headers = HeaderMap::new();
        for line in lines {
            let (name, value) = line.split_once(':')?;
            let name: HeaderName = name.parse().ok()?;
            headers.append(name, HeaderValue::from_str(value.trim()).ok()?);
        }
        Some(Self {
            method,
            target,
            headers,
            body: Vec::new(),
        })
    }

    pub(crate) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    pub(crate) fn query(&self) -> &str {
        self.target.split_once('?').map_or("", |(_, query)| query)
    }

    /// The body as JSON; `null` where it is none.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

async fn more<T: AsyncRead + Unpin>(stream: &mut T, unread: &mut Vec<u8>) -> Option<()> {
    let read = stream.read_buf(unread).await.ok()?;
    (read > 0).then_some(())
}
