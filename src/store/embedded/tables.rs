//! The tables of the file and every change of them.

use bytes::Bytes;
use redb::{
    AccessGuard, Database, ReadOnlyDatabase, ReadableDatabase, ReadableTable,
    ReadableTableMetadata as _, TableDefinition, TableError, WriteTransaction,
};

use super::super::compare_and_set::next_revision;
use super::super::{Commit, HistoryEntry, Stored, Write};
use super::ended::EndedRows;
use super::kv_tables::{KvEdit, KvTables};
use super::lazy_table::LazyTable;
use super::pieces::{is_in_pieces, of_request, of_result};
use super::read::incarnations_in;
use super::records::{RecordNumber, Records};
use super::rows::{
    DUE, ENDED, ENTRIES, EXPIRY, INDEX, Id, LISTS, NUMBERS, PIECES, RECORDS, REQUESTS,
    RESULT_EXPIRY, RESULTS, RowHead, VALUE_EXPIRY, VALUES,
};
use crate::task::id::{Fence, Incarnation, Revision, TaskId};

const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");

/// Changes with the meaning of a table, not with its content.
const FORMAT: &[u8] = b"2";

/// The format of earlier versions: records were in the order of the tasks' ids.
const FORMAT_BEFORE: &[u8] = b"1";

/// The most rows that one sweep removes, so that no write waits long behind it.
const SWEEP: usize = 1024;

/// Creates the tables and the caller key if they do not exist, and changes a file of the format before into one of this
/// format, all or nothing. Returns `None` for a file of another format.
pub(super) fn prepare(
    database: &Database,
    new_key: &[u8; 32],
) -> Result<Option<[u8; 32]>, redb::Error> {
    let transaction = database.begin_write()?;
    let key = {
        let mut meta = transaction.open_table(META)?;
        // A copy, because the row would keep the table from being changed.
        let format = meta.get("format")?.map(|found| found.value().to_vec());
        if !is_known(format.as_deref()) {
            // Nothing is committed, so that a file of another version stays as it is.
            return Ok(None);
        }
        if format.as_deref() == Some(FORMAT_BEFORE) {
            Records::new(&transaction).take_over(&transaction)?;
        }
        if format.as_deref() != Some(FORMAT) {
            meta.insert("format", FORMAT)?;
        }
        let found = meta
            .get("caller_key")?
            .and_then(|found| found.value().try_into().ok());
        if found.is_none() {
            meta.insert("caller_key", new_key.as_slice())?;
        }
        Tables::new(&transaction).create()?;
        found.unwrap_or(*new_key)
    };
    transaction.commit()?;
    Ok(Some(key))
}

/// Removes all rows but the caller key.
pub(super) fn empty(database: &Database) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    transaction.delete_table(NUMBERS)?;
    transaction.delete_table(RECORDS)?;
    transaction.delete_table(REQUESTS)?;
    transaction.delete_table(RESULTS)?;
    transaction.delete_table(INDEX)?;
    transaction.delete_table(DUE)?;
    transaction.delete_table(EXPIRY)?;
    transaction.delete_table(RESULT_EXPIRY)?;
    transaction.delete_table(LISTS)?;
    transaction.delete_table(ENDED)?;
    transaction.delete_table(VALUES)?;
    transaction.delete_table(VALUE_EXPIRY)?;
    transaction.delete_table(ENTRIES)?;
    transaction.delete_table(PIECES)?;
    Ok(transaction.commit()?)
}

/// Removes what has expired and gives the free space back to the disk. redb itself reuses free pages, but
/// shortens the file only if its end is free.
pub(super) fn compact(database: &mut Database, now_ms: u64) -> Result<(), redb::Error> {
    loop {
        let transaction = database.begin_write()?;
        let was_swept = {
            let mut tables = Tables::new(&transaction);
            let before = tables.expiry_rows()?;
            tables.sweep(now_ms)?;
            tables.expiry_rows()? != before
        };
        transaction.commit()?;
        // A sweep removes a bounded number of rows, so it is repeated until it finds none.
        if !was_swept {
            break;
        }
    }
    database.compact()?;
    Ok(())
}

