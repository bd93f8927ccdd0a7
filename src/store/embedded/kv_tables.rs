//! The tables of values and logs, and every change of them.

use std::ops::RangeInclusive;

use bytes::Bytes;
use redb::{ReadableTable as _, ReadableTableMetadata as _, WriteTransaction};

use super::lazy_table::LazyTable;
use super::pieces::{Pieces, is_in_pieces};
use super::rows::{ENTRIES, KvKey, VALUE_EXPIRY, VALUES};
use crate::store::kv::{ENTRIES_MAX, Name};
use crate::task::id::Fence;

/// A change of values or logs that always succeeds.
#[derive(Debug)]
pub(super) enum KvEdit {
    Put {
        name: Name,
        value: Bytes,
        expires_ms: u64,
    },
    Remove {
        name: Name,
    },
    Fence {
        log: Name,
        fence: Fence,
        expires_ms: u64,
    },
    Trim {
        log: Name,
        first: u64,
    },
}

/// An entry for a log.
#[derive(Debug)]
pub(super) struct LogAppend {
    pub(super) log: Name,
    pub(super) fence: Fence,
    pub(super) number: u64,
    pub(super) entry: Bytes,
    pub(super) expires_ms: u64,
}

/// The tables of values and logs, open in one transaction.
pub(super) struct KvTables<'t> {
    values: LazyTable<'t, KvKey, (u64, Option<&'static [u8]>)>,
    expiry: LazyTable<'t, (u64, KvKey), ()>,
    /// Entries, and as number 0 of a log the fence that refuses earlier ones, in big-endian bytes.
    entries: LazyTable<'t, (KvKey, u64), &'static [u8]>,
    pub(super) pieces: Pieces<'t>,
}

impl<'t> KvTables<'t> {
    pub(super) fn new(transaction: &'t WriteTransaction) -> Self {
        Self {
            values: LazyTable::new(transaction, VALUES),
            expiry: LazyTable::new(transaction, VALUE_EXPIRY),
            entries: LazyTable::new(transaction, ENTRIES),
            pieces: Pieces::new(transaction),
        }
    }

    /// Creates the tables that the file does not have.
    pub(super) fn create(&mut self) -> Result<(), redb::Error> {
        self.values.open()?;
        self.expiry.open()?;
        self.entries.open()?;
        self.pieces.create()
    }

    /// Writes a value if the name is free.
    pub(super) fn claim(
        &mut self,
        name: Name,
        value: &[u8],
        expires_ms: u64,
        now_ms: u64,
    ) -> Result<ClaimOutcome, redb::Error> {
        if let Some(row) = self.values.open()?.get(&key(name))?
            && let (until_ms, Some(current)) = row.value()
            && until_ms > now_ms
        {
            // No two claims carry the same value, so an equal value is that of an earlier sending.
            return Ok(if current == value {
                ClaimOutcome::Repeated
            } else {
                ClaimOutcome::Taken(Bytes::copy_from_slice(current))
            });
        }
        self.put(name, value, expires_ms)?;
        Ok(ClaimOutcome::Written)
    }

    /// Writes a value if the name holds `expected` or already holds the value. Returns false otherwise.
    pub(super) fn replace(
        &mut self,
        name: Name,
        (expected, value): (&[u8], &[u8]),
        expires_ms: u64,
        now_ms: u64,
    ) -> Result<bool, redb::Error> {
        // The new value may stand there already: then an earlier sending of this call wrote it.
        let is_it = match self.values.open()?.get(&key(name))? {
            Some(row) => match row.value() {
                (until_ms, Some(now)) => until_ms > now_ms && (now == expected || now == value),
                (_, None) => false,
            },
            None => false,
        };
        if is_it {
            self.put(name, value, expires_ms)?;
        }
        Ok(is_it)
    }

    /// Appends an entry to a log. Returns false if the log is fenced off for the fence of the entry.
    pub(super) fn append(&mut self, append: &LogAppend, now_ms: u64) -> Result<bool, redb::Error> {
        let key = key(append.log);
        // The writer commits this look and the entry together, so no fence can come between them.
        if self.fenced(&key, now_ms)? > append.fence {
            return Ok(false);
        }
        self.touch_log(&key, append.expires_ms, now_ms)?;
        let number = append.number;
        let place = self.pieces.put(&key, number, &append.entry)?;
        self.entries.open()?.insert((&key, number), place)?;
        // From 1 on: number 0 is the fence, which must stay.
        self.remove_entries(&key, 1..=number.saturating_sub(ENTRIES_MAX))?;
        Ok(true)
    }

