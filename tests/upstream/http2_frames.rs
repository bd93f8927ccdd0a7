//! The frames of RFC 9113 by hand, and a server that is made of them: a library would say only what is right.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;

use crate::scripted::Listening;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;

const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// `:status: 200` and `content-type: application/json` in HPACK.
const JSON: &[u8] = b"\x88\x0f\x10\x10application/json";

pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    pub(crate) async fn read(from: &mut (impl AsyncRead + Unpin)) -> Option<Self> {
        let mut head = [0; 9];
        from.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        from.read_exact(&mut payload).await.ok()?;
        Some(Self {
            kind: head[3],
            flags: head[4],
            stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]),
            payload,
        })
    }
}

/// The bytes of a frame. Stream 0 is the whole connection.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// What is odd about the server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    /// So many calls wait on the first connection until they are released. All others are answered.
    pub(crate) waiting: usize,
    pub(crate) answers_pings: bool,
    /// When so many streams of a connection were reset, the server sends on all of them, as if it did not know.
    pub(crate) resets: usize,
}

/// What was seen.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) connections: usize,
    pub(crate) waiting: usize,
    pub(crate) resets: usize,
    /// PINGs that were answered.
    pub(crate) pings: usize,
}

/// The server. Dropping it ends its connections.
pub(crate) struct FrameServer {
    pub(crate) listening: Listening,
    pub(crate) seen: watch::Receiver<Seen>,
    /// Calls that wait are answered from now on.
    pub(crate) released: CancellationToken,
}

impl FrameServer {
    pub(crate) async fn start(manner: Manner) -> Self {
        let (tell, seen) = watch::channel(Seen::default());
        let (tell, released) = (Arc::new(tell), CancellationToken::new());
        let release = released.clone();
        let listening = Listening::start(move |stream| {
            let mut manner = manner;
            tell.send_modify(|seen| {
                seen.connections += 1;
                manner.waiting *= usize::from(seen.connections == 1);
            });
            serve(stream, manner, Arc::clone(&tell), release.clone())
        });
        Self {
            listening: listening.await,
            seen,
            released,
        }
    }
}

async fn serve(
    stream: TcpStream,
    manner: Manner,
    tell: Arc<watch::Sender<Seen>>,
    released: CancellationToken,
) {
    let (mut reader, writer) = stream.into_split();
    let writer = Arc::new(Mutex::new(writer));
    let mut preface = [0; 24];
    reader.read_exact(&mut preface).await.unwrap();
    write(&writer, &frame(SETTINGS, 0, 0, &[])).await;
    let (mut bodies, mut calls, mut reset) = (HashMap::<u32, Vec<u8>>::new(), 0, Vec::new());
    while let Some(got) = Frame::read(&mut reader).await {
        match (got.kind, got.flags & END_STREAM) {
            (SETTINGS, 0) => write(&writer, &frame(SETTINGS, ACK, 0, &[])).await,
            (PING, 0) if manner.answers_pings => {
                write(&writer, &frame(PING, ACK, 0, &got.payload)).await;
                tell.send_modify(|seen| seen.pings += 1);
            }
            (DATA, ended) => {
                let length = u32::try_from(got.payload.len()).unwrap();
                if length > 0 {
                    write(&writer, &frame(WINDOW_UPDATE, 0, 0, &length.to_be_bytes())).await;
                }
                bodies.entry(got.stream).or_default().extend(got.payload);
                if ended == 0 {
                    continue;
                }
                let answer = answer(got.stream, &bodies.remove(&got.stream).unwrap());
                calls += 1;
                if calls > manner.waiting {
                    write(&writer, &answer).await;
                    continue;
                }
                tell.send_modify(|seen| seen.waiting += 1);
                let (writer, released) = (Arc::clone(&writer), released.clone());
                tokio::spawn(async move {
                    released.cancelled().await;
                    write(&writer, &answer).await;
                });
            }
            (RST_STREAM, _) => {
                reset.push(got.stream);
                if reset.len() == manner.resets {
                    write(&writer, &late(&reset)).await;
                }
                tell.send_modify(|seen| seen.resets += 1);
            }
            _ => {}
        }
    }
}

async fn write(writer: &Mutex<OwnedWriteHalf>, bytes: &[u8]) {
    // The client may have closed the connection.
    let _ = writer.lock().await.write_all(bytes).await;
}

fn answer(stream: u32, request: &[u8]) -> Vec<u8> {
    let id = serde_json::from_slice::<Value>(request).unwrap()["id"].to_string();
    let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
    let mut answer = frame(HEADERS, END_HEADERS, stream, JSON);
    answer.extend(frame(DATA, END_STREAM, stream, body.as_bytes()));
    answer
}

/// The beginnings of answers on these streams, in many frames.
fn late(streams: &[u32]) -> Vec<u8> {
    let head = |stream: &u32| frame(HEADERS, END_HEADERS, *stream, JSON);
    let mut late: Vec<_> = streams.iter().flat_map(head).collect();
    for _ in 0..20 {
        late.extend(streams.iter().flat_map(|it| frame(DATA, 0, *it, b"event")));
    }
    late
}
