//! What every store must keep beside the record, for how long, and who it takes for alive.

use std::slice;
use std::time::Duration;

use bytes::Bytes;
use raincheck::store::redis::bucket_of;
use raincheck::store::{Dead, Write};
use raincheck::task::id::{Fence, Incarnation, TaskId};

use crate::eventually::eventually;
use crate::rig::{PATIENCE, Rig, conflict, create_until, done, nonce, update};

pub(crate) async fn indexes_change_with_the_commit_and_not_without(rig: &Rig) {
    let (a, b) = (Incarnation::new("a"), Incarnation::new("b"));
    let create = Write {
        due_ms: Some(100),
        keep_for: Some(a.clone()),
        ..rig.create()
    };
    done(rig.store.commit(&create).await.unwrap());
    assert_eq!(rig.store.indexed(&a).await.unwrap(), [create.id]);
    assert_eq!(rig.due(100, 10).await, [create.id]);
    assert!(rig.due(99, 10).await.is_empty());

    let stale = Write {
        due_ms: Some(1),
        drop_from: Some(a.clone()),
        keep_for: Some(b.clone()),
        ..update(
            &Write {
                nonce: nonce(),
                ..create.clone()
            },
            1,
            "stale",
        )
    };
    conflict(rig.store.commit(&stale).await.unwrap());
    assert_eq!(rig.store.indexed(&a).await.unwrap(), [create.id]);
    assert!(rig.store.indexed(&b).await.unwrap().is_empty());
    assert!(rig.due(99, 10).await.is_empty());

    let claim = Write {
        due_ms: Some(50),
        drop_from: Some(a.clone()),
        keep_for: Some(b.clone()),
        ..update(&create, 1, "claimed")
    };
    done(rig.store.commit(&claim).await.unwrap());
    assert!(rig.store.indexed(&a).await.unwrap().is_empty());
    assert_eq!(rig.store.indexed(&b).await.unwrap(), [create.id]);
    assert_eq!(rig.due(50, 10).await, [create.id]);

    let end = Write {
        drop_from: Some(b.clone()),
        ..update(&claim, 2, "ended")
    };
    done(rig.store.commit(&end).await.unwrap());
    assert!(rig.store.indexed(&b).await.unwrap().is_empty());
    assert!(rig.due(1_000_000, 10).await.is_empty());
}

pub(crate) async fn staying_in_the_same_index_keeps_the_task_there(rig: &Rig) {
    let a = Incarnation::new("a");
    let create = Write {
        keep_for: Some(a.clone()),
        ..rig.create()
    };
    done(rig.store.commit(&create).await.unwrap());
    let silent = update(&create, 1, "says nothing of indexes");
    done(rig.store.commit(&silent).await.unwrap());
    assert_eq!(rig.store.indexed(&a).await.unwrap(), [create.id]);
    let both = Write {
        drop_from: Some(a.clone()),
        keep_for: Some(a.clone()),
        ..update(&silent, 2, "leaves and joins the same")
    };
    done(rig.store.commit(&both).await.unwrap());
    assert_eq!(rig.store.indexed(&a).await.unwrap(), [create.id]);
}

pub(crate) async fn due_is_most_overdue_first_and_bounded(rig: &Rig) {
    let mut ids: Vec<TaskId> = Vec::new();
    for due_ms in [30, 10, 20, 40] {
        // A store that looks at a part of its tasks sorts that part: all of these are in one.
        let mut id = TaskId::random();
        while ids
            .first()
            .is_some_and(|first| bucket_of(*first, 64) != bucket_of(id, 64))
        {
            id = TaskId::random();
        }
        let create = Write {
            id,
            due_ms: Some(due_ms),
            ..rig.create()
        };
        done(rig.store.commit(&create).await.unwrap());
        ids.push(create.id);
    }
    assert_eq!(rig.due(30, 10).await, [ids[1], ids[2], ids[0]]);
    assert_eq!(rig.due(30, 2).await, [ids[1], ids[2]]);
    assert!(rig.due(9, 10).await.is_empty());
}

pub(crate) async fn the_request_is_written_with_create_and_stays(rig: &Rig) {
    let create = Write {
        request: Some(Bytes::from_static(b"request")),
        ..rig.create()
    };
    done(rig.store.commit(&create).await.unwrap());
    let other = Write {
        request: Some(Bytes::from_static(b"another")),
        ..update(&create, 1, "changed")
    };
    done(rig.store.commit(&other).await.unwrap());
    let request = rig.store.load_request(create.id).await.unwrap();
    assert_eq!(request.as_deref(), Some(&b"request"[..]));

    let without = rig.create();
    done(rig.store.commit(&without).await.unwrap());
    assert!(rig.store.load_request(without.id).await.unwrap().is_none());
}