/// Returns `true` if [`prepare`] would accept the file. Writes nothing.
pub(super) fn is_of_this_format(database: &ReadOnlyDatabase) -> Result<bool, redb::Error> {
    let transaction = database.begin_read()?;
    let meta = match transaction.open_table(META) {
        // The file was created, and nothing was written yet.
        Err(TableError::TableDoesNotExist(_)) => return Ok(true),
        opened => opened?,
    };
    let format = meta.get("format")?;
    Ok(is_known(format.as_ref().map(AccessGuard::value)))
}

/// Returns `true` if [`prepare`] accepts a file with this format, or without one: it was created, and nothing was
/// written yet.
fn is_known(format: Option<&[u8]>) -> bool {
    format.is_none_or(|format| [FORMAT, FORMAT_BEFORE].contains(&format))
}

/// A change that cannot conflict.
#[derive(Debug)]
pub(super) enum TableEdit {
    PutResult {
        id: TaskId,
        fence: Fence,
        result: Bytes,
        expires_ms: u64,
    },
    Forget {
        id: TaskId,
        incarnation: Option<Incarnation>,
    },
    Kv(KvEdit),
    Sweep {
        now_ms: u64,
    },
}

/// All tables, in one transaction.
pub(super) struct Tables<'t> {
    records: Records<'t>,
    requests: LazyTable<'t, Id, &'static [u8]>,
    results: LazyTable<'t, (Id, u64), (u64, &'static [u8])>,
    index: LazyTable<'t, (&'static str, Id), ()>,
    due: LazyTable<'t, (u64, Id), ()>,
    expiry: LazyTable<'t, (u64, Id), ()>,
    result_expiry: LazyTable<'t, (u64, Id, u64), ()>,
    lists: LazyTable<'t, (Id, Id), u64>,
    ended: EndedRows<'t>,
    pub(super) kv: KvTables<'t>,
}

impl<'t> Tables<'t> {
    pub(super) fn new(transaction: &'t WriteTransaction) -> Self {
        Self {
            records: Records::new(transaction),
            requests: LazyTable::new(transaction, REQUESTS),
            results: LazyTable::new(transaction, RESULTS),
            index: LazyTable::new(transaction, INDEX),
            due: LazyTable::new(transaction, DUE),
            expiry: LazyTable::new(transaction, EXPIRY),
            result_expiry: LazyTable::new(transaction, RESULT_EXPIRY),
            lists: LazyTable::new(transaction, LISTS),
            ended: EndedRows::new(transaction),
            kv: KvTables::new(transaction),
        }
    }

    /// Creates the tables that the file does not have, because reads need all of them.
    fn create(&mut self) -> Result<(), redb::Error> {
        self.records.create()?;
        self.requests.open()?;
        self.results.open()?;
        self.index.open()?;
        self.due.open()?;
        self.expiry.open()?;
        self.result_expiry.open()?;
        self.lists.open()?;
        self.ended.create()?;
        self.kv.create()
    }

    /// Applies a write. Returns its outcome and whether it changed anything.
    pub(super) fn commit(
        &mut self,
        write: &Write,
        now_ms: u64,
    ) -> Result<(Commit, bool), redb::Error> {
        // Only the head is read here. The whole record is copied only for a conflict, and most writes have none.
        let found = self.records.head(write.id)?;
        let standing = found.filter(|(_, found)| found.expires_ms > now_ms);
        match next_revision(standing.map(|(_, found)| found.version), write) {
            Ok(revision) => {
                // The old record has expired and was not swept yet. The new record must inherit nothing from it.
                if standing.is_none() && found.is_some() {
                    self.remove_record(write.id)?;
                }
                self.apply(write, revision, standing)?;
                Ok((Commit::Done(revision), true))
            }
            Err(unchanged) => {
                let standing = match standing {
                    Some(_) => self.records.row(write.id)?.map(|(_, found)| found.stored),
                    None => None,
                };
                Ok((unchanged.into_commit(standing), false))
            }
        }
    }