    pub(super) fn edit(&mut self, edit: &KvEdit, now_ms: u64) -> Result<(), redb::Error> {
        match edit {
            KvEdit::Put {
                name,
                value,
                expires_ms,
            } => self.put(*name, value, *expires_ms)?,
            KvEdit::Remove { name } => drop(self.remove(&key(*name))?),
            KvEdit::Fence {
                log,
                fence,
                expires_ms,
            } => {
                let key = key(*log);
                // A fence that arrives late must not open the log again for writers that a later one shut out.
                let fence = self.fenced(&key, now_ms)?.max(*fence);
                self.touch_log(&key, *expires_ms, now_ms)?;
                let entries = self.entries.open()?;
                entries.insert((&key, 0), &fence.0.to_be_bytes()[..])?;
            }
            KvEdit::Trim { log, first } => {
                self.remove_entries(&key(*log), 1..=first.saturating_sub(1))?;
            }
        }
        Ok(())
    }

    /// Sets the expiry of a log, which may be new.
    fn touch_log(
        &mut self,
        key: &[u8; 17],
        expires_ms: u64,
        now_ms: u64,
    ) -> Result<(), redb::Error> {
        let current = self.values.open()?.get(key)?.map(|row| row.value().0);
        match current {
            Some(until_ms) if until_ms > now_ms => {
                self.expiry.open()?.remove((until_ms, key))?;
            }
            // The log has expired and was not swept yet. Its entries must not join the new log.
            Some(_) => {
                self.remove(key)?;
            }
            None => {}
        }
        self.values.open()?.insert(key, (expires_ms, None))?;
        self.expiry.open()?.insert((expires_ms, key), ())?;
        Ok(())
    }

    /// The fence below which the appends to a log are refused.
    fn fenced(&mut self, key: &[u8; 17], now_ms: u64) -> Result<Fence, redb::Error> {
        let log = self.values.open()?.get(key)?;
        // The row of an expired log may still be there, with a fence that no longer counts.
        if log.is_none_or(|row| row.value().0 <= now_ms) {
            return Ok(Fence(0));
        }
        let row = self.entries.open()?.get((key, 0))?;
        let fence = row.and_then(|row| row.value().try_into().ok());
        Ok(Fence(fence.map_or(0, u64::from_be_bytes)))
    }

    pub(super) fn is_read(&mut self, log: Name, now_ms: u64) -> Result<bool, redb::Error> {
        let reader = self.values.open()?.get(&key(log.read_as()))?;
        Ok(reader.is_some_and(|row| row.value().0 > now_ms))
    }

    /// Removes the entries with these numbers. Returns the number of rows that they had.
    fn remove_entries(
        &mut self,
        key: &[u8; 17],
        numbers: RangeInclusive<u64>,
    ) -> Result<usize, redb::Error> {
        if numbers.is_empty() {
            return Ok(0);
        }
        let (mut rows, mut in_pieces) = (0, false);
        let places = (key, *numbers.start())..=(key, *numbers.end());
        self.entries.open()?.retain_in(places, |_, entry| {
            rows += 1;
            in_pieces |= is_in_pieces(entry);
            false
        })?;
        // Most entries are small, so the table of pieces is seldom opened.
        if in_pieces {
            self.pieces.remove(key, numbers)?;
        }
        Ok(rows)
    }

    fn put(&mut self, name: Name, value: &[u8], expires_ms: u64) -> Result<(), redb::Error> {
        let key = key(name);
        // The row of the old expiry must go, or a sweep would take the new value for an expired one.
        self.remove(&key)?;
        self.values
            .open()?
            .insert(&key, (expires_ms, Some(value)))?;
        self.expiry.open()?.insert((expires_ms, &key), ())?;
        Ok(())
    }

