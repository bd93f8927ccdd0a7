//! Resumes streams that were cut.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::HeaderValue;

use crate::base::failpoint::{Point, hit};
use crate::mcp::error::Failure;
use crate::upstream::exchange::session::call::{SessionCall, StreamRead};
use crate::upstream::failures::RESET;
use crate::upstream::http::RequestBody;
use crate::upstream::http_response;
use crate::upstream::http_response::ResponseKind;
use crate::upstream::reconnect::{PAUSE, Reconnect, is_gone};

impl SessionCall {
    pub(super) fn note_event_id(&self, event_id: Option<&HeaderValue>) {
        let mut underway = self.underway.lock();
        if let Some(underway) = underway.as_mut()
            && underway.event_id.as_ref() != event_id
        {
            underway.event_id = event_id.cloned();
        }
    }

    pub(super) fn has_become_resumable(&mut self) -> bool {
        if self.has_told_resumable || !self.request.can_move() {
            return false;
        }
        let underway = self.underway.lock();
        self.has_told_resumable = underway.as_ref().is_some_and(|it| it.event_id.is_some());
        self.has_told_resumable
    }

    /// Requests the rest of a stream that was cut, until the server has it, or refuses the client's credentials for the first time.
    pub(super) async fn resume(
        &self,
        event_id: &HeaderValue,
        retry: Option<Duration>,
        is_refused: bool,
    ) -> Result<StreamRead, Failure> {
        let Some(lease) = &self.lease else {
            return Err(RESET);
        };
        let mut reconnect = Reconnect::to_answer(retry);
        let session = Arc::clone(&lease.session);
        // A session that another process opened has no reader here yet.
        session.hear().await;
        loop {
            // The caller has a deadline, and drops the call then.
            tokio::time::sleep(reconnect.pause()).await;
            let request = session.get(Some(event_id));
            let query = self.request.query.as_deref();
            let request = self.origin.with_query(request, query);
            hit(Point::ResumeBefore);
            let Ok(response) = self.origin.send(request, RequestBody::empty()).await else {
                // A server that cannot be reached may still run the call, so the attempts go on.
                continue;
            };
            session.heard(&response);
            let status = response.status();
            match http_response::classify_response(response, self.origin.message_bytes_max).await {
                ResponseKind::Messages(mut resumed) => {
                    // Nothing new was read yet, so the old id still counts.
                    resumed.last_event_id = Some(event_id.clone());
                    // Keep a pause before a stream that ends again and again.
                    resumed.retry = retry.filter(|retry| *retry >= PAUSE);
                    return Ok(StreamRead::Resumed(resumed));
                }
                ResponseKind::Later(later) => reconnect.asked(Some(later.pause)),
                ResponseKind::Error(_) | ResponseKind::Refused { .. }
                    if status == StatusCode::UNAUTHORIZED
                        && self.request.credentials.is_some()
                        && !is_refused =>
                {
                    return Ok(StreamRead::Unauthorized);
                }
                ResponseKind::Error(_) | ResponseKind::Refused { .. } if is_gone(status) => {
                    return Err(RESET);
                }
                ResponseKind::Error(_) | ResponseKind::Refused { .. } => {}
            }
        }
    }
}
