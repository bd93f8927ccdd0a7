//! A disk that fails for a while, which no test outside can bring about.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use redb::backends::InMemoryBackend;
use redb::{Database, DatabaseError, StorageBackend};

use super::Embedded;
use crate::base::clock::Manual;
use crate::store::error::StoreError;
use crate::store::{Commit, Nonce, Revision, Store as _, Version, Write};
use crate::task::id::{Caller, TaskId};

#[tokio::test]
async fn a_full_disk_is_told_and_the_store_goes_on_once_there_is_room() {
    let disk = Disk::default();
    let store = disk.store();
    let first = create();
    assert!(matches!(
        store.commit(&first).await,
        Ok(Commit::Done(Revision(1)))
    ));

    disk.full.store(true, Ordering::SeqCst);
    let second = create();
    let refused = store.commit(&second).await;
    assert!(matches!(refused, Err(StoreError::Full)), "{refused:?}");
    // The heartbeat opens the file anew. What the failed commit left behind may have to be mended
    // first, and that writes: then the disk is full for readers too.
    match store.beat(None, Duration::ZERO).await {
        Ok(_) => assert!(store.load(first.id).await.unwrap().is_some()),
        Err(error) => assert!(matches!(error, StoreError::Full), "{error:?}"),
    }
    let refused = store.commit(&second).await;
    assert!(matches!(refused, Err(StoreError::Full)), "{refused:?}");

    disk.full.store(false, Ordering::SeqCst);
    store.beat(None, Duration::ZERO).await.unwrap();
    assert!(
        store.load(second.id).await.unwrap().is_none(),
        "half a write"
    );
    let kept = store.load(first.id).await.unwrap().unwrap();
    assert_eq!(
        kept.version,
        Version {
            revision: Revision(1),
            nonce: first.nonce
        }
    );
    assert!(matches!(
        store.commit(&second).await,
        Ok(Commit::Done(Revision(1)))
    ));
}

/// Keeps its bytes while the database is closed and opened again.
#[derive(Debug, Clone, Default)]
struct Disk {
    bytes: Arc<InMemoryBackend>,
    full: Arc<AtomicBool>,
}

impl Disk {
    fn store(&self) -> Embedded {
        let disk = self.clone();
        let database = disk.open().unwrap();
        let clock = Arc::new(Manual::at(1));
        Embedded::start(
            database,
            clock,
            Path::new("(disk)"),
            move || disk.open(),
            None,
        )
        .unwrap()
    }

    fn open(&self) -> Result<Database, DatabaseError> {
        redb::Builder::new().create_with_backend(self.clone())
    }

    fn room(&self) -> io::Result<()> {
        let full = self.full.load(Ordering::SeqCst);
        if full {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            Ok(())
        }
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        self.bytes.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.bytes.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.room()?;
        self.bytes.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.room()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.room()?;
        self.bytes.write(offset, data)
    }
}

fn create() -> Write {
    Write {
        id: TaskId::random(),
        expected: None,
        nonce: Nonce(7),
        caller: Caller::from_bytes([1; 16]),
        record: Bytes::from_static(b"record"),
        expires_ms: 1_000_000,
        due_ms: None,
        drop_from: None,
        keep_for: None,
        request: None,
        history: None,
        durable: false,
        ends: false,
        listed: None,
    }
}
