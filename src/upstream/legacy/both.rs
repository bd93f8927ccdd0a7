//! What is said to one call, on its own stream and on the session's, as one stream.

use std::sync::PoisonError;

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use tokio::sync::mpsc;

use super::super::Event;
use super::side::Current;

/// All that is said to a call: on its own stream, and beside it on the session's.
pub(super) struct Both {
    pub(super) on_stream: BoxStream<'static, Event>,
    pub(super) said_beside: mpsc::Receiver<Event>,
    pub(super) current: Current,
    pub(super) is_over: bool,
}

impl Both {
    pub(super) async fn next(&mut self) -> Option<Event> {
        if self.is_over {
            return None;
        }
        // Both lose nothing when the other wins: the conversation waits inside of its stream.
        let event = tokio::select! {
            biased;
            Some(event) = self.said_beside.recv() => event,
            event = self.on_stream.next() => return event,
        };
        if let Event::Result(_) | Event::Error(_) = event {
            self.is_over = true;
            *self.current.lock().unwrap_or_else(PoisonError::into_inner) = None;
            // With it the session is given up: what its own stream would say has no call any more.
            self.on_stream = stream::empty().boxed();
        }
        Some(event)
    }
}

