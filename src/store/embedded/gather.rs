//! What other files of the same kind hold, whose processes have ended: taken into this one.

use std::path::Path;

use redb::{
    Database, DatabaseError, Key, ReadTransaction, ReadableDatabase as _, ReadableTable as _,
    TableDefinition, TableError, Value, WriteTransaction,
};

use super::file::File;
use super::{rows, tables};

/// Takes over what the file at that path holds. Nothing happens where another process has it, or where
/// it was made under another key: its tasks are no caller's here.
pub(super) fn gather(into: &Database, path: &Path, key: &[u8; 32]) -> Result<(), redb::Error> {
    let from = match File::new(path).open() {
        Err(DatabaseError::DatabaseAlreadyOpen) => return Ok(()),
        opened => opened?,
    };
    if tables::prepare(&from, key)? != Some(*key) {
        return Ok(());
    }
    let (reading, writing) = (from.begin_read()?, into.begin_write()?);
    let pair = Pair(&reading, &writing);
    pair.copy(rows::RECORDS)?;
    pair.copy(rows::REQUESTS)?;
    pair.copy(rows::RESULTS)?;
    pair.copy(rows::INDEX)?;
    pair.copy(rows::DUE)?;
    pair.copy(rows::EXPIRY)?;
    pair.copy(rows::RESULT_EXPIRY)?;
    pair.copy(rows::LISTS)?;
    pair.copy(rows::NOTES)?;
    pair.copy(rows::NOTE_EXPIRY)?;
    pair.copy(rows::ENTRIES)?;
    writing.commit()?;
    drop(reading);
    // After a crash before this both have them, and whichever is opened first gathers the other's.
    tables::empty(&from)
}

struct Pair<'t>(&'t ReadTransaction, &'t WriteTransaction);

impl Pair<'_> {
    /// What is here already stays.
    fn copy<K: Key + 'static, V: Value + 'static>(
        &self,
        table: TableDefinition<'static, K, V>,
    ) -> Result<(), redb::Error> {
        let source = match self.0.open_table(table) {
            Err(TableError::TableDoesNotExist(_)) => return Ok(()),
            opened => opened?,
        };
        let mut target = self.1.open_table(table)?;
        for row in source.iter()? {
            let (key, value) = row?;
            let is_here = target.get(key.value())?.is_some();
            if !is_here {
                target.insert(key.value(), value.value())?;
            }
        }
        Ok(())
    }
}
