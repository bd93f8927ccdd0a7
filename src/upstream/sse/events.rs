//! A response body as events.

use std::collections::VecDeque;

use http_body_util::BodyExt as _;
use tracing::warn;

use crate::mcp::sse::{Decoder, SseEvent, SseFault};
use crate::upstream::channel::mouth::End;
use crate::upstream::http::ResponseBody;

/// Dropped, its connection is closed: the server sees that nobody listens.
#[derive(Debug)]
pub(in crate::upstream) struct Events {
    body: ResponseBody,
    decoder: Decoder,
    /// What one read brought.
    queue: VecDeque<SseEvent>,
    bytes_max: usize,
}

impl Events {
    pub(super) fn new(body: ResponseBody, bytes_max: usize) -> Self {
        Self {
            body,
            decoder: Decoder::new(bytes_max),
            queue: VecDeque::new(),
            bytes_max,
        }
    }

    /// Cancel safe. The next event, or how the stream ended.
    pub(super) async fn next(&mut self) -> Result<SseEvent, End> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Ok(event);
            }
            let Some(Ok(frame)) = self.body.frame().await else {
                return Err(End::Gone);
            };
            let Ok(data) = frame.into_data() else {
                continue;
            };
            let queue = &mut self.queue;
            let fed = self.decoder.feed(&data, |event| queue.push_back(event));
            match fed {
                Ok(()) => {}
                Err(SseFault::TooLarge) => {
                    let bytes_max = self.bytes_max;
                    warn!(bytes_max, "the server wrote an event that is too long");
                    return Err(End::TooLarge);
                }
                Err(SseFault::NotUtf8) => {
                    warn!("the server wrote an event that is not UTF-8");
                    return Err(End::Gone);
                }
            }
        }
    }
}
