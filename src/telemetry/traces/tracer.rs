//! The sampling of traces, and the path of spans to the exporter.

use std::cell::RefCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::queue::SpanQueue;
use super::span::Span;
use crate::mcp::trace_id::{HexId, TraceId};

/// `true` if there is a collector. Read for each request.
static IS_ON: AtomicBool = AtomicBool::new(false);

static TRACER: OnceLock<Tracer> = OnceLock::new();

#[derive(Debug)]
struct Tracer {
    /// Which of the traces that begin here are recorded, in parts of `u64::MAX`.
    below: u64,
    queue: SpanQueue,
}

/// Makes spans from now on, of this part of the traces that begin here. The caller exports what is in the queue that it gets.
/// `None`: spans are made already.
pub fn begin(ratio: f64) -> Option<&'static SpanQueue> {
    let below = threshold(ratio);
    let queue = SpanQueue::default();
    TRACER.set(Tracer { below, queue }).ok()?;
    IS_ON.store(true, Ordering::Relaxed);
    Some(&TRACER.get()?.queue)
}

/// Returns `true` if spans are made.
pub fn are_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Gives the span to the exporter, and never waits.
pub(super) fn tell(span: Span<'_>) {
    if let Some(tracer) = TRACER.get() {
        tracer.queue.tell(&span);
    }
    span.leave_room();
}

/// Returns `true` if a trace that begins here is recorded. All replicas decide alike, as OpenTelemetry's ratio
/// sampler does.
pub(super) fn is_sampled(trace: &TraceId) -> bool {
    TRACER
        .get()
        .is_some_and(|tracer| part(trace) < tracer.below)
}

/// Returns the part of a random id that decides: its last 63 bits.
fn part(trace: &TraceId) -> u64 {
    let last = trace.as_bytes().last_chunk().copied();
    u64::from_be_bytes(last.unwrap_or_default()) >> 1
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a ratio from 0 to 1 of 63 bits"
)]
fn threshold(ratio: f64) -> u64 {
    if ratio >= 1.0 {
        return u64::MAX;
    }
    (ratio.max(0.0) * (1_u64 << 63) as f64) as u64
}

thread_local! {
    /// Random bytes that no id has yet, so that few ids need a call of the system.
    static RANDOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The random bytes of one call of the system.
const RANDOM_BYTES: usize = 1024;

/// A random id.
pub(super) fn random<const N: usize>() -> HexId<N> {
    RANDOM.with_borrow_mut(|left| {
        if left.len() < N {
            left.resize(RANDOM_BYTES, 0);
            fill(left);
        }
        // Taken from the end, so that nothing moves.
        let from = left.len().saturating_sub(N);
        let bytes = left.last_chunk().copied().unwrap_or([0; N]);
        left.truncate(from);
        HexId::from_bytes(bytes)
    })
}

/// Where the system has no random bytes, spans get ids of the clock.
fn fill(bytes: &mut [u8]) {
    if getrandom::fill(bytes).is_err() {
        let mut now = crate::base::clock::wall_ns();
        for chunk in bytes.chunks_mut(size_of::<u64>()) {
            // Each chunk gets another number, or all ids of one fill would be the same.
            now = now.wrapping_add(1);
            chunk.copy_from_slice(now.to_be_bytes().get(..chunk.len()).unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_a_part_of_all_traces() {
        assert_eq!(threshold(0.0), 0);
        assert_eq!(threshold(1.0), u64::MAX);
        assert_eq!(threshold(0.5), 1 << 62);
        let ids = (0..1000).map(|_| random::<16>());
        let sampled = ids.filter(|id| part(id) < threshold(0.5)).count();
        assert!((350..650).contains(&sampled), "{sampled}");
    }
}
