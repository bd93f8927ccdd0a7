//! Writes the messages of responses as lines.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Collected, Limited};
use hyper::header::HeaderValue;
use hyper::{Method, Response, StatusCode};

use super::answer::{MESSAGE_BYTES_MAX, is_answer, is_stream, named};
use super::client::Client;
use super::message::parts;
use crate::downstream::body::Body;
use crate::downstream::durations::Asked;
use crate::downstream::{outbound::response, sessions};
use crate::mcp::error::{RpcError, code};
use crate::mcp::sse::Decoder;
use crate::upstream::reconnect::{PAUSE, Reconnect};

/// The result of one response.
#[derive(Default)]
pub(super) struct RelayedResponse {
    /// The answer to the request, if it came.
    pub(super) answer: Option<String>,
    /// The event behind which a stream that was cut can be resumed.
    pub(super) last_event_id: Option<HeaderValue>,
    pub(super) retry: Option<Duration>,
}

impl Client {
    /// Writes the messages of a response to the request with that id. `seen` gets the answer before it is written.
    pub(super) async fn relay(
        self: &Arc<Self>,
        response: Response<Body>,
        id: Option<&str>,
        seen: impl FnMut(&str) + Send,
    ) -> RelayedResponse {
        let (mut seen, mut response) = (seen, response);
        let mut answering = Asked::of(&mut response);
        let mut seen = |answer: &str| {
            if let Some(answering) = &mut answering {
                answering.saw_answer(answer);
            }
            seen(answer);
        };
        if is_stream(&response) {
            return self.relay_stream(response.into_body(), id, seen).await;
        }
        let status = response.status();
        let limit = self.proxy.live.body_bytes_max().max(MESSAGE_BYTES_MAX);
        let read = Limited::new(response.into_body(), limit).collect().await;
        let bytes = read.map(Collected::to_bytes).unwrap_or_default();
        let Some(id) = id else {
            return RelayedResponse::default();
        };
        let answer = named(&bytes, id).unwrap_or_else(|| {
            let message = self.instead(status);
            response::Rpc::error(id, &RpcError::new(code::INTERNAL, message)).json
        });
        seen(&answer);
        self.say(answer.clone()).await;
        RelayedResponse {
            answer: Some(answer),
            ..RelayedResponse::default()
        }
    }

    /// The error message for a response that is not JSON-RPC.
    fn instead(&self, status: StatusCode) -> String {
        if !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return format!("The server answered with HTTP status {}", status.as_u16());
        }
        let message = format!(
            "The server asks for a sign-in (HTTP {}), which a client cannot do through \
             \"raincheck stdio\": set upstream.headers.authorization \
             (RAINCHECK_UPSTREAM__HEADERS__AUTHORIZATION)",
            status.as_u16()
        );
        // Many clients show their users nothing of an error but this log.
        self.sign_in.call_once(|| tracing::warn!("{message}"));
        message
    }

    async fn relay_stream(
        self: &Arc<Self>,
        mut body: Body,
        id: Option<&str>,
        mut seen: impl FnMut(&str) + Send,
    ) -> RelayedResponse {
        let mut heard = RelayedResponse::default();
        let mut decoder = Decoder::new(MESSAGE_BYTES_MAX);
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(data) = frame.into_data() else {
                continue;
            };
            // Collected first, because the decoder takes a closure, which cannot await.
            let mut said = Vec::new();
            let fed = decoder.feed(&data, |mut event| {
                if let Some(id) = event
                    .id
                    .take()
                    .and_then(|id| HeaderValue::try_from(id).ok())
                {
                    heard.last_event_id = Some(id);
                }
                heard.retry = event.retry.map(Duration::from_millis).or(heard.retry);
                // An event without data only carries an id: servers prime their streams with one (2025-11-25).
                if event.is_message() && !event.data.is_empty() {
                    said.push(event.data);
                }
            });
            for message in said {
                if id.is_some_and(|id| is_answer(&message, id)) {
                    seen(&message);
                    heard.answer = Some(message.clone());
                } else if let Some(refusal) = self.questions.asked(&message) {
                    self.refuse_question(refusal);
                }
                self.say(message).await;
            }
            // Behind the messages, because those that came whole before the fault count.
            if fed.is_err() {
                break;
            }
        }
        heard
    }

    /// Comes back to a stream until the answer comes. False: the server no longer has the stream.
    pub(super) async fn resume(
        self: &Arc<Self>,
        id: &str,
        mut event: HeaderValue,
        retry: Option<Duration>,
    ) -> bool {
        let mut reconnect = Reconnect::to_answer(retry);
        loop {
            tokio::time::sleep(reconnect.pause()).await;
            let mut headers = self.session.headers();
            headers.insert("last-event-id", event.clone());
            let response = sessions::other(&self.proxy, parts(Method::GET, headers), None).await;
            if response.status().is_client_error() {
                return false;
            }
            let heard = self.relay_stream_of(response, Some(id)).await;
            if heard.answer.is_some() {
                return true;
            }
            if let Some(next) = heard.last_event_id {
                event = next;
                reconnect.heard();
            }
            reconnect.asked(heard.retry.filter(|retry| *retry >= PAUSE));
        }
    }

    /// Writes what the server sends on the GET stream of a legacy session, for as long as the server has such a
    /// stream.
    pub(super) async fn hear(self: &Arc<Self>) {
        let mut reconnect = Reconnect::to_stream();
        let mut event = None;
        loop {
            let mut headers = self.session.headers();
            if let Some(event) = &event {
                headers.insert("last-event-id", HeaderValue::clone(event));
            }
            let response = sessions::other(&self.proxy, parts(Method::GET, headers), None).await;
            match response.status() {
                // The session is lost: the next request opens another.
                StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST => {
                    self.session.renewed().await;
                    event = None;
                    reconnect.heard();
                    continue;
                }
                // Another stream of the session is still open there.
                StatusCode::CONFLICT => {}
                // The server has no such stream.
                status if status.is_client_error() => return,
                _ => {}
            }
            let heard = self.relay_stream_of(response, None).await;
            if heard.last_event_id.is_some() {
                event = heard.last_event_id;
                reconnect.heard();
            }
            reconnect.asked(heard.retry);
            tokio::time::sleep(reconnect.pause()).await;
        }
    }

    async fn relay_stream_of(
        self: &Arc<Self>,
        response: Response<Body>,
        id: Option<&str>,
    ) -> RelayedResponse {
        if !response.status().is_success() {
            return RelayedResponse::default();
        }
        self.relay_stream(response.into_body(), id, |_| {}).await
    }
}
