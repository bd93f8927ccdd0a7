//! `events/poll`: the events of a caller's tasks since a cursor.

use std::sync::Arc;

use super::asked::{Asked, From};
use super::scan::{in_order, listed, read};
use super::state::Events;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::outbound::response::Rpc;
use crate::downstream::proxy::Proxy;
use crate::mcp::json::Writer;
use crate::store::StoreError;
use crate::task::events::position::Position;
use crate::task::events::{EventMark, occurrence};
use crate::task::state::Task;

/// How soon a client should poll again.
const NEXT_POLL_MS: u64 = 5_000;

pub(super) async fn answer(
    (proxy, events): (&Arc<Proxy>, &Events),
    id: &str,
    by: &Requester,
    asked: Asked,
) -> Rpc {
    let now_ms = proxy.runner.ledger().now_ms();
    let kept_ms = by.rules.retention_ms_min();
    match seen((proxy, events), by, &asked).await {
        Ok((there, is_cut)) => {
            let mut page = page(there, asked, (now_ms, kept_ms));
            page.truncated |= is_cut;
            Rpc::result(id, &page.said())
        }
        Err(error) => {
            tracing::warn!(%error, "the store did not answer a poll of events");
            Rpc::store_unavailable(id)
        }
    }
}

/// The events that are there, and whether the caller has more tasks than were looked at.
async fn seen(
    (proxy, events): (&Arc<Proxy>, &Events),
    by: &Requester,
    asked: &Asked,
) -> Result<(Vec<(EventMark, Task)>, bool), StoreError> {
    let all = listed(proxy, by).await?;
    let mut tasks = read((proxy, events), by, all.tasks).await?;
    tasks.retain(|task| asked.filter.admits(task));
    Ok((in_order(tasks), all.is_cut))
}

/// What a client hears at once.
pub(super) struct Page {
    pub(super) told: Vec<(EventMark, Task)>,
    pub(super) position: Position,
    pub(super) truncated: bool,
    has_more: bool,
}

/// Decides what the client hears of the events that are there, in their order.
pub(super) fn page(
    there: Vec<(EventMark, Task)>,
    asked: Asked,
    (now_ms, kept_ms): (u64, u64),
) -> Page {
    let (mut position, mut truncated) = match asked.from {
        From::Now | From::Nowhere => {
            let mut position = Position::now(now_ms);
            for (mark, _) in there {
                position.note(mark);
            }
            let truncated = asked.from == From::Nowhere;
            return Page {
                told: Vec::new(),
                position,
                truncated,
                has_more: false,
            };
        }
        From::After(position) => {
            let truncated = position.has_gap(kept_ms, now_ms);
            (position, truncated)
        }
    };
    let oldest_ms = asked
        .age_ms_max
        .map_or(0, |age_ms| now_ms.saturating_sub(age_ms));
    let (mut told, mut untold) = (Vec::new(), None);
    for (mark, task) in there {
        if !position.is_news(mark) {
            continue;
        }
        if mark.at_ms < oldest_ms {
            truncated = true;
        } else if told.len() == asked.events_max {
            untold = Some(mark);
            break;
        } else {
            told.push((mark, task));
        }
        position.note(mark);
    }
    position.advance(now_ms, untold);
    Page {
        told,
        position,
        truncated,
        has_more: untold.is_some(),
    }
}

impl Page {
    fn said(&self) -> String {
        let told = self.told.iter();
        let told: Vec<String> = told
            .map(|(mark, task)| occurrence(task, *mark).end())
            .collect();
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
    use crate::downstream::events::asked::Filter;
    use crate::task::id::TaskId;
    use crate::task::machine::tests::task;
    use crate::task::state::{Leg, Outcome};

    const NOW: u64 = 5_000_000;
    const KEPT: u64 = 3_600_000;

    fn ended(byte: u8, at_ms: u64) -> Task {
        let mut task = task(Leg::Sent(1), true);
        task.id = TaskId::from_bytes([byte; 16]);
        task.outcome = Some(Outcome::Cancelled);
        task.updated_ms = at_ms;
        task
    }

    fn asked(from: From, age_ms_max: Option<u64>) -> Asked {
        Asked {
            filter: Filter::default(),
            from,
            age_ms_max,
            events_max: 2,
        }
    }

    #[test]
    fn every_event_comes_once_over_pages_and_polls() {
        let old = in_order(vec![ended(1, NOW - 1)]);
        let first = page(old, asked(From::Now, None), (NOW, KEPT));
        assert!(first.told.is_empty() && !first.truncated);
        let all = in_order((1..=6).map(|n| ended(n, NOW - 2 + u64::from(n))).collect());
        let (mut at, mut heard) = (first.position, Vec::new());
        loop {
            let next = page(
                all.clone(),
                asked(From::After(at), None),
                (NOW + 60_000, KEPT),
            );
            heard.extend(next.told.iter().map(|(mark, _)| *mark));
            at = Position::decode(&next.position.encode(), NOW + 60_000).unwrap();
            if !next.has_more {
                break;
            }
        }
        let expected: Vec<_> = all[1..].iter().map(|(mark, _)| *mark).collect();
        assert_eq!(heard, expected);
        let again = page(all, asked(From::After(at), None), (NOW + 120_000, KEPT));
        assert!(again.told.is_empty() && !again.truncated);
    }

    #[test]
    fn what_may_be_gone_and_what_is_too_old_is_said() {
        let place = Position::now(NOW);
        let later = NOW + 100_000;
        let all = in_order(vec![ended(1, NOW + 1), ended(2, later)]);
        let young = page(
            all.clone(),
            asked(From::After(place.clone()), Some(50_000)),
            (later, KEPT),
        );
        assert!(young.truncated && young.told.len() == 1);
        let whole = page(
            all.clone(),
            asked(From::After(place.clone()), Some(200_000)),
            (later, KEPT),
        );
        assert!(!whole.truncated && whole.told.len() == 2);
        let gone = page(all.clone(), asked(From::After(place), None), (later, 1_000));
        assert!(gone.truncated && gone.told.len() == 2);
        assert!(page(all, asked(From::Nowhere, None), (later, KEPT)).truncated);
    }
}
