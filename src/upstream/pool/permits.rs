//! The rights to start sessions: how many there may be in all, and how many of one caller. Who finds none waits
//! here, see [`waiting`](crate::upstream::pool::waiting).

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;
use tracing::warn;

use crate::base::account::Account;
use crate::base::limit_fill::LimitFill;
use crate::base::lock::Mutex;
use crate::telemetry::limits::{self, LimitHit};
use crate::upstream::pool::key::PoolKey;
use crate::upstream::pool::rule::{MayAsk, Sharing};
use crate::upstream::pool::waiting::{Waiters, WantedSession};

/// The limits on the number of sessions, and the rule for which calls may share one.
#[derive(Debug, Clone, Copy)]
pub(in crate::upstream) struct PoolLimits {
    pub(in crate::upstream) sessions_max: usize,
    /// The maximum number of sessions for one caller. `None`: callers cannot be distinguished for certain.
    pub(in crate::upstream) of_each_caller: Option<usize>,
    /// The setting for these limits, and how near the sessions came to it.
    pub(in crate::upstream) fill: &'static LimitFill,
    /// The time that a request without a task waits for a session to end when all are in use.
    pub(in crate::upstream) wait: Duration,
    pub(in crate::upstream) sharing: Sharing,
}

/// The right to one session. It is kept until nothing is left of the session, and goes to the next request that waits
/// when it is dropped.
pub(in crate::upstream) struct SessionPermit {
    home: Arc<dyn PermitHome>,
    /// `None`: the session belongs to no caller.
    account: Option<Account>,
}

/// The owner of the permits, which gives them out.
trait PermitHome: Send + Sync {
    fn returned(self: Arc<Self>, account: Option<Account>);
}

impl fmt::Debug for SessionPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionPermit")
    }
}

impl Drop for SessionPermit {
    fn drop(&mut self) {
        Arc::clone(&self.home).returned(self.account);
    }
}

/// The quota that is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum UsedUp {
    Everything,
    /// This caller has its share. Others may start sessions.
    ShareOf(Account),
}

impl UsedUp {
    /// Returns `true` if the end of a session of this caller would allow another session to be started.
    pub(in crate::upstream) fn is_helped_by_end_of(self, account: Account) -> bool {
        match self {
            Self::Everything => true,
            Self::ShareOf(short) => short == account,
        }
    }
}

/// The grant that a request waited for. `U`: the right to use a session.
#[derive(Debug)]
pub(super) enum Granted<U> {
    Slot(U),
    Permit(SessionPermit),
}

/// The decision about a session that no request uses any more.
#[derive(Debug)]
pub(super) enum FreedSession<U> {
    /// It goes to this request, which may ask so.
    Give(MayAsk, oneshot::Sender<Granted<U>>),
    /// It ends, because the next request needs another one.
    Close,
    Keep,
}

#[derive(Debug)]
pub(super) struct PoolPermits<U> {
    limits: PoolLimits,
    state: Mutex<PermitState<U>>,
    /// Wakes [`Self::close`].
    all_returned: Notify,
}

/// Both are behind one lock, so that no permit comes back between the look of a request and its waiting.
#[derive(Debug)]
struct PermitState<U> {
    taken: TakenPermits,
    waiters: Waiters<Granted<U>>,
    is_closed: bool,
}

/// The permits that are given out.
#[derive(Debug, Default)]
struct TakenPermits {
    in_all: usize,
    /// As many entries as there are permits at most.
    by_account: HashMap<Account, usize>,
}

impl TakenPermits {
    fn of(&self, account: Option<Account>) -> usize {
        let taken = account.and_then(|account| self.by_account.get(&account));
        taken.copied().unwrap_or_default()
    }

    fn add(&mut self, account: Option<Account>) {
        self.in_all += 1;
        if let Some(account) = account {
            *self.by_account.entry(account).or_default() += 1;
        }
    }

    fn remove(&mut self, account: Option<Account>) {
        self.in_all = self.in_all.saturating_sub(1);
        if let Some(account) = account
            && let Some(taken) = self.by_account.get_mut(&account)
        {
            *taken = taken.saturating_sub(1);
            if *taken == 0 {
                self.by_account.remove(&account);
            }
        }
    }
}

