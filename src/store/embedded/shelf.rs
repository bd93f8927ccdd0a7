//! The tables of notes and logs, and every change of them.

use bytes::Bytes;
use redb::{ReadableTable as _, ReadableTableMetadata as _, Table, WriteTransaction};

use super::pieces::{Pieces, is_in_pieces};
use super::rows::{ENTRIES, Key, NOTE_EXPIRY, NOTES};
use crate::store::notes::{ENTRIES_MAX, Name};

/// A change of notes that always succeeds.
#[derive(Debug)]
pub(super) enum Change {
    Put {
        name: Name,
        value: Bytes,
        expires_ms: u64,
    },
    Remove {
        name: Name,
    },
    Append {
        log: Name,
        number: u64,
        entry: Bytes,
        expires_ms: u64,
    },
    Trim {
        log: Name,
        first: u64,
    },
}

/// These tables, open in one transaction.
pub(super) struct Shelf<'t> {
    notes: Table<'t, Key, (u64, Option<&'static [u8]>)>,
    expiry: Table<'t, (u64, Key), ()>,
    entries: Table<'t, (Key, u64), &'static [u8]>,
    pub(super) pieces: Pieces<'t>,
}

impl<'t> Shelf<'t> {
    pub(super) fn open(transaction: &'t WriteTransaction) -> Result<Self, redb::Error> {
        Ok(Self {
            notes: transaction.open_table(NOTES)?,
            expiry: transaction.open_table(NOTE_EXPIRY)?,
            entries: transaction.open_table(ENTRIES)?,
            pieces: Pieces::open(transaction)?,
        })
    }

    /// What stands in the way, if anything does.
    pub(super) fn claim(
        &mut self,
        name: Name,
        value: &[u8],
        expires_ms: u64,
        now_ms: u64,
    ) -> Result<Claimed, redb::Error> {
        if let Some(row) = self.notes.get(&key(name))?
            && let (until_ms, Some(stands)) = row.value()
            && until_ms > now_ms
        {
            return Ok(if stands == value {
                Claimed::Already
            } else {
                Claimed::ByAnother(Bytes::copy_from_slice(stands))
            });
        }
        self.put(name, value, expires_ms)?;
        Ok(Claimed::Now)
    }

    /// False where another note stands, or none.
    pub(super) fn replace(
        &mut self,
        name: Name,
        (stands, value): (&[u8], &[u8]),
        expires_ms: u64,
        now_ms: u64,
    ) -> Result<bool, redb::Error> {
        let is_it = match self.notes.get(&key(name))? {
            Some(row) => match row.value() {
                (until_ms, Some(now)) => until_ms > now_ms && (now == stands || now == value),
                (_, None) => false,
            },
            None => false,
        };
        if is_it {
            self.put(name, value, expires_ms)?;
        }
        Ok(is_it)
    }

    pub(super) fn change(&mut self, change: &Change, now_ms: u64) -> Result<(), redb::Error> {
        match change {
            Change::Put {
                name,
                value,
                expires_ms,
            } => self.put(*name, value, *expires_ms),
            Change::Remove { name } => self.remove(&key(*name)).map(drop),
            Change::Append {
                log,
                number,
                entry,
                expires_ms,
            } => {
                let key = key(*log);
                let stands = self.notes.get(&key)?.map(|row| row.value().0);
                match stands {
                    Some(until_ms) if until_ms > now_ms => {
                        self.expiry.remove((until_ms, &key))?;
                    }
                    // One that expired and was not swept yet leaves nothing to its successor.
                    Some(_) => {
                        self.remove(&key)?;
                    }
                    None => {}
                }
                self.notes.insert(&key, (*expires_ms, None))?;
                self.expiry.insert((*expires_ms, &key), ())?;
                let place = self.pieces.put(&key, *number, entry)?;
                self.entries.insert((&key, *number), place)?;
                let oldest = number.saturating_sub(ENTRIES_MAX);
                self.remove_entries(&key, oldest).map(drop)
            }
            Change::Trim { log, first } => match first.checked_sub(1) {
                Some(last) => self.remove_entries(&key(*log), last).map(drop),
                None => Ok(()),
            },
        }
    }

