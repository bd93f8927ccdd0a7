//! What only the embedded store does: it outlives its process, and belongs to one.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use raincheck::base::clock::Manual;
use raincheck::store::embedded::{Embedded, FileState};
use raincheck::store::kv::{Kind, KvStore as _, Name};
use raincheck::store::{ChangeEvent, Commit, Store as _, StoreError, Write};
use raincheck::task::id::{Fence, Incarnation};
use redb::{ReadableTable as _, TableDefinition, TableHandle, WriteTransaction};

use crate::rig::{Place, START_MS, create_until, done, update};

const HOUR_MS: u64 = 3_600_000;

#[tokio::test]
async fn what_was_answered_is_there_after_a_restart() {
    let directory = Place::new();
    let store = open(&directory.file());
    let mine = Incarnation::new("a");
    let (write, key) = fill(&store, &mine).await;
    let (claim, log) = (
        Name::of(Kind::Claim, &["c"]),
        Name::of(Kind::Events, &["e"]),
    );
    let until = START_MS + HOUR_MS;
    store.claim(claim, "mine".into(), until).await.unwrap();
    store
        .append(log, Fence(1), 1, "event".into(), until)
        .await
        .unwrap();
    drop(store);

    let store = open(&directory.file());
    everything_is_there(&store, &write, &mine).await;
    assert_eq!(store.caller_key().await.unwrap(), key);
    let told = store.claim(claim, "theirs".into(), until).await.unwrap();
    assert_eq!(told.unwrap(), "mine");
    let entries = store.entries(log, 0).await.unwrap();
    assert_eq!(entries, [(1, "event".into())]);
}

#[tokio::test]
async fn a_process_that_was_killed_lost_nothing_that_was_answered() {
    let directory = Place::new();
    let store = open(&directory.file());
    let mine = Incarnation::new("a");
    let (write, _) = fill(&store, &mine).await;
    // What lies on disk at this moment is what a killed process leaves: nothing was closed.
    let left = directory.folder().join("left.redb");
    std::fs::copy(directory.file(), &left).unwrap();

    let store = open(&left);
    everything_is_there(&store, &write, &mine).await;
}

#[tokio::test]
async fn whoever_lived_in_an_earlier_process_is_dead_until_retired() {
    let directory = Place::new();
    let store = open(&directory.file());
    let (earlier, idle, now) = (
        Incarnation::new("a"),
        Incarnation::new("idle"),
        Incarnation::new("a"),
    );
    store
        .beat(Some(&earlier), Duration::from_mins(1))
        .await
        .unwrap();
    store
        .beat(Some(&idle), Duration::from_mins(1))
        .await
        .unwrap();
    fill(&store, &earlier).await;
    drop(store);

    let store = open(&directory.file());
    let beat = store
        .beat(Some(&now), Duration::from_mins(1))
        .await
        .unwrap();
    let dead: Vec<_> = beat.dead.iter().map(|dead| &dead.incarnation).collect();
    assert_eq!(dead, [&earlier], "nobody waits for the idle one");
    store.retire(&earlier).await.unwrap();
    assert!(
        store
            .beat(Some(&now), Duration::from_mins(1))
            .await
            .unwrap()
            .dead
            .is_empty()
    );
}

#[tokio::test]
async fn a_second_process_is_told_who_has_the_file_and_what_to_do() {
    let directory = Place::new();
    let store = open(&directory.file());
    let clock = Arc::new(Manual::at(START_MS));
    let refused = Embedded::open(&directory.file(), clock)
        .unwrap_err()
        .to_string();
    assert!(
        refused.starts_with(&directory.file().display().to_string()),
        "{refused}"
    );
    assert!(refused.contains("another raincheck"), "{refused}");
    assert!(
        refused.contains(&format!("(pid {})", std::process::id())),
        "{refused}"
    );
    assert!(refused.contains("--store redb:PATH"), "{refused}");
    assert!(!refused.contains('\n'), "{refused}");
    drop(store);
    open(&directory.file());
}

#[tokio::test]
async fn a_file_of_something_else_is_refused_and_kept() {
    let directory = Place::new();
    let file = directory.folder().join("notes.txt");
    std::fs::create_dir_all(directory.file().parent().unwrap()).unwrap();
    std::fs::write(&file, "not a store".repeat(1000)).unwrap();
    let clock = Arc::new(Manual::at(START_MS));
    let refused = Embedded::open(&file, clock).unwrap_err().to_string();
    assert!(refused.contains("notes.txt"), "{refused}");
    assert_eq!(
        std::fs::read_to_string(&file).unwrap(),
        "not a store".repeat(1000)
    );
}

