//! Streams that are cut: where to come back to, and how.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::HeaderValue;

use super::super::failures::RESET;
use super::super::heard::{self, Heard};
use super::super::http::RequestBody;
use super::super::port::UpstreamError;
use super::conversation::{Conversation, Phase};
use crate::failpoint::{Point, hit};
use crate::mcp::error::Failure;

/// Between attempts to resume a cut stream.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(10);

impl Conversation {
    pub(super) fn note_event_id(&self) {
        let Phase::Reading(messages) = &self.phase else {
            return;
        };
        let mut current = self.current.lock();
        if let Some(call) = current.as_mut()
            && call.event_id != messages.last_event_id
        {
            call.event_id.clone_from(&messages.last_event_id);
        }
    }

    pub(super) fn has_become_resumable(&mut self) -> bool {
        if self.told_resumable || self.outgoing.is_personal() {
            return false;
        }
        let current = self.current.lock();
        self.told_resumable = current.as_ref().is_some_and(|call| call.event_id.is_some());
        self.told_resumable
    }

    /// The stream ended without the answer: it can be come back to where an event had an id.
    pub(super) fn cut(&mut self) -> Result<(), Failure> {
        let Phase::Reading(messages) = &self.phase else {
            return Err(RESET);
        };
        let Some(event_id) = messages
            .last_event_id
            .clone()
            .filter(|_| messages.is_stream())
        else {
            return Err(messages.without_answer());
        };
        let retry = messages.retry;
        self.phase = Phase::Cut { event_id, retry };
        Ok(())
    }

    /// Comes back to a stream that was cut.
    pub(super) async fn resume(
        &mut self,
        event_id: &HeaderValue,
        retry: Option<Duration>,
    ) -> Result<(), Failure> {
        let Some(lease) = &self.lease else {
            return Err(RESET);
        };
        let mut pause = retry.unwrap_or(PAUSE);
        let session = Arc::clone(&lease.session);
        // Where another process opened it, nobody hears it yet.
        session.hear().await;
        loop {
            // Whoever waits for this call has a deadline, and drops it then.
            tokio::time::sleep(pause.min(PAUSE_MAX)).await;
            pause = (pause * 2).clamp(PAUSE, PAUSE_MAX);
            let request = session.get().header("last-event-id", event_id);
            hit(Point::ResumeBefore);
            let Ok(response) = self.origin.send(request, RequestBody::empty()).await else {
                continue;
            };
            match heard::judge(response, self.origin.message_bytes_max).await {
                Heard::Messages(mut resumed) => {
                    // Nothing new was said yet: the old id still counts.
                    resumed.last_event_id = Some(event_id.clone());
                    // A stream that ends again and again is not asked for without a pause.
                    resumed.retry = retry.filter(|retry| *retry >= PAUSE);
                    self.phase = Phase::Reading(resumed);
                    self.resumed = true;
                    return Ok(());
                }
                Heard::Later(later) => pause = later,
                // It is not there, or not to be had this way.
                Heard::Error(UpstreamError {
                    status: 400..=405, ..
                })
                | Heard::Refused {
                    status:
                        StatusCode::BAD_REQUEST
                        | StatusCode::UNAUTHORIZED
                        | StatusCode::FORBIDDEN
                        | StatusCode::NOT_FOUND
                        | StatusCode::METHOD_NOT_ALLOWED,
                    ..
                } => return Err(RESET),
                // Another stream is still open there, or a gateway is away for a moment.
                Heard::Error(_) | Heard::Refused { .. } => {}
            }
        }
    }
}