    /// Removes a value or a log. Returns how many rows that were.
    fn remove(&mut self, key: &[u8; 17]) -> Result<usize, redb::Error> {
        let until_ms = self.values.open()?.remove(key)?.map(|row| row.value().0);
        let Some(until_ms) = until_ms else {
            return Ok(0);
        };
        self.expiry.open()?.remove((until_ms, key))?;
        Ok(1 + self.remove_entries(key, 0..=u64::MAX)?)
    }

    pub(super) fn expiry_rows(&mut self) -> Result<u64, redb::Error> {
        Ok(self.expiry.open()?.len()?)
    }

    /// Removes expired values and logs, up to `limit` rows. The last log may exceed the limit.
    pub(super) fn sweep(&mut self, now_ms: u64, limit: usize) -> Result<(), redb::Error> {
        let mut gone = Vec::new();
        // Noted first, because a range that is open borrows the table from which the rows go.
        for row in self
            .expiry
            .open()?
            .range(..=(now_ms, &[0xff; 17]))?
            .take(limit)
        {
            let (at, _) = row?;
            let (until_ms, key) = at.value();
            gone.push((until_ms, *key));
        }
        let mut rows = 0;
        for (until_ms, key) in gone {
            if rows >= limit {
                break;
            }
            // In files that were merged, the row may be of a value that another file had under the same name.
            self.expiry.open()?.remove((until_ms, &key))?;
            let row = self.values.open()?.get(&key)?.map(|row| row.value().0);
            rows += match row {
                Some(until_ms) if until_ms <= now_ms => self.remove(&key)?,
                Some(_) | None => 1,
            };
        }
        Ok(())
    }
}

/// The outcome of a claim.
pub(super) enum ClaimOutcome {
    Written,
    /// An earlier sending of the same claim wrote it.
    Repeated,
    /// The name has another value.
    Taken(Bytes),
}

pub(super) fn key(name: Name) -> [u8; 17] {
    let mut key = [0; 17];
    let letter = name.kind.letter().encode_utf8(&mut [0; 4]).bytes().next();
    let bytes = letter.into_iter().chain(name.digest);
    for (place, byte) in key.iter_mut().zip(bytes) {
        *place = byte;
    }
    key
}

#[cfg(test)]
mod tests {
    use redb::Database;
    use redb::backends::InMemoryBackend;

    use super::*;
    use crate::store::kv::Kind;

    #[test]
    fn a_sweep_is_bounded_and_in_the_end_nothing_is_left() {
        let database = redb::Builder::new();
        let database = database.create_with_backend(InMemoryBackend::new());
        let database: Database = database.unwrap();
        let transaction = database.begin_write().unwrap();
        let mut tables = KvTables::new(&transaction);
        for log in 0..3 {
            for number in 1..=300 {
                let append = LogAppend {
                    log: Name::of(Kind::Events, &[&log.to_string()]),
                    fence: Fence(1),
                    number,
                    entry: Bytes::from_static(b"event"),
                    expires_ms: 10 + log,
                };
                assert!(tables.append(&append, 1).unwrap());
            }
        }
        let name = Name::of(Kind::Claim, &["c"]);
        assert!(matches!(
            tables.claim(name, b"x", 20, 1),
            Ok(ClaimOutcome::Written)
        ));
        assert!(matches!(
            tables.claim(name, b"x", 20, 1),
            Ok(ClaimOutcome::Repeated)
        ));
        assert_eq!(rows(&mut tables), (4, 4, 3 * 256));
        tables.sweep(9, 100).unwrap();
        assert_eq!(rows(&mut tables), (4, 4, 3 * 256));
        tables.sweep(12, 300).unwrap();
        assert_eq!(rows(&mut tables), (2, 2, 256));
        tables.sweep(12, 300).unwrap();
        assert_eq!(rows(&mut tables), (1, 1, 0));
        tables.sweep(20, 300).unwrap();
        assert_eq!(rows(&mut tables), (0, 0, 0));
    }

    /// The numbers of rows: values and logs, expiries, entries.
    fn rows(tables: &mut KvTables<'_>) -> (u64, u64, u64) {
        let KvTables {
            values,
            expiry,
            entries,
            pieces: _,
        } = tables;
        (
            values.open().unwrap().len().unwrap(),
            expiry.open().unwrap().len().unwrap(),
            entries.open().unwrap().len().unwrap(),
        )
    }
}