#[tokio::test]
async fn a_file_of_an_earlier_raincheck_is_opened_and_keeps_its_tasks() {
    let directory = Place::new();
    let store = open(&directory.file());
    let mine = Incarnation::new("a");
    let (write, key) = fill(&store, &mine).await;
    drop(store);
    // As it was before there were notes and lists.
    let database = redb::Database::open(directory.file()).unwrap();
    let transaction = database.begin_write().unwrap();
    let tables: Vec<_> = transaction.list_tables().unwrap().collect();
    for table in tables {
        if ["notes", "note_expiry", "entries", "lists"].contains(&table.name()) {
            assert!(transaction.delete_table(table).unwrap());
        }
    }
    by_id(&transaction);
    transaction.commit().unwrap();
    drop(database);
    assert!(matches!(
        Embedded::file_state(&directory.file()),
        Ok(FileState::Free)
    ));

    let store = open(&directory.file());
    everything_is_there(&store, &write, &mine).await;
    assert_eq!(store.caller_key().await.unwrap(), key);
    let name = Name::of(Kind::Claim, &["c"]);
    let until = START_MS + HOUR_MS;
    store.claim(name, "mine".into(), until).await.unwrap();
    assert_eq!(store.find(name).await.unwrap().unwrap(), "mine");
    let listed = store.listed(&write.caller, None, 9).await.unwrap();
    assert!(listed.is_empty());
}

/// Makes the file one of format 1, which has the records in the order of their ids.
fn by_id(transaction: &WriteTransaction) {
    type Row = (
        u64,
        u128,
        &'static [u8; 16],
        u64,
        Option<u64>,
        &'static [u8],
    );
    const NUMBERS: TableDefinition<'_, &[u8; 16], u64> = TableDefinition::new("record_numbers");
    const NUMBERED: TableDefinition<'_, u64, Row> = TableDefinition::new("numbered_records");
    const RECORDS: TableDefinition<'_, &[u8; 16], Row> = TableDefinition::new("records");
    const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
    {
        let numbers = transaction.open_table(NUMBERS).unwrap();
        let numbered = transaction.open_table(NUMBERED).unwrap();
        let mut records = transaction.open_table(RECORDS).unwrap();
        for task in numbers.iter().unwrap() {
            let (id, number) = task.unwrap();
            let row = numbered.get(number.value()).unwrap().unwrap();
            records.insert(id.value(), row.value()).unwrap();
        }
    }
    assert!(transaction.delete_table(NUMBERS).unwrap());
    assert!(transaction.delete_table(NUMBERED).unwrap());
    let mut meta = transaction.open_table(META).unwrap();
    meta.insert("format", b"1".as_slice()).unwrap();
}

#[tokio::test]
async fn nobody_else_on_the_machine_reads_the_file() {
    let directory = Place::new();
    let _store = open(&directory.file());
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory.file()), 0o600);
    assert_eq!(mode(directory.file().parent().unwrap()), 0o700);
    assert_eq!(mode(&directory.folder()), 0o700);
}

