//! The requests that wait for a session, in the order in which they came.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use crate::upstream::pool::key::PoolKey;
use crate::upstream::pool::permits::UsedUp;
use crate::upstream::pool::rule::MayAsk;

/// What a waiting request could use.
#[derive(Debug)]
pub(super) struct WantedSession {
    /// A session of this key, for a request that may ask so. `None`: only a permit for a new session.
    pub(super) session: Option<(PoolKey, MayAsk)>,
    pub(super) used_up: UsedUp,
    /// A session was ended for this request, whose permit comes back when nothing is left of that session.
    pub(super) is_helped: bool,
}

#[derive(Debug)]
struct Waiter<U> {
    wanted: WantedSession,
    /// Closed when the request waits no longer.
    gets: oneshot::Sender<U>,
}

/// `U`: the right to use a session.
#[derive(Debug)]
pub(super) struct Waiters<U>(VecDeque<Waiter<U>>);

impl<U> Default for Waiters<U> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<U> Waiters<U> {
    /// Adds a request, which gets a session or drops the receiver.
    pub(super) fn add(&mut self, wanted: WantedSession) -> oneshot::Receiver<U> {
        self.0.retain(|waiter| !waiter.gets.is_closed());
        let (gets, session) = oneshot::channel();
        self.0.push_back(Waiter { wanted, gets });
        session
    }

    /// Takes out the first request for which a session of this key is fit.
    pub(super) fn take_for(
        &mut self,
        key: &PoolKey,
        is_fit: impl Fn(MayAsk) -> bool,
    ) -> Option<(MayAsk, oneshot::Sender<U>)> {
        let fits = |waiter: &Waiter<U>| match &waiter.wanted.session {
            Some((wanted, asks)) if wanted == key && !waiter.gets.is_closed() => {
                is_fit(*asks).then_some(*asks)
            }
            _ => None,
        };
        let (at, asks) = self
            .0
            .iter()
            .enumerate()
            .find_map(|(at, waiter)| Some((at, fits(waiter)?)))?;
        Some((asks, self.0.remove(at)?.gets))
    }

    /// Whether the end of a session of this caller helps a request that was not helped yet. It is helped then.
    pub(super) fn helped_by_end_of(&mut self, caller: [u8; 16]) -> bool {
        let mut waiting = self.0.iter_mut().filter(|waiter| !waiter.gets.is_closed());
        let helped = waiting.find(|waiter| {
            !waiter.wanted.is_helped && waiter.wanted.used_up.is_helped_by_end_of(caller)
        });
        helped.is_some_and(|waiter| {
            waiter.wanted.is_helped = true;
            true
        })
    }
}
