//! What every store must keep for clients beside their tasks: notes, logs, and which tasks a caller
//! may be told of.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use raincheck::store::kv::{ENTRIES_MAX, Kind, Name};
use raincheck::store::{ChangeEvent, ChangedTask, ListPlace, Write};
use raincheck::task::id::{Caller, Fence, Revision, TaskId};

use crate::eventually::eventually;
use crate::rig::{PATIENCE, Rig, create_until, done, update};

pub(crate) async fn a_claim_stands_and_others_are_told_what_stands(rig: &Rig) {
    let (name, until) = (claim_of("one"), rig.now_ms() + 60_000);
    let claim = async |value: &'static str| {
        let claimed = rig.store.claim(name, value.into(), until).await;
        claimed.unwrap()
    };
    assert_eq!(claim("mine").await, None);
    assert_eq!(claim("theirs").await.unwrap(), "mine");
    assert_eq!(claim("mine").await, None, "the same claim, sent twice");
    assert_eq!(find(rig, name).await.unwrap(), "mine");
    rig.store.remove(name).await.unwrap();
    assert_eq!(claim("theirs").await, None);
    assert_eq!(claim("mine").await.unwrap(), "theirs");
    assert_eq!(find(rig, claim_of("another")).await, None);
}

pub(crate) async fn of_racing_claims_exactly_one_wins(rig: &Rig) {
    let until = rig.now_ms() + 60_000;
    for round in 0..10 {
        let name = claim_of(&format!("round {round}"));
        let racers = (0..20).map(|racer| {
            let store = Arc::clone(&rig.store);
            tokio::spawn(async move {
                let mine = Bytes::from(format!("racer {racer}"));
                let latest = store.claim(name, mine.clone(), until).await.unwrap();
                (mine, latest)
            })
        });
        let mut won = Vec::new();
        let mut told = BTreeSet::new();
        for raced in join_all(racers).await {
            match raced.unwrap() {
                (mine, None) => won.push(mine),
                (_, Some(latest)) => drop(told.insert(latest)),
            }
        }
        assert_eq!(won.len(), 1, "{won:?}");
        assert!(told.into_iter().eq(won), "the others are told who won");
    }
}

pub(crate) async fn a_note_is_put_found_and_removed(rig: &Rig) {
    let (name, until) = (Name::of(Kind::Session, &["s"]), rig.now_ms() + 60_000);
    assert_eq!(find(rig, name).await, None);
    rig.store.remove(name).await.unwrap();
    for value in [
        Bytes::from_static(b"first"),
        Bytes::new(),
        Bytes::from((0..=255).collect::<Vec<u8>>()),
    ] {
        rig.store.put(name, value.clone(), until).await.unwrap();
        assert_eq!(find(rig, name).await.unwrap(), value);
    }
    rig.store.remove(name).await.unwrap();
    assert_eq!(find(rig, name).await, None);
}

pub(crate) async fn a_note_is_replaced_where_it_is_what_was_read(rig: &Rig) {
    let (name, until) = (Name::of(Kind::Session, &["s"]), rig.now_ms() + 60_000);
    let replace = async |expected: &'static str, value: &'static str| {
        let replaced = rig
            .store
            .replace(name, expected.into(), value.into(), until);
        replaced.await.unwrap()
    };
    assert!(!replace("", "x").await, "there is none");
    assert_eq!(find(rig, name).await, None);
    rig.store.put(name, "1".into(), until).await.unwrap();
    assert!(!replace("0", "2").await);
    assert!(replace("1", "2").await);
    assert!(replace("1", "2").await, "the same, sent twice");
    assert!(!replace("1", "3").await);
    assert_eq!(find(rig, name).await.unwrap(), "2");
    rig.store.remove(name).await.unwrap();
    assert!(!replace("2", "3").await);
}

pub(crate) async fn of_racing_changes_none_is_lost(rig: &Rig) {
    let (name, until) = (Name::of(Kind::Session, &["race"]), rig.now_ms() + 60_000);
    rig.store.put(name, Bytes::new(), until).await.unwrap();
    let racers = (0..10_u8).map(|racer| {
        let store = Arc::clone(&rig.store);
        tokio::spawn(async move {
            loop {
                let latest = store.find(name).await.unwrap().unwrap();
                let more = Bytes::from([&latest[..], &[racer]].concat());
                if store.replace(name, latest, more, until).await.unwrap() {
                    return;
                }
            }
        })
    });
    for raced in join_all(racers).await {
        raced.unwrap();
    }
    let mut all = find(rig, name).await.unwrap().to_vec();
    all.sort_unstable();
    assert_eq!(all, (0..10).collect::<Vec<u8>>());
}

