//! Reads of the file while it is written.

use std::sync::Arc;

use raincheck::clock::Manual;
use raincheck::store::embedded::Embedded;
use raincheck::store::kv::{Kind, KvStore as _, Name};

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
