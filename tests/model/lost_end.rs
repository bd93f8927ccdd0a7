//! An end whose commit got no answer is reported when it is found, and once.

use std::sync::Arc;
use std::time::Duration;

use raincheck::base::clock::{Clock, System};
use raincheck::store::Store;
use raincheck::store::ledger::{ApplyError, Ledger, Loaded};
use raincheck::store::memory::Memory;
use raincheck::store::patience::StorePatience;
use raincheck::task::cancelled_by::CancelledBy;
use raincheck::task::machine::{Rejected, TaskEvent};
use raincheck::task::state::Task;
use raincheck::telemetry::metrics::METRICS;

use crate::faulty::Faulty;
use crate::reference::Fault;
use crate::subject::new_task;

/// Calls that a replica carries at the same time, with `limits.calls` at its default.
const CALLS: usize = 16_384;

fn faulty() -> (Arc<Faulty>, Ledger) {
    let clock: Arc<dyn Clock> = Arc::new(System);
    let store = Faulty::new(Arc::new(Memory::new(Arc::clone(&clock))));
    let patience = StorePatience {
        read: Duration::ZERO,
        create: Duration::ZERO,
    };
    let shared = Arc::clone(&store) as Arc<dyn Store>;
    (store, Ledger::new(shared, clock, patience))
}

async fn created(ledger: &Ledger, tool: &str) -> Loaded {
    let task = Task {
        name: tool.into(),
        ..new_task(ledger.now_ms())
    };
    ledger.create(task, None).await.unwrap()
}

/// How many tasks of this tool were reported as cancelled.
fn reported(tool: &str) -> u64 {
    let ended = &METRICS.tasks.ended;
    ended.with_label_values(&[tool, "cancelled", "", ""]).get()
}

async fn cancel(ledger: &Ledger, task: &Loaded) -> Result<Loaded, ApplyError> {
    let cancelled = ledger
        .apply(
            task,
            TaskEvent::Cancel {
                by: CancelledBy::Client,
            },
        )
        .await;
    cancelled.map(|(loaded, _)| loaded)
}

/// Cancels the task with a commit that gets no answer.
async fn cancel_without_answer(store: &Faulty, fault: Fault, ledger: &Ledger, task: &Loaded) {
    store.set(fault);
    let lost = cancel(ledger, task).await;
    assert!(matches!(lost, Err(ApplyError::Store(_))), "{lost:?}");
}

async fn cancel_too_late(ledger: &Ledger, task: &Loaded) {
    let again = cancel(ledger, task).await;
    let rejected = matches!(again, Err(ApplyError::Rejected(Rejected::Ended, _)));
    assert!(rejected, "{again:?}");
}

#[tokio::test]
async fn an_end_whose_answer_was_lost_is_reported_once() {
    let ((store, ledger), tool) = (faulty(), "a tool of its own");
    let task = created(&ledger, tool).await;
    cancel_without_answer(&store, Fault::After, &ledger, &task).await;
    assert_eq!(reported(tool), 0);
    cancel_too_late(&ledger, &task).await;
    assert_eq!(reported(tool), 1);
    ledger.load(task.task.id).await.unwrap();
    assert_eq!(reported(tool), 1);
}

#[tokio::test]
async fn an_end_is_reported_whichever_of_its_commits_happened() {
    let ((store, ledger), tool) = (faulty(), "a tool with two attempts");
    let task = created(&ledger, tool).await;
    cancel_without_answer(&store, Fault::Before, &ledger, &task).await;
    cancel_without_answer(&store, Fault::After, &ledger, &task).await;
    cancel_too_late(&ledger, &task).await;
    assert_eq!(reported(tool), 1);
}

#[tokio::test]
async fn an_end_that_is_answered_after_all_is_reported_once() {
    let ((store, ledger), tool) = (faulty(), "a tool with an answer");
    let task = created(&ledger, tool).await;
    cancel_without_answer(&store, Fault::Before, &ledger, &task).await;
    cancel(&ledger, &task).await.unwrap();
    assert_eq!(reported(tool), 1);
    ledger.load(task.task.id).await.unwrap();
    assert_eq!(reported(tool), 1);
}

/// A server may answer all of its calls at the same time, and the store then none of their ends in time.
#[tokio::test]
async fn as_many_ends_as_a_replica_carries_calls_are_all_reported() {
    let ((store, ledger), tool) = (faulty(), "a tool in a flood");
    let mut tasks = Vec::new();
    for _ in 0..CALLS {
        let task = created(&ledger, tool).await;
        cancel_without_answer(&store, Fault::After, &ledger, &task).await;
        tasks.push(task);
    }
    assert_eq!(reported(tool), 0);
    for task in &tasks {
        cancel_too_late(&ledger, task).await;
    }
    assert_eq!(reported(tool), CALLS as u64);
}
