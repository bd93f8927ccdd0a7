//! The layer that seals, over a store that is read directly, too.

use std::sync::Arc;

use bytes::Bytes;
use raincheck::clock::{Clock, Manual};
use raincheck::store::kv::{Kind, KvStore, Name};
use raincheck::store::memory::Memory;
use raincheck::store::seal::Sealer;
use raincheck::store::sealed::Sealed;
use raincheck::store::{Commit, Store, StoreError, Write};
use raincheck::task::id::{Caller, Fence, TaskId};

use crate::rig::{START_MS, create_until};

const UNTIL: u64 = START_MS + 3_600_000;

fn below() -> Arc<dyn Store> {
    let clock: Arc<dyn Clock> = Arc::new(Manual::at(START_MS));
    Arc::new(Memory::new(clock))
}

/// A replica whose keys are these, the key that seals first.
async fn replica(store: &Arc<dyn Store>, keys: &[u8]) -> Sealed {
    let keys: Vec<[u8; 32]> = keys.iter().map(|key| [*key; 32]).collect();
    let earlier: Vec<_> = keys[1..].iter().collect();
    let sealer = Sealer::new("ns", &keys[0], &earlier);
    Sealed::sealing(Arc::clone(store), sealer, START_MS)
        .await
        .unwrap()
}

fn write(text: &str) -> Write {
    Write {
        record: Bytes::from(text.to_owned()),
        request: Some(Bytes::from(format!("request of {text}"))),
        ..create_until(UNTIL)
    }
}

async fn made(store: &dyn Store, text: &str) -> Write {
    let write = write(text);
    let done = store.commit(&write).await.unwrap();
    assert!(matches!(done, Commit::Done(_)));
    store
        .put_result(write.id, Fence(1), "result".into(), UNTIL)
        .await
        .unwrap();
    write
}

async fn record(store: &dyn Store, id: TaskId) -> Result<Bytes, StoreError> {
    Ok(store.load(id).await?.unwrap().record)
}

fn is_unknown_key<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::UnknownKey))
}

fn is_altered<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Corrupt(_)))
}

#[tokio::test]
async fn nothing_is_in_the_clear_below() {
    let below = below();
    let sealed = replica(&below, &[1]).await;
    let task = made(&sealed, "marker").await;
    let (value, log) = (
        Name::of(Kind::Answer, &["a"]),
        Name::of(Kind::Events, &["e"]),
    );
    sealed.put(value, "marker".into(), UNTIL).await.unwrap();
    sealed.append(log, 1, "marker".into(), UNTIL).await.unwrap();
    let stored = [
        record(&*below, task.id).await.unwrap(),
        below.load_request(task.id).await.unwrap().unwrap(),
        below.load_result(task.id, Fence(1)).await.unwrap().unwrap(),
        below.find(value).await.unwrap().unwrap(),
        below.entries(log, 0).await.unwrap()[0].1.clone(),
    ];
    for stored in stored {
        let text = String::from_utf8_lossy(&stored);
        assert!(text.starts_with("9 sealed "), "{text}");
        assert!(
            !text.contains("marker") && !text.contains("result"),
            "{text}"
        );
    }
    assert_eq!(record(&sealed, task.id).await.unwrap(), "marker");
}

#[tokio::test]
async fn keys_are_changed_one_replica_at_a_time() {
    let below = below();
    let first = replica(&below, &[1]).await;
    let early = made(&first, "early").await.id;
    let claim = Name::of(Kind::IdenticalCall, &["the arguments"]);
    assert_eq!(first.claim(claim, "one".into(), UNTIL).await.unwrap(), None);

    let both = replica(&below, &[2, 1]).await;
    assert_eq!(record(&both, early).await.unwrap(), "early");
    let late = made(&both, "late").await.id;
    assert!(
        is_unknown_key(&record(&first, late).await),
        "the first key alone"
    );
    let found = both.claim(claim, "two".into(), UNTIL).await.unwrap();
    assert_eq!(
        found.unwrap(),
        "one",
        "the call is the same under either key"
    );

    let second = replica(&below, &[2]).await;
    assert_eq!(record(&second, late).await.unwrap(), "late");
    assert!(is_unknown_key(&record(&second, early).await));
    let other = Name::of(Kind::IdenticalCall, &["other arguments"]);
    assert_eq!(both.claim(other, "one".into(), UNTIL).await.unwrap(), None);
    let found = second.claim(other, "two".into(), UNTIL).await.unwrap();
    assert_eq!(found.unwrap(), "one");
}

/// The hash of arguments can be guessed: it is no name in the store.
#[tokio::test]
async fn the_digest_of_arguments_is_keyed() {
    let below = below();
    let sealed = replica(&below, &[1]).await;
    let (identical, by_key) = (
        Name::of(Kind::IdenticalCall, &["arguments"]),
        Name::of(Kind::Claim, &["key"]),
    );
    for name in [identical, by_key] {
        sealed.put(name, "x".into(), UNTIL).await.unwrap();
        assert_eq!(sealed.find(name).await.unwrap().unwrap(), "x");
    }
    assert_eq!(below.find(identical).await.unwrap(), None);
    assert!(below.find(by_key).await.unwrap().is_some());
    sealed.remove(identical).await.unwrap();
    assert_eq!(sealed.find(identical).await.unwrap(), None);
}

