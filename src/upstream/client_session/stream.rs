//! One GET stream of a client's session. raincheck reads it, even if the client requested it: answers to
//! raincheck's calls are taken out, and all else waits for the client.

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard, Weak};
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::header::{CONTENT_LENGTH, HeaderValue};
use hyper::http::response::Parts;
use hyper::{Response, StatusCode};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::base::lock::Mutex;
use crate::mcp::json::Object;
use crate::mcp::meta::PROGRESS_TOKEN;
use crate::mcp::sse::{Decoder, SseEvent};
use crate::upstream::client_session::buffer::Buffer;
use crate::upstream::http::decoded;
use crate::upstream::http::hop_headers;
use crate::upstream::http::{RequestBody, ResponseBody};
use crate::upstream::http_response;
use crate::upstream::message::note;
use crate::upstream::message::response;
use crate::upstream::port::{Answer, Event, UpstreamError};
use crate::upstream::reconnect::{Reconnect, is_for_now};
use crate::upstream::request_id::is_beside_clients;
use crate::upstream::server_message;
use crate::upstream::server_message::ServerMessage;
use crate::upstream::sessions::session::ServerSession;

/// The time for which events wait for a client that is away, if no call of raincheck's runs.
const LINGER: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(super) struct ClientStream {
    /// The head of the server's response.
    pub(super) head: Parts,
    state: Mutex<ClientStreamState>,
    /// Notified when there is something to read, or when nothing will follow.
    readable: Notify,
    /// Notified when there is room again, or when room can be made.
    writable: Notify,
    /// Notified when a reader has come.
    attached: Notify,
    /// Cancelled when the stream is not needed any more.
    closing: CancellationToken,
}

#[derive(Debug, Default)]
struct ClientStreamState {
    buffer: Buffer,
    has_reader: bool,
    lingers: bool,
    is_over: bool,
}

/// The server's stream, event by event.
#[derive(Debug)]
pub(super) struct ServerEvents {
    body: ResponseBody,
    decoder: Decoder,
    read: VecDeque<SseEvent>,
    /// The rest of the stream cannot be read.
    is_broken: bool,
}

/// A stream of events, or the response as it came.
pub(super) fn events_of(
    response: Response<ResponseBody>,
    bytes_max: usize,
) -> Result<(Parts, ServerEvents), Box<Response<ResponseBody>>> {
    if response.status() != StatusCode::OK {
        return Err(Box::new(response));
    }
    let Some(decoder) = http_response::decoder_of(response.headers(), bytes_max) else {
        return Err(Box::new(response));
    };
    let response = decoded(response).map_err(|(_, response)| response)?;
    let (mut head, body) = response.into_parts();
    hop_headers::strip(&mut head.headers);
    // The client gets the events written anew, so the length of the server's body no longer fits.
    head.headers.remove(CONTENT_LENGTH);
    let events = ServerEvents {
        body,
        decoder,
        read: VecDeque::new(),
        is_broken: false,
    };
    Ok((head, events))
}

impl ServerEvents {
    /// The next event. `None` at the end, also if the stream was cut.
    async fn next(&mut self) -> Option<SseEvent> {
        loop {
            if let Some(event) = self.read.pop_front() {
                return Some(event);
            }
            if self.is_broken {
                return None;
            }
            let Some(frame) = self.body.frame().await else {
                let last = self.decoder.last();
                // Without the empty line behind it, only complete JSON shows that the event was not cut.
                return last.filter(|last| Object::parse(&last.data).is_ok());
            };
            let frame = frame.ok()?;
            let data = frame.into_data().unwrap_or_default();
            let read = &mut self.read;
            let fed = self.decoder.feed(&data, |event| read.push_back(event));
            self.is_broken = fed.is_err();
        }
    }
}

