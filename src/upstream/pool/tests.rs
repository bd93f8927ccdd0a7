//! How the pool starts, shares, bounds and ends sessions.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use super::*;
use crate::telemetry::metrics::METRICS;

#[derive(Debug, Default)]
struct FakeSession(AtomicBool);

impl PooledSession for FakeSession {
    fn is_open(&self) -> bool {
        !self.0.load(Ordering::Relaxed)
    }

    fn questions(&self) -> Questions {
        Questions::default()
    }

    fn close_unused(self: &Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

type FakePool = Arc<SessionPool<FakeSession>>;

fn pool(sharing: Sharing, sessions_max: usize) -> FakePool {
    let limits = PoolLimits {
        sessions_max,
        setting: "sessions_max",
        wait: Duration::from_secs(1),
        sharing,
    };
    Arc::new(SessionPool::new(limits, TaskTracker::new()))
}

fn key(caller: u8) -> SessionKey {
    SessionKey::new(Era::Legacy, [caller; 16], "{}")
}

async fn get(pool: &FakePool, caller: u8) -> Result<Held<FakeSession>, NoSession> {
    let there = Arc::clone(pool);
    let start = |permit| async move {
        let permit = match permit {
            Some(permit) => permit,
            None => there.permit(SessionPool::close_longest_unused).await?,
        };
        Ok(Started {
            session: Arc::default(),
            permit: Some(permit),
        })
    };
    pool.get(&key(caller), MayAsk::Maybe, false, start).await
}

#[tokio::test]
async fn calls_of_one_key_share_a_session_and_those_of_another_do_not() {
    let pool = pool(Sharing::Always, 8);
    let (one, two) = tokio::join!(get(&pool, 1), get(&pool, 1));
    let (one, two, other) = (one.unwrap(), two.unwrap(), get(&pool, 2).await.unwrap());
    assert!(Arc::ptr_eq(&one.session, &two.session));
    assert!(!Arc::ptr_eq(&one.session, &other.session));
}

#[tokio::test]
async fn a_slow_start_holds_up_its_own_key_only_and_goes_on_without_its_caller() {
    let (pool, go) = (pool(Sharing::Always, 8), Arc::new(Notify::new()));
    let waiting = Arc::clone(&go);
    let start = |permit| async move {
        waiting.notified().await;
        Ok(Started {
            session: Arc::default(),
            permit,
        })
    };
    let key = key(1);
    let mut slow = Box::pin(pool.get(&key, MayAsk::Maybe, false, start));
    assert!(futures_util::poll!(&mut slow).is_pending());
    get(&pool, 2).await.unwrap();
    drop(slow);
    let mut next = Box::pin(get(&pool, 1));
    assert!(futures_util::poll!(&mut next).is_pending());
    go.notify_one();
    next.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn sessions_are_bounded_and_an_unused_one_makes_room() {
    let pool = pool(Sharing::Never, 2);
    let (one, two) = (get(&pool, 1).await.unwrap(), get(&pool, 1).await.unwrap());
    assert!(!Arc::ptr_eq(&one.session, &two.session));
    let refusals = &METRICS.calls.refusals;
    let refused = refusals.with_label_values(&["upstream.sessions_max"]);
    let before = refused.get();
    assert!(get(&pool, 1).await.is_err());
    assert!(refused.get() > before, "it is counted");
    let unused = Arc::clone(&one.session);
    drop(one);
    get(&pool, 2).await.unwrap();
    assert!(!unused.is_open() && two.session.is_open());
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_ends_and_one_that_is_lost_is_started_anew() {
    let pool = pool(Sharing::Always, 1);
    let lost = get(&pool, 1).await.unwrap();
    pool.forget(&lost);
    // Its permit is free although a call still uses the session.
    let held = get(&pool, 1).await.unwrap();
    assert!(!Arc::ptr_eq(&lost.session, &held.session));
    tokio::time::advance(IDLE).await;
    pool.close_idle();
    assert!(held.session.is_open());
    let also = held.also();
    drop(held);
    tokio::time::advance(IDLE).await;
    pool.close_idle();
    assert!(also.session.is_open());
    let session = Arc::clone(&also.session);
    drop(also);
    tokio::time::advance(IDLE).await;
    pool.close_idle();
    assert!(!session.is_open());
}
