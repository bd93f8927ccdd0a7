//! The spans that wait for the collector. Each connection thread gathers its own, because a span that wakes the exporter
//! costs more than the call that it is about. The exporter takes what all threads have, at the latest after
//! [`GATHERING`], so nothing that a thread holds is lost when the process ends.

use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use super::otlp;
use super::span::Span;
use crate::base::lock::Mutex;
use crate::net::connection_threads::PerThread;
use crate::telemetry::metrics::METRICS;

/// The most spans of one batch.
const BATCH: usize = 512;

/// A batch that is not full waits for more spans this long.
const GATHERING: Duration = Duration::from_secs(1);

/// A thread hands over so many spans at once.
const GATHERED_MAX: usize = 64;

/// The most spans that were handed over: about 2 MiB. Further spans are dropped and counted.
const WAITING_MAX: usize = 4096;

/// Ended spans, as OTLP writes them.
#[derive(Debug, Default)]
pub(super) struct EndedSpans {
    pub(super) bytes: Vec<u8>,
    pub(super) count: usize,
}

impl EndedSpans {
    fn push(&mut self, span: &Span<'_>) {
        otlp::write_span(&mut self.bytes, span);
        self.count += 1;
    }

    fn append(&mut self, more: &Self) {
        self.bytes.extend_from_slice(&more.bytes);
        self.count += more.count;
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
    }

    /// Leaves room for as much as there was.
    fn take(&mut self) -> Self {
        let room = Vec::with_capacity(self.bytes.len());
        Self {
            bytes: mem::replace(&mut self.bytes, room),
            count: mem::take(&mut self.count),
        }
    }
}

/// The spans of all threads.
#[derive(Debug, Default)]
pub struct SpanQueue {
    /// Locked before `waiting`. A thread locks its own, and only the exporter ever locks that of another.
    gathered: PerThread<Mutex<EndedSpans>>,
    waiting: Mutex<WaitingSpans>,
    /// A batch waits.
    is_enough: Notify,
}

/// The spans that wait for the export.
#[derive(Debug, Default)]
struct WaitingSpans {
    parts: VecDeque<EndedSpans>,
    count: usize,
}

impl WaitingSpans {
    fn has_room(&self, for_spans: usize) -> bool {
        self.count + for_spans <= WAITING_MAX
    }

    fn push(&mut self, spans: EndedSpans) {
        self.count += spans.count;
        self.parts.push_back(spans);
    }
}

impl SpanQueue {
    /// Keeps the span for the exporter, and never waits for it.
    pub(super) fn tell(&self, span: &Span<'_>) {
        let mut own = self.gathered.here().lock();
        own.push(span);
        if own.count < GATHERED_MAX {
            return;
        }
        let mut waiting = self.waiting.lock();
        if !waiting.has_room(own.count) {
            // All threads share this lock, and counting does not need it.
            drop(waiting);
            count_dropped(&own);
            return own.clear();
        }
        let had_enough = waiting.count >= BATCH;
        waiting.push(own.take());
        // Only the spans that complete a batch wake the exporter.
        if !had_enough && waiting.count >= BATCH {
            self.is_enough.notify_one();
        }
    }

    /// Waits until the batch can be filled, or for a while, and adds to it what there is.
    pub(super) async fn gather(&self, batch: &mut EndedSpans) {
        // A batch that was not taken has waited already.
        let is_late = batch.count > 0;
        if !is_late && self.waiting.lock().count < BATCH {
            // After a while, what there is must do.
            let _ = timeout(GATHERING, self.is_enough.notified()).await;
        }
        self.take(batch);
    }

