//! How many entries, and how many bytes of them, one caller may have and all together.
//!
//! Each process counts what it made itself, for as long as the store keeps it: no create asks anybody,
//! replicas together allow as many times more as there are of them, and what an earlier process made
//! counts nowhere.

use std::collections::{BTreeMap, HashMap};
use std::sync::MutexGuard;

use crate::lock::Mutex;
use crate::task::id::Caller;

/// What is the most, in all or of one caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Most {
    pub entries: u64,
    pub bytes: u64,
}

impl Most {
    pub const ANY: Self = Self {
        entries: u64::MAX,
        bytes: u64::MAX,
    };
}

/// The caller has, or all have, as much as may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Over;

#[derive(Debug)]
pub struct Quotas {
    of_caller: Most,
    in_all: Most,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    callers: HashMap<Caller, Usage>,
    all: Usage,
}

/// Cheap however many entries there are: what ends in the same minute is one sum.
#[derive(Debug, Default)]
struct Usage {
    sum: Sum,
    by_minute: BTreeMap<u64, Sum>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Sum {
    entries: u64,
    bytes: u64,
}

impl Usage {
    /// True where something was forgotten.
    fn forget(&mut self, minute: u64) -> bool {
        let mut forgot = false;
        while let Some(oldest) = self.by_minute.first_entry()
            && *oldest.key() < minute
        {
            let Sum { entries, bytes } = oldest.remove();
            self.sum.entries = self.sum.entries.saturating_sub(entries);
            self.sum.bytes = self.sum.bytes.saturating_sub(bytes);
            forgot = true;
        }
        forgot
    }

    fn has(&self, bytes: usize, most: Most) -> bool {
        let Sum {
            entries,
            bytes: used,
        } = self.sum;
        entries < most.entries && used.saturating_add(bytes as u64) <= most.bytes
    }

    fn add(&mut self, minute: u64, entries: u64, bytes: usize) {
        for sum in [&mut self.sum, self.by_minute.entry(minute).or_default()] {
            sum.entries = sum.entries.saturating_add(entries);
            sum.bytes = sum.bytes.saturating_add(bytes as u64);
        }
    }

    fn take_back(&mut self, minute: u64, entries: u64, bytes: usize) {
        let Some(of_minute) = self.by_minute.get_mut(&minute) else {
            return;
        };
        for sum in [&mut self.sum, of_minute] {
            sum.entries = sum.entries.saturating_sub(entries);
            sum.bytes = sum.bytes.saturating_sub(bytes as u64);
        }
    }
}

impl Quotas {
    pub fn new(of_caller: Most, in_all: Most) -> Self {
        Self {
            of_caller,
            in_all,
            used: Mutex::default(),
        }
    }

    fn used(&self, now_ms: u64) -> MutexGuard<'_, Used> {
        let mut used = self.used.lock();
        let minute = minute(now_ms);
        if used.all.forget(minute) {
            used.callers.retain(|_, usage| {
                usage.forget(minute);
                usage.sum.entries > 0
            });
        }
        used
    }

    /// Whether the caller may have one more.
    pub fn has_room(&self, caller: &Caller, now_ms: u64) -> bool {
        let used = self.used(now_ms);
        let of_caller = used.callers.get(caller);
        used.all.has(0, self.in_all) && of_caller.is_none_or(|usage| usage.has(0, self.of_caller))
    }

    /// Counts an entry of that caller until it expires.
    pub fn enter(
        &self,
        caller: Caller,
        bytes: usize,
        expires_ms: u64,
        now_ms: u64,
    ) -> Result<(), Over> {
        let minute = minute(expires_ms);
        let mut used = self.used(now_ms);
        let of_caller = used.callers.get(&caller);
        let has_room = match of_caller {
            Some(usage) => usage.has(bytes, self.of_caller),
            None => Usage::default().has(bytes, self.of_caller),
        };
        if !has_room || !used.all.has(bytes, self.in_all) {
            return Err(Over);
        }
        used.all.add(minute, 1, bytes);
        let usage = used.callers.entry(caller).or_default();
        usage.add(minute, 1, bytes);
        Ok(())
    }

    /// An entry that was counted grew, whatever is left: what it holds is there.
    pub fn grow(&self, caller: &Caller, bytes: usize, expires_ms: u64, now_ms: u64) {
        let minute = minute(expires_ms);
        let mut used = self.used(now_ms);
        if let Some(usage) = used.callers.get_mut(caller) {
            usage.add(minute, 0, bytes);
            used.all.add(minute, 0, bytes);
        }
    }

