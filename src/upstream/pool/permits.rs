//! The rights to start sessions: how many there may be in all, and how many of one caller.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, TryAcquireError};
use tokio::time::timeout;
use tracing::warn;

use crate::lock::Mutex;
use crate::telemetry::limits::{self, LimitHit};
use crate::upstream::pool::rule::Sharing;

/// The bytes of a caller.
type CallerKey = [u8; 16];

/// How many sessions there may be, and which calls may share one.
#[derive(Debug, Clone, Copy)]
pub(in crate::upstream) struct PoolLimits {
    pub(in crate::upstream) sessions_max: usize,
    /// How many of them one caller may have. `None`: callers are not told apart for certain.
    pub(in crate::upstream) of_each_caller: Option<usize>,
    /// The setting that says so.
    pub(in crate::upstream) setting: &'static str,
    /// How long a call waits for a session to end when all are in use.
    pub(in crate::upstream) wait: Duration,
    pub(in crate::upstream) sharing: Sharing,
}

/// The right to one session. It is kept until nothing is left of the session.
#[derive(Debug)]
pub(in crate::upstream) struct SessionPermit {
    _place: OwnedSemaphorePermit,
    /// `None`: the session belongs to no caller, or callers have no shares.
    _share: Option<OwnedSemaphorePermit>,
}

/// What is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum UsedUp {
    Everything,
    /// This caller has its share. Others may start sessions.
    ShareOf(CallerKey),
}

impl UsedUp {
    /// Whether one could be started if a session of this caller ended.
    pub(in crate::upstream) fn is_helped_by_end_of(self, caller: CallerKey) -> bool {
        match self {
            Self::Everything => true,
            Self::ShareOf(short) => short == caller,
        }
    }
}

#[derive(Debug)]
pub(super) struct PoolPermits {
    all: Arc<Semaphore>,
    limits: PoolLimits,
    /// A caller's entry lasts as long as one of its permits.
    shares: Mutex<HashMap<CallerKey, Weak<Semaphore>>>,
}

impl PoolPermits {
    pub(super) fn new(limits: PoolLimits) -> Self {
        Self {
            all: Arc::new(Semaphore::new(limits.sessions_max)),
            limits,
            shares: Mutex::default(),
        }
    }

    /// A permit, without waiting.
    pub(super) fn try_take(&self, caller: Option<CallerKey>) -> Result<SessionPermit, UsedUp> {
        let share = match self.share_of(caller) {
            None => None,
            Some((caller, share)) => Some(
                share
                    .try_acquire_owned()
                    .map_err(|_: TryAcquireError| UsedUp::ShareOf(caller))?,
            ),
        };
        let place = Arc::clone(&self.all).try_acquire_owned();
        Ok(SessionPermit {
            _place: place.map_err(|_: TryAcquireError| UsedUp::Everything)?,
            _share: share,
        })
    }

    /// Waits for a permit, for as long as it takes.
    pub(super) async fn wait(
        &self,
        caller: Option<CallerKey>,
    ) -> Result<SessionPermit, AcquireError> {
        // A caller that waits for its share takes no place from the others.
        let share = match self.share_of(caller) {
            None => None,
            Some((_, share)) => Some(share.acquire_owned().await?),
        };
        Ok(SessionPermit {
            _place: Arc::clone(&self.all).acquire_owned().await?,
            _share: share,
        })
    }

    /// Notes that a request waited in vain.
    pub(super) fn refused(&self, used_up: UsedUp) {
        let (setting, max) = (self.limits.setting, self.limits.sessions_max);
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

    fn share_of(&self, caller: Option<CallerKey>) -> Option<(CallerKey, Arc<Semaphore>)> {
        let (caller, of_each) = (caller?, self.limits.of_each_caller?);
        let mut shares = self.shares.lock();
        if let Some(share) = shares.get(&caller).and_then(Weak::upgrade) {
            return Some((caller, share));
        }
        shares.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(of_each));
        shares.insert(caller, Arc::downgrade(&share));
        Some((caller, share))
    }

    /// Waits until all permits are back, for a bounded time. None is given out afterwards.
    pub(super) async fn close(&self, patience: Duration) {
        let sessions_max = u32::try_from(self.limits.sessions_max).unwrap_or(u32::MAX);
        let _ = timeout(patience, self.all.acquire_many(sessions_max)).await;
        // Calls that still wait for a session get none.
        self.all.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: Option<CallerKey> = Some([1; 16]);
    const BOB: Option<CallerKey> = Some([2; 16]);

    fn permits(sessions_max: usize, of_each_caller: Option<usize>) -> PoolPermits {
        PoolPermits::new(PoolLimits {
            sessions_max,
            of_each_caller,
            setting: "sessions_max",
            wait: Duration::from_secs(1),
            sharing: Sharing::Never,
        })
    }

    #[test]
    fn a_caller_has_its_share_and_nobody_more_than_there_is() {
        let permits = permits(3, Some(2));
        let _one = permits.try_take(ALICE).unwrap();
        let two = permits.try_take(ALICE).unwrap();
        let more = permits.try_take(ALICE).unwrap_err();
        assert_eq!(more, UsedUp::ShareOf([1; 16]));
        let three = permits.try_take(BOB).unwrap();
        assert_eq!(permits.try_take(BOB).unwrap_err(), UsedUp::Everything);
        drop(two);
        let of_nobody = permits.try_take(None).unwrap();
        drop((of_nobody, three));
        let _two = permits.try_take(ALICE).unwrap();
        // What is forgotten of callers that have nothing.
        drop(permits.try_take(Some([3; 16])));
        assert_eq!(permits.shares.lock().len(), 2);
    }

    #[tokio::test]
    async fn who_waits_for_its_share_holds_up_nobody() {
        let permits = permits(2, Some(1));
        let first = permits.try_take(ALICE).unwrap();
        let mut waiting = Box::pin(permits.wait(ALICE));
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
        drop(permits.try_take(BOB).unwrap());
        drop(first);
        let _first = waiting.await.unwrap();
    }

    #[test]
    fn without_shares_one_caller_may_have_everything() {
        let permits = permits(2, None);
        let _both = [permits.try_take(ALICE), permits.try_take(ALICE)].map(Result::unwrap);
        assert_eq!(permits.try_take(ALICE).unwrap_err(), UsedUp::Everything);
    }
}
