//! Server-sent events, one by one.

use hyper::Response;
use hyper::body::Incoming;
use serde_json::Value;

use super::client::Connection;
use super::{PATIENCE, within};
use crate::events::Events;

/// One event, with the id from which the stream can be resumed after it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) retry: Option<String>,
    /// The message; null if the event has none.
    pub(crate) message: Value,
}

impl Event {
    fn of(text: &str) -> Self {
        let field = |name: &str| {
            let mut values = text.lines().filter_map(|line| line.strip_prefix(name));
            values.next().map(|value| value.trim().to_owned())
        };
        let data = data_of(text);
        Self {
            id: field("id:"),
            retry: field("retry:"),
            message: data.map_or(Value::Null, |data| serde_json::from_str(&data).unwrap()),
        }
    }
}

/// A response that streams. Dropped, the client hangs up.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) status: u16,
    events: Events,
    _connection: Connection,
}

impl Stream {
    pub(super) fn new(response: Response<Incoming>, connection: Connection) -> Self {
        let status = response.status().as_u16();
        Self {
            status,
            events: Events::of(response.into_body()),
            _connection: connection,
        }
    }

    /// The next message, whatever comments come before it.
    pub(crate) async fn next(&mut self) -> Value {
        let next = within(PATIENCE, "the next event of a stream", self.next_or_end()).await;
        next.expect("the stream ended")
    }

    /// The next message; `None` at the end of the stream.
    pub(crate) async fn next_or_end(&mut self) -> Option<Value> {
        loop {
            if let Some(data) = data_of(&self.written().await?) {
                return Some(serde_json::from_str(&data).unwrap());
            }
        }
    }

    /// The next event or comment, its lines ended as on Unix.
    async fn written(&mut self) -> Option<String> {
        let event = String::from_utf8(self.events.next().await?).unwrap();
        Some(event.replace("\r\n", "\n"))
    }

    /// The next event with its id, also one without a message; `None` at the end of the stream.
    pub(crate) async fn event(&mut self) -> Option<Event> {
        let next = async {
            loop {
                let event = self.written().await?;
                if !event.starts_with(':') {
                    return Some(Event::of(&event));
                }
            }
        };
        within(PATIENCE, "the next event of a stream", next).await
    }

    /// The next message that is an answer; others are passed over.
    pub(crate) async fn next_of_answer(&mut self) -> Value {
        loop {
            let message = self.next().await;
            if message.get("method").is_none() {
                return message;
            }
        }
    }

    /// The next message of this method; others are passed over.
    pub(crate) async fn next_of(&mut self, method: &str) -> Value {
        loop {
            let message = self.next().await;
            if message["method"] == method {
                return message;
            }
        }
    }

    /// Reads on until the task has this status.
    pub(crate) async fn until(&mut self, status: &str) -> Value {
        loop {
            let params = self.next_of("notifications/tasks").await["params"].take();
            if params["status"] == status {
                return params;
            }
        }
    }
}

/// The data of the last event of a whole body: the JSON-RPC response.
pub(crate) fn last_event(body: &str) -> String {
    let body = body.replace("\r\n", "\n");
    body.split("\n\n")
        .filter_map(data_of)
        .last()
        .unwrap_or_default()
}

fn data_of(event: &str) -> Option<String> {
    let lines: Vec<&str> = event
        .lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .map(|data| data.strip_prefix(' ').unwrap_or(data))
        .collect();
    let data = lines.join("\n");
    (!data.is_empty()).then_some(data)
}
