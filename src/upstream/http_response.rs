//! The HTTP responses of the wrapped server: what a head says, and the messages in a body. Shared by both eras.

use std::collections::VecDeque;
use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper::body::Body as _;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::http::response::Parts;
use hyper::{HeaderMap, Response, StatusCode};
use serde_json::value::RawValue;

use crate::mcp::error::Failure;
use crate::mcp::json::Object;
use crate::mcp::scan::mend;
use crate::mcp::sse::{Decoder, SseEvent, SseFault};
use crate::retry_after;
use crate::upstream::failures::{INVALID, RESET, TOO_LARGE};
use crate::upstream::http::ResponseBody;
use crate::upstream::http::redirect::has_moved;
use crate::upstream::http::refusal;
use crate::upstream::http::refusal::SessionRefusal;
use crate::upstream::port::UpstreamError;
use crate::upstream::server_message::{self, ServerMessage};

/// An error body larger than this is not read.
const ERROR_BYTES_MAX: usize = 64 * 1024;

/// Some servers begin a body with a byte order mark, and HTTP clients skip it.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// What a response to a request of ours turned out to be.
#[derive(Debug)]
pub(super) enum ResponseKind {
    Messages(Box<Messages>),
    /// The server refused before it ran anything, and wants the request again after this pause.
    Later(Duration),
    Error(UpstreamError),
    /// An HTTP refusal that is no JSON-RPC error.
    Refused {
        failure: Failure,
        status: StatusCode,
    },
}

/// Reads the head of a response, and the body of a refusal.
pub(super) async fn classify_response(
    response: Response<ResponseBody>,
    bytes_max: usize,
) -> ResponseKind {
    classify_on_session(response, bytes_max).await.0
}

/// Reads the response to a request on a session, and what a refusal says about that session.
pub(super) async fn classify_on_session(
    response: Response<ResponseBody>,
    bytes_max: usize,
) -> (ResponseKind, Option<SessionRefusal>) {
    let status = response.status();
    if has_moved(&response) {
        return (ResponseKind::Later(Duration::ZERO), None);
    }
    if status.is_success() && status != StatusCode::ACCEPTED {
        let kind = match Messages::of(response, bytes_max) {
            Ok(messages) => ResponseKind::Messages(Box::new(messages)),
            Err(failure) => ResponseKind::Refused { failure, status },
        };
        return (kind, None);
    }
    let (head, body) = response.into_parts();
    let text = error_text(body).await;
    let is_refusal =
        status == StatusCode::TOO_MANY_REQUESTS || status == StatusCode::SERVICE_UNAVAILABLE;
    if is_refusal && let Some(pause) = retry_after::pause(&head.headers) {
        return (ResponseKind::Later(pause), None);
    }
    let www_authenticate = head.headers.get(WWW_AUTHENTICATE).cloned();
    let failure = refusal::failure_of(status);
    let unauthorized = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    let said = error_of(&text);
    let of_session = match &said {
        Some(error) => SessionRefusal::of_error(status.as_u16(), error),
        None => SessionRefusal::of_text(status, &text),
    };
    if said.is_none() && !unauthorized {
        return (ResponseKind::Refused { failure, status }, of_session);
    }
    // If the server gave a challenge without an error object, raincheck adds one.
    let error = said.unwrap_or_else(|| failure.to_error().to_raw());
    let error = UpstreamError {
        error,
        status: status.as_u16(),
        www_authenticate,
    };
    (ResponseKind::Error(error), of_session)
}

async fn error_text(body: ResponseBody) -> String {
    let read = Limited::new(body, ERROR_BYTES_MAX).collect();
    let read = tokio::time::timeout(Duration::from_secs(5), read).await;
    let bytes = read
        .ok()
        .and_then(Result::ok)
        .map(http_body_util::Collected::to_bytes);
    let text = bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    text.unwrap_or_default()
}

/// The error object in a JSON-RPC body. Its id does not matter: a server that could not read the request does
/// not know its id.
fn error_of(text: &str) -> Option<Box<RawValue>> {
    let text = mend(text).ok()?;
    let object = Object::parse(&text).ok()?;
    let error = object.get("error")?;
    Object::parse(error.get()).ok()?.get("code")?;
    Some(error.to_owned())
}

/// A response body as JSON-RPC messages: one in a JSON body, or many in an event stream.
#[derive(Debug)]
pub(super) struct Messages {
    body: ResponseBody,
    form: BodyForm,
    bytes_max: usize,
    queue: VecDeque<Queued>,
    /// What was read so far, while it may still be passed on as it is.
    unread: Option<Vec<u8>>,
    ended: bool,
    /// Why reading stopped after the messages that are queued.
    fault: Option<Failure>,
    /// The stream had something that could not be read, or an answer to another request.
    junk: bool,
    /// The id of the last event that was taken. The stream can be resumed after it.
    pub(super) last_event_id: Option<HeaderValue>,
    /// The pause that the server asks for before the stream is requested again.
    pub(super) retry: Option<Duration>,
}