    pub(super) fn edit(&mut self, edit: &TableEdit, now_ms: u64) -> Result<(), redb::Error> {
        match edit {
            TableEdit::PutResult {
                id,
                fence,
                result,
                expires_ms,
            } => {
                // An earlier sending may have left pieces, and a row under another expiry.
                self.remove_result(*id, *fence)?;
                let place = self.kv.pieces.put(&of_result(*id), fence.0, result)?;
                let row = (*expires_ms, place);
                self.results.open()?.insert((id.as_bytes(), fence.0), row)?;
                self.result_expiry
                    .open()?
                    .insert((*expires_ms, id.as_bytes(), fence.0), ())?;
            }
            TableEdit::Forget { id, incarnation } => {
                self.remove_due(*id)?;
                if let Some(incarnation) = incarnation {
                    self.index
                        .open()?
                        .remove((incarnation.as_str(), id.as_bytes()))?;
                }
            }
            TableEdit::Kv(edit) => self.kv.edit(edit, now_ms)?,
            TableEdit::Sweep { now_ms } => self.sweep(*now_ms)?,
        }
        Ok(())
    }

    fn apply(
        &mut self,
        write: &Write,
        revision: Revision,
        old: Option<(RecordNumber, RowHead)>,
    ) -> Result<(), redb::Error> {
        let id = write.id.as_bytes();
        let row = (
            revision.0,
            write.nonce.0,
            write.caller.as_bytes(),
            write.expires_ms,
            write.due_ms,
            write.record.as_ref(),
        );
        match old {
            Some((number, _)) => self.records.replace(number, row)?,
            None => self.records.add(write.id, row)?,
        }
        let old = old.map(|(_, head)| head);
        // A new record has no request yet, so the table of requests is not read for it.
        if let Some(request) = &write.request
            && (old.is_none() || self.requests.open()?.get(id)?.is_none())
        {
            let place = self.kv.pieces.put(&of_request(write.id), 0, request)?;
            self.requests.open()?.insert(id, place)?;
        }
        if let Some(list) = write.listed.as_ref().filter(|_| old.is_none()) {
            let list = list.as_bytes();
            self.lists.open()?.insert((list, id), write.expires_ms)?;
            // A row names its caller and no session. By this entry the end of the record finds the session's list.
            if list != write.caller.as_bytes() {
                self.lists.open()?.insert((id, list), write.expires_ms)?;
            }
        }
        if let Some(HistoryEntry { entry, expires_ms }) = &write.history {
            self.ended.add((*expires_ms, id, entry))?;
        }
        self.move_expiry(id, old.map(|old| old.expires_ms), write.expires_ms)?;
        self.move_due(id, old.and_then(|old| old.due_ms), write.due_ms)?;
        if let Some(incarnation) = &write.drop_from {
            self.index.open()?.remove((incarnation.as_str(), id))?;
        }
        if let Some(incarnation) = &write.keep_for {
            self.index.open()?.insert((incarnation.as_str(), id), ())?;
        }
        Ok(())
    }

    /// Changes when a record expires. Only a create does: a later write keeps the expiry and costs nothing here.
    fn move_expiry(
        &mut self,
        id: &[u8; 16],
        from: Option<u64>,
        to: u64,
    ) -> Result<(), redb::Error> {
        if from == Some(to) {
            return Ok(());
        }
        if let Some(from) = from {
            self.expiry.open()?.remove((from, id))?;
        }
        self.expiry.open()?.insert((to, id), ())?;
        Ok(())
    }

    fn move_due(
        &mut self,
        id: &[u8; 16],
        from: Option<u64>,
        to: Option<u64>,
    ) -> Result<(), redb::Error> {
        if from == to {
            return Ok(());
        }
        if let Some(from) = from {
            self.due.open()?.remove((from, id))?;
        }
        if let Some(to) = to {
            self.due.open()?.insert((to, id), ())?;
        }
        Ok(())
    }

    /// The number of rows in all indexes of expiry.
    fn expiry_rows(&mut self) -> Result<u64, redb::Error> {
        Ok(self.expiry.open()?.len()?
            + self.result_expiry.open()?.len()?
            + self.kv.expiry_rows()?)
    }

