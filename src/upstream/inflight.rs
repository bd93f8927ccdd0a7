//! Finds the request under way that a message of the server means, on one session or line. Pure: the time is
//! passed in. An answer and a progress notification name their request. A question and a log message do not:
//! they mean the only request that may ask, if there is exactly one and no request that was given up may still
//! run.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// The time for which a request that was given up may still ask. Many servers never answer a cancelled request, so after
/// this time it is taken to have ended.
const ABANDONED: Duration = Duration::from_secs(30);

/// Abandoned requests that are remembered.
const ABANDONED_MAX: usize = 1024;

/// The requests under way, each with what its caller keeps about it.
#[derive(Debug)]
pub(super) struct Inflight<K, R> {
    running: HashMap<K, InflightRequest<R>>,
    abandoned: Vec<(K, Instant)>,
}

#[derive(Debug)]
struct InflightRequest<R> {
    request: R,
    may_ask: bool,
}

impl<K, R> Default for Inflight<K, R> {
    fn default() -> Self {
        Self {
            running: HashMap::new(),
            abandoned: Vec::new(),
        }
    }
}

impl<K: Eq + Hash, R> Inflight<K, R> {
    pub(super) fn insert(&mut self, key: K, may_ask: bool, request: R) {
        self.running
            .insert(key, InflightRequest { request, may_ask });
    }

    pub(super) fn get(&self, key: &K) -> Option<&R> {
        self.running.get(key).map(|running| &running.request)
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut R> {
        self.running
            .get_mut(key)
            .map(|running| &mut running.request)
    }

    pub(super) fn len(&self) -> usize {
        self.running.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    pub(super) fn requests(&self) -> impl Iterator<Item = &R> {
        self.running.values().map(|running| &running.request)
    }

    /// Removes a request that was answered or never sent, and tells whether it might have asked.
    pub(super) fn remove(&mut self, key: &K) -> Option<(R, bool)> {
        let removed = self.running.remove(key)?;
        Some((removed.request, removed.may_ask))
    }

    /// Removes the first request whose key `is_it`.
    pub(super) fn remove_named(&mut self, is_it: impl Fn(&K) -> bool) -> Option<(R, bool)> {
        let removed = self.running.extract_if(|key, _| is_it(key)).next()?.1;
        Some((removed.request, removed.may_ask))
    }

    /// Removes the only request under way. A server that could not read a request answers it with the id null.
    pub(super) fn remove_sole(&mut self) -> Option<(R, bool)> {
        // With several requests under way, the id null could mean any of them.
        let is_sole = self.running.len() == 1;
        let sole = is_sole.then(|| self.running.drain().next()).flatten()?.1;
        Some((sole.request, sole.may_ask))
    }

    /// Removes all requests for which `holds` is true.
    pub(super) fn remove_where(&mut self, holds: impl Fn(&R) -> bool) -> Vec<R> {
        let removed = self
            .running
            .extract_if(|_, running| holds(&running.request));
        removed.map(|(_, running)| running.request).collect()
    }

    /// Removes all requests.
    pub(super) fn take_all(&mut self) -> Vec<R> {
        self.remove_where(|_| true)
    }

    /// Remembers a request that was given up: it may go on and ask.
    pub(super) fn abandon(&mut self, key: K, now: Instant) {
        if self.abandoned.len() >= ABANDONED_MAX {
            // The oldest of them is the first that is taken to have ended.
            self.abandoned.remove(0);
        }
        self.abandoned.push((key, now));
    }

    /// Notes an answer to no request under way. True if it answers a request that was given up.
    pub(super) fn answered_late(&mut self, key: &K) -> bool {
        let before = self.abandoned.len();
        self.abandoned.retain(|(abandoned, _)| abandoned != key);
        self.abandoned.len() < before
    }

    /// Returns `true` if a request that was given up may still ask.
    pub(super) fn is_doubtful(&self, now: Instant) -> bool {
        let may_run = |since: Instant| now.saturating_duration_since(since) < ABANDONED;
        self.abandoned.iter().any(|(_, since)| may_run(*since))
    }

    /// Returns `true` if no request may ask, not even one that was given up.
    pub(super) fn is_free(&self, now: Instant) -> bool {
        !self.is_doubtful(now) && !self.running.values().any(|running| running.may_ask)
    }

    /// The only request that a message without an id can mean.
    pub(super) fn only(&self, now: Instant) -> Option<&R> {
        let mut asking = self.running.values().filter(|running| running.may_ask);
        match (asking.next(), asking.next()) {
            (Some(only), None) if !self.is_doubtful(now) => Some(&only.request),
            _ => None,
        }
    }

    pub(super) fn only_mut(&mut self, now: Instant) -> Option<&mut R> {
        if self.is_doubtful(now) {
            return None;
        }
        let mut asking = self.running.values_mut().filter(|running| running.may_ask);
        match (asking.next(), asking.next()) {
            (Some(only), None) => Some(&mut only.request),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKS: bool = true;
    const NEVER: bool = false;

    #[test]
    fn what_names_no_request_means_the_only_one_that_may_ask() {
        for (running, meant) in [
            (vec![], None),
            (vec![("list", NEVER)], None),
            (vec![("call", ASKS)], Some("call")),
            (vec![("call", ASKS), ("list", NEVER)], Some("call")),
            (vec![("call", ASKS), ("other", ASKS)], None),
        ] {
            let mut inflight = Inflight::default();
            for (name, may_ask) in &running {
                inflight.insert(*name, *may_ask, *name);
            }
            let now = Instant::now();
            assert_eq!(inflight.only(now).copied(), meant, "{running:?}");
            assert_eq!(inflight.only_mut(now).copied(), meant, "{running:?}");
            let may_ask = running.iter().any(|(_, may_ask)| *may_ask);
            assert_eq!(inflight.is_free(now), !may_ask);
        }
    }

    #[test]
    fn an_abandoned_request_may_ask_until_it_is_answered_or_long_ago() {
        let (now, mut inflight) = (Instant::now(), Inflight::default());
        inflight.insert(1, ASKS, "one");
        inflight.insert(2, ASKS, "two");
        assert_eq!(inflight.remove(&1), Some(("one", ASKS)));
        inflight.abandon(1, now);
        assert!(inflight.is_doubtful(now) && inflight.only(now).is_none());
        let later = now + ABANDONED;
        assert_eq!(inflight.only(later), Some(&"two"));
        assert!(inflight.answered_late(&1) && !inflight.answered_late(&1));
        assert_eq!(inflight.only(now), Some(&"two"));
        assert_eq!(inflight.remove(&2), Some(("two", ASKS)));
        assert!(inflight.is_free(now) && inflight.is_empty());
    }

    #[test]
    fn an_answer_that_names_nobody_is_the_sole_request_s() {
        let mut inflight = Inflight::default();
        inflight.insert(1, NEVER, "one");
        inflight.insert(2, NEVER, "two");
        assert_eq!(inflight.remove_sole(), None);
        assert_eq!(inflight.remove_where(|it| *it == "two"), ["two"]);
        assert_eq!(inflight.remove_sole(), Some(("one", NEVER)));
        assert_eq!(inflight.len(), 0);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (now, mut inflight) = (Instant::now(), Inflight::<usize, ()>::default());
        (0..=ABANDONED_MAX).for_each(|key| inflight.abandon(key, now));
        assert!(!inflight.answered_late(&0) && inflight.answered_late(&1));
    }
}
