//! What every store must do with a write.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use raincheck::store::kv::{Kind, Name};
use raincheck::store::{ChangeEvent, ChangedTask, Commit, Write};
use raincheck::task::id::{Caller, Fence, Incarnation, Revision, TaskId};
use tokio::task::JoinSet;

use crate::rig::{Rig, conflict, create_until, done, nonce, update};

pub(crate) async fn a_created_task_is_found(rig: &Rig) {
    let create = Write {
        caller: Caller::from_bytes([9; 16]),
        ..rig.create()
    };
    assert_eq!(done(rig.store.commit(&create).await.unwrap()), 1);
    let stored = rig.store.load(create.id).await.unwrap().unwrap();
    assert_eq!(stored.version.revision, Revision(1));
    assert_eq!(stored.version.nonce, create.nonce);
    assert_eq!(stored.caller, create.caller);
    assert_eq!(stored.record, create.record);
}

pub(crate) async fn an_unknown_task_is_not_found(rig: &Rig) {
    let id = TaskId::random();
    assert!(rig.store.load(id).await.unwrap().is_none());
    assert!(rig.store.load_request(id).await.unwrap().is_none());
    assert!(rig.store.load_result(id, Fence(1)).await.unwrap().is_none());
    assert!(
        rig.store
            .indexed(&Incarnation::new("nobody"))
            .await
            .unwrap()
            .is_empty()
    );
    assert!(rig.due(u64::MAX >> 12, 10).await.is_empty());
}

pub(crate) async fn a_create_sent_twice_is_done_once(rig: &Rig) {
    let create = rig.create();
    assert_eq!(done(rig.store.commit(&create).await.unwrap()), 1);
    assert_eq!(done(rig.store.commit(&create).await.unwrap()), 1);
    assert_eq!(rig.revision(create.id).await, Some(1));
}

pub(crate) async fn a_create_over_anothers_task_conflicts(rig: &Rig) {
    let create = rig.create();
    done(rig.store.commit(&create).await.unwrap());
    let other = Write {
        nonce: nonce(),
        record: Bytes::from_static(b"other"),
        ..create.clone()
    };
    let latest = conflict(rig.store.commit(&other).await.unwrap());
    assert_eq!(latest.version.nonce, create.nonce);
    assert_eq!(latest.record, create.record);
}

pub(crate) async fn a_stale_revision_conflicts_and_tells_what_stands(rig: &Rig) {
    let create = rig.create();
    done(rig.store.commit(&create).await.unwrap());
    let first = update(&create, 1, "first");
    assert_eq!(done(rig.store.commit(&first).await.unwrap()), 2);
    let stale = update(&create, 1, "stale");
    let latest = conflict(rig.store.commit(&stale).await.unwrap());
    assert_eq!(latest.version.revision, Revision(2));
    assert_eq!(latest.version.nonce, first.nonce);
    assert_eq!(latest.caller, create.caller);
    assert_eq!(latest.record, "first");
    assert_eq!(
        rig.store.load(create.id).await.unwrap().unwrap().record,
        "first"
    );
}

pub(crate) async fn the_same_revision_under_another_nonce_conflicts(rig: &Rig) {
    // As after a failover to an older copy, where somebody else then made the same revision.
    let create = rig.create();
    done(rig.store.commit(&create).await.unwrap());
    let elsewhere = Write {
        nonce: nonce(),
        ..create.clone()
    };
    let lost = update(&elsewhere, 1, "lost");
    assert_eq!(
        conflict(rig.store.commit(&lost).await.unwrap())
            .version
            .nonce,
        create.nonce
    );
    assert_eq!(rig.revision(create.id).await, Some(1));
}

pub(crate) async fn an_update_sent_twice_is_done_once(rig: &Rig) {
    let create = rig.create();
    done(rig.store.commit(&create).await.unwrap());
    let twice = update(&create, 1, "twice");
    assert_eq!(done(rig.store.commit(&twice).await.unwrap()), 2);
    assert_eq!(done(rig.store.commit(&twice).await.unwrap()), 2);
    assert_eq!(rig.revision(create.id).await, Some(2));
    // But not once somebody has written over it: then it is for the writer to look.
    done(rig.store.commit(&update(&twice, 2, "later")).await.unwrap());
    assert_eq!(
        conflict(rig.store.commit(&twice).await.unwrap()).record,
        "later"
    );
}

pub(crate) async fn an_update_of_an_absent_task_is_gone_and_leaves_nothing(rig: &Rig) {
    let mine = Incarnation::new("a");
    let absent = Write {
        due_ms: Some(1),
        keep_for: Some(mine.clone()),
        request: Some(Bytes::from_static(b"request")),
        ..update(&rig.create(), 1, "late")
    };
    assert!(matches!(
        rig.store.commit(&absent).await.unwrap(),
        Commit::Gone
    ));
    nothing_is_left(rig, absent.id, &mine).await;
}

pub(crate) async fn an_update_of_an_expired_task_is_gone_and_leaves_nothing(rig: &Rig) {
    let mine = Incarnation::new("a");
    let create = create_until(rig.now_ms() + 60);
    done(rig.store.commit(&create).await.unwrap());
    rig.expire(create.id, Duration::from_millis(60)).await;
    let late = Write {
        due_ms: Some(1),
        keep_for: Some(mine.clone()),
        expires_ms: rig.now_ms() + 60_000,
        ..update(&create, 1, "late")
    };
    assert!(matches!(
        rig.store.commit(&late).await.unwrap(),
        Commit::Gone
    ));
    nothing_is_left(rig, create.id, &mine).await;
}