/// One message as text: an event of a stream, or a JSON body.
#[derive(Debug)]
pub struct RawMessage {
    /// The message. Empty in events that only say where to resume.
    pub text: String,
    /// The server's own id of the event.
    pub event_id: Option<String>,
}

/// An event that waits to be taken. Priming events have an id and no data.
#[derive(Debug)]
struct Queued {
    data: String,
    id: Option<HeaderValue>,
}

#[derive(Debug)]
enum BodyForm {
    Json,
    Events(Decoder),
}

/// The decoder for the body behind that head. `None` if the body is no event stream.
pub(super) fn decoder_of(headers: &HeaderMap, bytes_max: usize) -> Option<Decoder> {
    match BodyForm::of(headers, bytes_max)? {
        BodyForm::Events(decoder) => Some(decoder),
        BodyForm::Json => None,
    }
}

impl BodyForm {
    fn of(headers: &HeaderMap, bytes_max: usize) -> Option<Self> {
        // raincheck does not ask for an encoded body, and cannot read one.
        if headers.contains_key(CONTENT_ENCODING) {
            return None;
        }
        let kind = headers.get(CONTENT_TYPE)?.to_str().ok()?;
        let kind = kind.split(';').next().unwrap_or("").trim();
        match kind.to_ascii_lowercase().as_str() {
            "application/json" => Some(Self::Json),
            "text/event-stream" => Some(Self::Events(Decoder::new(bytes_max))),
            _ => None,
        }
    }
}

impl Messages {
    pub(super) fn of(response: Response<ResponseBody>, bytes_max: usize) -> Result<Self, Failure> {
        let form = BodyForm::of(response.headers(), bytes_max).ok_or(INVALID)?;
        Ok(Self::in_form(form, response.into_body(), bytes_max))
    }

    /// The messages behind a head; or the response as it came, if it is a refusal or cannot be read.
    pub(super) fn try_of(
        response: Response<ResponseBody>,
        bytes_max: usize,
    ) -> Result<(Parts, Self), Box<Response<ResponseBody>>> {
        if response.status() != StatusCode::OK {
            return Err(Box::new(response));
        }
        let Some(form) = BodyForm::of(response.headers(), bytes_max) else {
            return Err(Box::new(response));
        };
        let (head, body) = response.into_parts();
        let mut messages = Self::in_form(form, body, bytes_max);
        messages.unread = Some(Vec::new());
        Ok((head, messages))
    }

    fn in_form(form: BodyForm, body: ResponseBody, bytes_max: usize) -> Self {
        Self {
            body,
            form,
            bytes_max,
            queue: VecDeque::new(),
            unread: None,
            ended: false,
            fault: None,
            junk: false,
            last_event_id: None,
            retry: None,
        }
    }

    pub(super) fn is_stream(&self) -> bool {
        matches!(self.form, BodyForm::Events(_))
    }

    /// The failure of a body that ended without the answer.
    pub(super) fn without_answer(&self) -> Failure {
        if self.junk || !self.is_stream() {
            INVALID
        } else {
            RESET
        }
    }