impl<U: Send + 'static> PoolPermits<U> {
    pub(super) fn new(limits: PoolLimits) -> Arc<Self> {
        limits.fill.set_limit(limits.sessions_max);
        Arc::new(Self {
            limits,
            state: Mutex::new(PermitState {
                taken: TakenPermits::default(),
                waiters: Waiters::default(),
                is_closed: false,
            }),
            all_returned: Notify::new(),
        })
    }

    /// A permit, without waiting.
    pub(super) fn try_take(
        self: &Arc<Self>,
        account: Option<Account>,
    ) -> Result<SessionPermit, UsedUp> {
        let mut state = self.state.lock();
        // The share goes first: where it is used up, the end of another caller's session would not help.
        if let Some(account) = account
            && !self.is_below_share(state.taken.of(Some(account)))
        {
            return Err(UsedUp::ShareOf(account));
        }
        if state.is_closed || state.taken.in_all >= self.limits.sessions_max {
            return Err(UsedUp::Everything);
        }
        state.taken.add(account);
        self.limits.fill.reached(state.taken.in_all);
        Ok(self.permit(account))
    }

    fn permit(self: &Arc<Self>, account: Option<Account>) -> SessionPermit {
        let home: Arc<dyn PermitHome> = Arc::<Self>::clone(self) as Arc<dyn PermitHome>;
        SessionPermit { home, account }
    }

    fn is_below_share(&self, taken: usize) -> bool {
        self.limits.of_each_caller.is_none_or(|most| taken < most)
    }

    /// Adds a request to those that wait. Returns its number, by which it leaves.
    pub(super) fn line_up(
        &self,
        account: Option<Account>,
        wanted: WantedSession,
    ) -> (u64, oneshot::Receiver<Granted<U>>) {
        let (gets, granted) = oneshot::channel();
        let mut state = self.state.lock();
        if state.is_closed {
            // `gets` is dropped here, so the request fails at once.
            return (0, granted);
        }
        (state.waiters.add(account, wanted, gets), granted)
    }

    /// The request waits no longer.
    pub(super) fn leave(&self, account: Option<Account>, number: u64) {
        self.state.lock().waiters.leave(account, number);
    }

    /// Returns the number of requests that have their turn before this one, as of now.
    pub(super) fn ahead(&self, account: Option<Account>, number: u64) -> usize {
        self.state.lock().waiters.ahead(account, number)
    }

    /// A session was ended for this request.
    pub(super) fn help(&self, account: Option<Account>, number: u64) {
        self.state.lock().waiters.help(account, number);
    }

    /// A request for which no session was ended yet, and what it lacks.
    pub(super) fn first_unhelped(&self) -> Option<(Option<Account>, u64, UsedUp)> {
        let state = self.state.lock();
        let (account, at) = state
            .waiters
            .next(|account| Some(state.taken.of(account)), true)?;
        let number = state.waiters.number(account, at)?;
        let used_up = match account {
            Some(account) if !self.is_below_share(state.taken.of(Some(account))) => {
                UsedUp::ShareOf(account)
            }
            Some(_) | None => UsedUp::Everything,
        };
        Some((account, number, used_up))
    }

    /// Decides what becomes of a session of that key, which no request uses any more.
    pub(super) fn next_for(
        &self,
        key: &PoolKey,
        is_fit: impl Fn(MayAsk) -> bool,
    ) -> FreedSession<U> {
        let mut state = self.state.lock();
        let PermitState { taken, waiters, .. } = &mut *state;
        if waiters.is_empty() {
            return FreedSession::Keep;
        }
        // The permit of this session counts as free.
        let left = |account| {
            let taken = taken.of(account);
            let taken = taken.saturating_sub(usize::from(account == Some(key.account())));
            self.is_below_share(taken).then_some(taken)
        };
        let Some((account, at)) = waiters.next(left, true) else {
            return FreedSession::Keep;
        };
        let asks = waiters.wants(account, at, key);
        let Some(asks) = asks.filter(|asks| is_fit(*asks)) else {
            // The permit comes back later, and no second session is ended for the request meanwhile.
            waiters.help_at(account, at);
            return FreedSession::Close;
        };
        let gets = waiters.take(account, at);
        gets.map_or(FreedSession::Keep, |gets| FreedSession::Give(asks, gets))
    }

    /// Takes out the first request that a session of this key serves, too.
    pub(super) fn take_for(
        &self,
        key: &PoolKey,
        is_fit: impl Fn(MayAsk) -> bool,
    ) -> Option<(MayAsk, oneshot::Sender<Granted<U>>)> {
        self.state.lock().waiters.take_for(key, is_fit)
    }

    /// Gives free permits to the requests that wait. Returns the grants that no request took.
    fn serve(self: &Arc<Self>, state: &mut PermitState<U>) -> Vec<Granted<U>> {
        let mut untaken = Vec::new();
        while state.taken.in_all < self.limits.sessions_max && !state.is_closed {
            let PermitState { taken, waiters, .. } = &mut *state;
            let left = |account| {
                let taken = taken.of(account);
                self.is_below_share(taken).then_some(taken)
            };
            let Some((account, at)) = waiters.next(left, false) else {
                break;
            };
            let Some(gets) = waiters.take(account, at) else {
                break;
            };
            taken.add(account);
            self.limits.fill.reached(taken.in_all);
            // A permit that is dropped here would take the lock again, which the caller holds.
            untaken.extend(gets.send(Granted::Permit(self.permit(account))).err());
        }
        untaken
    }

    /// Notes that a request waited in vain.
    pub(super) fn refused(&self, used_up: UsedUp) {
        let (setting, max) = (self.limits.fill.setting, self.limits.sessions_max);
        limits::refused(LimitHit::Sessions);
        match used_up {
            UsedUp::Everything => warn!(
                setting,
                max, "all sessions at the server are in use, and none became free in time"
            ),
            UsedUp::ShareOf(_) => warn!(
                setting,
                max,
                share = self.limits.of_each_caller,
                "one caller uses its whole share of the sessions at the server, and none became free in time"
            ),
        }
    }

    /// Waits until all permits are back, for a bounded time. None is given out from now on, and requests that wait for a
    /// session get none.
    pub(super) async fn close(&self, patience: Duration) {
        {
            let mut state = self.state.lock();
            state.is_closed = true;
            // The senders go with the queue, so that every request that waits fails at once.
            state.waiters = Waiters::default();
        }
        let ended = async {
            loop {
                // Made before the check, so that a permit that comes back in between is not missed.
                let returned = self.all_returned.notified();
                if self.state.lock().taken.in_all == 0 {
                    return;
                }
                returned.await;
            }
        };
        let _ = timeout(patience, ended).await;
    }
}