pub(crate) async fn a_note_may_be_large(rig: &Rig) {
    let (name, until) = (Name::of(Kind::Answer, &["a"]), rig.now_ms() + 60_000);
    let value = patterned(3 << 20);
    rig.store.put(name, value.clone(), until).await.unwrap();
    assert!(find(rig, name).await.unwrap() == value);
}

pub(crate) async fn kinds_never_meet(rig: &Rig) {
    let until = rig.now_ms() + 60_000;
    let kinds = [Kind::Session, Kind::Claim, Kind::Answer];
    for kind in kinds {
        let value = Bytes::from(format!("{kind:?}"));
        let claimed = rig.store.claim(Name::of(kind, &["same"]), value, until);
        assert_eq!(claimed.await.unwrap(), None);
    }
    append(rig, Name::of(Kind::Events, &["same"]), 1, "event", until).await;
    for kind in kinds {
        let found = find(rig, Name::of(kind, &["same"])).await.unwrap();
        assert_eq!(found, format!("{kind:?}"));
    }
    // What a name is made from is not run together.
    assert_ne!(
        Name::of(Kind::Claim, &["ab", "c"]),
        Name::of(Kind::Claim, &["a", "bc"])
    );
}

pub(crate) async fn a_note_is_gone_when_it_expires_and_its_name_is_free(rig: &Rig) {
    let (short, long) = (rig.now_ms() + 80, rig.now_ms() + 3_600_000);
    let (claimed, lasting) = (claim_of("short"), claim_of("long"));
    let (put, log) = (
        Name::of(Kind::Answer, &["short"]),
        Name::of(Kind::Events, &["short"]),
    );
    let claim = |name, value: &'static str, until| rig.store.claim(name, value.into(), until);
    claim(claimed, "first", short).await.unwrap();
    claim(lasting, "first", long).await.unwrap();
    rig.store.put(put, "put".into(), short).await.unwrap();
    append(rig, log, 1, "first", short).await;
    append(rig, log, 2, "second", short).await;

    rig.pass(Duration::from_millis(80));
    until_gone(rig, claimed).await;
    until_gone(rig, put).await;
    until_empty(rig, log).await;
    assert_eq!(claim(claimed, "second", long).await.unwrap(), None);
    append(rig, log, 3, "third", long).await;
    assert_eq!(entries(rig, log, 0).await, [(3, "third".into())]);
    // Nor does what is taken out for good take the successors with it.
    rig.store.beat(None, Duration::ZERO).await.unwrap();
    assert_eq!(find(rig, claimed).await.unwrap(), "second");
    assert_eq!(find(rig, lasting).await.unwrap(), "first");
    assert_eq!(entries(rig, log, 0).await.len(), 1);
}

pub(crate) async fn a_log_is_read_in_order_behind_a_number(rig: &Rig) {
    let (log, until) = (Name::of(Kind::Events, &["l"]), rig.now_ms() + 60_000);
    assert!(entries(rig, log, 0).await.is_empty());
    for number in 1..=12 {
        append(rig, log, number, &format!("event {number}"), until).await;
    }
    append(rig, log, 7, "event 7", until).await;
    for after in [0, 1, 9, 11, 12, u64::MAX] {
        let expected: Vec<_> = (after.saturating_add(1)..=12)
            .map(|number| (number, Bytes::from(format!("event {number}"))))
            .collect();
        assert_eq!(entries(rig, log, after).await, expected);
    }
    rig.store.remove(log).await.unwrap();
    assert!(entries(rig, log, 0).await.is_empty());
    append(rig, log, 13, "anew", until).await;
    assert_eq!(entries(rig, log, 0).await, [(13, "anew".into())]);
}

