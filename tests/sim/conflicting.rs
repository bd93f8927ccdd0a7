//! Progress that is committed while other replicas commit to the same task.

use std::collections::BTreeSet;
use std::time::Duration;

use raincheck::mcp::version::Era;
use raincheck::runner::Runner;
use raincheck::task::events::replay::{Replay, SubscribedNotices, WantedNotices};
use raincheck::task::id::TaskId;
use raincheck::task::machine::TaskEvent;
use raincheck::task::notices::{Notices, ReceiverId};
use tokio::time::{Instant, sleep};

use crate::dice::Dice;
use crate::replica::Surroundings;
use crate::under_paused_time;

const CALLS: usize = 20;

/// The server tells of its progress once, after half of that time, and then nothing until its result.
const RUNS_FOR: Duration = Duration::from_secs(40);

#[test]
fn progress_is_kept_although_others_commit_to_its_task() {
    under_paused_time(async {
        let began = Instant::now();
        let all = Surroundings::new(Dice::new(1), Era::Modern, None);
        let replica = all.start(0).await;
        replica.link.heal();
        for number in 0..CALLS {
            let key = format!("call-{number}");
            all.begin_task(&replica, &key, RUNS_FOR).await;
        }
        let other = all.observer();
        // Each commit of progress meets a subscription that came first.
        let mut subscribed = BTreeSet::new();
        while Instant::now() < began + RUNS_FOR * 9 / 10 {
            for id in all.book.under_way() {
                if subscribed.insert(id) {
                    subscribe(&other.runner, id).await;
                }
            }
            sleep(Duration::from_millis(1)).await;
        }
        let met = all.book.conflicts();
        assert!(met > CALLS / 2, "{met} commits came after others");
        for task in all.book.all() {
            assert!(!task.is_ended() && task.progress.is_some(), "{task:?}");
        }
    });
}

/// The client of a task subscribes to it elsewhere.
async fn subscribe(other: &Runner, id: TaskId) {
    let loaded = other.ledger().load(id).await.unwrap().unwrap();
    let receiver = ReceiverId::of_subscription("elsewhere");
    let wanted = vec![WantedNotices {
        notices: Notices::new(receiver, Vec::new(), 1_000),
        since_ms: 0,
    }];
    let replay = Replay::ToAll;
    let subscribed = TaskEvent::Subscribed(SubscribedNotices { wanted, replay });
    other.ledger().apply(&loaded, subscribed).await.unwrap();
}
