//! `GET /events`: what happens to tasks at this replica, as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::listener::{AdminBody, error};
use crate::mcp::sse;
use crate::telemetry::events::{TaskEventText, subscribe};

/// The most readers at the same time. Each holds a connection of the listener.
const READERS_MAX: usize = 16;

/// The pause after which a quiet stream shows that it is there.
const QUIET: Duration = Duration::from_secs(15);

/// The readers of events.
#[derive(Debug)]
pub(super) struct EventReaders(Arc<Semaphore>);

impl Default for EventReaders {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(READERS_MAX)))
    }
}

impl EventReaders {
    /// The stream of one more reader. It ends for a reader that is too far behind.
    pub(super) fn answer(&self) -> Response<AdminBody> {
        let Ok(permit) = Arc::clone(&self.0).try_acquire_owned() else {
            let why = "too many read events already (16)";
            return error(StatusCode::SERVICE_UNAVAILABLE, why);
        };
        let reader = EventReader {
            events: subscribe(),
            is_begun: false,
            _permit: permit,
        };
        let frames = stream::unfold(reader, EventReader::next);
        let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

struct EventReader {
    events: Receiver<TaskEventText>,
    is_begun: bool,
    _permit: OwnedSemaphorePermit,
}

impl EventReader {
    async fn next(mut self) -> Option<(Result<Frame<Bytes>, Infallible>, Self)> {
        // The first bytes come at once, so that the reader knows from when on nothing is missed.
        let bytes = if std::mem::replace(&mut self.is_begun, true) {
            match timeout(QUIET, self.events.recv()).await {
                Ok(Ok(event)) => {
                    Bytes::from(format!("event: {}\ndata: {}\n\n", event.word, event.json))
                }
                // A gap that the reader does not know of would be a wrong picture: the reader comes back and lists anew.
                Ok(Err(RecvError::Lagged(_) | RecvError::Closed)) => return None,
                Err(_quiet) => sse::COMMENT,
            }
        } else {
            sse::COMMENT
        };
        Some((Ok(Frame::data(bytes)), self))
    }
}