impl<U: Send + 'static> PermitHome for PoolPermits<U> {
    fn returned(self: Arc<Self>, account: Option<Account>) {
        let mut state = self.state.lock();
        state.taken.remove(account);
        let untaken = self.serve(&mut state);
        let is_empty = state.taken.in_all == 0;
        drop(state);
        if is_empty {
            self.all_returned.notify_waiters();
        }
        // Only now: what nobody took comes back here.
        drop(untaken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::base::limit_fill;

    const ALICE: Option<Account> = Some(account(1));
    const BOB: Option<Account> = Some(account(2));

    const fn account(byte: u8) -> Account {
        Account::of([byte; 16])
    }

    fn permits(sessions_max: usize, of_each_caller: Option<usize>) -> Arc<PoolPermits<()>> {
        PoolPermits::new(PoolLimits {
            sessions_max,
            of_each_caller,
            fill: &limit_fill::SESSIONS,
            wait: Duration::from_secs(1),
            sharing: Sharing::Never,
        })
    }

    fn line_up(
        permits: &PoolPermits<()>,
        account: Option<Account>,
    ) -> oneshot::Receiver<Granted<()>> {
        permits.line_up(account, WantedSession::default()).1
    }

    #[test]
    fn a_caller_has_its_share_and_nobody_more_than_there_is() {
        let permits = permits(3, Some(2));
        let _one = permits.try_take(ALICE).unwrap();
        let two = permits.try_take(ALICE).unwrap();
        let more = permits.try_take(ALICE).unwrap_err();
        assert_eq!(Some(more), ALICE.map(UsedUp::ShareOf));
        let three = permits.try_take(BOB).unwrap();
        assert_eq!(permits.try_take(BOB).unwrap_err(), UsedUp::Everything);
        drop(two);
        let of_nobody = permits.try_take(None).unwrap();
        drop((of_nobody, three));
        let _two = permits.try_take(ALICE).unwrap();
        // What is forgotten of callers that have nothing.
        drop(permits.try_take(Some(account(3))));
        assert_eq!(permits.state.lock().taken.by_account.len(), 1);
    }

    #[test]
    fn a_request_that_waits_for_its_callers_share_holds_up_nobody() {
        let permits = permits(2, Some(1));
        let first = permits.try_take(ALICE).unwrap();
        let mut waiting = line_up(&permits, ALICE);
        drop(permits.try_take(BOB).unwrap());
        assert!(waiting.try_recv().is_err());
        drop(first);
        assert!(waiting.try_recv().is_ok());
    }

    #[test]
    fn without_shares_one_caller_may_have_everything_until_another_waits() {
        let permits = permits(2, None);
        let [one, two] = [ALICE, ALICE].map(|account| permits.try_take(account).unwrap());
        assert_eq!(permits.try_take(ALICE).unwrap_err(), UsedUp::Everything);
        let mut waiting = [ALICE, ALICE, BOB].map(|account| line_up(&permits, account));
        drop(one);
        let of_bob = waiting[2].try_recv().unwrap();
        drop(two);
        let of_alice = waiting[0].try_recv().unwrap();
        assert!(waiting[1].try_recv().is_err());
        drop((of_bob, of_alice));
    }

    #[test]
    fn a_permit_that_nobody_took_goes_to_the_next() {
        let permits = permits(1, None);
        let only = permits.try_take(ALICE).unwrap();
        let gone = line_up(&permits, ALICE);
        let mut next = line_up(&permits, ALICE);
        drop(gone);
        drop(only);
        assert!(next.try_recv().is_ok());
    }
}
