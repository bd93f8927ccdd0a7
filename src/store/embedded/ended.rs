//! The last entries of the history, in the order of their commits.

use redb::{
    Database, ReadTransaction, ReadableDatabase as _, ReadableTable as _, WriteTransaction,
};

use super::super::{ENDED_LENGTH, Ended};
use super::lazy_table::LazyTable;
use super::rows::{ENDED, Id};
use crate::task::history::HistoryPlace;
use crate::task::id::TaskId;

/// Expiry, task, entry.
pub(super) type EndedRow<'a> = (u64, &'a [u8; 16], &'a [u8]);

/// The entries, in one transaction.
pub(super) struct EndedRows<'t>(LazyTable<'t, u64, (u64, Id, &'static [u8])>);

impl<'t> EndedRows<'t> {
    pub(super) fn new(transaction: &'t WriteTransaction) -> Self {
        Self(LazyTable::new(transaction, ENDED))
    }

    /// Creates the table if the file does not have it.
    pub(super) fn create(&mut self) -> Result<(), redb::Error> {
        self.0.open()?;
        Ok(())
    }

    /// Adds an entry, and removes the one that goes for it.
    pub(super) fn add(&mut self, row: EndedRow<'_>) -> Result<(), redb::Error> {
        let rows = self.0.open()?;
        // Numbers begin at 1, behind the place of a reader that has read nothing.
        let next = rows.last()?.map_or(0, |(last, _)| last.value()) + 1;
        rows.insert(next, row)?;
        if let Some(gone) = next.checked_sub(ENDED_LENGTH as u64) {
            rows.remove(gone)?;
        }
        Ok(())
    }

    /// Removes what has expired, but the last entry: numbers never come again.
    pub(super) fn sweep(&mut self, now_ms: u64, limit: usize) -> Result<(), redb::Error> {
        let rows = self.0.open()?;
        let Some(last) = rows.last()?.map(|(last, _)| last.value()) else {
            return Ok(());
        };
        let mut gone = Vec::new();
        for row in rows.range(..last)?.take(limit) {
            let (number, row) = row?;
            if row.value().0 > now_ms {
                break;
            }
            gone.push(number.value());
        }
        for number in gone {
            rows.remove(number)?;
        }
        Ok(())
    }

    /// Adds all entries of another file.
    pub(super) fn take_over(&mut self, from: &ReadTransaction) -> Result<(), redb::Error> {
        for row in from.open_table(ENDED)?.iter()? {
            self.add(row?.1.value())?;
        }
        Ok(())
    }
}

/// The entries behind this place.
pub(super) fn read(
    database: &Database,
    after: Option<HistoryPlace>,
) -> Result<Vec<Ended>, redb::Error> {
    let table = database.begin_read()?.open_table(ENDED)?;
    let first = after.map_or(0, |after| after.at.0) + 1;
    let rows = table.range(first..)?;
    rows.map(|row| {
        let (number, row) = row?;
        let (_, id, entry) = row.value();
        let at = (number.value(), 0);
        Ok(Ended {
            place: HistoryPlace { bucket: 0, at },
            id: TaskId::from_bytes(*id),
            entry: entry.to_vec().into(),
        })
    })
    .collect()
}
