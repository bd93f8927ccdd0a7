//! Many calls that end while the store is away.

use std::time::Duration;

use raincheck::mcp::version::Era;
use raincheck::task::state::Outcome;
use tokio::time::sleep;

use crate::dice::Dice;
use crate::link::End;
use crate::replica::Surroundings;
use crate::under_paused_time;

/// As many as a replica of the simulation takes.
const CALLS: usize = 100;

/// When all are tried again at the same time, a store that is back answers none of them in time.
#[test]
fn ends_that_wait_for_the_store_are_tried_again_a_few_at_a_time() {
    under_paused_time(async {
        let all = Surroundings::new(Dice::new(1), Era::Modern, None);
        let replica = all.start(0).await;
        replica.link.heal();
        for number in 0..CALLS {
            let key = format!("call-{number}");
            all.begin_task(&replica, &key, Duration::from_secs(10))
                .await;
        }
        // A create over a slow link may come too late, and is refused.
        let kept = all.book.all().len();
        assert!(kept > CALLS * 9 / 10, "{kept} tasks");
        replica.link.cut(End::Store, Duration::from_secs(40), true);
        // The first attempts are over.
        sleep(Duration::from_secs(20)).await;
        all.book.most_under_way();
        sleep(Duration::from_secs(15)).await;
        let most = all.book.most_under_way();
        assert!(most > 0 && most < kept * 3 / 4, "{most} of {kept} at once");
        sleep(Duration::from_secs(15)).await;
        for task in all.book.all() {
            let is_completed = matches!(task.outcome, Some(Outcome::Completed(_)));
            assert!(is_completed, "{}: {:?}", task.id, task.outcome);
        }
    });
}