async fn nothing_is_left(rig: &Rig, id: TaskId, incarnation: &Incarnation) {
    assert!(rig.store.load(id).await.unwrap().is_none());
    assert!(rig.store.load_request(id).await.unwrap().is_none());
    assert!(rig.store.indexed(incarnation).await.unwrap().is_empty());
    assert!(rig.due(1_000, 10).await.is_empty());
}

pub(crate) async fn racers_never_lose_a_commit(rig: &Rig) {
    const RACERS: u64 = 64;
    const WINS: u64 = 4;
    let create = rig.create();
    done(rig.store.commit(&create).await.unwrap());
    let mut racers = JoinSet::new();
    for _ in 0..RACERS {
        let (store, create) = (Arc::clone(&rig.store), create.clone());
        racers.spawn(async move {
            let mut won = 0;
            let mut latest = store.load(create.id).await.unwrap().unwrap();
            while won < WINS {
                let write = Write {
                    expected: Some(latest.version),
                    nonce: nonce(),
                    ..create.clone()
                };
                match store.commit(&write).await.unwrap() {
                    Commit::Done(_) => {
                        won += 1;
                        latest = store.load(create.id).await.unwrap().unwrap();
                    }
                    Commit::Conflict(stored) => latest = stored,
                    Commit::Gone => panic!("the task is gone"),
                }
            }
        });
    }
    racers.join_all().await;
    assert_eq!(rig.revision(create.id).await, Some(1 + RACERS * WINS));
}

pub(crate) async fn writers_of_many_tasks_do_not_meet(rig: &Rig) {
    let a = Incarnation::new("a");
    let writers = (0..200_u64).map(|due_ms| {
        let a = a.clone();
        async move {
            let create = Write {
                due_ms: Some(due_ms),
                keep_for: Some(a),
                ..rig.create()
            };
            assert_eq!(done(rig.store.commit(&create).await.unwrap()), 1);
            assert_eq!(
                done(rig.store.commit(&update(&create, 1, "on")).await.unwrap()),
                2
            );
            create.id
        }
    });
    let mut ids = futures_util::future::join_all(writers).await;
    let mut indexed = rig.store.indexed(&a).await.unwrap();
    ids.sort();
    indexed.sort();
    assert_eq!(indexed, ids);
    assert!(rig.due(1000, 1000).await.is_empty());
}

pub(crate) async fn changes_are_seen_in_order_and_creations_are_not(rig: &Rig) {
    let mut changes = rig.store.changes();
    let mut write = rig.create();
    done(rig.store.commit(&write).await.unwrap());
    let mut expected = Vec::new();
    for revision in 1..=20 {
        write = update(&write, revision, "again");
        done(rig.store.commit(&write).await.unwrap());
        // A repetition and a conflict change nothing.
        done(rig.store.commit(&write).await.unwrap());
        let stale = Write {
            nonce: nonce(),
            ..write.clone()
        };
        conflict(
            rig.store
                .commit(&update(&stale, revision, "stale"))
                .await
                .unwrap(),
        );
        expected.push(ChangeEvent::Changed(ChangedTask {
            id: write.id,
            revision: Revision(revision + 1),
        }));
    }
    for change in expected {
        let seen = tokio::time::timeout(Duration::from_secs(10), changes.next()).await;
        assert_eq!(seen.unwrap(), change);
    }
    let mut late = rig.store.changes();
    let more = tokio::time::timeout(Duration::from_millis(20), late.next()).await;
    assert!(more.is_err(), "followed from now on, but saw {more:?}");
}

pub(crate) async fn what_is_told_is_seen_and_changes_nothing(rig: &Rig) {
    let mut changes = rig.store.changes();
    let write = rig.create();
    done(rig.store.commit(&write).await.unwrap());
    let name = Name::of(Kind::Cancel, &["told"]);
    let until = rig.now_ms() + 60_000;
    rig.store.put(name, "value".into(), until).await.unwrap();
    // Also an id that is a task's.
    for id in [name.told_as(), write.id] {
        rig.store.tell(id).await.unwrap();
        let seen = tokio::time::timeout(Duration::from_secs(10), changes.next()).await;
        let told = ChangedTask {
            id,
            revision: Revision(0),
        };
        assert_eq!(seen.unwrap(), ChangeEvent::Changed(told));
    }
    assert_eq!(rig.store.find(name).await.unwrap().unwrap(), "value");
    let value = rig.store.load(write.id).await.unwrap().unwrap();
    assert_eq!(
        (value.version.revision, value.record),
        (Revision(1), write.record)
    );
    assert!(rig.store.load(name.told_as()).await.unwrap().is_none());
}

pub(crate) async fn a_record_may_be_empty_or_large_and_of_any_bytes(rig: &Rig) {
    let every: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    for record in [Bytes::new(), Bytes::from(every)] {
        let create = Write {
            record: record.clone(),
            request: Some(record.clone()),
            ..rig.create()
        };
        done(rig.store.commit(&create).await.unwrap());
        assert_eq!(
            rig.store.load(create.id).await.unwrap().unwrap().record,
            record
        );
        assert_eq!(
            rig.store.load_request(create.id).await.unwrap(),
            Some(record)
        );
    }
}