    /// The next message that can be read. An event that cannot be read is ignored, and fails the call only if
    /// no answer follows. `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<ServerMessage>, Failure> {
        while let Some(text) = self.next_text().await? {
            if text.is_empty() && self.is_stream() {
                return Ok(Some(ServerMessage::Primed));
            }
            match server_message::read(&text) {
                Ok(message) => return Ok(Some(message)),
                Err(failure) if failure == INVALID && self.is_stream() => {
                    tracing::debug!("an unreadable event of the server was ignored");
                    self.junk = true;
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(None)
    }

    /// Looks at the next event without taking it: its data, and whether it has an id. `None` at the end. Cancel
    /// safe.
    pub(super) async fn peek(&mut self) -> Result<Option<(&str, bool)>, Failure> {
        while self.queue.is_empty() && !self.ended {
            self.read_events().await;
        }
        match (self.queue.front(), self.fault) {
            (None, Some(fault)) => Err(fault),
            (next, _) => Ok(next.map(|event| (event.data.as_str(), event.id.is_some()))),
        }
    }

    /// The answer to a request of raincheck's own, a result or an error. `None`: there is none that can be read.
    pub(super) async fn answer(&mut self) -> Option<Result<Box<RawValue>, Box<RawValue>>> {
        loop {
            match self.next().await {
                Ok(Some(ServerMessage::Result { result, .. })) => return Some(Ok(result)),
                Ok(Some(ServerMessage::Error { error, .. })) => return Some(Err(error)),
                Ok(Some(
                    ServerMessage::Primed
                    | ServerMessage::Request { .. }
                    | ServerMessage::Notification { .. },
                )) => {}
                Ok(Some(ServerMessage::Unreadable { .. }) | None) | Err(_) => return None,
            }
        }
    }

    /// The body as it came: what was read of it, and the rest. Only before the first message was taken.
    pub(super) fn into_unread(self) -> (Vec<u8>, ResponseBody) {
        (self.unread.unwrap_or_default(), self.body)
    }

    /// The next message as it is, with the id of its event. Cancel safe for streams.
    pub(super) async fn next_raw(&mut self) -> Result<Option<RawMessage>, Failure> {
        self.unread = None;
        while self.queue.is_empty() && !self.ended && self.is_stream() {
            self.read_events().await;
        }
        if let Some(Queued { data, id }) = self.queue.pop_front() {
            let event_id = id.and_then(|id| id.to_str().ok().map(str::to_owned));
            return Ok(Some(RawMessage {
                text: data,
                event_id,
            }));
        }
        let text = self.next_text().await?;
        Ok(text.map(|text| RawMessage {
            text,
            event_id: None,
        }))
    }

    /// Notes an answer to another request.
    pub(super) fn note_stray(&mut self) {
        tracing::debug!("an answer to no request of ours was ignored");
        self.junk = true;
    }

    /// Takes the body apart after the answer, so that its connection can be used again.
    pub(super) fn into_body(self) -> ResponseBody {
        self.body
    }

    /// The next message's text; `None` at the end of the body, however it ended for a stream.
    ///
    /// Not cancel safe for JSON bodies: poll it to its end or drop the whole.
    async fn next_text(&mut self) -> Result<Option<String>, Failure> {
        loop {
            if let Some(Queued { data, id }) = self.queue.pop_front() {
                self.last_event_id = id.or_else(|| self.last_event_id.take());
                return Ok(Some(data));
            }
            if self.ended {
                return self.fault.map_or(Ok(None), Err);
            }
            match &mut self.form {
                BodyForm::Json => {
                    self.ended = true;
                    let text = read_json(&mut self.body, self.bytes_max).await?;
                    return Ok(Some(text));
                }
                BodyForm::Events(_) => self.read_events().await,
            }
        }
    }

    async fn read_events(&mut self) {
        let Some(Ok(frame)) = self.body.frame().await else {
            // A cut stream is resumed by its last event id, if it had one.
            self.ended = true;
            return;
        };
        let BodyForm::Events(decoder) = &mut self.form else {
            return;
        };
        let Ok(data) = frame.into_data() else {
            return;
        };
        if let Some(unread) = &mut self.unread {
            unread.extend_from_slice(&data);
        }
        let (queue, retry) = (&mut self.queue, &mut self.retry);
        let fed = decoder.feed(&data, |event| {
            let SseEvent {
                data,
                id,
                retry: wait,
                event: _,
                has_data: _,
            } = event;
            let id = id.and_then(|id| HeaderValue::try_from(id).ok());
            if let Some(wait) = wait {
                *retry = Some(Duration::from_millis(wait));
            }
            if id.is_some() || !data.is_empty() {
                queue.push_back(Queued { data, id });
            }
        });
        if let Err(fault) = fed {
            // Events that came whole before one that cannot be read still count.
            self.ended = true;
            self.fault = Some(match fault {
                SseFault::TooLarge => TOO_LARGE,
                SseFault::NotUtf8 => INVALID,
            });
        }
    }
}

/// Reads a JSON body into one buffer, so that a large answer is not held twice.
async fn read_json(body: &mut ResponseBody, bytes_max: usize) -> Result<String, Failure> {
    let length = body.size_hint().exact().unwrap_or_default();
    let length = usize::try_from(length).map_err(|_| TOO_LARGE)?;
    if length > bytes_max {
        return Err(TOO_LARGE);
    }
    let mut text = Vec::with_capacity(length);
    while let Some(frame) = body.frame().await {
        // The body was cut short, or is no valid HTTP.
        let frame = frame.map_err(|_| INVALID)?;
        let data = frame.into_data().unwrap_or_default();
        if data.len() > bytes_max.saturating_sub(text.len()) {
            return Err(TOO_LARGE);
        }
        text.extend_from_slice(&data);
    }
    if text.starts_with(BYTE_ORDER_MARK) {
        text.drain(..BYTE_ORDER_MARK.len());
    }
    String::from_utf8(text).map_err(|_| INVALID)
}
