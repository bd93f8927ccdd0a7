//! A modern server that speaks HTTP/2 with prior knowledge, and misbehaves frame by frame where a test says so.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use hyper::{Request, Response};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::http2_frames::{Frame, GOAWAY, HEADERS, SETTINGS, frame};
use crate::scripted::Listening;

/// What the server does with a call.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Answers with the call's own id and this result.
    Answer(&'static str),
    /// Says nothing until it is released, and then answers.
    Wait,
    /// Answers with an event stream of so many bytes, as fast as they are taken, in frames of so many bytes at most.
    Flood { bytes: usize, frame: usize },
    /// Resets the stream.
    Reset(Reason),
}

/// What becomes of the first call of a connection that is scripted frame by frame.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ending {
    /// The server goes away, and says that this stream is the last that it processes.
    GoAway { last: u32 },
    /// The connection ends without a word.
    Close,
}

/// What was seen.
#[derive(Debug, Default, Clone)]
pub(crate) struct Seen {
    pub(crate) connections: usize,
    /// Connections that the client has closed.
    pub(crate) closed: usize,
    pub(crate) calls: usize,
    /// Calls that wait, on each connection.
    pub(crate) waiting: Vec<usize>,
    /// Calls whose stream the client reset.
    pub(crate) cancelled: usize,
    /// Bytes of floods that the client took.
    pub(crate) flooded: usize,
    pub(crate) last: Option<(hyper::http::request::Parts, String)>,
}

#[derive(Default)]
struct Shared {
    seen: watch::Sender<Seen>,
    steps: Mutex<VecDeque<Step>>,
    endings: Mutex<VecDeque<Ending>>,
    released: CancellationToken,
    closing: CancellationToken,
    streams_max: u32,
}

/// The server. Dropping it ends its connections.
pub(crate) struct Http2Server {
    listening: Listening,
    shared: Arc<Shared>,
}

impl Http2Server {
    /// A server that takes so many calls on each connection, and does these steps with the first calls. Other calls are
    /// answered.
    pub(crate) async fn start(streams_max: u32, steps: Vec<Step>) -> Self {
        let shared = Arc::new(Shared {
            steps: Mutex::new(steps.into()),
            streams_max,
            ..Shared::default()
        });
        let serving = Arc::clone(&shared);
        let listening = Listening::start(move |stream| accepted(stream, Arc::clone(&serving)));
        Self {
            listening: listening.await,
            shared,
        }
    }

    /// The next connections end so, with their first call.
    pub(crate) fn end(&self, endings: &[Ending]) {
        self.shared.endings.lock().unwrap().extend(endings);
    }

    pub(crate) fn url(&self) -> String {
        self.listening.url()
    }

    pub(crate) fn seen(&self) -> Seen {
        self.shared.seen.borrow().clone()
    }

    /// Calls that wait are answered from now on.
    pub(crate) fn release(&self) {
        self.shared.released.cancel();
    }

    /// Ends all connections without a word.
    pub(crate) fn close_connections(&self) {
        self.shared.closing.cancel();
    }

    pub(crate) async fn until(&self, holds: impl Fn(&Seen) -> bool) {
        let mut seen = self.shared.seen.subscribe();
        let came = tokio::time::timeout(Duration::from_secs(10), seen.wait_for(|seen| holds(seen)));
        let _ = came.await.expect("it comes true").unwrap();
    }
}

async fn accepted(stream: TcpStream, shared: Arc<Shared>) {
    let mut place = 0;
    shared.seen.send_modify(|seen| {
        place = seen.connections;
        seen.connections += 1;
        seen.waiting.push(0);
    });
    let ending = shared.endings.lock().unwrap().pop_front();
    let closing = shared.closing.clone();
    let serving = async move {
        match ending {
            Some(ending) => end(stream, ending, &shared).await,
            None => serve(stream, place, shared).await,
        }
    };
    closing.run_until_cancelled(serving).await;
}

