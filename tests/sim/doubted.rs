//! A record that the store took and never confirmed, of a call whose replica dies.

use raincheck::mcp::error::SideEffect;
use raincheck::mcp::version::Era;
use raincheck::runner::responder::{CallAnswer, Reply};
use raincheck::task::plan::Plan;
use raincheck::task::policy::InputWhen;
use std::time::Duration;
use tokio::time::sleep;

use crate::dice::Dice;
use crate::replica::{LEASE, Surroundings, call_spec};
use crate::server::Script;
use crate::under_paused_time;

const KEY: &str = "call-1";

/// The effect of which the client was notified, and the number of times that the call ran in the end.
async fn doubted_call(repeatable: bool) -> (SideEffect, u32) {
    let all = Surroundings::new(Dice::new(1), Era::Modern, None);
    let replica = all.start(0).await;
    replica.link.heal();
    let script = Script {
        runs_for: Duration::from_secs(1),
        asks: false,
        resumable: false,
    };
    all.server.enter(KEY, script);
    replica.link.mute_store();
    let input = InputWhen::InTask;
    let mut call = call_spec(Era::Modern, KEY, Plan::Always { input });
    call.terms.repeatable = repeatable;
    let mut client = replica.runner.call(call).unwrap();
    let Some(Reply::Answer(CallAnswer::StoreUnavailable(effect))) = client.next().await else {
        panic!("not refused");
    };
    assert!(all.book.has_any(), "the store took no record");
    replica.link.kill();
    let other = all.start(1).await;
    other.link.heal();
    sleep(LEASE * 6).await;
    (effect, all.server.effects(KEY))
}

#[test]
fn a_call_that_another_replica_may_run_is_not_said_to_have_no_effect() {
    under_paused_time(async {
        assert_eq!(doubted_call(true).await, (SideEffect::Unknown, 1));
        assert_eq!(doubted_call(false).await, (SideEffect::None, 0));
    });
}
