//! Merges store files of ended processes into the file of this process.

use std::path::Path;

use redb::{
    Database, DatabaseError, Key, ReadTransaction, ReadableDatabase as _, ReadableTable as _,
    TableDefinition, TableError, Value, WriteTransaction,
};

use super::ended::EndedRows;
use super::file::DatabaseFile;
use super::records::Records;
use super::{rows, tables};
use crate::store::kv::Kind;
use crate::task::id::TaskId;

/// Moves what the file at `path` holds into `into`. Does nothing if another process has that file, or if the
/// file has another caller key, because no caller here could reach its tasks.
pub(super) fn merge(into: &Database, path: &Path, key: &[u8; 32]) -> Result<(), redb::Error> {
    let from = match DatabaseFile::new(path).open() {
        Err(DatabaseError::DatabaseAlreadyOpen) => return Ok(()),
        opened => opened?,
    };
    if tables::prepare(&from, key)? != Some(*key) {
        return Ok(());
    }
    let (reading, writing) = (from.begin_read()?, into.begin_write()?);
    let merge = Merge(&reading, &writing);
    merge.records()?;
    merge.copy(rows::REQUESTS)?;
    merge.copy(rows::RESULTS)?;
    merge.copy(rows::INDEX)?;
    merge.copy(rows::DUE)?;
    merge.copy(rows::EXPIRY)?;
    merge.copy(rows::RESULT_EXPIRY)?;
    merge.copy(rows::LISTS)?;
    EndedRows::new(&writing).take_over(&reading)?;
    // The entries have other numbers here, which the head of the other file does not fit. Its chunks expire.
    let head = Kind::History.letter();
    merge.copy_if(rows::VALUES, |key| key.first() != Some(&(head as u8)))?;
    merge.copy(rows::VALUE_EXPIRY)?;
    merge.copy(rows::ENTRIES)?;
    merge.copy(rows::PIECES)?;
    writing.commit()?;
    // redb frees no page that an open read still sees.
    drop(reading);
    // After a crash before this line both files have the rows. The file that is opened first merges the other.
    tables::empty(&from)
}

struct Merge<'t>(&'t ReadTransaction, &'t WriteTransaction);

impl Merge<'_> {
    /// Copies the records of the tasks that are not here. They have other numbers here.
    fn records(&self) -> Result<(), redb::Error> {
        let (numbers, rows) = (
            self.0.open_table(rows::NUMBERS)?,
            self.0.open_table(rows::RECORDS)?,
        );
        let mut here = Records::new(self.1);
        for task in numbers.iter()? {
            let (id, number) = task?;
            let id = TaskId::from_bytes(*id.value());
            // After a crash in an earlier merge both files have the task, and the record here may be newer by now.
            if here.head(id)?.is_none()
                && let Some(row) = rows.get(number.value())?
            {
                here.add(id, row.value())?;
            }
        }
        Ok(())
    }

    fn copy<K: Key + 'static, V: Value + 'static>(
        &self,
        table: TableDefinition<'static, K, V>,
    ) -> Result<(), redb::Error> {
        self.copy_if(table, |_| true)
    }

    /// Copies the rows of one table with these keys. A row that exists here stays as it is.
    fn copy_if<K: Key + 'static, V: Value + 'static>(
        &self,
        table: TableDefinition<'static, K, V>,
        is_wanted: impl Fn(&K::SelfType<'_>) -> bool,
    ) -> Result<(), redb::Error> {
        let source = match self.0.open_table(table) {
            Err(TableError::TableDoesNotExist(_)) => return Ok(()),
            opened => opened?,
        };
        let mut target = self.1.open_table(table)?;
        for row in source.iter()? {
            let (key, value) = row?;
            let is_here = target.get(key.value())?.is_some();
            if !is_here && is_wanted(&key.value()) {
                target.insert(key.value(), value.value())?;
            }
        }
        Ok(())
    }
}
