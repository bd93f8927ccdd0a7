//! The requests that wait for a session: whose turn it is.
//!
//! Of the callers with requests that wait, the one with the fewest sessions is next; of several such callers, the one
//! whose last turn was longest ago. The requests of one caller go in the order in which they came. So a caller with many
//! requests delays its own, and not those of others.

use std::collections::{HashMap, VecDeque};

use tokio::sync::oneshot;

use crate::base::account::Account;
use crate::upstream::pool::key::PoolKey;
use crate::upstream::pool::rule::MayAsk;

/// The kind of session that a waiting request could use.
#[derive(Debug, Default)]
pub(super) struct WantedSession {
    /// A session of this key, for a request that may ask so. `None`: only a permit for a new session.
    pub(super) session: Option<(PoolKey, MayAsk)>,
    /// A session was ended for this request, whose permit comes back when nothing is left of that session.
    pub(super) is_helped: bool,
}

#[derive(Debug)]
struct Waiter<G> {
    /// Grows with each request.
    number: u64,
    wanted: WantedSession,
    gets: oneshot::Sender<G>,
}

/// The requests of one caller, in the order in which they came. Never empty.
#[derive(Debug)]
struct CallersWaiters<G> {
    waiting: VecDeque<Waiter<G>>,
    /// When the caller had its last turn, counted in turns.
    last_turn: u64,
}

/// `G`: what a request waits for.
#[derive(Debug)]
pub(super) struct Waiters<G> {
    /// `None`: requests of no caller.
    by_account: HashMap<Option<Account>, CallersWaiters<G>>,
    next_number: u64,
    turns: u64,
}

impl<G> Default for Waiters<G> {
    fn default() -> Self {
        Self {
            by_account: HashMap::new(),
            next_number: 0,
            turns: 0,
        }
    }
}

impl<G> Waiters<G> {
    pub(super) fn is_empty(&self) -> bool {
        self.by_account.is_empty()
    }

