//! The requests that the misbehaving server reads: those of a well-behaved client.

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) method: String,
    head: String,
    pub(super) body: Vec<u8>,
}

impl Incoming {
    pub(super) fn header(&self, name: &str) -> Option<String> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(':'));
        fields
            .find(|(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim().to_owned())
    }
}

/// The next request; `None` at the end of the connection, or where it speaks no HTTP.
pub(super) async fn read(stream: &mut TcpStream, unread: &mut Vec<u8>) -> Option<Incoming> {
    let end = loop {
        if unread
            .first()
            .is_some_and(|byte| !byte.is_ascii_uppercase())
        {
            return None;
        }
        if let Some(at) = unread.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        more(stream, unread).await?;
    };
    let rest = unread.split_off(end);
    let head = String::from_utf8_lossy(&std::mem::replace(unread, rest)).into_owned();
    let mut incoming = Incoming {
        method: head.split(' ').next().unwrap_or_default().to_owned(),
        head,
        body: Vec::new(),
    };
    let length = incoming.header("content-length");
    let length = length
        .and_then(|length| length.parse().ok())
        .unwrap_or(0_usize);
    while unread.len() < length {
        more(stream, unread).await?;
    }
    let rest = unread.split_off(length);
    incoming.body = std::mem::replace(unread, rest);
    Some(incoming)
}

async fn more(stream: &mut TcpStream, unread: &mut Vec<u8>) -> Option<()> {
    let mut buffer = [0; 8192];
    match stream.read(&mut buffer).await {
        Ok(count @ 1..) => {
            unread.extend_from_slice(&buffer[..count]);
            Some(())
        }
        Ok(_) | Err(_) => None,
    }
}
