//! `events/poll`: the events of a caller's tasks since a cursor.

use std::collections::BTreeSet;

use super::look::{EventLooker, EventNews, LookError};
use super::request::{EventRequest, too_many_looks};
use super::start::Beginning;
use super::state::AskedAt;
use crate::downstream::outbound::response::Rpc;
use crate::mcp::json::Writer;
use crate::task::events::position::EventPosition;
use crate::telemetry::repeats::OF_OUTAGE;

/// The pause after which a client should poll again.
const NEXT_POLL_MS: u64 = 5_000;

pub(super) async fn answer(id: &str, looker: &EventLooker, asked: EventRequest) -> Rpc {
    // Before the look: a commit that shows up during the look must stay news for the next poll.
    let at = looker.asked_at();
    let events_max = asked.events_max;
    let mut beginning = Beginning::of(asked.start, asked.age_ms_max, at, looker.kept_ms());
    match looker.look(&beginning.position, &BTreeSet::new()).await {
        Ok(look) => {
            beginning.truncated |= look.is_cut;
            let page = EventPage::of(look.news, beginning, events_max, at);
            Rpc::result(id, &page.said())
        }
        Err(LookError::NoTurn) => Rpc::error(id, &too_many_looks()),
        Err(LookError::Store(error)) => {
            tracing::warn!(name: OF_OUTAGE, %error, "the store did not answer a poll of events");
            Rpc::store_unavailable(id)
        }
    }
}

/// The events that a client receives at once.
struct EventPage {
    told: Vec<EventNews>,
    position: EventPosition,
    truncated: bool,
    has_more: bool,
}

impl EventPage {
    /// Decides which of the events that the look found the client receives.
    fn of(
        mut news: Vec<EventNews>,
        mut beginning: Beginning,
        events_max: usize,
        at: AskedAt,
    ) -> Self {
        beginning.drop_earlier(&mut news);
        let mut position = beginning.position;
        let untold = news.get(events_max).map(|news| news.mark);
        news.truncate(events_max);
        for news in &news {
            position.note(news.mark);
        }
        // Not past the first event that did not fit, because the cursor would skip it.
        position.advance(at.visible_ms, untold);
        Self {
            told: news,
            position,
            truncated: beginning.truncated,
            has_more: untold.is_some(),
        }
    }

    fn said(&self) -> String {
        let told: Vec<&str> = self.told.iter().map(|news| &*news.event).collect();
        let is = |is: bool| if is { "true" } else { "false" };
        let mut out = Writer::with_capacity(256 + told.len() * 512);
        out.str("resultType", "complete")
            .raw("events", &format!("[{}]", told.join(",")))
            .str("cursor", &self.position.encode())
            .raw("truncated", is(self.truncated))
            .raw("hasMore", is(self.has_more))
            .number("nextPollMs", NEXT_POLL_MS);
        out.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::downstream::events::request::EventStart;
    use crate::task::events::EventMark;

    const NOW: u64 = 5_000_000;
    const KEPT: u64 = 3_600_000;
    const LATE: u64 = 10_000;

    fn ended(key: u64, at_ms: u64) -> EventNews {
        EventNews {
            mark: EventMark { at_ms, key },
            event: "{}".into(),
        }
    }

    /// Returns the events that a client receives of these, in their order, two at once.
    fn page(
        all: &[EventNews],
        start: EventStart,
        age_ms_max: Option<u64>,
        (now_ms, kept_ms): (u64, u64),
    ) -> EventPage {
        let at = AskedAt {
            now_ms,
            visible_ms: now_ms - LATE,
        };
        let beginning = Beginning::of(start, age_ms_max, at, kept_ms);
        let all = all.iter().cloned();
        let is_news = |news: &EventNews| beginning.position.is_news(news.mark);
        let news = all.filter(is_news).collect();
        EventPage::of(news, beginning, 2, at)
    }

    #[test]
    fn every_event_comes_once_over_pages_and_polls() {
        let first = page(&[ended(1, NOW - 1)], EventStart::Now, None, (NOW, KEPT));
        assert!(first.told.is_empty() && !first.truncated);
        let all: Vec<_> = (1..=6).map(|n| ended(n, NOW - 2 + n)).collect();
        let (mut at, mut heard) = (first.position, Vec::new());
        let later = NOW + 60_000;
        loop {
            let next = page(&all, EventStart::After(at), None, (later, KEPT));
            heard.extend(next.told.iter().map(|news| news.mark));
            at = EventPosition::decode(&next.position.encode(), later).unwrap();
            if !next.has_more {
                break;
            }
        }
        let expected: Vec<_> = all[1..].iter().map(|news| news.mark).collect();
        assert_eq!(heard, expected);
        let again = page(&all, EventStart::After(at), None, (NOW + 120_000, KEPT));
        assert!(again.told.is_empty() && !again.truncated);
    }

    #[test]
    fn what_may_be_gone_and_what_is_too_old_is_said() {
        let place = EventPosition::at(NOW - LATE);
        let after = || EventStart::After(place.clone());
        let later = NOW + 100_000;
        let all = [ended(1, NOW + 1), ended(2, later)];
        let young = page(&all, after(), Some(50_000), (later, KEPT));
        assert!(young.truncated && young.told.len() == 1);
        let whole = page(&all, after(), Some(200_000), (later, KEPT));
        assert!(!whole.truncated && whole.told.len() == 2);
        let gone = page(&all, after(), None, (later, 1_000));
        assert!(gone.truncated && gone.told.len() == 2);
        let unreadable = page(&all, EventStart::Unreadable, None, (later, KEPT));
        assert!(unreadable.truncated && unreadable.told.is_empty());
        let next = EventStart::After(unreadable.position);
        let next = page(&all, next, None, (later + 5, KEPT));
        assert!(next.told.is_empty() && !next.truncated, "it began then");
    }

    #[test]
    fn what_ends_while_a_client_begins_is_told() {
        let begun = page(
            &[ended(1, NOW), ended(2, NOW + 1)],
            EventStart::Now,
            None,
            (NOW, KEPT),
        );
        let told: Vec<_> = begun.told.iter().map(|news| news.mark.key).collect();
        assert_eq!(told, [2]);
    }
}
