//! Files that are written while they are read, and files that were merged.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use raincheck::base::clock::Manual;
use raincheck::store::Store as _;
use raincheck::store::embedded::Embedded;
use raincheck::store::kv::{Kind, KvStore as _, Name};
use redb::{ReadableDatabase as _, ReadableTable as _, TableDefinition};

use crate::rig::{Place, START_MS};

const HOUR_MS: u64 = 3_600_000;

/// A page that a read still holds when its transaction is over is not the writer's to free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_is_read_while_it_is_written_over() {
    let directory = Place::new();
    let store = Embedded::open(&directory.file(), Arc::new(Manual::at(START_MS)));
    let store = Arc::new(store.unwrap());
    let name = Name::of(Kind::Claim, &["one"]);
    let until = START_MS + HOUR_MS;
    store.put(name, "0".into(), until).await.unwrap();
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                loop {
                    assert!(store.find(name).await.unwrap().is_some());
                }
            })
        })
        .collect();
    for number in 1..=5_000 {
        let put = store.put(name, number.to_string().into(), until);
        put.await.unwrap();
    }
    for reader in readers {
        reader.abort();
    }
}

/// Two processes of one user learned the same at different times.
#[tokio::test]
async fn a_value_of_two_files_lives_until_its_own_end() {
    let directory = Place::new();
    let (earlier, later) = (directory.file(), directory.folder().join("later.redb"));
    let clock = Arc::new(Manual::at(START_MS));
    let open_one = |file: &Path, others: &[PathBuf]| {
        let clock = Arc::<Manual>::clone(&clock);
        Embedded::open_one_of(file, others, &[3; 32], clock).unwrap()
    };
    let name = Name::of(Kind::Durations, &["tools"]);
    for (file, hours) in [(&earlier, 1), (&later, 3)] {
        let store = open_one(file, &[]);
        let until = START_MS + hours * HOUR_MS;
        store.put(name, "x".into(), until).await.unwrap();
    }
    let store = open_one(&later, std::slice::from_ref(&earlier));
    clock.set(START_MS + 2 * HOUR_MS);
    store.beat(None, Duration::ZERO).await.unwrap();
    assert!(store.find(name).await.unwrap().is_some());
    drop(store);
    assert_eq!(expiries(&later), [START_MS + 3 * HOUR_MS]);
    let store = open_one(&later, &[]);
    clock.set(START_MS + 3 * HOUR_MS);
    store.beat(None, Duration::ZERO).await.unwrap();
    drop(store);
    assert!(expiries(&later).is_empty());
}

/// The times at which values end, as the file has them.
fn expiries(file: &Path) -> Vec<u64> {
    const EXPIRY: TableDefinition<'_, (u64, &[u8; 17]), ()> = TableDefinition::new("note_expiry");
    let database = redb::Database::open(file).unwrap();
    let reading = database.begin_read().unwrap();
    let rows = reading.open_table(EXPIRY).unwrap();
    let rows = rows.iter().unwrap();
    rows.map(|row| row.unwrap().0.value().0).collect()
}
