//! A shared handle to the open database. The writer closes and opens the file behind it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::thread::park_timeout;
use std::time::Duration;

use redb::Database;

use super::super::error::StoreError;
use crate::base::lock::Mutex;

/// The open database, if there is one.
///
/// After an I/O error redb refuses every call until the file is opened again, so no code keeps the database
/// for longer than one read or one batch.
#[derive(Debug)]
pub(super) struct DatabaseHandle {
    database: Mutex<Option<Arc<Database>>>,
    /// The writer has taken the database to compact it, and will put it back.
    is_away: AtomicBool,
}

/// A read waits this long for a database that is away, in steps of [`AWAY_STEP`].
const AWAY_STEPS: u32 = 400;
const AWAY_STEP: Duration = Duration::from_millis(5);

impl DatabaseHandle {
    pub(super) fn new(database: Database) -> Self {
        Self {
            database: Mutex::new(Some(Arc::new(database))),
            is_away: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Database>>> {
        self.database.lock()
    }

    /// Returns `true` if the writer has taken the database for a moment.
    pub(super) fn is_away(&self) -> bool {
        self.is_away.load(Ordering::SeqCst)
    }

    pub(super) fn get(&self) -> Option<Arc<Database>> {
        self.lock().clone()
    }

    pub(super) fn put(&self, database: Database) {
        // The database is back before the mark goes: a read between the two must find one of them.
        *self.lock() = Some(Arc::new(database));
        self.is_away.store(false, Ordering::SeqCst);
    }

    /// Closes the database. The file is closed when the last running read ends.
    pub(super) fn clear(&self) {
        self.lock().take();
        self.is_away.store(false, Ordering::SeqCst);
    }

    /// Takes the database out once no read uses it. Returns `None`, and leaves it in place, if reads go on for
    /// longer than `attempts` pauses.
    pub(super) fn take(&self, attempts: usize, pause: Duration) -> Option<Database> {
        // Marked before the database is taken: a read that finds no database then waits for it, and does not fail.
        self.is_away.store(true, Ordering::SeqCst);
        let Some(mut shared) = self.lock().take() else {
            self.is_away.store(false, Ordering::SeqCst);
            return None;
        };
        // A read keeps its handle for the time of one read only, so the last one is soon gone.
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

    /// Reads after waiting for a database that is away. Blocks the thread for up to two seconds.
    pub(super) fn read_when_back<T>(
        &self,
        read: impl FnOnce(&Database) -> Result<T, redb::Error>,
    ) -> Result<T, StoreError> {
        for _ in 0..AWAY_STEPS {
            if self.get().is_some() || !self.is_away() {
                break;
            }
            park_timeout(AWAY_STEP);
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

/// The port's error for a failure of redb. The failure is shared, because one failure may concern a whole
/// batch.
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
