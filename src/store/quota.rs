//! Quotas: how many entries, and how many bytes, one caller and all callers together may have.
//!
//! Each process counts the entries that it created, until they expire. So no create asks the store,
//! N replicas together allow N times as much, and entries of an earlier process do not count.

use std::collections::BTreeMap;
use std::sync::MutexGuard;

use crate::base::account::Account;
use crate::base::limit_fill::LimitFill;
use crate::base::lock::Mutex;
use crate::base::prehashed::PrehashedMap;
use crate::task::id::Caller;

/// The most entries and bytes, of one caller or in total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    pub entries: u64,
    pub bytes: u64,
}

impl Allowance {
    pub const ANY: Self = Self {
        entries: u64::MAX,
        bytes: u64::MAX,
    };
}

/// The caller's quota, or the quota of all callers, is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverQuota;

#[derive(Debug)]
pub struct Quotas {
    used: Mutex<Used>,
    /// Shows operators how near the quotas were to being used up.
    fills: Option<QuotaFills>,
}

/// The limits that an operator set as quotas.
#[derive(Debug)]
pub struct QuotaFills {
    pub of_caller: SumFills,
    pub in_all: SumFills,
}

/// The limits of one pair of sums.
#[derive(Debug)]
pub struct SumFills {
    pub entries: &'static LimitFill,
    pub bytes: &'static LimitFill,
}

impl QuotaFills {
    fn set_limit(&self, of_caller: Allowance, in_all: Allowance) {
        self.of_caller.set_limit(of_caller);
        self.in_all.set_limit(in_all);
    }
}

impl SumFills {
    fn set_limit(&self, most: Allowance) {
        self.entries.set_limit(whole(most.entries));
        self.bytes.set_limit(whole(most.bytes));
    }

    fn reached(&self, sum: Sum) {
        self.entries.reached(whole(sum.entries));
        self.bytes.reached(whole(sum.bytes));
    }
}

fn whole(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[derive(Debug)]
struct Used {
    of_caller: Allowance,
    in_all: Allowance,
    callers: PrehashedMap<Account, Usage>,
    all: Usage,
}

/// The entries of one caller or of all callers. Entries that expire in the same minute share one sum, so that the
/// size of this map does not depend on the number of entries.
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
    /// Forgets what expired before that minute. Returns true if anything was forgotten.
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

    fn has(&self, bytes: usize, most: Allowance) -> bool {
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
        // The entry has expired, and its sums went with those of its minute.
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
    pub fn new(of_caller: Allowance, in_all: Allowance) -> Self {
        Self {
            used: Mutex::new(Used {
                of_caller,
                in_all,
                callers: PrehashedMap::default(),
                all: Usage::default(),
            }),
            fills: None,
        }
    }

    /// The same quotas, with what operators see of them.
    #[must_use]
    pub fn filling(self, fills: QuotaFills) -> Self {
        let Used {
            of_caller, in_all, ..
        } = *self.used.lock();
        fills.set_limit(of_caller, in_all);
        Self {
            fills: Some(fills),
            ..self
        }
    }

    /// Changes how much may be kept. What is kept beyond it stays.
    pub fn change(&self, of_caller: Allowance, in_all: Allowance) {
        let mut used = self.used.lock();
        used.of_caller = of_caller;
        used.in_all = in_all;
        if let Some(fills) = &self.fills {
            fills.set_limit(of_caller, in_all);
        }
    }

    fn grew(&self, of_caller: &Usage, all: &Usage) {
        if let Some(fills) = &self.fills {
            fills.of_caller.reached(of_caller.sum);
            fills.in_all.reached(all.sum);
        }
    }

    fn used(&self, now_ms: u64) -> MutexGuard<'_, Used> {
        let mut used = self.used.lock();
        let minute = minute(now_ms);
        // Entries expire from the sums of all, too, minute by minute. So the callers are seldom looked through.
        if used.all.forget(minute) {
            used.callers.retain(|_, usage| {
                usage.forget(minute);
                usage.sum.entries > 0
            });
        }
        used
    }

    /// Returns `true` if the caller may have one more entry.
    pub fn has_room(&self, caller: &Caller, now_ms: u64) -> bool {
        let used = self.used(now_ms);
        let of_caller = used.callers.get(&caller.account());
        used.all.has(0, used.in_all) && of_caller.is_none_or(|usage| usage.has(0, used.of_caller))
    }

    /// Counts an entry of the caller until it expires.
    pub fn enter(
        &self,
        caller: Caller,
        bytes: usize,
        expires_ms: u64,
        now_ms: u64,
    ) -> Result<(), OverQuota> {
        let minute = minute(expires_ms);
        let mut used = self.used(now_ms);
        let used = &mut *used;
        let of_caller = used.callers.get(&caller.account());
        let has_room = match of_caller {
            Some(usage) => usage.has(bytes, used.of_caller),
            // A caller without entries may be refused, too: its first entry may have more bytes than it may keep.
            None => Usage::default().has(bytes, used.of_caller),
        };
        // Both bounds are looked at before anything is added, so that a refusal changes no sum.
        if !has_room || !used.all.has(bytes, used.in_all) {
            return Err(OverQuota);
        }
        used.all.add(minute, 1, bytes);
        let usage = used.callers.entry(caller.account()).or_default();
        usage.add(minute, 1, bytes);
        self.grew(usage, &used.all);
        Ok(())
    }

    /// Counts bytes that are to be added to a counted entry, unless the quota is used up. So the last of them may exceed it,
    /// and what is kept is bounded by the quota and one addition.
    pub fn reserve(
        &self,
        caller: &Caller,
        bytes: usize,
        expires_ms: u64,
        now_ms: u64,
    ) -> Result<(), OverQuota> {
        let minute = minute(expires_ms);
        let mut used = self.used(now_ms);
        let Used {
            callers,
            all,
            of_caller,
            in_all,
        } = &mut *used;
        // Another replica counts this caller's entry, or an earlier process did.
        let Some(usage) = callers.get_mut(&caller.account()) else {
            return Ok(());
        };
        if usage.sum.bytes >= of_caller.bytes || all.sum.bytes >= in_all.bytes {
            return Err(OverQuota);
        }
        usage.add(minute, 0, bytes);
        all.add(minute, 0, bytes);
        self.grew(usage, all);
        Ok(())
    }

    /// Adds bytes to a counted entry, even beyond the quota: the store holds them already.
    pub fn grow(&self, caller: &Caller, bytes: usize, expires_ms: u64, now_ms: u64) {
        let minute = minute(expires_ms);
        let mut used = self.used(now_ms);
        let used = &mut *used;
        // Otherwise another replica counts the entries of this caller, or an earlier process did.
        if let Some(usage) = used.callers.get_mut(&caller.account()) {
            usage.add(minute, 0, bytes);
            used.all.add(minute, 0, bytes);
            self.grew(usage, &used.all);
        }
    }

    /// Stops counting an entry: its write failed, or it was removed.
    pub fn leave(&self, caller: &Caller, bytes: usize, expires_ms: u64, now_ms: u64) {
        let minute = minute(expires_ms);
        let mut used = self.used(now_ms);
        if let Some(usage) = used.callers.get_mut(&caller.account()) {
            usage.take_back(minute, 1, bytes);
            used.all.take_back(minute, 1, bytes);
        }
    }

    /// Changes the size of a counted entry. Returns false, and counts nothing, if it would exceed the quota.
    pub fn resize(
        &self,
        caller: &Caller,
        (before, after): (usize, usize),
        expires_ms: u64,
        now_ms: u64,
    ) -> bool {
        let minute = minute(expires_ms);
        let mut used = self.used(now_ms);
        let Used {
            callers,
            all,
            of_caller,
            in_all,
        } = &mut *used;
        // Another replica counts this caller's entry, or an earlier process did.
        let Some(usage) = callers.get_mut(&caller.account()) else {
            return true;
        };
        let more = after.saturating_sub(before);
        let fits = |usage: &Usage, most: Allowance| {
            usage.sum.bytes.saturating_add(more as u64) <= most.bytes
        };
        // An entry that does not grow is accepted even beyond a quota that was lowered.
        if more > 0 && !(fits(usage, *of_caller) && fits(all, *in_all)) {
            return false;
        }
        for usage in [&mut *usage, &mut *all] {
            usage.add(minute, 0, more);
            usage.take_back(minute, 0, before.saturating_sub(after));
        }
        self.grew(usage, all);
        true
    }
}