    /// Adds what there is to the batch, up to its bound.
    pub(super) fn take(&self, batch: &mut EndedSpans) {
        for own in self.gathered.all() {
            let mut own = own.lock();
            let mut waiting = self.waiting.lock();
            // Spans without room stay with their thread, which drops them only when it has a full part.
            if own.count > 0 && waiting.has_room(own.count) {
                waiting.push(own.take());
            }
        }
        let mut waiting = self.waiting.lock();
        let fits = |batch: &EndedSpans, next: &EndedSpans| batch.count + next.count <= BATCH;
        // A part is never split, because the ends of its spans are not marked.
        while let Some(next) = waiting.parts.pop_front_if(|next| fits(batch, next)) {
            waiting.count -= next.count;
            batch.append(&next);
        }
    }

    /// Drops what there is.
    pub(super) fn drop_all(&self) {
        let mut batch = EndedSpans::default();
        // Each round takes one batch at most.
        loop {
            self.take(&mut batch);
            if batch.count == 0 {
                return;
            }
            count_dropped(&batch);
            batch.clear();
        }
    }
}

fn count_dropped(spans: &EndedSpans) {
    count("dropped", spans.count as u64);
}

/// Counts what became of spans.
pub(super) fn count(outcome: &str, spans: u64) {
    let counted = METRICS.traces.spans.with_label_values(&[outcome]);
    counted.inc_by(spans);
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::super::span::SpanKind;
    use super::*;
    use crate::mcp::trace_id::HexId;

    fn span() -> Span<'static> {
        Span {
            trace: HexId::from_bytes([1; 16]),
            id: HexId::from_bytes([2; 8]),
            parent: None,
            state: None,
            name: ["ping", "", ""],
            kind: SpanKind::Server,
            begin_ns: 1,
            end_ns: 2,
            attributes: Vec::new(),
            link: None,
            is_error: false,
        }
    }

    fn tell(queue: &SpanQueue, spans: usize) {
        for _ in 0..spans {
            queue.tell(&span());
        }
    }

    fn dropped() -> u64 {
        let spans = &METRICS.traces.spans;
        spans.with_label_values(&["dropped"]).get()
    }

    #[tokio::test(start_paused = true)]
    async fn one_span_waits_no_longer_than_others_are_awaited() {
        let (queue, mut batch, began) =
            (SpanQueue::default(), EndedSpans::default(), Instant::now());
        tell(&queue, 1);
        queue.gather(&mut batch).await;
        assert_eq!((batch.count, Instant::now() - began), (1, GATHERING));
        let mut written = Vec::new();
        otlp::write_span(&mut written, &span());
        assert_eq!(batch.bytes, written);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_batch_waits_for_nothing() {
        let (queue, mut batch, began) =
            (SpanQueue::default(), EndedSpans::default(), Instant::now());
        // The exporter waits already when the spans end.
        tokio::join!(queue.gather(&mut batch), async { tell(&queue, BATCH + 1) });
        assert_eq!(batch.count, BATCH);
        assert_eq!(Instant::now() - began, Duration::ZERO);
    }

    #[tokio::test]
    async fn what_no_thread_handed_over_is_taken_at_the_end() {
        let (queue, mut batch) = (SpanQueue::default(), EndedSpans::default());
        tell(&queue, GATHERED_MAX + 1);
        queue.take(&mut batch);
        assert_eq!(batch.count, GATHERED_MAX + 1);
    }

    #[tokio::test]
    async fn what_waits_is_bounded_and_the_rest_is_counted() {
        let (queue, before) = (SpanQueue::default(), dropped());
        let more = 3 * GATHERED_MAX;
        tell(&queue, WAITING_MAX + more);
        assert_eq!(dropped() - before, more as u64);
        let (mut batch, mut got) = (EndedSpans::default(), 0);
        loop {
            batch.clear();
            queue.take(&mut batch);
            assert!(batch.count <= BATCH);
            if batch.count == 0 {
                break;
            }
            got += batch.count;
        }
        assert_eq!(got, WAITING_MAX);
        // There is room again.
        tell(&queue, 1);
        queue.drop_all();
        assert_eq!(dropped() - before, more as u64 + 1);
    }
}
