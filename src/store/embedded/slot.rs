//! The open database, which the writer may have to close and open again.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::park_timeout;
use std::time::Duration;

use redb::Database;

use super::super::StoreError;

/// After an I/O error redb refuses everything until the file is opened anew; so nobody keeps the
/// database for longer than one read or one batch.
#[derive(Debug)]
pub(super) struct Slot(Mutex<Option<Arc<Database>>>);

impl Slot {
    pub(super) fn new(database: Database) -> Self {
        Self(Mutex::new(Some(Arc::new(database))))
    }

    pub(super) fn get(&self) -> Option<Arc<Database>> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn put(&self, database: Database) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(database));
    }

    /// The file is let go of when the last read in progress ends.
    pub(super) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// The database, once nobody reads it; else it stays where it is.
    pub(super) fn take(&self, attempts: usize, pause: Duration) -> Option<Database> {
        let mut shared = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()?;
        for _ in 0..attempts {
            shared = match Arc::try_unwrap(shared) {
                Ok(database) => return Some(database),
                Err(shared) => shared,
            };
            park_timeout(pause);
        }
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(shared);
        None
    }

    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&Database) -> Result<T, redb::Error>,
    ) -> Result<T, StoreError> {
        let database = self
            .get()
            .ok_or_else(|| super::unavailable("the file is not open"))?;
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