pub(crate) async fn a_log_keeps_the_newest_entries(rig: &Rig) {
    let (log, until) = (Name::of(Kind::Events, &["l"]), rig.now_ms() + 60_000);
    let last = ENTRIES_MAX + 10;
    for number in 1..=last {
        append(rig, log, number, &number.to_string(), until).await;
    }
    let kept = entries(rig, log, 0).await;
    let expected = (11..=last).map(|number| (number, Bytes::from(number.to_string())));
    assert!(kept.into_iter().eq(expected));
}

pub(crate) async fn a_log_forgets_what_it_is_told_to(rig: &Rig) {
    let (log, until) = (Name::of(Kind::Events, &["l"]), rig.now_ms() + 60_000);
    rig.store.trim(log, 3).await.unwrap();
    assert!(entries(rig, log, 0).await.is_empty());
    let large = patterned(600_000);
    let append = rig.store.append(log, Fence(1), 1, large.clone(), until);
    append.await.unwrap();
    append_each(rig, log, 2..=3, until).await;
    let append = rig.store.append(log, Fence(1), 4, large.clone(), until);
    append.await.unwrap();
    for first in [0, 1] {
        rig.store.trim(log, first).await.unwrap();
        assert_eq!(entries(rig, log, 0).await.len(), 4);
    }
    for _ in 0..2 {
        rig.store.trim(log, 3).await.unwrap();
        assert!(entries(rig, log, 0).await == [(3, "3".into()), (4, large.clone())]);
    }
    append_each(rig, log, 5..=5, until).await;
    rig.store.trim(log, 9).await.unwrap();
    assert!(entries(rig, log, 0).await.is_empty());
    append_each(rig, log, 6..=6, until).await;
    assert_eq!(entries(rig, log, 0).await, [(6, "6".into())]);
}

pub(crate) async fn a_log_takes_no_entry_of_an_earlier_fence(rig: &Rig) {
    let (log, until) = (Name::of(Kind::Events, &["l"]), rig.now_ms() + 60_000);
    let large = patterned(600_000);
    let append = async |fence, number, entry: &Bytes| {
        let store = &rig.store;
        let appending = store.append(log, Fence(fence), number, entry.clone(), until);
        appending.await.unwrap()
    };
    // An empty log can be fenced off, too.
    for (number, fence) in [(1, 2), (2, 3)] {
        rig.store.fence(log, Fence(fence), until).await.unwrap();
        let mark = rig.store.put(log.read_as(), "1".into(), until);
        mark.await.unwrap();
        let mut changes = rig.store.changes();
        for late in [&"late".into(), &large] {
            assert!(!append(fence - 1, number, late).await);
            assert!(!append(1, 1, late).await);
        }
        // An earlier fence than the one that stands changes nothing.
        rig.store.fence(log, Fence(1), until).await.unwrap();
        assert!(!append(1, number, &large).await);
        assert_eq!(entries(rig, log, number - 1).await, []);
        let entry = Bytes::from(number.to_string());
        assert!(append(fence, number, &entry).await);
        assert!(append(fence, number, &entry).await, "sent twice");
        // The owner of a later fence that fenced nothing.
        assert!(append(fence + 1, number, &entry).await);
        assert_eq!(entries(rig, log, number - 1).await, [(number, entry)]);
        // Only what was taken was published.
        for _ in 0..3 {
            let told = ChangedTask {
                id: log.told_as(),
                revision: Revision(0),
            };
            let seen = tokio::time::timeout(PATIENCE, changes.next()).await;
            assert_eq!(seen.unwrap(), ChangeEvent::Changed(told));
        }
        rig.store.tell(TaskId::from_bytes([9; 16])).await.unwrap();
        let seen = tokio::time::timeout(PATIENCE, changes.next()).await;
        assert!(matches!(seen.unwrap(), ChangeEvent::Changed(other) if other.id != log.told_as()));
    }
    // A log that forgets its entries keeps its fence.
    rig.store.trim(log, 3).await.unwrap();
    assert!(!append(2, 3, &large).await);
    for number in 3..=ENTRIES_MAX + 2 {
        assert!(append(3, number, &Bytes::from_static(b"x")).await);
    }
    assert!(!append(2, ENTRIES_MAX + 3, &large).await);
    // A log that is gone has none.
    rig.store.remove(log).await.unwrap();
    assert!(append(1, 1, &large).await);
    let short = rig.now_ms() + 40;
    rig.store.fence(log, Fence(7), short).await.unwrap();
    rig.pass(Duration::from_millis(40));
    until_empty(rig, log).await;
    assert!(append(1, 1, &large).await);
    assert_eq!(entries(rig, log, 0).await, [(1, large)]);
}