    /// Those up to that number; how many.
    fn remove_entries(&mut self, key: &[u8; 17], last: u64) -> Result<usize, redb::Error> {
        let (mut rows, mut in_pieces) = (0, false);
        self.entries.retain_in((key, 0)..=(key, last), |_, entry| {
            rows += 1;
            in_pieces |= is_in_pieces(entry);
            false
        })?;
        if in_pieces {
            self.pieces.remove(key, 0..=last)?;
        }
        Ok(rows)
    }

    fn put(&mut self, name: Name, value: &[u8], expires_ms: u64) -> Result<(), redb::Error> {
        let key = key(name);
        self.remove(&key)?;
        self.notes.insert(&key, (expires_ms, Some(value)))?;
        self.expiry.insert((expires_ms, &key), ())?;
        Ok(())
    }

    /// How many rows that took.
    fn remove(&mut self, key: &[u8; 17]) -> Result<usize, redb::Error> {
        let until_ms = self.notes.remove(key)?.map(|row| row.value().0);
        let Some(until_ms) = until_ms else {
            return Ok(0);
        };
        self.expiry.remove((until_ms, key))?;
        Ok(1 + self.remove_entries(key, u64::MAX)?)
    }

    pub(super) fn expiry_rows(&self) -> Result<u64, redb::Error> {
        Ok(self.expiry.len()?)
    }

    /// Takes out what has expired: so many rows, or one log more.
    pub(super) fn sweep(&mut self, now_ms: u64, limit: usize) -> Result<(), redb::Error> {
        let mut gone = Vec::new();
        for row in self.expiry.range(..=(now_ms, &[0xff; 17]))?.take(limit) {
            gone.push(*row?.0.value().1);
        }
        let mut rows = 0;
        for key in gone {
            if rows >= limit {
                break;
            }
            rows += self.remove(&key)?;
        }
        Ok(())
    }
}

/// What became of a claim.
pub(super) enum Claimed {
    Now,
    /// By this very claim, sent before.
    Already,
    ByAnother(Bytes),
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
    use crate::store::notes::Kind;

    #[test]
    fn a_sweep_is_bounded_and_in_the_end_nothing_is_left() {
        let database = redb::Builder::new();
        let database = database.create_with_backend(InMemoryBackend::new());
        let database: Database = database.unwrap();
        let transaction = database.begin_write().unwrap();
        let mut shelf = Shelf::open(&transaction).unwrap();
        for log in 0..3 {
            for number in 1..=300 {
                let append = Change::Append {
                    log: Name::of(Kind::Events, &[&log.to_string()]),
                    number,
                    entry: Bytes::from_static(b"event"),
                    expires_ms: 10 + log,
                };
                shelf.change(&append, 1).unwrap();
            }
        }
        let name = Name::of(Kind::Claim, &["c"]);
        assert!(matches!(shelf.claim(name, b"x", 20, 1), Ok(Claimed::Now)));
        assert!(matches!(
            shelf.claim(name, b"x", 20, 1),
            Ok(Claimed::Already)
        ));
        assert_eq!(rows(&shelf), (4, 4, 3 * 256));
        shelf.sweep(9, 100).unwrap();
        assert_eq!(rows(&shelf), (4, 4, 3 * 256));
        shelf.sweep(12, 300).unwrap();
        assert_eq!(rows(&shelf), (2, 2, 256));
        shelf.sweep(12, 300).unwrap();
        assert_eq!(rows(&shelf), (1, 1, 0));
        shelf.sweep(20, 300).unwrap();
        assert_eq!(rows(&shelf), (0, 0, 0));
    }

    /// Of notes and logs, of expiries, of entries.
    fn rows(shelf: &Shelf<'_>) -> (u64, u64, u64) {
        let Shelf {
            notes,
            expiry,
            entries,
            pieces: _,
        } = shelf;
        (
            notes.len().unwrap(),
            expiry.len().unwrap(),
            entries.len().unwrap(),
        )
    }
}
