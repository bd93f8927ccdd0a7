//! The layer that seals, over a store that is read directly, too.

use std::sync::Arc;

use bytes::Bytes;
use raincheck::base::clock::{Clock, Manual};
use raincheck::store::kv::{Kind, KvStore, Name};
use raincheck::store::memory::Memory;
use raincheck::store::seal::{Binding, Sealer};
use raincheck::store::sealed::{Clear, Sealed};
use raincheck::store::{Commit, Store, StoreError, Version, Write};
use raincheck::task::id::{Caller, Fence, Revision, TaskId};

use crate::rig::{START_MS, create_until};

const UNTIL: u64 = START_MS + 3_600_000;

fn below() -> Arc<dyn Store> {
    let clock: Arc<dyn Clock> = Arc::new(Manual::at(START_MS));
    Arc::new(Memory::new(clock))
}

/// A replica whose keys are these, the key that seals first.
async fn replica(store: &Arc<dyn Store>, keys: &[u8]) -> Sealed {
    replica_with(store, keys, Clear::Refused).await
}

async fn replica_with(store: &Arc<dyn Store>, keys: &[u8], clear: Clear) -> Sealed {
    let keys: Vec<[u8; 32]> = keys.iter().map(|key| [*key; 32]).collect();
    let earlier: Vec<_> = keys[1..].iter().collect();
    let sealer = Sealer::new("ns", &keys[0], &earlier);
    Sealed::sealing(Arc::clone(store), sealer, clear, START_MS)
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
    sealed
        .append(log, Fence(1), 1, "marker".into(), UNTIL)
        .await
        .unwrap();
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
    sealed
        .append(log, Fence(1), 1, "entry".into(), UNTIL)
        .await
        .unwrap();
    let entry = below.entries(log, 0).await.unwrap()[0].1.clone();
    below.append(log, Fence(1), 2, entry, UNTIL).await.unwrap();
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
    let seals = replica_with(&below, &[1], Clear::Read).await;
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

/// The kinds of values and logs that are sealed.
const KINDS: [Kind; 14] = [
    Kind::Session,
    Kind::Claim,
    Kind::IdenticalCall,
    Kind::Answer,
    Kind::Events,
    Kind::Token,
    Kind::Cancel,
    Kind::QuestionStream,
    Kind::DigestKey,
    Kind::LogReader,
    Kind::Durations,
    Kind::Client,
    Kind::Subscriptions,
    Kind::Pauses,
];

/// What a writer can put in the place of a value that says "genuine", of which `sealed` is the stored form, and `other` that
/// of a value at another place.
fn forgeries(sealed: &Bytes, other: &Bytes) -> Vec<(&'static str, Bytes)> {
    let mut altered = sealed.to_vec();
    *altered.last_mut().unwrap() ^= 1;
    let stranger = Sealer::new("ns", &[9; 32], &[]);
    let mut strange = b"9 sealed ".to_vec();
    let binding = Binding {
        kind: "record",
        id: &[0; 16],
        caller: &[],
        number: 0,
    };
    stranger.seal(&binding, b"forged", &mut strange).unwrap();
    vec![
        ("plain", "forged".into()),
        ("plain record", Bytes::from_static(b"1 {\"forged\":1}")),
        ("empty", Bytes::new()),
        ("head alone", "9 sealed ".into()),
        ("head and text", "9 sealed forged".into()),
        ("half a head", "9 seal".into()),
        ("truncated", sealed.slice(..sealed.len() - 1)),
        ("cut in the nonce", sealed.slice(..24)),
        ("altered", altered.into()),
        ("swapped", other.clone()),
        ("by a stranger", strange.into()),
    ]
}

/// Whoever can write to the store and has no key cannot make a replica that seals read anything else than what was sealed
/// for that place.
#[tokio::test]
async fn no_forged_record_is_read() {
    let below = below();
    let sealed = replica(&below, &[1]).await;
    let (one, other) = (
        made(&sealed, "genuine").await,
        made(&sealed, "genuine").await,
    );
    let id = one.id;
    let stored = |id| {
        let below = &below;
        async move { below.load(id).await.unwrap().unwrap() }
    };
    let (genuine, elsewhere) = (stored(id).await.record, stored(other.id).await.record);
    for (what, forged) in forgeries(&genuine, &elsewhere) {
        let write = Write {
            id,
            expected: Some(stored(id).await.version),
            record: forged,
            request: None,
            nonce: create_until(UNTIL).nonce,
            ..one.clone()
        };
        let done = below.commit(&write).await.unwrap();
        assert!(matches!(done, Commit::Done(_)), "{what}");
        assert!(record(&sealed, id).await.is_err(), "{what}");
        // A replica that carries the task has the version before, and reads the forgery with the conflict.
        let late = Write {
            expected: Some(Version {
                revision: Revision(1),
                nonce: one.nonce,
            }),
            nonce: create_until(UNTIL).nonce,
            ..one.clone()
        };
        assert!(sealed.commit(&late).await.is_err(), "{what}");
    }

    // A request stays as it was written first: the forger comes before the task.
    let (genuine, elsewhere) = (
        below.load_request(id).await.unwrap().unwrap(),
        below.load_request(other.id).await.unwrap().unwrap(),
    );
    for (what, request) in forgeries(&genuine, &elsewhere) {
        let write = Write {
            request: Some(request),
            ..create_until(UNTIL)
        };
        below.commit(&write).await.unwrap();
        assert!(sealed.load_request(write.id).await.is_err(), "{what}");
    }

    let result = async |id| below.load_result(id, Fence(1)).await.unwrap().unwrap();
    for (what, forged) in forgeries(&result(id).await, &result(other.id).await) {
        below.put_result(id, Fence(1), forged, UNTIL).await.unwrap();
        assert!(sealed.load_result(id, Fence(1)).await.is_err(), "{what}");
    }
}

#[tokio::test]
async fn no_forged_value_is_read() {
    let below = below();
    let sealed = replica(&below, &[1]).await;
    for kind in KINDS {
        let [name, elsewhere] = ["here", "there"].map(|part| Name::of(kind, &[part]));
        for name in [name, elsewhere] {
            sealed.put(name, "genuine".into(), UNTIL).await.unwrap();
        }
        // Names that follow from arguments have another digest below.
        if kind == Kind::IdenticalCall {
            assert_eq!(below.find(name).await.unwrap(), None);
            continue;
        }
        let found = async |name| below.find(name).await.unwrap().unwrap();
        let (genuine, moved) = (found(name).await, found(elsewhere).await);
        for (what, forged) in forgeries(&genuine, &moved) {
            below.put(name, forged, UNTIL).await.unwrap();
            assert!(sealed.find(name).await.is_err(), "{kind:?} {what}");
            let claimed = sealed.claim(name, "genuine".into(), UNTIL).await;
            assert!(claimed.is_err(), "{kind:?} {what}");
            let replaced = sealed
                .replace(name, "forged".into(), "genuine".into(), UNTIL)
                .await;
            assert!(replaced.is_err(), "{kind:?} {what}");
        }
        below.put(name, genuine, UNTIL).await.unwrap();
        assert_eq!(sealed.find(name).await.unwrap().unwrap(), "genuine");
    }

    let [log, elsewhere] = ["log", "other log"].map(|part| Name::of(Kind::Events, &[part]));
    for log in [log, elsewhere] {
        sealed
            .append(log, Fence(1), 1, "genuine".into(), UNTIL)
            .await
            .unwrap();
    }
    let entry = async |log| below.entries(log, 0).await.unwrap()[0].1.clone();
    let forgeries = forgeries(&entry(log).await, &entry(elsewhere).await);
    for (number, (what, forged)) in (2..).zip(forgeries) {
        below
            .append(log, Fence(1), number, forged, UNTIL)
            .await
            .unwrap();
        assert!(sealed.entries(log, number - 1).await.is_err(), "{what}");
        assert!(sealed.entries(log, 0).await.is_err(), "{what}");
    }
}

/// A reader of the store who has the key of callers can try the tokens of a dictionary.
#[tokio::test]
async fn the_key_of_callers_is_kept_sealed() {
    let below = below();
    let first = replica(&below, &[1]).await;
    let callers = first.caller_key().await.unwrap();
    assert_ne!(below.caller_key().await.unwrap(), callers, "the clear key");
    // It stays when the seal key changes, and replicas that do not seal have it, too.
    let second = replica(&below, &[2, 1]).await;
    let third = replica(&below, &[2]).await;
    let reads = Sealed::reading(Arc::clone(&below), Some(Sealer::new("ns", &[1; 32], &[])));
    let mixed = replica_with(&below, &[2], Clear::Read).await;
    for replica in [&second, &third, &reads, &mixed] {
        assert_eq!(replica.caller_key().await.unwrap(), callers);
    }
}

/// Tasks stay with their callers when the seal is turned on, and when replicas of an earlier version sealed.
#[tokio::test]
async fn the_key_of_callers_stays_where_it_was_in_the_clear() {
    let below_mixed = below();
    let clear = below_mixed.caller_key().await.unwrap();
    let mixed = replica_with(&below_mixed, &[1], Clear::Read).await;
    let strict = replica(&below_mixed, &[1]).await;
    for replica in [&mixed, &strict] {
        assert_eq!(replica.caller_key().await.unwrap(), clear);
    }

    let below_earlier = below();
    let clear = below_earlier.caller_key().await.unwrap();
    let sealer = Sealer::new("ns", &[1; 32], &[]);
    let id = u64::from_be_bytes(sealer.key_ids().next().unwrap());
    let name = Name::of(Kind::DigestKey, &[&format!("{id:016x}")]);
    let mut copy = b"9 sealed ".to_vec();
    let binding = Binding {
        kind: "digest key",
        id: &name.digest,
        caller: &[],
        number: 0,
    };
    sealer.seal(&binding, &[5; 32], &mut copy).unwrap();
    below_earlier.put(name, copy.into(), UNTIL).await.unwrap();
    let strict = replica(&below_earlier, &[1]).await;
    assert_eq!(strict.caller_key().await.unwrap(), clear);

    // A key in the clear that somebody else wrote changes nothing.
    let below_forged = below();
    let genuine = replica(&below_forged, &[1]).await.caller_key().await;
    below_forged.caller_key().await.unwrap();
    let again = replica(&below_forged, &[1]).await.caller_key().await;
    assert_eq!(again.unwrap(), genuine.unwrap());
}
