//! Reads a response body as events.

use std::collections::VecDeque;

use http_body_util::BodyExt as _;
use tracing::warn;

use crate::mcp::sse::{Decoder, SseEvent, SseFault};
use crate::upstream::http::ResponseBody;
use crate::upstream::line::overlong::OverlongVerdict;
use crate::upstream::line::writer::LineEnd;
use crate::upstream::sse::overlong::OverlongEvent;

/// An item that is read from a stream.
#[derive(Debug)]
pub(in crate::upstream) enum SseItem {
    Event(SseEvent),
    /// An answer that was too large to be kept: the id of its request, as JSON.
    TooLarge(Box<str>),
}

/// The body. When it is dropped, its connection is closed, and the server sees that raincheck no longer
/// listens.
#[derive(Debug)]
pub(in crate::upstream) struct SseEvents {
    body: ResponseBody,
    decoder: Decoder,
    /// The outcome of one read.
    queue: VecDeque<SseItem>,
    /// An event that is too large, and not yet at its end.
    overlong: Option<OverlongEvent>,
    /// Why reading stopped after the events that are queued.
    end: Option<LineEnd>,
    bytes_max: usize,
}

impl SseEvents {
    pub(super) fn new(body: ResponseBody, bytes_max: usize) -> Self {
        Self {
            body,
            decoder: Decoder::new(bytes_max),
            queue: VecDeque::new(),
            overlong: None,
            end: None,
            bytes_max,
        }
    }

    /// The next event, or how the stream ended. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<SseItem, LineEnd> {
        loop {
            if let Some(said) = self.queue.pop_front() {
                return Ok(said);
            }
            if let Some(end) = self.end {
                return Err(end);
            }
            let frame = match self.body.frame().await {
                Some(Ok(frame)) => frame,
                // A connection that broke may have cut its last event, too, so an event that has begun does not count.
                Some(Err(_)) => return Err(LineEnd::Gone),
                None => {
                    self.end = Some(LineEnd::Gone);
                    self.queue.extend(self.decoder.last().map(SseItem::Event));
                    continue;
                }
            };
            if let Ok(data) = frame.into_data() {
                // Events that came whole before one that cannot be read still count.
                self.end = self.take(&data).err();
            }
        }
    }

    fn take(&mut self, mut bytes: &[u8]) -> Result<(), LineEnd> {
        while !bytes.is_empty() {
            if let Some(overlong) = &mut self.overlong {
                let verdict = overlong.next(&mut bytes);
                self.judged(verdict)?;
                continue;
            }
            let queue = &mut self.queue;
            let fed = self
                .decoder
                .feed_up_to(&mut bytes, |event| queue.push_back(SseItem::Event(event)));
            match fed {
                Ok(()) => {}
                Err(SseFault::TooLarge) => {
                    let bytes_max = self.bytes_max;
                    warn!(bytes_max, "the server wrote an event that is too long");
                    let (event, line) = self.decoder.take_refused();
                    let (begun, verdict) = OverlongEvent::begun(&event, &line);
                    self.overlong = Some(begun);
                    self.judged(verdict)?;
                }
                Err(SseFault::NotUtf8) => {
                    warn!("the server wrote an event that is not UTF-8");
                    return Err(LineEnd::Gone);
                }
            }
        }
        Ok(())
    }

    /// Ends only the call that an event answers which is too large. If its call cannot be found out, any call may wait
    /// for it, so the stream ends.
    fn judged(&mut self, verdict: OverlongVerdict) -> Result<(), LineEnd> {
        match verdict {
            OverlongVerdict::Open => Ok(()),
            OverlongVerdict::Nobodys => Err(LineEnd::TooLarge),
            OverlongVerdict::Needless => {
                self.overlong = None;
                Ok(())
            }
            OverlongVerdict::Answer(id) => {
                let overlong = self.overlong.take();
                if overlong.is_some_and(|overlong| overlong.is_message) {
                    self.queue.push_back(SseItem::TooLarge(id));
                }
                Ok(())
            }
        }
    }
}