    /// An entry that was counted is not there, or no more.
    pub fn leave(&self, caller: &Caller, bytes: usize, expires_ms: u64, now_ms: u64) {
        let minute = minute(expires_ms);
        let mut used = self.used(now_ms);
        if let Some(usage) = used.callers.get_mut(caller) {
            usage.take_back(minute, 1, bytes);
            used.all.take_back(minute, 1, bytes);
        }
    }

    /// An entry that was counted gets as much larger, or smaller. False: larger than it may, and nothing of
    /// it was counted.
    pub fn resize(
        &self,
        caller: &Caller,
        (before, after): (usize, usize),
        expires_ms: u64,
        now_ms: u64,
    ) -> bool {
        let minute = minute(expires_ms);
        let mut used = self.used(now_ms);
        let Used { callers, all } = &mut *used;
        // Counted by another replica, or before a restart.
        let Some(usage) = callers.get_mut(caller) else {
            return true;
        };
        let more = after.saturating_sub(before);
        let fits =
            |usage: &Usage, most: Most| usage.sum.bytes.saturating_add(more as u64) <= most.bytes;
        if more > 0 && !(fits(usage, self.of_caller) && fits(all, self.in_all)) {
            return false;
        }
        for usage in [usage, all] {
            usage.add(minute, 0, more);
            usage.take_back(minute, 0, before.saturating_sub(after));
        }
        true
    }
}

/// In which minute something ends.
fn minute(expires_ms: u64) -> u64 {
    expires_ms / 60_000
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_MS: u64 = 60_000;

    fn caller(byte: u8) -> Caller {
        Caller::from_bytes([byte; 16])
    }

    fn most(entries: u64, bytes: u64) -> Most {
        Most { entries, bytes }
    }

    #[test]
    fn a_caller_at_its_quota_leaves_others_theirs() {
        let quotas = Quotas::new(most(2, 100), most(5, 1000));
        let (greedy, other) = (caller(1), caller(2));
        let enter = |caller, bytes| quotas.enter(caller, bytes, MINUTE_MS, 0);
        enter(greedy, 10).unwrap();
        assert!(quotas.has_room(&greedy, 0));
        assert_eq!(enter(greedy, 91), Err(Over), "too many bytes");
        enter(greedy, 90).unwrap();
        assert_eq!(enter(greedy, 0), Err(Over), "too many entries");
        assert!(!quotas.has_room(&greedy, 0) && quotas.has_room(&other, 0));
        enter(other, 100).unwrap();
        quotas.leave(&greedy, 90, MINUTE_MS, 0);
        enter(greedy, 80).unwrap();
        let resize = |caller, sizes| quotas.resize(&caller, sizes, MINUTE_MS, 0);
        assert!(!resize(greedy, (80, 91)) && resize(greedy, (80, 90)));
        assert!(resize(greedy, (90, 80)) && resize(greedy, (80, 90)));
        assert!(resize(caller(9), (0, 1000)), "who is not counted here");
        enter(caller(3), 0).unwrap();
        enter(caller(4), 0).unwrap();
        assert_eq!(enter(caller(5), 0), Err(Over), "too many in all");
    }

    #[test]
    fn what_has_expired_counts_no_more_and_nothing_is_left_of_it() {
        let quotas = Quotas::new(most(1, 100), Most::ANY);
        quotas.enter(caller(1), 10, MINUTE_MS * 3, 0).unwrap();
        quotas.grow(&caller(1), 500, MINUTE_MS * 3, 0);
        quotas.grow(&caller(9), 500, MINUTE_MS * 3, 0);
        let again = |now_ms| quotas.enter(caller(1), 10, now_ms + MINUTE_MS, now_ms);
        assert_eq!(again(MINUTE_MS * 3), Err(Over));
        again(MINUTE_MS * 4).unwrap();
        assert!(!quotas.has_room(&caller(1), MINUTE_MS * 5));
        assert!(quotas.has_room(&caller(1), MINUTE_MS * 6));
        let used = quotas.used(MINUTE_MS * 6);
        assert!(used.callers.is_empty() && used.all.by_minute.is_empty());
        assert_eq!((used.all.sum.entries, used.all.sum.bytes), (0, 0));
    }
}
