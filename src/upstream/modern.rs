//! A modern server: stateless, one POST a request, questions as `input_required` results.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream;
use hyper::http::request;
use serde_json::value::RawValue;

use super::heard::{self, Heard, Message, Messages};
use super::later::TRIES;
use super::message::{is_answer, is_token, log, note};
use super::origin::Origin;
use super::port::{Answer, Control, Event, Exchange, Outgoing, UpstreamError};
use super::request_id::RequestId;
use super::translate;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::headers::PROTOCOL_VERSION;
use crate::mcp::headers::encode;
use crate::mcp::headers::{METHOD, NAME};
use crate::mcp::version::MODERN;

/// Begins one request; it is sent when the events are first polled.
pub(super) fn begin(origin: Arc<Origin>, outgoing: Outgoing) -> Exchange {
    let conversation = Conversation {
        origin,
        outgoing,
        id: RequestId::number(0),
        tries: 0,
        phase: Phase::Unsent,
    };
    let events = stream::unfold(conversation, |mut conversation| async {
        let event = conversation.next().await?;
        Some((event, conversation))
    });
    Exchange {
        events: events.boxed(),
        control: Arc::new(ClosingIsEnough),
    }
}

/// A modern call is cancelled by closing its stream, which dropping the exchange does; and it
/// asks nothing while it runs.
struct ClosingIsEnough;

#[async_trait]
impl Control for ClosingIsEnough {
    async fn answer(&self, _id: &str, _answer: Answer) -> Result<(), Failure> {
        Ok(())
    }

    async fn cancel(&self) {}
}

struct Conversation {
    origin: Arc<Origin>,
    outgoing: Outgoing,
    id: RequestId,
    tries: u32,
    phase: Phase,
}

enum Phase {
    Unsent,
    /// Sent again after so long.
    Later(Duration),
    Reading(Box<Messages>),
    Over,
}

impl Conversation {
    async fn next(&mut self) -> Option<Event> {
        if let Phase::Later(pause) = self.phase {
            tokio::time::sleep(pause).await;
            self.phase = Phase::Unsent;
        }
        if matches!(self.phase, Phase::Unsent) {
            self.tries += 1;
            match self.send().await {
                Ok(messages) => {
                    self.phase = Phase::Reading(messages);
                    if self.tries > 1 {
                        return Some(Event::Later(None));
                    }
                }
                Err(Event::Later(Some(pause))) if self.tries < TRIES => {
                    self.phase = Phase::Later(pause);
                    return Some(Event::Later(Some(pause)));
                }
                Err(Event::Later(_)) => {
                    let failure = Failure::new(Reason::UpstreamHttp, SideEffect::None);
                    return Some(self.end(Event::Failed(failure)));
                }
                Err(end) => return Some(self.end(end)),
            }
        }
        loop {
            let Phase::Reading(messages) = &mut self.phase else {
                return None;
            };
            let message = match messages.next().await {
                Ok(Some(message)) => message,
                // A modern stream that was cut cannot be resumed.
                Ok(None) => {
                    let failure = messages.without_answer();
                    return Some(self.end(Event::Failed(failure)));
                }
                Err(failure) => return Some(self.end(Event::Failed(failure))),
            };
            if let Some(event) = self.on_message(message) {
                return Some(event);
            }
        }
    }

    fn end(&mut self, event: Event) -> Event {
        if let Phase::Reading(messages) = std::mem::replace(&mut self.phase, Phase::Over)
            && matches!(event, Event::Result(_) | Event::Error(_))
        {
            self.origin.http.finish(messages.into_body());
        }
        event
    }

    async fn send(&mut self) -> Result<Box<Messages>, Event> {
        self.id = self.origin.next_id();
        let params = translate::for_modern(&self.outgoing, &self.id)
            .map_err(|_| Event::Failed(Failure::new(Reason::UpstreamInvalid, SideEffect::None)))?;
        let body = translate::request(&self.id, &self.outgoing.method, &params);
        let method = &self.outgoing.method;
        let response = self.origin.request(self.head(), method, body).await;
        let response = response.map_err(Event::Failed)?;
        match heard::judge(response, self.origin.message_bytes_max).await {
            Heard::Messages(messages) => Ok(messages),
            Heard::Error(error) => Err(Event::Error(error)),
            Heard::Refused { failure, .. } => Err(Event::Failed(failure)),
            Heard::Later(pause) => Err(Event::Later(Some(pause))),
        }
    }

    fn head(&self) -> request::Builder {
        let outgoing = &self.outgoing;
        let mut head = self
            .origin
            .post(outgoing.credentials.as_ref())
            .header(PROTOCOL_VERSION, MODERN)
            .header(METHOD, &*outgoing.method);
        if let Some(name) = &outgoing.name {
            head = head.header(NAME, &*encode(name));
        }
        for (name, value) in outgoing.param_headers.iter().chain(&*outgoing.headers) {
            head = head.header(name, value);
        }
        head
    }

    fn on_message(&mut self, message: Message) -> Option<Event> {
        let own = &self.id;
        match message {
            Message::Result { id, result } if own.is(&id) => Some(self.end(Event::Result(result))),
            // A server that could not read the request cannot know its id.
            Message::Error { id, error } if is_answer(&id, own) => {
                let error = UpstreamError {
                    error,
                    status: 200,
                    www_authenticate: None,
                };
                Some(self.end(Event::Error(error)))
            }
            Message::Notification { method, params } => self.on_notification(&method, params),
            Message::Unreadable { id, failure, .. } if own.is(&id) => {
                Some(self.end(Event::Failed(failure)))
            }
            Message::Result { .. } | Message::Error { .. } | Message::Unreadable { .. } => {
                if let Phase::Reading(messages) = &mut self.phase {
                    messages.note_stray();
                }
                None
            }
            Message::Primed | Message::Request { .. } => None,
        }
    }

    fn on_notification(&self, method: &str, params: Option<Box<RawValue>>) -> Option<Event> {
        note(&self.origin, method);
        match method {
            "notifications/progress" => params
                .filter(|params| is_token(params, &self.id) && self.outgoing.wants_progress)
                .map(Event::Progress),
            "notifications/message" => log(params, &self.outgoing),
            _ => None,
        }
    }
}
