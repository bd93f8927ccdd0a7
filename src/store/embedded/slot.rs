//! The open database, which the writer may have to close and open again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::thread::park_timeout;
use std::time::Duration;

use redb::Database;

use super::super::error::StoreError;
use crate::lock::Mutex;

/// After an I/O error redb refuses everything until the file is opened anew; so nobody keeps the
/// database for longer than one read or one batch.
#[derive(Debug)]
pub(super) struct Slot {
    database: Mutex<Option<Arc<Database>>>,
    /// The writer has it for a moment and puts it back.
    is_away: AtomicBool,
}

/// How long a read waits for a database that is away, and between two looks.
const AWAY: u32 = 400;
const LOOK: Duration = Duration::from_millis(5);

impl Slot {
    pub(super) fn new(database: Database) -> Self {
        Self {
            database: Mutex::new(Some(Arc::new(database))),
            is_away: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Database>>> {
        self.database.lock()
    }

    /// The writer has it for a moment.
    pub(super) fn is_away(&self) -> bool {
        self.is_away.load(Ordering::SeqCst)
    }

    pub(super) fn get(&self) -> Option<Arc<Database>> {
        self.lock().clone()
    }

    pub(super) fn put(&self, database: Database) {
        *self.lock() = Some(Arc::new(database));
        self.is_away.store(false, Ordering::SeqCst);
    }

    /// The file is let go of when the last read in progress ends.
    pub(super) fn clear(&self) {
        self.lock().take();
        self.is_away.store(false, Ordering::SeqCst);
    }

    /// The database, once nobody reads it; else it stays where it is.
    pub(super) fn take(&self, attempts: usize, pause: Duration) -> Option<Database> {
        self.is_away.store(true, Ordering::SeqCst);
        let Some(mut shared) = self.lock().take() else {
            self.is_away.store(false, Ordering::SeqCst);
            return None;
        };
        for _ in 0..attempts {
            shared = match Arc::try_unwrap(shared) {
                Ok(database) => return Some(database),
                Err(shared) => shared,
            };
            park_timeout(pause);
        }
        *self.lock() = Some(shared);
        self.is_away.store(false, Ordering::SeqCst);
        None
    }

    /// The same where a thread may wait for a database that is away.
    pub(super) fn read_when_back<T>(
        &self,
        read: impl FnOnce(&Database) -> Result<T, redb::Error>,
    ) -> Result<T, StoreError> {
        for _ in 0..AWAY {
            if self.get().is_some() || !self.is_away() {
                break;
            }
            park_timeout(LOOK);
        }
        self.read(read)
    }

    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&Database) -> Result<T, redb::Error>,
    ) -> Result<T, StoreError> {
        let database = self
            .get()
            .ok_or_else(|| unavailable("the file is not open"))?;
        read(&database).map_err(|error| failed(&Arc::new(error)))
    }
}

/// One failure may concern a whole batch, hence shared.
pub(super) fn failed(error: &Arc<redb::Error>) -> StoreError {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    if let redb::Error::Io(io) = &**error
        && matches!(io.kind(), StorageFull | QuotaExceeded)
    {
        StoreError::Full
    } else if matches!(**error, redb::Error::Corrupted(_)) {
        StoreError::Corrupt("the database file is damaged")
    } else if matches!(**error, redb::Error::TableTypeMismatch { .. }) {
        StoreError::Corrupt("the database file is of another version")
    } else {
        StoreError::Unavailable(Box::new(Arc::clone(error)))
    }
}

pub(super) fn unavailable(why: &'static str) -> StoreError {
    StoreError::Unavailable(why.into())
}