async fn serve(stream: TcpStream, place: usize, shared: Arc<Shared>) {
    let mut server = h2::server::Builder::new();
    server.max_concurrent_streams(shared.streams_max);
    let mut connection = server.handshake(stream).await.unwrap();
    let mut calls = tokio::task::JoinSet::new();
    while let Some(Ok((request, respond))) = connection.accept().await {
        calls.spawn(answer(request, respond, place, Arc::clone(&shared)));
    }
    shared.seen.send_modify(|seen| seen.closed += 1);
}

async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    place: usize,
    shared: Arc<Shared>,
) {
    let (parts, mut stream) = request.into_parts();
    let mut body = Vec::new();
    while let Some(Ok(data)) = stream.data().await {
        stream.flow_control().release_capacity(data.len()).unwrap();
        body.extend_from_slice(&data);
    }
    let text = String::from_utf8(body).unwrap();
    let id = serde_json::from_str::<Value>(&text).unwrap()["id"].to_string();
    shared.seen.send_modify(|seen| {
        seen.calls += 1;
        seen.last = Some((parts, text));
    });
    let step = shared.steps.lock().unwrap().pop_front();
    match step.unwrap_or(Step::Answer("{}")) {
        Step::Answer(result) => say(&mut respond, &id, result),
        Step::Reset(reason) => respond.send_reset(reason),
        Step::Flood { bytes, frame } => flood(&mut respond, bytes, frame, &shared).await,
        Step::Wait => {
            shared.seen.send_modify(|seen| seen.waiting[place] += 1);
            let reset = std::future::poll_fn(|context| respond.poll_reset(context));
            let is_released = tokio::select! {
                () = shared.released.cancelled() => true,
                _ = reset => false,
            };
            shared.seen.send_modify(|seen| {
                seen.waiting[place] -= 1;
                seen.cancelled += usize::from(!is_released);
            });
            if is_released {
                say(&mut respond, &id, "{}");
            }
        }
    }
}

fn say(respond: &mut SendResponse<Bytes>, id: &str, result: &str) {
    let head = Response::builder().header("content-type", "application/json");
    let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
    let mut stream = respond
        .send_response(head.body(()).unwrap(), false)
        .unwrap();
    stream.send_data(body.into(), true).unwrap();
}

async fn flood(respond: &mut SendResponse<Bytes>, bytes: usize, frame: usize, shared: &Shared) {
    let head = Response::builder().header("content-type", "text/event-stream");
    let mut stream = respond
        .send_response(head.body(()).unwrap(), false)
        .unwrap();
    let mut left = bytes;
    while left > 0 {
        stream.reserve_capacity(left.min(frame));
        let room = std::future::poll_fn(|context| stream.poll_capacity(context)).await;
        let Some(Ok(room)) = room else {
            return;
        };
        let piece = vec![b'\n'; room.min(left).min(frame)];
        left -= piece.len();
        shared.seen.send_modify(|seen| seen.flooded += piece.len());
        stream.send_data(piece.into(), left == 0).unwrap();
    }
}

/// The frames of RFC 9113 by hand: a server library would say only what is right.
async fn end(mut stream: TcpStream, ending: Ending, shared: &Shared) {
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await.unwrap();
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
    loop {
        let Some(Frame { kind, flags, .. }) = Frame::read(&mut stream).await else {
            return;
        };
        match (kind, flags) {
            (SETTINGS, 0) => stream.write_all(&frame(SETTINGS, 1, 0, &[])).await.unwrap(),
            (HEADERS, _) => {
                shared.seen.send_modify(|seen| seen.calls += 1);
                if let Ending::GoAway { last } = ending {
                    let mut payload = last.to_be_bytes().to_vec();
                    payload.extend(0_u32.to_be_bytes());
                    stream
                        .write_all(&frame(GOAWAY, 0, 0, &payload))
                        .await
                        .unwrap();
                }
                let _ = stream.shutdown().await;
                // What the client still sends is read, so that it is not answered with a reset of the connection.
                let mut rest = Vec::new();
                let _ = stream.read_to_end(&mut rest).await;
                return;
            }
            _ => {}
        }
    }
}