pub(crate) async fn an_append_moves_the_expiry_of_the_whole_log(rig: &Rig) {
    let (short, long) = (rig.now_ms() + 1_000, rig.now_ms() + 3_600_000);
    let (log, canary) = (Name::of(Kind::Events, &["l"]), claim_of("canary"));
    append(rig, log, 1, "first", short).await;
    append(rig, log, 2, "second", long).await;
    rig.store.put(canary, "x".into(), short).await.unwrap();
    rig.pass(Duration::from_secs(1));
    until_gone(rig, canary).await;
    rig.store.beat(None, Duration::ZERO).await.unwrap();
    assert_eq!(entries(rig, log, 0).await.len(), 2);
    append(rig, log, 3, "third", rig.now_ms() + 40).await;
    rig.pass(Duration::from_millis(40));
    until_empty(rig, log).await;
}

pub(crate) async fn an_entry_may_be_large(rig: &Rig) {
    let (log, until) = (Name::of(Kind::Events, &["l"]), rig.now_ms() + 60_000);
    // Whatever a store cuts it into: nothing, ends that fit, and a rest.
    let sizes = [
        0,
        1,
        16 << 10,
        256 << 10,
        (256 << 10) + 1,
        1 << 20,
        3_333_333,
    ];
    let written: Vec<_> = (1..).zip(sizes.map(patterned)).collect();
    for _ in 0..2 {
        for (number, entry) in &written {
            let append = rig
                .store
                .append(log, Fence(1), *number, entry.clone(), until);
            append.await.unwrap();
        }
    }
    assert!(entries(rig, log, 0).await == written);
    assert!(entries(rig, log, 6).await == written[6..]);
    rig.store.remove(log).await.unwrap();
    append(rig, log, 7, "small", until).await;
    assert_eq!(entries(rig, log, 0).await, [(7, "small".into())]);
}

/// And of a log that nobody else reads nobody else hears.
pub(crate) async fn an_append_is_told_of_while_another_replica_reads(rig: &Rig) {
    let mut changes = rig.store.changes();
    let until = rig.now_ms() + 3_600_000;
    let log = |name| Name::of(Kind::Events, &[name]);
    let (read, unread, no_longer) = (log("read"), log("unread"), log("no longer"));
    let mark = async |log: Name, until| {
        let marked = rig.store.put(log.read_as(), "1".into(), until);
        marked.await.unwrap();
    };
    append(rig, read, 1, "before", until).await;
    mark(read, until).await;
    mark(no_longer, rig.now_ms() + 80).await;
    rig.pass(Duration::from_millis(80));
    until_gone(rig, no_longer.read_as()).await;
    let large = patterned(600_000);
    for number in 2..=4 {
        append(rig, unread, number, "unread", until).await;
        append(rig, no_longer, number, "no longer read", until).await;
        let append = rig
            .store
            .append(read, Fence(1), number, large.clone(), until);
        append.await.unwrap();
        // Once for each entry, however many pieces it has, and when the entry can be read.
        let told = ChangedTask {
            id: read.told_as(),
            revision: Revision(0),
        };
        let seen = tokio::time::timeout(PATIENCE, changes.next()).await;
        assert_eq!(seen.unwrap(), ChangeEvent::Changed(told));
        assert!(entries(rig, read, number - 1).await == [(number, large.clone())]);
    }
    rig.store.remove(read.read_as()).await.unwrap();
    append(rig, read, 5, "after", until).await;
    rig.store.tell(unread.told_as()).await.unwrap();
    let last = ChangedTask {
        id: unread.told_as(),
        revision: Revision(0),
    };
    let seen = tokio::time::timeout(PATIENCE, changes.next()).await;
    assert_eq!(seen.unwrap(), ChangeEvent::Changed(last));
}