pub(crate) async fn a_request_may_come_with_a_later_write_and_stays(rig: &Rig) {
    let create = rig.create();
    done(rig.store.commit(&create).await.unwrap());
    let first = Write {
        request: Some(Bytes::from(vec![b'r'; 100_000])),
        ..update(&create, 1, "asked")
    };
    done(rig.store.commit(&first).await.unwrap());
    let again = Write {
        request: Some(Bytes::from_static(b"another")),
        ..update(&first, 2, "asked again")
    };
    done(rig.store.commit(&again).await.unwrap());
    done(rig.store.commit(&update(&again, 3, "on")).await.unwrap());
    let request = rig.store.load_request(create.id).await.unwrap();
    assert_eq!(request, first.request);

    let lost = rig.create();
    done(rig.store.commit(&lost).await.unwrap());
    done(rig.store.commit(&update(&lost, 1, "on")).await.unwrap());
    let stale = Write {
        request: Some(Bytes::from_static(b"stale")),
        ..update(&lost, 1, "stale")
    };
    conflict(rig.store.commit(&stale).await.unwrap());
    assert!(rig.store.load_request(lost.id).await.unwrap().is_none());
}

pub(crate) async fn results_are_kept_by_fence(rig: &Rig) {
    let (id, until) = (TaskId::random(), rig.now_ms() + 60_000);
    let (first, second) = (
        Bytes::from_static(b"first"),
        Bytes::from(vec![0xfe; 100_000]),
    );
    rig.store
        .put_result(id, Fence(1), first.clone(), until)
        .await
        .unwrap();
    rig.store
        .put_result(id, Fence(2), second.clone(), until)
        .await
        .unwrap();
    assert_eq!(
        rig.store.load_result(id, Fence(1)).await.unwrap(),
        Some(first)
    );
    assert_eq!(
        rig.store.load_result(id, Fence(2)).await.unwrap(),
        Some(second)
    );
    assert!(rig.store.load_result(id, Fence(3)).await.unwrap().is_none());
    let again = Bytes::from_static(b"again");
    rig.store
        .put_result(id, Fence(2), again.clone(), until)
        .await
        .unwrap();
    assert_eq!(
        rig.store.load_result(id, Fence(2)).await.unwrap(),
        Some(again)
    );
}

pub(crate) async fn everything_of_a_task_expires(rig: &Rig) {
    let until = rig.now_ms() + 80;
    let create = Write {
        request: Some(Bytes::from_static(b"request")),
        ..create_until(until)
    };
    let lasting = rig.create();
    done(rig.store.commit(&create).await.unwrap());
    done(rig.store.commit(&lasting).await.unwrap());
    let result = Bytes::from_static(b"result");
    rig.store
        .put_result(create.id, Fence(1), result, until)
        .await
        .unwrap();
    rig.expire(create.id, Duration::from_millis(80)).await;
    eventually(PATIENCE, "request and result expire", async || {
        let request = rig.store.load_request(create.id).await.unwrap();
        let result = rig.store.load_result(create.id, Fence(1)).await.unwrap();
        request.is_none() && result.is_none()
    })
    .await;
    // Swept too, and the rest stays.
    rig.store.beat(None, Duration::ZERO).await.unwrap();
    assert!(rig.store.load(create.id).await.unwrap().is_none());
    assert_eq!(rig.revision(lasting.id).await, Some(1));
}

pub(crate) async fn an_update_keeps_the_expiry_of_record_and_request(rig: &Rig) {
    let create = Write {
        request: Some(Bytes::from_static(b"request")),
        ..create_until(rig.now_ms() + 1_000)
    };
    done(rig.store.commit(&create).await.unwrap());
    done(
        rig.store
            .commit(&update(&create, 1, "later"))
            .await
            .unwrap(),
    );
    rig.expire(create.id, Duration::from_secs(1)).await;
    assert_eq!(rig.revision(create.id).await, None);
    assert!(rig.store.load_request(create.id).await.unwrap().is_none());
}