#[tokio::test]
async fn closing_lets_go_of_the_file_and_ends_the_change_log() {
    let directory = Place::new();
    let store = open(&directory.file());
    let mut changes = store.changes();
    let create = create_until(START_MS + HOUR_MS);
    done(store.commit(&create).await.unwrap());
    store.close().await;
    assert_eq!(changes.next().await, ChangeEvent::Closed);
    let late = store.commit(&update(&create, 1, "late")).await;
    assert!(matches!(late, Err(StoreError::Unavailable(_))), "{late:?}");
    assert!(matches!(
        store.load(create.id).await,
        Err(StoreError::Unavailable(_))
    ));
    assert!(
        open(&directory.file())
            .load(create.id)
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test]
async fn the_file_does_not_keep_what_has_expired() {
    let clock = Arc::new(Manual::at(START_MS));
    let as_clock = Arc::<Manual>::clone(&clock);
    let store = Embedded::in_memory(as_clock).unwrap();
    let mine = Incarnation::new("a");
    let creates: Vec<Write> = (0..20_000)
        .map(|_| Write {
            due_ms: Some(1),
            keep_for: Some(mine.clone()),
            ..create_until(START_MS + HOUR_MS)
        })
        .collect();
    // Few at a time: on a busy machine the last of so many would wait for too long.
    for some in creates.chunks(2_000) {
        let all = some.iter().map(|create| store.commit(create));
        for commit in futures_util::future::join_all(all).await {
            done(commit.unwrap());
        }
    }
    clock.advance(Duration::from_secs(3601));
    let mut left = Vec::new();
    for _ in 0..3 {
        // Bounded: a beat ends soon, because it renews a lease.
        store.beat(None, Duration::ZERO).await.unwrap();
        left.push(store.due(10, 100_000).await.unwrap().len());
    }
    assert_eq!(left, [20_000 - 16 * 1024, 0, 0]);
    assert!(store.indexed(&mine).await.unwrap().is_empty());
}

/// As many as the store takes in a second may expire in a second.
#[tokio::test]
async fn what_expires_goes_as_fast_as_it_comes() {
    let clock = Arc::new(Manual::at(START_MS));
    let as_clock = Arc::<Manual>::clone(&clock);
    let store = Embedded::in_memory(as_clock).unwrap();
    let mut left = Vec::new();
    for second in 0..6 {
        let until = START_MS + second * 1000 + 999;
        let creates: Vec<Write> = (0..3000)
            .map(|_| Write {
                due_ms: Some(1),
                ..create_until(until)
            })
            .collect();
        let all = creates.iter().map(|create| store.commit(create));
        for commit in futures_util::future::join_all(all).await {
            done(commit.unwrap());
        }
        clock.advance(Duration::from_secs(1));
        // As often as a replica does.
        store.beat(None, Duration::ZERO).await.unwrap();
        left.push(store.due(10, 100_000).await.unwrap().len());
    }
    assert!(left.iter().all(|left| *left < 6000), "{left:?}");
}

/// A session's list names a task by two rows, and a record knows neither.
#[tokio::test]
async fn nothing_of_a_list_outlives_its_tasks() {
    let directory = Place::new();
    let clock = Arc::new(Manual::at(START_MS));
    let as_clock = Arc::<Manual>::clone(&clock);
    let store = Embedded::open(&directory.file(), as_clock).unwrap();
    let session = raincheck::task::id::Caller::from_bytes([9; 16]);
    for list in [None, Some(session)] {
        let create = create_until(START_MS + HOUR_MS);
        let listed = list.or(Some(create.caller));
        done(store.commit(&Write { listed, ..create }).await.unwrap());
    }
    let rows = |store: Embedded| {
        drop(store);
        let database = redb::Database::open(directory.file()).unwrap();
        let lists = TableDefinition::<(&[u8; 16], &[u8; 16]), u64>::new("lists");
        let reading = redb::ReadableDatabase::begin_read(&database).unwrap();
        let lists = reading.open_table(lists).unwrap();
        redb::ReadableTableMetadata::len(&lists).unwrap()
    };
    assert_eq!(rows(store), 3);
    clock.advance(Duration::from_secs(3601));
    let as_clock = Arc::<Manual>::clone(&clock);
    let store = Embedded::open(&directory.file(), as_clock).unwrap();
    store.beat(None, Duration::ZERO).await.unwrap();
    assert_eq!(rows(store), 0);
}

fn open(file: &Path) -> Embedded {
    Embedded::open(file, Arc::new(Manual::at(START_MS))).unwrap()
}

async fn fill(store: &Embedded, mine: &Incarnation) -> (Write, [u8; 32]) {
    let create = Write {
        due_ms: Some(5),
        keep_for: Some(mine.clone()),
        request: Some(Bytes::from_static(b"request")),
        ..create_until(START_MS + HOUR_MS)
    };
    done(store.commit(&create).await.unwrap());
    let write = Write {
        due_ms: Some(7),
        ..update(&create, 1, "kept")
    };
    done(store.commit(&write).await.unwrap());
    let result = Bytes::from(vec![1; 50_000]);
    store
        .put_result(create.id, Fence(1), result, START_MS + HOUR_MS)
        .await
        .unwrap();
    (write, store.caller_key().await.unwrap())
}

async fn everything_is_there(store: &Embedded, write: &Write, mine: &Incarnation) {
    let stored = store.load(write.id).await.unwrap().unwrap();
    assert_eq!(stored.record, "kept");
    assert_eq!(stored.caller, write.caller);
    assert_eq!(stored.version.nonce, write.nonce);
    assert_eq!(
        store.load_request(write.id).await.unwrap().unwrap(),
        "request"
    );
    assert_eq!(
        store
            .load_result(write.id, Fence(1))
            .await
            .unwrap()
            .unwrap()
            .len(),
        50_000
    );
    assert_eq!(store.indexed(mine).await.unwrap(), [write.id]);
    assert_eq!(store.due(7, 10).await.unwrap(), [write.id]);
    // The same write again, as a client would that did not hear the answer.
    assert!(
        matches!(store.commit(write).await.unwrap(), Commit::Done(revision) if revision.0 == 2)
    );
}

/// Large values lie in pieces, in a table of their own, and come along.
#[tokio::test]
async fn everything_large_is_there_after_files_were_merged() {
    let directory = Place::new();
    let (earlier, later) = (directory.file(), directory.folder().join("later.redb"));
    let key = [3; 32];
    let clock = || Arc::new(Manual::at(START_MS));
    let open_one = |file: &Path, others: &[PathBuf]| {
        Embedded::open_one_of(file, others, &key, clock()).unwrap()
    };
    let until = START_MS + HOUR_MS;
    let large = Bytes::from(vec![7; 600_000]);
    let log = Name::of(Kind::Events, &["e"]);
    let store = open_one(&earlier, &[]);
    let create = Write {
        request: Some(large.clone()),
        ..create_until(until)
    };
    done(store.commit(&create).await.unwrap());
    let kept = store.put_result(create.id, Fence(1), large.clone(), until);
    kept.await.unwrap();
    store
        .append(log, Fence(1), 1, large.clone(), until)
        .await
        .unwrap();
    drop(store);

    let store = open_one(&later, std::slice::from_ref(&earlier));
    let request = store.load_request(create.id).await.unwrap().unwrap();
    assert!(request == large, "a request of {} bytes", request.len());
    let result = store.load_result(create.id, Fence(1)).await.unwrap();
    assert!(result.unwrap() == large);
    assert!(store.entries(log, 0).await.unwrap()[0].1 == large);
    drop(store);
    // The other file is empty: no sweep would ever remove what stays there.
    let database = redb::Database::open(&earlier).unwrap();
    let reading = redb::ReadableDatabase::begin_read(&database).unwrap();
    let left: Vec<_> = reading.list_tables().unwrap().collect();
    let left: Vec<_> = left.iter().map(TableHandle::name).collect();
    assert_eq!(left, ["meta"]);
}

/// What a large result takes is what it is, the room of those that expired is used again, and the disk has
/// it back.
#[tokio::test]
async fn a_file_is_not_larger_than_what_was_in_it_and_gets_small_again() {
    const EACH: usize = 5_000_000;
    const TIMES: u64 = 20;
    let directory = Place::new();
    let clock = Arc::new(Manual::at(START_MS));
    let as_clock: Arc<dyn raincheck::base::clock::Clock> = Arc::<Manual>::clone(&clock);
    let store = Embedded::open(&directory.file(), Arc::clone(&as_clock)).unwrap();
    let size = || std::fs::metadata(directory.file()).unwrap().len() >> 20;
    let log = |n: u64| Name::of(Kind::Events, &[&n.to_string()]);
    let entry = |n: u64| Bytes::from(vec![u8::try_from(n % 251).unwrap() + 1; EACH]);
    let fill = async |from: u64, until: u64| {
        for n in from..from + TIMES {
            store
                .append(log(n), Fence(1), 1, entry(n), until)
                .await
                .unwrap();
            let kept = create_until(until);
            done(store.commit(&kept).await.unwrap());
            let id = kept.id;
            store
                .put_result(id, Fence(1), entry(n), until)
                .await
                .unwrap();
            assert!(store.load_result(id, Fence(1)).await.unwrap().unwrap() == entry(n));
            assert!(store.entries(log(n), 0).await.unwrap()[0].1 == entry(n));
        }
    };
    let hour = |n: u64| START_MS + n * HOUR_MS;
    fill(0, hour(1)).await;
    let full = size();
    assert!(full < 300, "{full} MiB for 200 MB");
    clock.set(hour(1));
    store.beat(None, Duration::ZERO).await.unwrap();
    assert!(store.entries(log(0), 0).await.unwrap().is_empty());
    // The writer shortens the file behind the sweep; what is asked after it is answered after it.
    store
        .append(log(0), Fence(1), 1, entry(0), hour(3))
        .await
        .unwrap();
    let swept = size();
    assert!(swept < 64, "{swept} MiB for 5 MB");
    fill(1, hour(2)).await;
    assert!(size() < 300, "{} MiB for 205 MB", size());
    drop(store);
    // Whoever comes later finds what has not expired, in a small file.
    clock.set(hour(2));
    let store = Embedded::open(&directory.file(), as_clock).unwrap();
    let opened = size();
    assert!(opened < 64, "{opened} MiB for 5 MB");
    assert!(store.entries(log(0), 0).await.unwrap()[0].1 == entry(0));
}

/// Somebody who may write into the directory puts a link there.
#[tokio::test]
async fn the_file_of_the_process_id_follows_no_link() {
    let directory = Place::new();
    let target = directory.folder().join("precious");
    std::fs::create_dir_all(directory.file().parent().unwrap()).unwrap();
    std::fs::write(&target, "precious").unwrap();
    let mut pid = directory.file().into_os_string();
    pid.push(".pid");
    std::os::unix::fs::symlink(&target, &pid).unwrap();
    let store = open(&directory.file());
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "precious");
    let written = std::fs::read_to_string(&pid).unwrap();
    assert_eq!(written.trim(), std::process::id().to_string());
    drop(store);
}
