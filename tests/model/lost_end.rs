//! An end whose commit got no answer is reported when it is found, and once.

use std::sync::Arc;
use std::time::Duration;

use raincheck::clock::{Clock, System};
use raincheck::store::Store;
use raincheck::store::ledger::{Ledger, NotApplied};
use raincheck::store::memory::Memory;
use raincheck::store::patience::StorePatience;
use raincheck::task::machine::{Rejected, TaskEvent};
use raincheck::task::state::Task;
use raincheck::telemetry::metrics::METRICS;

use crate::faulty::Faulty;
use crate::reference::Fault;
use crate::subject::new_task;

#[tokio::test]
async fn an_end_whose_answer_was_lost_is_reported_once() {
    let clock: Arc<dyn Clock> = Arc::new(System);
    let store = Faulty::new(Arc::new(Memory::new(Arc::clone(&clock))));
    let patience = StorePatience {
        read: Duration::ZERO,
        create: Duration::ZERO,
    };
    let shared = Arc::clone(&store) as Arc<dyn Store>;
    let ledger = Ledger::new(shared, Arc::clone(&clock), patience);
    let tool = "a tool of its own";
    let task = Task {
        name: tool.into(),
        ..new_task(clock.now_ms())
    };
    let ended = || {
        let ended = &METRICS.tasks.ended;
        ended.with_label_values(&[tool, "cancelled", "", ""]).get()
    };
    let created = ledger.create(task, None).await.unwrap();
    let cancel = || TaskEvent::Cancel { reason: None };
    store.set(Fault::After);
    let lost = ledger.apply(&created, cancel()).await;
    assert!(matches!(lost, Err(NotApplied::Store(_))), "{lost:?}");
    assert_eq!(ended(), 0);
    let again = ledger.apply(&created, cancel()).await;
    let rejected = matches!(again, Err(NotApplied::Rejected(Rejected::Ended, _)));
    assert!(rejected, "{again:?}");
    assert_eq!(ended(), 1);
    ledger.load(created.task.id).await.unwrap();
    assert_eq!(ended(), 1);
}
