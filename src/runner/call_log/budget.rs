//! The number of messages of one call that its log keeps: the newest, up to a number of bytes. Pure.

use std::collections::VecDeque;

use crate::store::kv::ENTRIES_MAX;

/// Bytes that the messages of one call may take in the store. The answer does not count: it is the last entry,
/// and is never dropped.
const BYTES_MAX: usize = 4 << 20;

/// Bytes that are left after messages were dropped, so that not every new message drops another.
const BYTES_LEFT: usize = BYTES_MAX / 2;

#[derive(Debug, Default)]
pub(super) struct LogBudget {
    kept: VecDeque<(u64, usize)>,
    bytes: usize,
}

impl LogBudget {
    /// Counts one more message. `Some`: the log must drop the entries before this number.
    pub(super) fn add(&mut self, number: u64, bytes: usize) -> Option<u64> {
        self.kept.push_back((number, bytes));
        self.bytes += bytes;
        // The store drops these by itself with each append, so they need no trim.
        while self.kept.len() as u64 > ENTRIES_MAX {
            self.forget_oldest();
        }
        if self.bytes <= BYTES_MAX {
            return None;
        }
        while self.bytes > BYTES_LEFT && self.kept.len() > 1 {
            self.forget_oldest();
        }
        self.kept.front().map(|(first, _)| *first)
    }

    fn forget_oldest(&mut self) {
        if let Some((_, bytes)) = self.kept.pop_front() {
            self.bytes -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_and_the_newest_stays() {
        let mut budget = LogBudget::default();
        let quarter = BYTES_MAX / 4;
        for number in 1..=4 {
            assert_eq!(budget.add(number, quarter), None);
        }
        assert_eq!(budget.add(5, quarter), Some(4), "half is left");
        assert_eq!(budget.add(6, BYTES_MAX * 2), Some(6));
        assert_eq!(budget.add(7, 1), Some(7), "what is far too large goes next");
        for number in 8..=8 + 2 * ENTRIES_MAX {
            assert_eq!(budget.add(number, 1), None);
        }
        assert_eq!(budget.bytes as u64, ENTRIES_MAX);
    }
}
