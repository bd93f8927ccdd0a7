//! The budget of buffered bytes: the requests that are read from clients and the answers that are written to
//! clients, for all clients together.
//!
//! Small bodies have a part of the budget of their own, so that clients that send large bodies do not block
//! the small requests of others. Dropping a [`BufferShare`] gives its bytes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use crate::base::limit_fill::{BUFFER_BYTES, LimitFill};

/// A body of up to this size is small, and so is the beginning of a larger body. Small answers do not count,
/// because they fit into a connection's buffer, which has its own bound.
pub const SMALL: usize = 16 * 1024;

/// The budget of this process.
#[derive(Debug)]
pub struct BufferBudget {
    small: BudgetPart,
    large: BudgetPart,
}

#[derive(Debug)]
struct BudgetPart {
    max: AtomicUsize,
    taken: AtomicUsize,
    /// Shows operators how near the part was to being used up.
    fill: Option<&'static LimitFill>,
}

impl BudgetPart {
    fn new(max: usize, fill: Option<&'static LimitFill>) -> Self {
        let part = Self {
            max: AtomicUsize::default(),
            taken: AtomicUsize::new(0),
            fill,
        };
        part.resize(max);
        part
    }

    fn resize(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
        if let Some(fill) = self.fill {
            fill.set_limit(max);
        }
    }

    fn reached(&self, taken: usize) {
        if let Some(fill) = self.fill {
            fill.reached(taken);
        }
    }

    fn max(&self) -> usize {
        self.max.load(Ordering::Relaxed)
    }

    fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    fn has(&self, bytes: usize) -> bool {
        bytes <= self.max().saturating_sub(self.taken())
    }

    fn try_take(&self, bytes: usize, max: usize) -> bool {
        let take = |taken: usize| taken.checked_add(bytes).filter(|sum| *sum <= max);
        let taken = &self.taken;
        // The counter guards no other data, so relaxed order suffices.
        let updated = taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        if let Ok(before) = updated {
            self.reached(before + bytes);
        }
        updated.is_ok()
    }