impl ClientStream {
    pub(super) fn new(head: Parts, has_reader: bool) -> Arc<Self> {
        let state = ClientStreamState {
            has_reader,
            ..ClientStreamState::default()
        };
        Arc::new(Self {
            head,
            state: Mutex::new(state),
            readable: Notify::new(),
            writable: Notify::new(),
            attached: Notify::new(),
            closing: CancellationToken::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, ClientStreamState> {
        self.state.lock()
    }

    pub(super) fn is_over(&self) -> bool {
        self.state().is_over
    }

    /// Begins to read the stream, from here on or after that event. False if the stream has ended, or does not
    /// know the event.
    pub(super) fn attach(&self, after: Option<&str>) -> bool {
        let mut state = self.state();
        if state.is_over || !after.is_none_or(|after| state.buffer.rewind(after)) {
            return false;
        }
        state.has_reader = true;
        // Without a job that waits for it, the permit would stay, and end the next wait at once.
        if state.lingers {
            self.attached.notify_one();
        }
        true
    }

    /// The reader has gone.
    pub(super) fn detach(self: &Arc<Self>, session: &Arc<ServerSession>) {
        let mut state = self.state();
        state.has_reader = false;
        let waits = !state.buffer.is_empty();
        drop(state);
        // The job that reads may be waiting for room. Without a reader it drops old events and reads on.
        self.writable.notify_one();
        if waits {
            self.linger(session);
        }
    }

    pub(super) fn close(&self) {
        self.closing.cancel();
        self.state().is_over = true;
        self.readable.notify_one();
    }

    /// The next event, for one reader. Cancel safe.
    pub(super) async fn next(&self) -> Option<SseEvent> {
        loop {
            {
                let mut state = self.state();
                if let Some(event) = state.buffer.take() {
                    self.writable.notify_one();
                    return Some(event);
                }
                if state.is_over {
                    return None;
                }
            }
            self.readable.notified().await;
        }
    }

    /// Reads the stream until it ends, or until the session is not used any more. If the stream ends while no
    /// client reads it, it is opened again.
    pub(super) async fn run(
        self: Arc<Self>,
        session: Weak<ServerSession>,
        mut events: ServerEvents,
    ) {
        let closing = self.closing.clone();
        let reading = async {
            let mut last_event_id = None;
            loop {
                let mut reconnect = Reconnect::to_stream();
                let open = session.upgrade().map(|it| it.calls().opened());
                while let Some(event) = events.next().await {
                    reconnect.asked(event.retry.map(Duration::from_millis));
                    let id = event.id.as_deref().map(HeaderValue::try_from);
                    last_event_id = id.and_then(Result::ok).or(last_event_id);
                    if self.heard(&session, event).await.is_none() {
                        return;
                    }
                }
                drop(open);
                // A client whose stream has ended comes back by itself.
                if self.state().has_reader {
                    return;
                }
                match open_again(&session, last_event_id.as_ref(), reconnect).await {
                    Some(again) => events = again,
                    None => return,
                }
            }
        };
        closing.run_until_cancelled(Box::pin(reading)).await;
        self.close();
    }

    /// `None`: the session is not used any more.
    async fn heard(self: &Arc<Self>, session: &Weak<ServerSession>, event: SseEvent) -> Option<()> {
        let full = {
            let session = session.upgrade()?;
            let is_read = self.state().has_reader;
            let is_taken = event.is_message()
                && (is_ours(&session, &event.data)
                    || (!is_read && is_answered(&session, &event.data)));
            is_taken.then(|| session.calls().full())
        };
        if let Some(full) = full {
            if let Some(full) = full {
                full.await;
            }
            return Some(());
        }
        // This future holds no session while it waits for room, so that the session can end.
        let has_reader = loop {
            {
                let mut state = self.state();
                if !state.has_reader && !state.buffer.has_room() {
                    tracing::debug!("what waited for a client that is away was dropped");
                    state.buffer.shed();
                }
                if state.buffer.has_room() {
                    state.buffer.put(event);
                    break state.has_reader;
                }
            }
            self.writable.notified().await;
        };
        self.readable.notify_one();
        if !has_reader {
            self.linger(&session.upgrade()?);
        }
        Some(())
    }

    /// Keeps the session for a while for a client that is away and has events waiting.
    fn linger(self: &Arc<Self>, session: &Arc<ServerSession>) {
        {
            let mut state = self.state();
            if state.has_reader || std::mem::replace(&mut state.lingers, true) {
                return;
            }
        }
        let (stream, kept) = (Arc::clone(self), Arc::clone(session));
        session.accompany(async move {
            let mut was_alone = false;
            loop {
                let again = tokio::time::timeout(LINGER, stream.attached.notified()).await;
                let is_alone = Arc::strong_count(&kept) == 1;
                // Two looks in a row must find that only this job holds the session, because a call may have ended just
                // before the first.
                if again.is_ok() || (was_alone && is_alone) {
                    break;
                }
                was_alone = is_alone;
            }
            stream.state().lingers = false;
        });
    }
}

/// Takes out what the server says to raincheck's calls.
fn is_ours(session: &ServerSession, data: &str) -> bool {
    let Ok(message) = server_message::read(data) else {
        return false;
    };
    let calls = session.calls();
    match message {
        ServerMessage::Result { id, result } if is_beside_clients(&id) => {
            calls.end(&id, Event::Result(result));
            true
        }
        ServerMessage::Error { id, error } if is_beside_clients(&id) => {
            calls.end(&id, Event::Error(UpstreamError::in_message(error)));
            true
        }
        ServerMessage::Unreadable { id, failure, .. } if is_beside_clients(&id) => {
            calls.end(&id, Event::Failed(failure));
            true
        }
        ServerMessage::Notification { method, params } => {
            note(session.origin(), &method);
            let Some(params) = params.filter(|_| &*method == "notifications/progress") else {
                return false;
            };
            let token = Object::parse(params.get()).ok();
            let token = token.and_then(|params| params.get(PROGRESS_TOKEN));
            let is_ours = token.is_some_and(|token| is_beside_clients(token.get()));
            if is_ours {
                calls.progress(params);
            }
            is_ours
        }
        ServerMessage::Primed
        | ServerMessage::Result { .. }
        | ServerMessage::Error { .. }
        | ServerMessage::Unreadable { .. }
        | ServerMessage::Request { .. } => false,
    }
}

/// Answers a ping that no client would answer. Some servers end a session whose pings are not answered, and
/// without this stream there would be no ping.
fn is_answered(session: &Arc<ServerSession>, data: &str) -> bool {
    let Ok(ServerMessage::Request { id, method, .. }) = server_message::read(data) else {
        return false;
    };
    if &*method != "ping" {
        return false;
    }
    let (session, answer) = (Arc::clone(session), Answer::Result("{}".into()));
    Arc::clone(&session).accompany(async move {
        // If the answer cannot be sent, the server will notice by itself.
        let _ = session.tell(response(&id, &answer)).await;
    });
    true
}

/// Opens the stream again. `None`: the server has no such stream for raincheck any more, or the session is not
/// used any more.
async fn open_again(
    session: &Weak<ServerSession>,
    last_event_id: Option<&HeaderValue>,
    mut reconnect: Reconnect,
) -> Option<ServerEvents> {
    loop {
        tokio::time::sleep(reconnect.pause()).await;
        match get(session, last_event_id).await? {
            Ok((_, events)) => return Some(events),
            Err(status) if is_for_now(status) => {}
            Err(_) => return None,
        }
    }
}

/// Requests the stream with raincheck's own headers. `None`: the session is not used any more.
pub(super) async fn get(
    session: &Weak<ServerSession>,
    last_event_id: Option<&HeaderValue>,
) -> Option<Result<(Parts, ServerEvents), StatusCode>> {
    let (origin, request) = {
        let session = session.upgrade()?;
        (Arc::clone(session.origin()), session.get(last_event_id))
    };
    let Ok(response) = origin.send(request, RequestBody::empty()).await else {
        // A server that cannot be reached counts as a gateway that is away: the stream is requested again.
        return Some(Err(StatusCode::BAD_GATEWAY));
    };
    session.upgrade()?.heard(&response);
    let opened = events_of(response, origin.message_bytes_max);
    Some(opened.map_err(|refused| refused.status()))
}
