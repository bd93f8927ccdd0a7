//! How the pool starts, shares, bounds and ends sessions.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

use super::*;
use crate::base::limit_fill::SESSIONS;
use crate::mcp::version::Era;
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
    pool_with_shares(sharing, sessions_max, None)
}

fn pool_with_shares(
    sharing: Sharing,
    sessions_max: usize,
    of_each_caller: Option<usize>,
) -> FakePool {
    let limits = PoolLimits {
        sessions_max,
        of_each_caller,
        fill: &SESSIONS,
        wait: Duration::from_secs(1),
        sharing,
    };
    Arc::new(SessionPool::new(limits, TaskTracker::new()))
}

fn key(caller: u8) -> PoolKey {
    PoolKey::new(Era::Legacy, [caller; 16], "{}")
}

async fn get(pool: &FakePool, caller: u8) -> Result<Pooled<FakeSession>, SessionError> {
    let there = Arc::clone(pool);
    let start = move |permit| async move {
        let permit = if let Some(permit) = permit {
            permit
        } else {
            let make_room = SessionPool::close_longest_unused;
            there.permit(Some([caller; 16]), make_room).await?
        };
        Ok(Started {
            session: Arc::default(),
            permit: Some(permit),
        })
    };
    let make_room = SessionPool::close_longest_unused;
    pool.get(&key(caller), MayAsk::Maybe, false, make_room, start)
        .await
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
    let mut slow = Box::pin(pool.get(&key, MayAsk::Maybe, false, |_, _| false, start));
    assert!(futures_util::poll!(&mut slow).is_pending());
    get(&pool, 2).await.unwrap();
    drop(slow);
    let mut next = Box::pin(get(&pool, 1));
    assert!(futures_util::poll!(&mut next).is_pending());
    go.notify_one();
    next.await.unwrap();
}

#[tokio::test]
async fn all_who_waited_for_a_start_share_its_failure() {
    let (pool, starts) = (pool(Sharing::Always, 8), Arc::new(AtomicUsize::new(0)));
    let fails = || {
        let (starts, pool) = (Arc::clone(&starts), Arc::clone(&pool));
        let start = move |_permit| async move {
            starts.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            Err(SessionError::Failed(UNREACHABLE))
        };
        async move {
            let key = key(1);
            let got = pool.get(&key, MayAsk::Maybe, false, |_, _| false, start);
            got.await.is_err()
        }
    };
    assert_eq!(tokio::join!(fails(), fails(), fails()), (true, true, true));
    assert_eq!(starts.load(Ordering::Relaxed), 1);
    // Who comes later has a start of its own.
    assert!(fails().await);
    assert_eq!(starts.load(Ordering::Relaxed), 2);
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
async fn a_call_that_waits_gets_the_session_that_another_gives_back() {
    let pool = pool(Sharing::Never, 1);
    let first = get(&pool, 1).await.unwrap();
    let session = Arc::clone(&first.session);
    let [mut second, mut third] = [1, 1].map(|caller| Box::pin(get(&pool, caller)));
    assert!(futures_util::poll!(&mut second).is_pending());
    assert!(futures_util::poll!(&mut third).is_pending());
    drop(first);
    let second = second.await.unwrap();
    assert!(Arc::ptr_eq(&second.session, &session));
    drop(second);
    assert!(Arc::ptr_eq(&third.await.unwrap().session, &session));
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_given_back_makes_room_for_another_caller_that_waits() {
    let pool = pool(Sharing::Never, 2);
    let [one, two] = [get(&pool, 1).await.unwrap(), get(&pool, 1).await.unwrap()];
    let [of_one, of_two] = [&one, &two].map(|pooled| Arc::clone(&pooled.session));
    let mut waiting = Box::pin(get(&pool, 2));
    assert!(futures_util::poll!(&mut waiting).is_pending());
    drop(one);
    assert!(!of_one.is_open(), "it was ended");
    drop(two);
    assert!(of_two.is_open(), "one was enough");
    waiting.await.unwrap();
    // A request that wants no session of a key waits for a permit alone.
    let pooled = get(&pool, 1).await.unwrap();
    let mut permit = Box::pin(pool.permit(None, |_, _| false));
    assert!(futures_util::poll!(&mut permit).is_pending());
    drop(pooled);
    assert!(permit.await.is_ok() && !of_two.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_session_is_not_given_to_a_call_that_waits_no_longer() {
    let pool = pool(Sharing::Never, 1);
    let first = get(&pool, 1).await.unwrap();
    let session = Arc::clone(&first.session);
    let mut gone = Box::pin(get(&pool, 1));
    assert!(futures_util::poll!(&mut gone).is_pending());
    drop(gone);
    drop(first);
    assert!(session.is_open());
    assert!(Arc::ptr_eq(&get(&pool, 1).await.unwrap().session, &session));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_has_its_share_makes_room_of_its_own() {
    let pool = pool_with_shares(Sharing::Never, 4, Some(2));
    let [one, two] = [get(&pool, 1).await.unwrap(), get(&pool, 1).await.unwrap()];
    let other = get(&pool, 2).await.unwrap();
    let of_other = Arc::clone(&other.session);
    drop(other);
    assert!(get(&pool, 1).await.is_err(), "in time");
    assert!(of_other.is_open(), "it would not have helped");
    drop((one, two));
    // The same caller with other capabilities needs another session.
    let declared = PoolKey::new(Era::Legacy, [1; 16], "{\"sampling\":{}}");
    let there = Arc::clone(&pool);
    let start = |_| async move {
        let permit = there.permit(Some([1; 16]), SessionPool::close_longest_unused);
        Ok(Started {
            session: Arc::default(),
            permit: Some(permit.await?),
        })
    };
    let pooled = pool
        .get(
            &declared,
            MayAsk::Maybe,
            false,
            SessionPool::close_longest_unused,
            start,
        )
        .await;
    assert!(pooled.is_ok() && of_other.is_open());
}

#[tokio::test]
async fn a_caller_that_has_its_share_of_processes_shares_them() {
    let pool = pool_with_shares(Sharing::AtTheLimit, 4, Some(2));
    let mut pooled = Vec::new();
    for _ in 0..3 {
        pooled.push(get(&pool, 1).await.unwrap());
    }
    let shared = pooled
        .iter()
        .filter(|h| Arc::ptr_eq(&h.session, &pooled[0].session));
    assert_eq!(shared.count(), 2);
    let other = get(&pool, 2).await.unwrap();
    assert!(
        pooled
            .iter()
            .all(|h| !Arc::ptr_eq(&h.session, &other.session))
    );
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_ends_and_one_that_is_lost_is_started_anew() {
    let pool = pool(Sharing::Always, 1);
    let lost = get(&pool, 1).await.unwrap();
    pool.forget(&lost);
    // Its permit is free although a call still uses the session.
    let pooled = get(&pool, 1).await.unwrap();
    assert!(!Arc::ptr_eq(&lost.session, &pooled.session));
    tokio::time::advance(IDLE).await;
    pool.close_idle();
    assert!(pooled.session.is_open());
    let also = pooled.also();
    drop(pooled);
    tokio::time::advance(IDLE).await;
    pool.close_idle();
    assert!(also.session.is_open());
    let session = Arc::clone(&also.session);
    drop(also);
    tokio::time::advance(IDLE).await;
    pool.close_idle();
    assert!(!session.is_open());
}