/// The minute in which an entry expires.
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

    fn most(entries: u64, bytes: u64) -> Allowance {
        Allowance { entries, bytes }
    }

    #[test]
    fn a_caller_at_its_quota_leaves_others_theirs() {
        let quotas = Quotas::new(most(2, 100), most(5, 1000));
        let (greedy, other) = (caller(1), caller(2));
        let enter = |caller, bytes| quotas.enter(caller, bytes, MINUTE_MS, 0);
        enter(greedy, 10).unwrap();
        assert!(quotas.has_room(&greedy, 0));
        assert_eq!(enter(greedy, 91), Err(OverQuota), "too many bytes");
        enter(greedy, 90).unwrap();
        assert_eq!(enter(greedy, 0), Err(OverQuota), "too many entries");
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
        assert_eq!(enter(caller(5), 0), Err(OverQuota), "too many in all");
        quotas.change(most(2, 100), most(6, 1000));
        enter(caller(5), 0).unwrap();
    }

    #[test]
    fn what_is_reserved_exceeds_the_quota_once() {
        let quotas = Quotas::new(most(9, 100), most(9, 150));
        for caller in [caller(1), caller(2)] {
            quotas.enter(caller, 0, MINUTE_MS, 0).unwrap();
        }
        let reserve = |caller, bytes| quotas.reserve(&caller, bytes, MINUTE_MS, 0);
        reserve(caller(1), 99).unwrap();
        reserve(caller(1), 40).unwrap();
        assert_eq!(reserve(caller(1), 1), Err(OverQuota));
        reserve(caller(2), 40).unwrap();
        assert_eq!(reserve(caller(2), 1), Err(OverQuota), "too many in all");
        reserve(caller(9), 1000).unwrap();
    }

    #[test]
    fn what_has_expired_counts_no_more_and_nothing_is_left_of_it() {
        let quotas = Quotas::new(most(1, 100), Allowance::ANY);
        quotas.enter(caller(1), 10, MINUTE_MS * 3, 0).unwrap();
        quotas.grow(&caller(1), 500, MINUTE_MS * 3, 0);
        quotas.grow(&caller(9), 500, MINUTE_MS * 3, 0);
        let again = |now_ms| quotas.enter(caller(1), 10, now_ms + MINUTE_MS, now_ms);
        assert_eq!(again(MINUTE_MS * 3), Err(OverQuota));
        again(MINUTE_MS * 4).unwrap();
        assert!(!quotas.has_room(&caller(1), MINUTE_MS * 5));
        assert!(quotas.has_room(&caller(1), MINUTE_MS * 6));
        let used = quotas.used(MINUTE_MS * 6);
        assert!(used.callers.is_empty() && used.all.by_minute.is_empty());
        assert_eq!((used.all.sum.entries, used.all.sum.bytes), (0, 0));
    }
}