#[tokio::test]
async fn what_was_moved_does_not_open() {
    let below = below();
    let sealed = replica(&below, &[1]).await;
    let (one, other) = (made(&sealed, "one").await, made(&sealed, "other").await);
    let stored = below.load(one.id).await.unwrap().unwrap();

    // The record of a task under another id, and under its own id for another caller.
    let elsewhere = Write {
        record: stored.record.clone(),
        request: below.load_request(one.id).await.unwrap(),
        ..create_until(UNTIL)
    };
    below.commit(&elsewhere).await.unwrap();
    assert!(is_altered(&record(&sealed, elsewhere.id).await));
    assert!(is_altered(&sealed.load_request(elsewhere.id).await));
    let stolen = self::below();
    let stolen_write = Write {
        id: one.id,
        caller: Caller::from_bytes([9; 16]),
        record: stored.record,
        ..create_until(UNTIL)
    };
    stolen.commit(&stolen_write).await.unwrap();
    let sealed_there = replica(&stolen, &[1]).await;
    assert!(is_altered(&record(&sealed_there, one.id).await));

    // A result of another task, and of another owner of the same task.
    let result = below.load_result(one.id, Fence(1)).await.unwrap().unwrap();
    for (id, fence) in [(other.id, Fence(1)), (one.id, Fence(2))] {
        below
            .put_result(id, fence, result.clone(), UNTIL)
            .await
            .unwrap();
        assert!(is_altered(&sealed.load_result(id, fence).await));
    }

    // A value under another name, and an entry at another place.
    let [here, there] = ["here", "there"].map(|text| Name::of(Kind::Answer, &[text]));
    sealed.put(here, "answer".into(), UNTIL).await.unwrap();
    let value = below.find(here).await.unwrap().unwrap();
    below.put(there, value.clone(), UNTIL).await.unwrap();
    assert!(is_altered(&sealed.find(there).await));
    let log = Name::of(Kind::Events, &["log"]);
    sealed.append(log, 1, "entry".into(), UNTIL).await.unwrap();
    let entry = below.entries(log, 0).await.unwrap()[0].1.clone();
    below.append(log, 2, entry, UNTIL).await.unwrap();
    assert!(is_altered(&sealed.entries(log, 0).await));
    assert!(is_altered(&sealed.entries(log, 1).await));
}

#[tokio::test]
async fn what_was_altered_does_not_open() {
    let below = below();
    let sealed = replica(&below, &[1]).await;
    let name = Name::of(Kind::Session, &["s"]);
    sealed.put(name, "session".into(), UNTIL).await.unwrap();
    let value = below.find(name).await.unwrap().unwrap();
    for place in "9 sealed ".len()..value.len() {
        let mut altered = value.to_vec();
        altered[place] ^= 1;
        below.put(name, altered.into(), UNTIL).await.unwrap();
        assert!(sealed.find(name).await.is_err(), "byte {place}");
    }
}

/// One replica after the other is told to seal, or no longer to seal.
#[tokio::test]
async fn replicas_that_seal_and_replicas_that_do_not_share_a_store() {
    let below = below();
    let seals = replica(&below, &[1]).await;
    let sealer = Sealer::new("ns", &[1; 32], &[]);
    let reads = Sealed::reading(Arc::clone(&below), Some(sealer));
    let without_key = Sealed::reading(Arc::clone(&below), None);

    let clear = made(&reads, "clear").await.id;
    let dark = made(&seals, "dark").await.id;
    for replica in [&seals, &reads] {
        assert_eq!(record(replica, clear).await.unwrap(), "clear");
        assert_eq!(record(replica, dark).await.unwrap(), "dark");
        let result = replica.load_result(dark, Fence(1)).await.unwrap();
        assert_eq!(result.unwrap(), "result");
    }
    assert_eq!(record(&without_key, clear).await.unwrap(), "clear");
    assert!(is_unknown_key(&record(&without_key, dark).await));

    let name = Name::of(Kind::Session, &["s"]);
    let steps: [(&Sealed, &str, &str); 4] = [
        (&reads, "0", "1"),
        (&seals, "1", "2"),
        (&seals, "2", "3"),
        (&reads, "3", "4"),
    ];
    reads.put(name, "0".into(), UNTIL).await.unwrap();
    for (replica, from, to) in steps {
        let to = Bytes::from(to.to_owned());
        let from = Bytes::from(from.to_owned());
        for what in ["the first time", "repeated"] {
            let replaced = replica.replace(name, from.clone(), to.clone(), UNTIL).await;
            assert!(replaced.unwrap(), "{to:?} {what}");
        }
        let stale = replica.replace(name, from, "lost".into(), UNTIL).await;
        assert!(!stale.unwrap(), "{to:?}");
        assert_eq!(replica.find(name).await.unwrap().unwrap(), to);
    }
    let claim = Name::of(Kind::Claim, &["c"]);
    assert_eq!(seals.claim(claim, "a".into(), UNTIL).await.unwrap(), None);
    assert_eq!(
        seals.claim(claim, "a".into(), UNTIL).await.unwrap(),
        None,
        "repeated"
    );
    assert_eq!(
        reads
            .claim(claim, "b".into(), UNTIL)
            .await
            .unwrap()
            .unwrap(),
        "a"
    );
}