pub(crate) async fn a_lease_that_ended_is_reported_and_a_renewed_one_is_not(rig: &Rig) {
    let (ends, renews) = (Incarnation::new("ends"), Incarnation::new("renews"));
    let short = Duration::from_millis(40);
    let beat = rig.store.beat(Some(&ends), short).await.unwrap();
    assert!(beat.now_ms.abs_diff(rig.now_ms()) < 5_000);
    assert!(beat.dead.is_empty(), "{beat:?}");
    rig.store.beat(Some(&renews), short).await.unwrap();
    rig.store
        .beat(Some(&renews), Duration::from_mins(1))
        .await
        .unwrap();
    rig.pass(short);
    let beat = eventually(PATIENCE, "somebody is dead", async || {
        let beat = rig.store.beat(None, Duration::ZERO).await.unwrap();
        (!beat.dead.is_empty()).then_some(beat)
    })
    .await;
    assert_eq!(names(&beat.dead), slice::from_ref(&ends));
    assert!(
        beat.dead.iter().all(|dead| dead.since_ms <= beat.now_ms),
        "{beat:?}"
    );
    assert_eq!(beat.living, slice::from_ref(&renews));
    // Whoever comes back before it was retired is alive again.
    let beat = rig
        .store
        .beat(Some(&ends), Duration::from_mins(1))
        .await
        .unwrap();
    assert!(beat.dead.is_empty(), "{beat:?}");
    // A lease of zero ends it now.
    let beat = rig.store.beat(Some(&ends), Duration::ZERO).await.unwrap();
    assert_eq!(names(&beat.dead), slice::from_ref(&ends));
}

fn names(dead: &[Dead]) -> Vec<Incarnation> {
    dead.iter().map(|dead| dead.incarnation.clone()).collect()
}

pub(crate) async fn a_retired_incarnation_is_not_reported(rig: &Rig) {
    let (ends, retires) = (Incarnation::new("ends"), Incarnation::new("retires"));
    let short = Duration::from_millis(20);
    rig.store.beat(Some(&retires), short).await.unwrap();
    rig.store.beat(Some(&ends), short).await.unwrap();
    rig.store.retire(&retires).await.unwrap();
    rig.pass(short);
    let dead = eventually(PATIENCE, "somebody is dead", async || {
        let dead = rig.store.beat(None, Duration::ZERO).await.unwrap().dead;
        (!dead.is_empty()).then_some(dead)
    })
    .await;
    assert_eq!(names(&dead), slice::from_ref(&ends));
    rig.store.retire(&ends).await.unwrap();
    assert!(
        rig.store
            .beat(None, Duration::ZERO)
            .await
            .unwrap()
            .dead
            .is_empty()
    );
}

pub(crate) async fn a_forgotten_task_leaves_the_index(rig: &Rig) {
    let a = Incarnation::new("a");
    let until = rig.now_ms() + 60;
    let create = Write {
        due_ms: Some(1),
        keep_for: Some(a.clone()),
        ..create_until(until)
    };
    let lasting = Write {
        due_ms: Some(2),
        keep_for: Some(a.clone()),
        ..rig.create()
    };
    done(rig.store.commit(&create).await.unwrap());
    done(rig.store.commit(&lasting).await.unwrap());
    rig.expire(create.id, Duration::from_millis(60)).await;
    rig.store.forget(create.id, Some(&a)).await.unwrap();
    rig.store.forget(create.id, None).await.unwrap();
    rig.store.beat(None, Duration::ZERO).await.unwrap();
    assert_eq!(rig.store.indexed(&a).await.unwrap(), [lasting.id]);
    assert_eq!(rig.due(10, 10).await, [lasting.id]);
}

/// As one that cannot be read: nobody has to do anything about it, until somebody writes it again.
pub(crate) async fn a_forgotten_task_stays_and_may_come_back(rig: &Rig) {
    let a = Incarnation::new("a");
    let create = Write {
        due_ms: Some(1),
        keep_for: Some(a.clone()),
        ..rig.create()
    };
    done(rig.store.commit(&create).await.unwrap());
    rig.store.forget(create.id, Some(&a)).await.unwrap();
    assert!(rig.store.indexed(&a).await.unwrap().is_empty());
    assert!(rig.due(10, 10).await.is_empty());
    let latest = rig.store.load(create.id).await.unwrap().unwrap();
    assert_eq!(latest.record, create.record);
    let next = Write {
        due_ms: Some(2),
        keep_for: Some(a.clone()),
        ..update(&create, 1, "next")
    };
    done(rig.store.commit(&next).await.unwrap());
    assert_eq!(rig.store.indexed(&a).await.unwrap(), [create.id]);
    assert_eq!(rig.due(10, 10).await, [create.id]);
}

pub(crate) async fn the_caller_key_is_stable(rig: &Rig) {
    let key = rig.store.caller_key().await.unwrap();
    assert_ne!(key, [0; 32]);
    assert_eq!(rig.store.caller_key().await.unwrap(), key);
}
