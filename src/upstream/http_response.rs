//! The HTTP responses of the wrapped server: what a head says, and the messages in a body. Shared by both eras.

use std::collections::VecDeque;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::header::{CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::http::response::Parts;
use hyper::{HeaderMap, Response, StatusCode};
use serde_json::value::RawValue;

use crate::base::retry_after;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::json::Object;
use crate::mcp::scan::mend;
use crate::mcp::sse::{Decoder, SseEvent, SseFault};
use crate::upstream::failures::{INVALID, INVALID_WORDS, Postponed, RESET, TOO_LARGE};
use crate::upstream::http::ResponseBody;
use crate::upstream::http::address;
use crate::upstream::http::decoded;
use crate::upstream::http::refusal;
use crate::upstream::http::refusal::SessionRefusal;
use crate::upstream::json_body::{self, FoundForm, read_json};
use crate::upstream::port::UpstreamError;
use crate::upstream::server_message::{self, ServerMessage};

/// A response to a request of raincheck's, as far as its head and its first message show.
#[derive(Debug)]
pub(super) enum ResponseKind {
    Messages(Box<Messages>),
    /// The server refused before it ran anything, and wants the request again after this pause.
    Later(Postponed),
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
    if address::is_of_moved(response.extensions()) {
        let failure = refusal::failure(&response.into_parts().0, "");
        let later = Postponed {
            pause: Duration::ZERO,
            is_long: false,
            failure,
        };
        return (ResponseKind::Later(later), None);
    }
    let is_answer = status.is_success() && status != StatusCode::ACCEPTED;
    let (head, text) = if is_answer {
        match decoded(response) {
            Ok(response) => match Messages::of(response, bytes_max).await {
                Ok(messages) => return (ResponseKind::Messages(Box::new(messages)), None),
                Err(refusal) => refusal,
            },
            Err((failure, _)) => return (ResponseKind::Refused { failure, status }, None),
        }
    } else {
        refusal::read(response).await
    };
    let is_refusal =
        status == StatusCode::TOO_MANY_REQUESTS || status == StatusCode::SERVICE_UNAVAILABLE;
    if is_refusal && let Some(pause) = retry_after::pause(&head.headers) {
        let failure = refusal::failure(&head, &text).with_effect(SideEffect::None);
        let later = Postponed {
            pause,
            is_long: retry_after::long(&head.headers).is_some(),
            failure,
        };
        return (ResponseKind::Later(later), None);
    }
    let www_authenticate = head.headers.get(WWW_AUTHENTICATE).cloned();
    let failure = refusal::failure(&head, &text);
    let unauthorized = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    let said = error_of(&text);
    let of_session = match &said {
        Some(error) => SessionRefusal::of_error(status.as_u16(), error),
        None if is_answer => None,
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

/// The error object in a JSON-RPC body. Its id does not matter: a server that could not read the request does
/// not know its id.
fn error_of(text: &str) -> Option<Box<RawValue>> {
    let text = mend(text.strip_prefix('\u{feff}').unwrap_or(text)).ok()?;
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
    /// The bytes that were read so far, while they may still be passed on as they are.
    unread: Option<Vec<u8>>,
    ended: bool,
    /// The body ended before its end.
    is_cut: bool,
    /// Why reading stopped after the messages that are queued.
    fault: Option<Failure>,
    /// The messages of a batch that are not taken yet.
    batch: VecDeque<String>,
    /// The stream had something that could not be read, or an answer to another request.
    junk: Option<Failure>,
    /// The id of the last event that was taken. The stream can be resumed after it.
    pub(super) last_event_id: Option<HeaderValue>,
    /// The pause that the server asks for before the stream is requested again.
    pub(super) retry: Option<Duration>,
}

/// One message as text: an event of a stream, or a JSON body.
#[derive(Debug)]
pub struct RawMessage {
    /// The message. Empty in events that only say where to resume, and in events of other names.
    pub text: String,
    /// The server's own id of the event.
    pub event_id: Option<String>,
    /// `true` if the event had its default name, `message`.
    pub is_named: bool,
    /// An event of another name, without its id: clients ignore it, even if its data is a message.
    pub other: Option<Box<SseEvent>>,
}

/// An event that waits to be taken. Priming events have an id and no data.
#[derive(Debug)]
struct Queued {
    data: String,
    id: Option<HeaderValue>,
    is_named: bool,
    /// An event of another name.
    other: Option<Box<SseEvent>>,
}

impl Queued {
    /// `None`: nothing is in the event.
    fn of(mut event: SseEvent) -> Option<Self> {
        let id = event.id.take();
        let id = id.and_then(|id| HeaderValue::try_from(id).ok());
        let is_named = event.event.is_some();
        let (data, other) = if event.is_message() {
            (event.data, None)
        } else {
            event.retry = None;
            (String::new(), Some(Box::new(event)))
        };
        let is_empty = id.is_none() && data.is_empty() && other.is_none();
        (!is_empty).then_some(Self {
            data,
            id,
            is_named,
            other,
        })
    }
}

/// The number of events without a message that are skipped to look at the first message of a stream.
const SKIPPED_MAX: usize = 16;

#[derive(Debug)]
enum BodyForm {
    /// With what was read of it already.
    Json(Vec<u8>),
    Events(Decoder),
}

/// The decoder for the body behind that head. `None` if the body is no event stream.
pub(super) fn decoder_of(headers: &HeaderMap, bytes_max: usize) -> Option<Decoder> {
    match BodyForm::of(headers, bytes_max)? {
        BodyForm::Events(decoder) => Some(decoder),
        BodyForm::Json(_) => None,
    }
}

impl BodyForm {
    /// `None`: the head names neither form.
    fn of(headers: &HeaderMap, bytes_max: usize) -> Option<Self> {
        let kind = headers.get(CONTENT_TYPE)?.to_str().ok()?;
        let kind = kind.split(';').next().unwrap_or("").trim();
        match kind.to_ascii_lowercase().as_str() {
            "application/json" => Some(Self::Json(Vec::new())),
            "text/event-stream" => Some(Self::Events(Decoder::new(bytes_max))),
            _ => None,
        }
    }
}

impl Messages {
    /// The messages behind a head. `Err`: the head, and the beginning of a body that is neither JSON nor an event stream.
    async fn of(
        response: Response<ResponseBody>,
        bytes_max: usize,
    ) -> Result<Self, (Parts, String)> {
        if let Some(form) = BodyForm::of(response.headers(), bytes_max) {
            return Ok(Self::in_form(form, response.into_body(), bytes_max));
        }
        let (head, mut body) = response.into_parts();
        let begun = json_body::begin(&mut body, bytes_max).await;
        let form = match FoundForm::of(&begun) {
            Some(FoundForm::Json) => BodyForm::Json(begun),
            Some(FoundForm::Events) => {
                let form = BodyForm::Events(Decoder::new(bytes_max));
                let mut messages = Self::in_form(form, body, bytes_max);
                messages.take_events(&begun);
                return Ok(messages);
            }
            None => return Err((head, refusal::text(body, begun).await)),
        };
        Ok(Self::in_form(form, body, bytes_max))
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
        let response = decoded(response).map_err(|(_, response)| response)?;
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
            is_cut: false,
            fault: None,
            batch: VecDeque::new(),
            junk: None,
            last_event_id: None,
            retry: None,
        }
    }

    pub(super) fn is_stream(&self) -> bool {
        matches!(self.form, BodyForm::Events(_))
    }

    /// Returns `true` for a stream that came to its end and had nothing in it. The caller has found no message.
    pub(super) fn is_empty_stream(&self) -> bool {
        self.is_stream() && !self.is_cut && self.junk.is_none() && self.last_event_id.is_none()
    }

    /// The failure of a body that ended without the answer.
    pub(super) fn without_answer(&self) -> Failure {
        match &self.junk {
            Some(failure) => failure.clone(),
            None if self.is_stream() => RESET,
            None => INVALID,
        }
    }

    /// The failure that kept a request of raincheck's own from having an answer.
    pub(super) fn without_words(&self) -> Failure {
        let junk = self.junk.as_ref();
        if let Some(cut) = junk.filter(|it| it.reason == Reason::UpstreamReset) {
            return cut.clone().with_effect(SideEffect::None);
        }
        let detail = junk.and_then(|failure| failure.detail.clone());
        Failure {
            detail,
            ..INVALID_WORDS
        }
    }

    /// The next message that can be read. An event that cannot be read is ignored, and fails the call only if
    /// no answer follows. `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<ServerMessage>, Failure> {
        loop {
            let text = match self.batch.pop_front() {
                Some(text) => text,
                None => match self.next_event().await? {
                    Some(event) => event.data,
                    None => return Ok(None),
                },
            };
            if text.is_empty() && self.is_stream() {
                return Ok(Some(ServerMessage::Primed));
            }
            if let Some(batch) = server_message::batch(&text) {
                self.batch = batch;
                continue;
            }
            match server_message::read(&text) {
                Ok(message) => return Ok(Some(message)),
                Err(failure) if failure.reason == Reason::UpstreamInvalid && self.is_stream() => {
                    tracing::debug!("an unreadable event of the server was ignored");
                    self.junk.get_or_insert(failure);
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Looks at the first message without taking it: its text, and whether its event has an id. The text is empty
    /// if many events come before a message. `None` at the end. Cancel safe.
    pub(super) async fn peek(&mut self) -> Result<Option<(&str, bool)>, Failure> {
        let is_other = |event: &Queued| event.other.is_some() && event.id.is_none();
        while self.queue.iter().all(is_other) && self.queue.len() < SKIPPED_MAX && !self.ended {
            self.read_events().await;
        }
        match (
            self.queue.iter().find(|event| !is_other(event)),
            &self.fault,
        ) {
            (None, Some(fault)) => Err(fault.clone()),
            (None, None) if !self.ended => Ok(Some(("", false))),
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
                Ok(Some(ServerMessage::Unreadable { failure, .. })) | Err(failure) => {
                    self.junk = Some(failure);
                    return None;
                }
                Ok(None) => return None,
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
        let event = match self.queue.pop_front() {
            None => self.next_event().await?,
            event => event,
        };
        Ok(event.map(|event| RawMessage {
            text: server_message::alone(event.data),
            event_id: event.id.and_then(|id| id.to_str().ok().map(str::to_owned)),
            is_named: event.is_named,
            other: event.other,
        }))
    }

    /// Notes an answer to another request.
    pub(super) fn note_stray(&mut self) {
        tracing::debug!("an answer to no request of ours was ignored");
        self.junk.get_or_insert(INVALID);
    }

    /// Takes the body apart after the answer, so that its connection can be used again.
    pub(super) fn into_body(self) -> ResponseBody {
        self.body
    }

    /// The next event, or the body as one; `None` at the end of the body, however it ended for a stream.
    ///
    /// Not cancel safe for JSON bodies: poll it to its end or drop the whole.
    async fn next_event(&mut self) -> Result<Option<Queued>, Failure> {
        loop {
            if let Some(mut event) = self.queue.pop_front() {
                self.last_event_id = event.id.take().or_else(|| self.last_event_id.take());
                return Ok(Some(event));
            }
            if self.ended {
                return self.fault.clone().map_or(Ok(None), Err);
            }
            match &mut self.form {
                BodyForm::Json(begun) => {
                    self.ended = true;
                    let begun = std::mem::take(begun);
                    return Ok(Some(Queued {
                        data: read_json(&mut self.body, begun, self.bytes_max).await?,
                        id: None,
                        is_named: false,
                        other: None,
                    }));
                }
                BodyForm::Events(_) => self.read_events().await,
            }
        }
    }

    async fn read_events(&mut self) {
        match self.body.frame().await {
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    self.take_events(&data);
                }
            }
            // A cut stream is resumed by its last event id, if it had one.
            Some(Err(_)) => (self.ended, self.is_cut) = (true, true),
            None => {
                self.ended = true;
                let BodyForm::Events(decoder) = &mut self.form else {
                    return;
                };
                let last = decoder
                    .last()
                    .filter(|last| Object::parse(&last.data).is_ok());
                self.queue.extend(last.and_then(Queued::of));
            }
        }
    }

    fn take_events(&mut self, data: &[u8]) {
        let BodyForm::Events(decoder) = &mut self.form else {
            return;
        };
        if let Some(unread) = &mut self.unread {
            unread.extend_from_slice(data);
        }
        let (queue, retry) = (&mut self.queue, &mut self.retry);
        let fed = decoder.feed(data, |event| {
            if let Some(wait) = event.retry {
                *retry = Some(Duration::from_millis(wait));
            }
            queue.extend(Queued::of(event));
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
