//! The place where a client begins to receive events, and its part of the first look. Pure.

use super::look::EventNews;
use super::request::EventStart;
use super::state::AskedAt;
use crate::task::events::position::EventPosition;

/// Where a client begins.
#[derive(Debug)]
pub(super) struct Beginning {
    pub(super) position: EventPosition,
    /// The client may have missed events.
    pub(super) truncated: bool,
    /// The client receives events since this time.
    since_ms: u64,
    /// Earlier events are some that the client asked for.
    misses_earlier: bool,
}

impl Beginning {
    /// `kept_ms`: how long the record of a task is there after its end.
    pub(super) fn of(
        start: EventStart,
        age_ms_max: Option<u64>,
        at: AskedAt,
        kept_ms: u64,
    ) -> Self {
        match start {
            EventStart::Now | EventStart::Unreadable => Self {
                position: EventPosition::at(at.visible_ms),
                truncated: start == EventStart::Unreadable,
                // The position lies a little back, because commits show up late. This drops what is older than now.
                since_ms: at.now_ms.saturating_add(1),
                misses_earlier: false,
            },
            EventStart::After(position) => Self {
                truncated: position.has_gap(kept_ms, at.visible_ms),
                position,
                since_ms: age_ms_max.map_or(0, |age_ms| at.now_ms.saturating_sub(age_ms)),
                misses_earlier: true,
            },
        }
    }

    /// Takes the events that are too early for the client out of the result of the first look, and notes them as
    /// sent.
    pub(super) fn drop_earlier(&mut self, news: &mut Vec<EventNews>) {
        // The look sorts its news by time, so those that are too early come first.
        let earlier = news.partition_point(|news| news.mark.at_ms < self.since_ms);
        for news in news.drain(..earlier) {
            self.truncated |= self.misses_earlier;
            self.position.note(news.mark);
        }
    }
}