    /// Removes a record from the due index.
    fn remove_due(&mut self, id: TaskId) -> Result<(), redb::Error> {
        let Some((number, found)) = self.records.row(id)? else {
            return Ok(());
        };
        let Some(due_ms) = found.due_ms else {
            return Ok(());
        };
        self.due.open()?.remove((due_ms, id.as_bytes()))?;
        let Stored {
            version,
            caller,
            record,
        } = &found.stored;
        let row = (
            version.revision.0,
            version.nonce.0,
            caller.as_bytes(),
            found.expires_ms,
            None,
            record.as_ref(),
        );
        // The row loses its time, too: a commit with the same time would see no change, and write no entry.
        self.records.replace(number, row)
    }

    pub(super) fn sweep(&mut self, now_ms: u64) -> Result<(), redb::Error> {
        let mut records = Vec::new();
        // Noted first, because a range that is open borrows the table from which the rows go.
        for row in self
            .expiry
            .open()?
            .range(..=(now_ms, &[0xff; 16]))?
            .take(SWEEP)
        {
            records.push(TaskId::from_bytes(*row?.0.value().1));
        }
        // A record does not tell which index names it. There are few indexes: one for each live replica.
        let incarnations = incarnations_in(self.index.open()?)?;
        for id in records {
            self.remove_record(id)?;
            for incarnation in &incarnations {
                self.index
                    .open()?
                    .remove((incarnation.as_str(), id.as_bytes()))?;
            }
        }
        let mut results = Vec::new();
        for row in self
            .result_expiry
            .open()?
            .range(..=(now_ms, &[0xff; 16], u64::MAX))?
            .take(SWEEP)
        {
            let (key, _) = row?;
            let (_, id, fence) = key.value();
            results.push((TaskId::from_bytes(*id), Fence(fence)));
        }
        for (id, fence) in results {
            self.remove_result(id, fence)?;
        }
        self.ended.sweep(now_ms, SWEEP)?;
        self.kv.sweep(now_ms, SWEEP)
    }

    fn remove_record(&mut self, id: TaskId) -> Result<(), redb::Error> {
        let Some(found) = self.records.remove(id)? else {
            return Ok(());
        };
        let key = of_request(id);
        let id = id.as_bytes();
        let request = self.requests.open()?.remove(id)?;
        if request.is_some_and(|request| is_in_pieces(request.value())) {
            self.kv.pieces.remove(&key, 0..=0)?;
        }
        self.lists
            .open()?
            .remove((found.stored.caller.as_bytes(), id))?;
        while let Some(list) = self.other_list(id)? {
            self.lists.open()?.remove((&list, id))?;
            self.lists.open()?.remove((id, &list))?;
        }
        self.expiry.open()?.remove((found.expires_ms, id))?;
        if let Some(due_ms) = found.due_ms {
            self.due.open()?.remove((due_ms, id))?;
        }
        Ok(())
    }

    /// A list beside its caller's that names the task.
    fn other_list(&mut self, id: &[u8; 16]) -> Result<Option<[u8; 16]>, redb::Error> {
        let mut rows = self
            .lists
            .open()?
            .range((id, &[0; 16])..=(id, &[0xff; 16]))?;
        let row = rows.next().transpose()?;
        Ok(row.map(|(key, _)| *key.value().1))
    }

    fn remove_result(&mut self, id: TaskId, fence: Fence) -> Result<(), redb::Error> {
        let key = (id.as_bytes(), fence.0);
        let removed = self.results.open()?.remove(key)?;
        let removed = removed.map(|row| {
            let (expires_ms, result) = row.value();
            (expires_ms, is_in_pieces(result))
        });
        if let Some((expires_ms, in_pieces)) = removed {
            if in_pieces {
                self.kv.pieces.remove(&of_result(id), fence.0..=fence.0)?;
            }
            self.result_expiry
                .open()?
                .remove((expires_ms, key.0, key.1))?;
        }
        Ok(())
    }
}