pub(crate) async fn a_caller_is_told_of_its_listed_tasks_only(rig: &Rig) {
    let (mine, theirs) = (Caller::from_bytes([1; 16]), Caller::from_bytes([2; 16]));
    assert!(listed(rig, mine).await.is_empty());
    let session = Caller::from_bytes([3; 16]);
    let create = |caller, listed| Write {
        caller,
        listed,
        ..rig.create()
    };
    let writes: Vec<_> = (0..70).map(|_| create(mine, Some(mine))).collect();
    let (other, unlisted) = (create(theirs, Some(theirs)), create(mine, None));
    let of_session = create(mine, Some(session));
    for write in writes.iter().chain([&other, &unlisted, &of_session]) {
        done(rig.store.commit(write).await.unwrap());
        // The same write again, as after a lost answer.
        done(rig.store.commit(write).await.unwrap());
    }
    let ids: BTreeSet<_> = writes.iter().map(|write| write.id).collect();
    assert_eq!(listed(rig, mine).await, ids);
    assert_eq!(listed(rig, theirs).await, BTreeSet::from([other.id]));
    assert_eq!(listed(rig, session).await, BTreeSet::from([of_session.id]));
    let end = Write {
        listed: Some(mine),
        ..update(&writes[0], 1, "ended")
    };
    done(rig.store.commit(&end).await.unwrap());
    assert_eq!(listed(rig, mine).await, ids, "ended tasks are told of");
}

pub(crate) async fn a_task_that_expired_is_not_listed(rig: &Rig) {
    let mine = Caller::from_bytes([1; 16]);
    for list in [mine, Caller::from_bytes([3; 16])] {
        let create = |until| Write {
            caller: mine,
            listed: Some(list),
            ..create_until(until)
        };
        let (short, lasting) = (create(rig.now_ms() + 80), create(rig.now_ms() + 3_600_000));
        done(rig.store.commit(&lasting).await.unwrap());
        done(rig.store.commit(&short).await.unwrap());
        rig.expire(short.id, Duration::from_millis(80)).await;
        assert_eq!(listed(rig, list).await, BTreeSet::from([lasting.id]));
        rig.store.beat(None, Duration::ZERO).await.unwrap();
        assert_eq!(listed(rig, list).await, BTreeSet::from([lasting.id]));
    }
}

fn claim_of(what: &str) -> Name {
    Name::of(Kind::Claim, &[what])
}

async fn find(rig: &Rig, name: Name) -> Option<Bytes> {
    rig.store.find(name).await.unwrap()
}

async fn until_gone(rig: &Rig, name: Name) {
    let gone = async || find(rig, name).await.is_none();
    eventually(PATIENCE, "the note expires", gone).await;
}

async fn until_empty(rig: &Rig, log: Name) {
    eventually(PATIENCE, "the log expires", async || {
        let left = entries(rig, log, 0).await.len();
        if left == 0 { Ok(()) } else { Err(left) }
    })
    .await;
}

async fn append(rig: &Rig, log: Name, number: u64, entry: &str, until: u64) {
    let entry = Bytes::copy_from_slice(entry.as_bytes());
    rig.store
        .append(log, Fence(1), number, entry, until)
        .await
        .unwrap();
}

async fn append_each(rig: &Rig, log: Name, numbers: RangeInclusive<u64>, until: u64) {
    for number in numbers {
        append(rig, log, number, &number.to_string(), until).await;
    }
}

async fn entries(rig: &Rig, log: Name, after: u64) -> Vec<(u64, Bytes)> {
    rig.store.entries(log, after).await.unwrap()
}

/// Told of once each.
async fn listed(rig: &Rig, caller: Caller) -> BTreeSet<TaskId> {
    let listed = rig.store.listed(&caller, None, 1000).await.unwrap();
    let mut paged: Vec<ListPlace> = Vec::new();
    loop {
        let after = paged.last().copied();
        let page = rig.store.listed(&caller, after, 7).await.unwrap();
        paged.extend(&page);
        if page.len() < 7 {
            break;
        }
    }
    assert_eq!(paged, listed, "page by page");
    assert!(listed.is_sorted_by(|a, b| a > b), "the last first");
    let ids: BTreeSet<_> = listed.iter().map(|(_, id)| *id).collect();
    assert_eq!(ids.len(), listed.len(), "told of one twice");
    ids
}

/// Any bytes, and no two pieces alike.
fn patterned(length: usize) -> Bytes {
    let numbers = (0_u32..).flat_map(u32::to_le_bytes);
    numbers.take(length).collect()
}
