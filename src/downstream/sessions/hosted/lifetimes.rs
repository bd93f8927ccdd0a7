//! The time that a session is remembered whose client is silent: a minute until its first use, and a day after
//! it. The sessions of a caller with many live shorter, and of those that were not used yet the oldest makes room for
//! a new one.

use std::collections::{BTreeMap, HashMap};

use crate::base::lock::Mutex;
use crate::store::kv::Name;
use crate::store::quota::{Allowance, OverQuota, Quotas};
use crate::task::id::Caller;

/// The lifetime of a session until its first use. Every client reports at once that it is initialized.
pub(super) const FRESH_MS: u64 = 60 * 1000;

/// The lifetime of a session after a use.
pub(super) const LONG_MS: u64 = 24 * 60 * 60 * 1000;

/// The lifetime of a session after a use if its caller has many.
const SHORT_MS: u64 = 5 * 60 * 1000;

/// The sessions that this process keeps for each caller, by how long they live. A usual session takes half a KiB.
#[derive(Debug)]
pub struct Lifetimes {
    fresh: Quotas,
    unused: Mutex<Unused>,
    long: Quotas,
    short: Quotas,
}

/// The sessions that were not used yet, the oldest first.
#[derive(Debug, Default)]
struct Unused {
    by_age: BTreeMap<u64, UnusedSession>,
    ages: HashMap<Name, u64>,
    begun: u64,
}

#[derive(Debug, Clone, Copy)]
struct UnusedSession {
    name: Name,
    caller: Caller,
    bytes: usize,
    ends_ms: u64,
}

impl Unused {
    fn insert(&mut self, session: UnusedSession) {
        let age = self.begun;
        self.begun += 1;
        self.ages.insert(session.name, age);
        self.by_age.insert(age, session);
    }

    /// Returns `true` if the session was among them.
    fn remove(&mut self, name: &Name) -> bool {
        let age = self.ages.remove(name);
        age.is_some_and(|age| self.by_age.remove(&age).is_some())
    }

    /// Forgets those that have expired.
    fn expire(&mut self, now_ms: u64) {
        // All live equally long until their first use, so the oldest always expires first.
        while let Some(oldest) = self.by_age.first_entry()
            && oldest.get().ends_ms <= now_ms
        {
            let UnusedSession { name, .. } = oldest.remove();
            self.ages.remove(&name);
        }
    }

    /// The oldest session of this caller, or else of all.
    fn oldest(&self, caller: &Caller) -> Option<UnusedSession> {
        let own = self.by_age.values().find(|one| one.caller == *caller);
        own.or_else(|| self.by_age.values().next()).copied()
    }
}

impl Default for Lifetimes {
    fn default() -> Self {
        let quotas = |entries, mib: u64| {
            let most = |factor| Allowance {
                entries: entries * factor,
                bytes: (mib << 20) * factor,
            };
            Quotas::new(most(1), most(4))
        };
        Self {
            fresh: quotas(1_000, 4),
            unused: Mutex::default(),
            long: quotas(20_000, 8),
            short: quotas(20_000, 8),
        }
    }
}

impl Lifetimes {
    /// Counts a new session, which lives for [`FRESH_MS`]. `Ok`: the sessions that make room for it. They were not
    /// used here.
    pub(super) fn begin(
        &self,
        name: Name,
        caller: Caller,
        bytes: usize,
        now_ms: u64,
    ) -> Result<Vec<Name>, OverQuota> {
        let ends_ms = now_ms + FRESH_MS;
        // Held until the end, so that two sessions that begin together never count on the same room.
        let mut unused = self.unused.lock();
        unused.expire(now_ms);
        let mut ended = Vec::new();
        while let Err(OverQuota) = self.fresh.enter(caller, bytes, ends_ms, now_ms) {
            let oldest = unused.oldest(&caller).ok_or(OverQuota)?;
            unused.remove(&oldest.name);
            self.fresh
                .leave(&oldest.caller, oldest.bytes, oldest.ends_ms, now_ms);
            ended.push(oldest.name);
        }
        unused.insert(UnusedSession {
            name,
            caller,
            bytes,
            ends_ms,
        });
        Ok(ended)
    }

