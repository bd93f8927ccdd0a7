//! The time that the store keeps large answers for clients that may come back: the whole retention while they
//! are few, 5 minutes once the client has the answer, and 30 seconds while they are too many.

use std::collections::HashMap;

use crate::base::lock::Mutex;
use crate::store::kv::Name;

/// Answers up to this size are always kept for the whole retention.
pub(super) const SMALL: usize = 16 * 1024;

/// Bytes of large answers that this process wrote: above the first limit answers are kept for 5 minutes, above
/// the second for 30 seconds.
const MANY: usize = 128 << 20;
const TOO_MANY: usize = 256 << 20;

/// The time that an answer is kept after it was sent, and while there are many. A client needs less time to
/// notice that its connection is gone.
pub(super) const SHORT_MS: u64 = 5 * 60 * 1000;

const MOMENT_MS: u64 = 30 * 1000;

/// The large answers by their logs: when each expires, and its size.
#[derive(Debug, Default)]
pub(super) struct LargeAnswers(Mutex<HashMap<Name, (u64, usize)>>);

impl LargeAnswers {
    /// Counts an answer, and returns the time that the store keeps it.
    pub(super) fn add(&self, log: Name, bytes: usize, now_ms: u64, retention_ms: u64) -> u64 {
        if bytes <= SMALL {
            return retention_ms;
        }
        let mut kept = self.0.lock();
        // An earlier answer of the same log must not count beside this one.
        kept.retain(|other, (expires_ms, _)| *other != log && *expires_ms > now_ms);
        let sum = kept.values().map(|(_, bytes)| bytes).sum::<usize>();
        let lasts_ms = if sum + bytes <= MANY {
            retention_ms
        } else if sum + bytes <= TOO_MANY {
            retention_ms.min(SHORT_MS)
        } else {
            retention_ms.min(MOMENT_MS)
        };
        kept.insert(log, (now_ms.saturating_add(lasts_ms), bytes));
        lasts_ms
    }

    /// The client has the answer. `Some`: the answer now expires at this time, earlier than before.
    pub(super) fn delivered(&self, log: Name, now_ms: u64) -> Option<u64> {
        let sooner_ms = now_ms.saturating_add(SHORT_MS);
        let mut kept = self.0.lock();
        match kept.get_mut(&log) {
            Some((expires_ms, _)) if *expires_ms > sooner_ms => {
                *expires_ms = sooner_ms;
                Some(sooner_ms)
            }
            Some(_) | None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::kv::Kind;

    #[test]
    fn the_more_there_are_the_shorter_they_are_kept() {
        let hour_ms = 3_600_000;
        let kept = LargeAnswers::default();
        let log = |text: &str| Name::of(Kind::Events, &[text]);
        assert_eq!(kept.add(log("small"), SMALL, 0, hour_ms), hour_ms);
        assert_eq!(kept.delivered(log("small"), 0), None);
        assert_eq!(kept.add(log("a"), MANY, 0, hour_ms), hour_ms);
        assert_eq!(kept.add(log("a"), MANY, 0, hour_ms), hour_ms, "the same");
        assert_eq!(kept.add(log("b"), MANY, 0, hour_ms), SHORT_MS);
        assert_eq!(kept.add(log("c"), SMALL + 1, 0, hour_ms), MOMENT_MS);
        assert_eq!(kept.delivered(log("a"), 7), Some(7 + SHORT_MS));
        assert_eq!(kept.delivered(log("a"), 7), None, "it goes then already");
        assert_eq!(kept.delivered(log("b"), 0), None);
        let later_ms = 7 + SHORT_MS;
        assert_eq!(kept.add(log("d"), MANY, later_ms, hour_ms), hour_ms);
        assert_eq!(kept.0.lock().len(), 1);
    }
}
