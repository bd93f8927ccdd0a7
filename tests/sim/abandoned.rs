//! A client that goes away after its call was made and before it follows the record of the call.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use raincheck::mcp::version::Era;
use raincheck::runner::claim::CallClaim;
use raincheck::task::digest::Digest;
use raincheck::task::plan::Plan;
use raincheck::task::policy::InputWhen;
use tokio::time::{sleep, timeout};

use crate::dice::Dice;
use crate::link::End;
use crate::replica::{DEADLINE, Replica, Surroundings, call_spec};
use crate::server::Script;
use crate::under_paused_time;

const KEY: &str = "call-1";
const WINDOW: Duration = Duration::from_secs(5);

/// Makes an attached call, and drops it between the commit of its record and the next poll of its client.
async fn abandoned_call(all: &Surroundings) -> Replica {
    let replica = all.start(0).await;
    replica.link.heal();
    let script = Script {
        runs_for: DEADLINE.saturating_sub(Duration::from_secs(1)),
        asks: false,
        resumable: false,
    };
    all.server.enter(KEY, script);
    let window_ms = u64::try_from(WINDOW.as_millis()).unwrap();
    let claim = CallClaim::of_call(&[1; 16], Digest::of(&[KEY]), window_ms);
    let input = InputWhen::BeforeTask;
    let window_ms = 60_000;
    let call = call_spec(Era::Legacy, KEY, Plan::Auto { window_ms, input });
    let mut calling = Box::pin(replica.runner.call_once(claim, call));
    poll_fn(|context| {
        if all.book.has_any() {
            return Poll::Ready(());
        }
        let polled = calling.as_mut().poll(context);
        assert!(
            polled.is_pending(),
            "answered before its record: {polled:?}"
        );
        Poll::Pending
    })
    .await;
    drop(calling);
    replica
}

#[test]
fn a_call_that_nobody_began_to_follow_is_cancelled_after_its_window() {
    under_paused_time(async {
        let all = Surroundings::new(Dice::new(1), Era::Legacy, None);
        let _replica = abandoned_call(&all).await;
        sleep(WINDOW / 2).await;
        assert_eq!(all.server.effects(KEY), 1);
        let cancelled = timeout(WINDOW, all.server.is_cancelled(KEY)).await;
        assert!(cancelled.is_ok(), "it runs on though nobody waits for it");
    });
}

#[test]
fn a_call_is_cancelled_though_the_store_was_away_when_its_window_ended() {
    under_paused_time(async {
        let all = Surroundings::new(Dice::new(1), Era::Legacy, None);
        let replica = abandoned_call(&all).await;
        sleep(WINDOW.saturating_sub(Duration::from_secs(1))).await;
        // Longer than a read waits, shorter than the lease.
        replica.link.cut(End::Store, Duration::from_secs(4), false);
        let cancelled = timeout(WINDOW * 3, all.server.is_cancelled(KEY)).await;
        assert!(cancelled.is_ok(), "it runs on though nobody waits for it");
    });
}