    fn give_back(&self, bytes: usize) {
        // A small body has no large part, and need not touch the counter that all threads share.
        if bytes > 0 {
            self.taken.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

/// A part of the budget that one body holds. Dropping it gives the bytes back.
#[derive(Debug)]
pub struct BufferShare {
    room: Arc<BufferBudget>,
    small: usize,
    large: usize,
}

impl BufferBudget {
    pub fn new(bytes_max: usize) -> Arc<Self> {
        let small = bytes_max / 4;
        Arc::new(Self {
            // Every request takes a small part, and none of them pays for a look at how full it is.
            small: BudgetPart::new(small, None),
            large: BudgetPart::new(bytes_max - small, Some(&BUFFER_BYTES)),
        })
    }

    /// Changes the bound. What is buffered beyond it stays.
    pub fn resize(&self, bytes_max: usize) {
        let small = bytes_max / 4;
        self.small.resize(small);
        self.large.resize(bytes_max - small);
    }

    /// An empty share, for a body that will arrive.
    pub fn enter(self: &Arc<Self>) -> BufferShare {
        BufferShare {
            room: Arc::clone(self),
            small: 0,
            large: 0,
        }
    }

    /// Returns `true` if the budget has room for a body of this size now. Reserves nothing: a client that only
    /// announces a body must not take room from others.
    pub fn has(&self, bytes: usize) -> bool {
        let (small, large) = split_size(bytes);
        self.small.has(small) && self.large.has(large)
    }

    /// Counts a body that is in memory already, even beyond the bound. Small bodies are not counted.
    pub fn count(self: &Arc<Self>, bytes: usize) -> Option<BufferShare> {
        if bytes <= SMALL {
            return None;
        }
        let mut place = self.enter();
        let before = self.large.taken.fetch_add(bytes, Ordering::Relaxed);
        self.large.reached(before.saturating_add(bytes));
        place.large = bytes;
        Some(place)
    }

    /// Counts an answer for as long as its bytes live. The work for an answer is already done, so answers may
    /// exceed the bound up to twice its size; beyond that there is no room: `None`.
    pub fn count_answer(self: &Arc<Self>, bytes: Bytes) -> Option<Bytes> {
        if bytes.len() <= SMALL {
            return Some(bytes);
        }
        let max = self.large.max().saturating_mul(2);
        if !self.large.try_take(bytes.len(), max) {
            return None;
        }
        let mut place = self.enter();
        place.large = bytes.len();
        Some(place.tie_to(bytes))
    }

    /// Returns `true` if more is buffered than requests alone may take. Then clients that do not read their answers
    /// are disconnected sooner.
    pub fn is_short(&self) -> bool {
        self.large.taken() > self.large.max()
    }
}

impl BufferShare {
    /// Grows the share to a body of this size. False: there is no room, and the share keeps what it had.
    pub fn grow_to(&mut self, bytes: usize) -> bool {
        let (small, large) = split_size(bytes);
        let room = &self.room;
        if let more @ 1.. = small.saturating_sub(self.small) {
            if !room.small.try_take(more, room.small.max()) {
                return false;
            }
            self.small = small;
        }
        if let more @ 1.. = large.saturating_sub(self.large) {
            if !room.large.try_take(more, room.large.max()) {
                return false;
            }
            self.large = large;
        }
        true
    }

    /// Ties the share to the bytes: it is given back when the last part of the bytes is dropped.
    pub fn tie_to(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(SharedBytes {
            bytes,
            _place: self,
        })
    }
}

impl Drop for BufferShare {
    fn drop(&mut self) {
        self.room.small.give_back(self.small);
        self.room.large.give_back(self.large);
    }
}

struct SharedBytes {
    bytes: Bytes,
    _place: BufferShare,
}

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Splits the size of a body into its small beginning and the rest.
fn split_size(bytes: usize) -> (usize, usize) {
    let small = bytes.min(SMALL);
    (small, bytes - small)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A budget for two small beginnings, and six times as much for the rest.
    fn room() -> Arc<BufferBudget> {
        BufferBudget::new(8 * SMALL)
    }

    #[test]
    fn a_large_body_leaves_room_for_small_ones() {
        let room = room();
        let mut large = room.enter();
        assert!(large.grow_to(7 * SMALL));
        let mut other = room.enter();
        assert!(!room.has(SMALL + 1) && !other.grow_to(SMALL + 1));
        assert!(other.grow_to(SMALL), "it has its beginning");
        assert!(!room.enter().grow_to(1), "two beginnings are all");
        drop(large);
        room.resize(4 * SMALL);
        assert!(!other.grow_to(7 * SMALL));
        room.resize(8 * SMALL);
        assert!(other.grow_to(7 * SMALL));
        drop(other);
        assert_eq!((room.small.taken(), room.large.taken()), (0, 0));
    }

    #[test]
    fn bytes_keep_their_place_while_anybody_has_a_part_of_them() {
        let room = room();
        let mut place = room.enter();
        assert!(place.grow_to(2 * SMALL));
        let bytes = place.tie_to(Bytes::from(vec![7; 2 * SMALL]));
        let part = bytes.slice(..1);
        drop(bytes);
        assert_eq!(room.large.taken(), SMALL);
        drop(part);
        assert_eq!((room.small.taken(), room.large.taken()), (0, 0));
    }

    #[test]
    fn answers_may_take_as_much_again_and_no_more() {
        let room = room();
        let answer = Bytes::from(vec![7; 4 * SMALL]);
        let first = room.count_answer(answer.clone()).unwrap();
        assert!(!room.is_short());
        let rest: Vec<_> = (0..2)
            .map(|_| room.count_answer(answer.clone()).unwrap())
            .collect();
        assert!(room.is_short() && !room.has(SMALL + 1));
        assert!(room.count_answer(answer).is_none());
        assert!(room.count_answer(Bytes::from_static(b"small")).is_some());
        let counted = room.count(SMALL + 1).unwrap();
        drop((first, rest, counted));
        assert_eq!(room.large.taken(), 0);
        assert!(room.count(SMALL).is_none());
    }
}