    /// Adds a request, and returns its number.
    pub(super) fn add(
        &mut self,
        account: Option<Account>,
        wanted: WantedSession,
        gets: oneshot::Sender<G>,
    ) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        let callers = self.by_account.entry(account);
        // A caller without waiting requests is forgotten, so it comes back as one that had no turn.
        let callers = callers.or_insert_with(|| CallersWaiters {
            waiting: VecDeque::new(),
            last_turn: 0,
        });
        callers.waiting.push_back(Waiter {
            number,
            wanted,
            gets,
        });
        number
    }

    /// Removes a request, if it still waits.
    pub(super) fn leave(&mut self, account: Option<Account>, number: u64) {
        if let Some(at) = self.place_of(account, number) {
            self.remove(account, at);
        }
    }

    /// Whose turn it is: a caller, and which of its requests. `taken` is how many sessions a caller has; `None`: it may
    /// have no other one. `unhelped`: requests for which a session was ended already do not count.
    pub(super) fn next(
        &self,
        taken: impl Fn(Option<Account>) -> Option<usize>,
        unhelped: bool,
    ) -> Option<(Option<Account>, usize)> {
        let candidates = self.by_account.iter().filter_map(|(account, callers)| {
            let mut waiting = callers.waiting.iter();
            let at = waiting.position(|waiter| !(unhelped && waiter.wanted.is_helped))?;
            let number = callers.waiting.get(at)?.number;
            // The number decides between callers that had no turn yet: the first to come goes first.
            let order = (taken(*account)?, callers.last_turn, number);
            Some((order, (*account, at)))
        });
        let next = candidates.min_by_key(|(order, _)| *order)?;
        Some(next.1)
    }

    pub(super) fn number(&self, account: Option<Account>, at: usize) -> Option<u64> {
        Some(self.by_account.get(&account)?.waiting.get(at)?.number)
    }

    /// Returns how the request asks, if it wants a session of that key.
    pub(super) fn wants(
        &self,
        account: Option<Account>,
        at: usize,
        key: &PoolKey,
    ) -> Option<MayAsk> {
        let waiter = self.by_account.get(&account)?.waiting.get(at)?;
        let (wanted, asks) = waiter.wanted.session.as_ref()?;
        (wanted == key).then_some(*asks)
    }

    /// Takes out the request whose turn it is.
    pub(super) fn take(
        &mut self,
        account: Option<Account>,
        at: usize,
    ) -> Option<oneshot::Sender<G>> {
        self.turns += 1;
        let turns = self.turns;
        if let Some(callers) = self.by_account.get_mut(&account) {
            callers.last_turn = turns;
        }
        let taken = self.remove(account, at)?;
        // What was on its way to the request that was taken out of turn helps another one.
        if !taken.wanted.is_helped {
            let mut others = self.by_account.values_mut().flat_map(|it| &mut it.waiting);
            if let Some(helped) = others.find(|waiter| waiter.wanted.is_helped) {
                helped.wanted.is_helped = false;
            }
        }
        Some(taken.gets)
    }

    /// Takes out the first request that wants a session of this key. It is no turn: the session is shared.
    pub(super) fn take_for(
        &mut self,
        key: &PoolKey,
        is_fit: impl Fn(MayAsk) -> bool,
    ) -> Option<(MayAsk, oneshot::Sender<G>)> {
        let account = Some(key.account());
        let waiting = &self.by_account.get(&account)?.waiting;
        let fits = |waiter: &Waiter<G>| match &waiter.wanted.session {
            Some((wanted, asks)) if wanted == key => is_fit(*asks).then_some(*asks),
            Some(_) | None => None,
        };
        let mut places = waiting.iter().enumerate();
        let (at, asks) = places.find_map(|(at, waiter)| Some((at, fits(waiter)?)))?;
        Some((asks, self.remove(account, at)?.gets))
    }

    /// Notes that a session was ended for the request.
    pub(super) fn help(&mut self, account: Option<Account>, number: u64) {
        if let Some(at) = self.place_of(account, number) {
            self.help_at(account, at);
        }
    }

    pub(super) fn help_at(&mut self, account: Option<Account>, at: usize) {
        let callers = self.by_account.get_mut(&account);
        if let Some(waiter) = callers.and_then(|callers| callers.waiting.get_mut(at)) {
            waiter.wanted.is_helped = true;
        }
    }

    /// Returns the number of requests that have their turn before this one if all callers have equally many sessions:
    /// the caller's own earlier ones, and as many of each other caller.
    pub(super) fn ahead(&self, account: Option<Account>, number: u64) -> usize {
        let (Some(own), Some(callers)) = (
            self.place_of(account, number),
            self.by_account.get(&account),
        ) else {
            return 0;
        };
        let order = |callers: &CallersWaiters<G>| {
            (
                callers.last_turn,
                callers.waiting.front().map(|it| it.number),
            )
        };
        let others = self
            .by_account
            .iter()
            .filter(|(other, _)| **other != account);
        let before = others.map(|(_, other)| {
            let goes_first = order(other) < order(callers);
            other.waiting.len().min(own + usize::from(goes_first))
        });
        own + before.sum::<usize>()
    }

    fn place_of(&self, account: Option<Account>, number: u64) -> Option<usize> {
        let waiting = &self.by_account.get(&account)?.waiting;
        // Numbers grow, and requests are added at the end only, so the queue is sorted.
        waiting.binary_search_by_key(&number, |it| it.number).ok()
    }

    fn remove(&mut self, account: Option<Account>, at: usize) -> Option<Waiter<G>> {
        let callers = self.by_account.get_mut(&account)?;
        let removed = callers.waiting.remove(at);
        if callers.waiting.is_empty() {
            self.by_account.remove(&account);
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(byte: u8) -> Account {
        Account::of([byte; 16])
    }

    /// The callers in the order of their turns: with so many sessions each, which nobody gives back.
    fn turns(arrivals: &[u8], sessions: &[(u8, usize)]) -> Vec<Account> {
        let sessions = sessions.iter().map(|(byte, many)| (account(*byte), *many));
        let mut taken: HashMap<_, _> = sessions.collect();
        let mut waiters = Waiters::<()>::default();
        for byte in arrivals {
            let (gets, _) = oneshot::channel();
            waiters.add(Some(account(*byte)), WantedSession::default(), gets);
        }
        let mut turns = Vec::new();
        loop {
            let has = |who: Option<Account>| taken.get(&who?).copied().or(Some(0));
            let Some((who, at)) = waiters.next(has, false) else {
                return turns;
            };
            waiters.take(who, at).unwrap();
            let who = who.unwrap();
            *taken.entry(who).or_default() += 1;
            turns.push(who);
        }
    }

    #[test]
    fn the_caller_with_the_fewest_sessions_is_next_and_then_they_take_turns() {
        for (arrivals, sessions, expected) in [
            (&[1, 1, 1][..], &[][..], &[1, 1, 1][..]),
            (&[1, 1, 1, 2, 2], &[], &[1, 2, 1, 2, 1]),
            (&[1, 1, 2, 2], &[(1, 2)], &[2, 2, 1, 1]),
            (&[1, 2, 3, 1], &[(2, 1)], &[1, 3, 2, 1]),
        ] {
            let expected: Vec<_> = expected.iter().map(|byte| account(*byte)).collect();
            assert_eq!(turns(arrivals, sessions), expected, "{arrivals:?}");
        }
    }

    #[test]
    fn a_request_has_the_place_that_its_turn_comes_at() {
        let mut waiters = Waiters::<()>::default();
        let numbers = [1, 1, 1, 2, 2, 1].map(|byte| {
            let (gets, _) = oneshot::channel();
            (
                Some(account(byte)),
                waiters.add(Some(account(byte)), WantedSession::default(), gets),
            )
        });
        let places =
            |waiters: &Waiters<()>| numbers.map(|(who, number)| waiters.ahead(who, number));
        assert_eq!(places(&waiters), [0, 2, 4, 1, 3, 5]);
        let (who, number) = numbers[0];
        waiters.leave(who, number);
        assert_eq!(places(&waiters), [0, 0, 2, 1, 3, 4]);
    }
}