    /// Counts a session that is used for the first time, and returns its lifetime from now on. `None`: the session
    /// ends when it would have ended without the use.
    pub(super) fn first_use(
        &self,
        name: &Name,
        (caller, bytes): (Caller, usize),
        begun_ms: u64,
        now_ms: u64,
    ) -> Option<u64> {
        let enter = |quotas: &Quotas, lasts_ms| {
            let entered = quotas.enter(caller, bytes, now_ms + lasts_ms, now_ms);
            entered.ok().map(|()| lasts_ms)
        };
        // Counted as used before it leaves the unused ones, so that a refusal changes nothing.
        let lasts_ms = enter(&self.long, LONG_MS).or_else(|| enter(&self.short, SHORT_MS))?;
        // A quota counts by the minute of expiry, so this must be the expiry that `begin` counted.
        let ends_ms = begun_ms.saturating_add(FRESH_MS);
        // Of two first uses at the same time, one takes back what this process counted, if it began the session.
        if self.unused.lock().remove(name) {
            self.fresh.leave(&caller, bytes, ends_ms, now_ms);
        }
        Some(lasts_ms)
    }

    /// Counts the new size of a session that is used. False: with it, the sessions of the caller would be larger
    /// than allowed.
    pub(super) fn resize(
        &self,
        caller: &Caller,
        sizes: (usize, usize),
        (since_ms, lasts_ms): (u64, u64),
        now_ms: u64,
    ) -> bool {
        let ends_ms = since_ms.saturating_add(lasts_ms);
        let quotas = self.of(lasts_ms);
        quotas.resize(caller, sizes, ends_ms, now_ms)
    }

    fn of(&self, lasts_ms: u64) -> &Quotas {
        match lasts_ms {
            LONG_MS => &self.long,
            SHORT_MS => &self.short,
            _ => &self.fresh,
        }
    }

    /// Forgets a session that its client ended. `used_ms`: the time of its first use.
    pub(super) fn end(
        &self,
        name: &Name,
        (caller, bytes): (&Caller, usize),
        (used_ms, lasts_ms): (u64, u64),
        now_ms: u64,
    ) {
        self.unused.lock().remove(name);
        let quotas = self.of(lasts_ms);
        let ends_ms = used_ms.saturating_add(lasts_ms);
        quotas.leave(caller, bytes, ends_ms, now_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::kv::Kind;

    fn name(number: usize) -> Name {
        Name::of(Kind::Session, &[&number.to_string()])
    }

    #[test]
    fn the_more_a_caller_has_the_shorter_they_stay() {
        let (lifetimes, bytes) = (Lifetimes::default(), 16 * 1024);
        let (greedy, other) = (Caller::from_bytes([1; 16]), Caller::from_bytes([2; 16]));
        let mut lasts = [0; 3];
        for number in 0..1025 {
            let name = name(number);
            lifetimes.begin(name, greedy, bytes, 0).unwrap();
            let last = match lifetimes.first_use(&name, (greedy, bytes), 0, 0) {
                Some(LONG_MS) => 0,
                Some(_) => 1,
                None => 2,
            };
            lasts[last] += 1;
        }
        assert_eq!(lasts, [512, 512, 1]);
        let begin = |number, caller| lifetimes.begin(name(number), caller, bytes, 0).unwrap();
        assert!(begin(2000, other).is_empty());
        let used = |number, caller| lifetimes.first_use(&name(number), (caller, bytes), 0, 0);
        assert_eq!(used(2000, other), Some(LONG_MS));
        lifetimes.end(&name(0), (&greedy, bytes), (0, LONG_MS), 0);
        assert_eq!(used(1024, greedy), Some(LONG_MS));
    }

    #[test]
    fn the_oldest_that_nobody_used_makes_room() {
        let lifetimes = Lifetimes::default();
        let caller = |number: usize| Caller::from_bytes([number.to_le_bytes()[0]; 16]);
        // Four callers fill the room of all.
        for number in 0..4_000 {
            let ended = lifetimes.begin(name(number), caller(number % 4), 10, 0);
            assert_eq!(ended, Ok(Vec::new()), "{number}");
        }
        lifetimes
            .first_use(&name(0), (caller(0), 10), 0, 0)
            .unwrap();
        let begin = |number, caller, now_ms| lifetimes.begin(name(number), caller, 10, now_ms);
        assert_eq!(begin(5_000, caller(9), 0), Ok(vec![]));
        assert_eq!(begin(5_001, caller(9), 0), Ok(vec![name(5_000)]), "its own");
        assert_eq!(begin(5_002, caller(8), 0), Ok(vec![name(1)]), "of all");
        assert_eq!(begin(5_003, caller(3), 0), Ok(vec![name(3)]));
        // What alone is too much has no room, and a minute later all of it is free.
        assert!(
            lifetimes
                .begin(name(6_000), caller(7), 5 << 20, FRESH_MS * 2)
                .is_err()
        );
        assert_eq!(begin(6_001, caller(7), FRESH_MS * 2), Ok(vec![]));
        assert_eq!(lifetimes.unused.lock().by_age.len(), 1);
    }
}
