//! The records of the tasks, in the order of their creation.
//!
//! The ids of tasks are random. In their order, each record that is written would change a page of its own; in the order of
//! creation, the records that are written together lie in a few pages. A small table finds a record by the id of its task.

use redb::{ReadTransaction, ReadableTable as _, WriteTransaction};
use tracing::info;

use super::lazy_table::LazyTable;
use super::rows::{Id, NUMBERS, RECORDS, RECORDS_BY_ID, RecordRow, Row, RowHead};
use crate::task::id::TaskId;

/// The record of a task in this state of the file, expired or not.
pub(super) fn read(
    transaction: &ReadTransaction,
    id: TaskId,
) -> Result<Option<RecordRow>, redb::Error> {
    let Some(number) = transaction.open_table(NUMBERS)?.get(id.as_bytes())? else {
        return Ok(None);
    };
    let row = transaction.open_table(RECORDS)?.get(number.value())?;
    Ok(row.map(|row| RecordRow::from(row.value())))
}

/// The number of a record: its place in the order of creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecordNumber(u64);

/// The records, in one transaction.
pub(super) struct Records<'t> {
    numbers: LazyTable<'t, Id, u64>,
    rows: LazyTable<'t, u64, Row<'static>>,
    /// The number of the next new record, once it is known.
    next: Option<u64>,
}

impl<'t> Records<'t> {
    pub(super) fn new(transaction: &'t WriteTransaction) -> Self {
        Self {
            numbers: LazyTable::new(transaction, NUMBERS),
            rows: LazyTable::new(transaction, RECORDS),
            next: None,
        }
    }

    /// Creates the tables that the file does not have.
    pub(super) fn create(&mut self) -> Result<(), redb::Error> {
        self.numbers.open()?;
        self.rows.open()?;
        Ok(())
    }

    /// The number of a task's record, and what a write compares of it.
    pub(super) fn head(
        &mut self,
        id: TaskId,
    ) -> Result<Option<(RecordNumber, RowHead)>, redb::Error> {
        self.find(id, |row| RowHead::from(row))
    }

    /// The same with the whole record.
    pub(super) fn row(
        &mut self,
        id: TaskId,
    ) -> Result<Option<(RecordNumber, RecordRow)>, redb::Error> {
        self.find(id, |row| RecordRow::from(row))
    }

    fn find<T>(
        &mut self,
        id: TaskId,
        read: impl FnOnce(Row<'_>) -> T,
    ) -> Result<Option<(RecordNumber, T)>, redb::Error> {
        let Some(number) = self.numbers.open()?.get(id.as_bytes())? else {
            return Ok(None);
        };
        let number = number.value();
        let row = self.rows.open()?.get(number)?;
        Ok(row.map(|row| (RecordNumber(number), read(row.value()))))
    }

    /// Writes the first record of a task.
    pub(super) fn add(&mut self, id: TaskId, row: Row<'_>) -> Result<(), redb::Error> {
        let rows = self.rows.open()?;
        let number = match self.next {
            Some(next) => next,
            // A number may come again after its record was removed: by then no row refers to it.
            None => rows.last()?.map_or(0, |(last, _)| last.value() + 1),
        };
        rows.insert(number, row)?;
        self.next = Some(number + 1);
        self.numbers.open()?.insert(id.as_bytes(), number)?;
        Ok(())
    }

    pub(super) fn replace(
        &mut self,
        number: RecordNumber,
        row: Row<'_>,
    ) -> Result<(), redb::Error> {
        self.rows.open()?.insert(number.0, row)?;
        Ok(())
    }

    /// Removes the record of a task and returns it.
    pub(super) fn remove(&mut self, id: TaskId) -> Result<Option<RecordRow>, redb::Error> {
        let Some(number) = self.numbers.open()?.remove(id.as_bytes())? else {
            return Ok(None);
        };
        let row = self.rows.open()?.remove(number.value())?;
        Ok(row.map(|row| RecordRow::from(row.value())))
    }

    /// Takes over the records of a file of format 1, which are in the order of their ids.
    pub(super) fn take_over(&mut self, transaction: &WriteTransaction) -> Result<(), redb::Error> {
        info!("the store file is changed to the format of this version");
        for row in transaction.open_table(RECORDS_BY_ID)?.iter()? {
            let (id, row) = row?;
            self.add(TaskId::from_bytes(*id.value()), row.value())?;
        }
        transaction.delete_table(RECORDS_BY_ID)?;
        Ok(())
    }
}
