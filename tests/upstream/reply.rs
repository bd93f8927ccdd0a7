//! What a scripted server answers.

use std::time::Duration;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};

/// What to answer. `ID` in a body becomes the request's id.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
    /// The body does not end.
    pub(super) open: bool,
    /// No head either.
    pub(super) hang: bool,
    /// Bytes on the socket instead of HTTP; then it is closed.
    pub(super) raw: Option<Vec<u8>>,
    /// Sent on the stream; the result follows when it was answered.
    pub(super) asks: Option<String>,
    pub(super) after: Duration,
    /// What is said after the head waits for a call.
    pub(super) on_call: bool,
}

impl Reply {
    pub(crate) fn json(status: u16, body: &str) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        Self {
            status,
            headers,
            body: body.into(),
            open: false,
            hang: false,
            raw: None,
            asks: None,
            after: Duration::ZERO,
            on_call: false,
        }
    }

    pub(crate) fn result(result: &str) -> Self {
        Self::json(
            200,
            &format!(r#"{{"jsonrpc":"2.0","id":ID,"result":{result}}}"#),
        )
    }

    pub(crate) fn error(status: u16, error: &str) -> Self {
        Self::json(
            status,
            &format!(r#"{{"jsonrpc":"2.0","id":ID,"error":{error}}}"#),
        )
    }

    pub(crate) fn sse(body: &str) -> Self {
        Self::json(200, body).header("content-type", "text/event-stream")
    }

    pub(crate) fn sse_open(body: &str) -> Self {
        Self {
            open: true,
            ..Self::sse(body)
        }
    }

    pub(crate) fn events(messages: &[&str]) -> Self {
        let events = messages
            .iter()
            .map(|m| format!("event: message\ndata: {m}\n\n"));
        Self::sse(&events.collect::<String>())
    }

    pub(crate) fn asks(question: &str) -> Self {
        Self {
            asks: Some(question.into()),
            ..Self::events(&[r#"{"id":ID,"result":{"asked":true}}"#])
        }
    }

    pub(crate) fn hang() -> Self {
        Self {
            hang: true,
            ..Self::json(200, "")
        }
    }

    pub(crate) fn raw(bytes: &[u8]) -> Self {
        Self {
            raw: Some(bytes.into()),
            ..Self::json(200, "")
        }
    }

    pub(crate) fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.insert(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
        self
    }

    pub(crate) fn unfinished(mut self) -> Self {
        self.open = true;
        self
    }

    pub(crate) fn on_call(mut self) -> Self {
        self.on_call = true;
        self
    }

    pub(crate) fn after(mut self, after: Duration) -> Self {
        self.after = after;
        self
    }
}
