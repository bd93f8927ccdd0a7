//! Reads of the file. An expired row counts as absent, even if no sweep has removed it yet.

use std::collections::BTreeSet;
use std::ops::Bound;

use bytes::Bytes;
use redb::{Database, ReadTransaction, ReadableDatabase, ReadableTable};

use super::super::Stored;
use super::pieces::{of_request, of_result, whole};
use super::records;
use super::rows::{
    DUE, EXPIRY, INDEX, Id, LISTS, PIECES, REQUESTS, RESULT_EXPIRY, RESULTS, RecordRow,
    VALUE_EXPIRY,
};
use crate::task::id::{Caller, Fence, Incarnation, TaskId};

pub(super) fn record(
    database: &Database,
    id: TaskId,
    now_ms: u64,
) -> Result<Option<Stored>, redb::Error> {
    Ok(unexpired(&database.begin_read()?, id, now_ms)?.map(|found| found.stored))
}

pub(super) fn request(
    database: &Database,
    id: TaskId,
    now_ms: u64,
) -> Result<Option<Bytes>, redb::Error> {
    let transaction = database.begin_read()?;
    // The row of a request has no expiry of its own.
    if unexpired(&transaction, id, now_ms)?.is_none() {
        return Ok(None);
    }
    let pieces = transaction.open_table(PIECES)?;
    let found = transaction.open_table(REQUESTS)?.get(id.as_bytes())?;
    found
        .map(|request| whole(&pieces, &of_request(id), 0, request.value()))
        .transpose()
}

pub(super) fn result(
    database: &Database,
    id: TaskId,
    fence: Fence,
    now_ms: u64,
) -> Result<Option<Bytes>, redb::Error> {
    // The row and its pieces are read in one state of the file, so that no sweep removes pieces in between.
    let transaction = database.begin_read()?;
    let pieces = transaction.open_table(PIECES)?;
    let found = transaction
        .open_table(RESULTS)?
        .get((id.as_bytes(), fence.0))?;
    let Some(row) = found else { return Ok(None) };
    let (expires_ms, result) = row.value();
    if expires_ms <= now_ms {
        return Ok(None);
    }
    whole(&pieces, &of_result(id), fence.0, result).map(Some)
}

pub(super) fn indexed(
    database: &Database,
    incarnation: &Incarnation,
) -> Result<Vec<TaskId>, redb::Error> {
    let name = incarnation.as_str();
    let table = database.begin_read()?.open_table(INDEX)?;
    let rows = table.range((name, FIRST)..=(name, LAST))?;
    rows.map(|row| Ok(TaskId::from_bytes(*row?.0.value().1)))
        .collect()
}

pub(super) fn due(
    database: &Database,
    now_ms: u64,
    limit: usize,
) -> Result<Vec<TaskId>, redb::Error> {
    let table = database.begin_read()?.open_table(DUE)?;
    let rows = table.range(..=(now_ms, LAST))?.take(limit);
    rows.map(|row| Ok(TaskId::from_bytes(*row?.0.value().1)))
        .collect()
}

pub(super) fn listed(
    database: &Database,
    caller: &Caller,
    now_ms: u64,
) -> Result<Vec<(u64, TaskId)>, redb::Error> {
    let caller = caller.as_bytes();
    let table = database.begin_read()?.open_table(LISTS)?;
    let mut ids = Vec::new();
    for row in table.range((caller, FIRST)..=(caller, LAST))? {
        let (key, expires_ms) = row?;
        let expires_ms = expires_ms.value();
        if expires_ms > now_ms {
            ids.push((expires_ms, TaskId::from_bytes(*key.value().1)));
        }
    }
    Ok(ids)
}

pub(super) fn anything_expired(database: &Database, now_ms: u64) -> Result<bool, redb::Error> {
    let transaction = database.begin_read()?;
    let records = transaction.open_table(EXPIRY)?;
    let results = transaction.open_table(RESULT_EXPIRY)?;
    let values = transaction.open_table(VALUE_EXPIRY)?;
    let record = records.first()?.map(|(key, _)| key.value().0);
    let result = results.first()?.map(|(key, _)| key.value().0);
    let value = values.first()?.map(|(key, _)| key.value().0);
    let first_ms = [record, result, value].into_iter().flatten().min();
    Ok(first_ms.is_some_and(|first_ms| first_ms <= now_ms))
}

/// Every incarnation whose index is not empty.
pub(super) fn incarnations(database: &Database) -> Result<BTreeSet<Incarnation>, redb::Error> {
    incarnations_in(&database.begin_read()?.open_table(INDEX)?)
}

/// Every incarnation in the index. Jumps from name to name, so the cost does not depend on the number of tasks.
pub(super) fn incarnations_in(
    index: &impl ReadableTable<(&'static str, Id), ()>,
) -> Result<BTreeSet<Incarnation>, redb::Error> {
    let mut names = BTreeSet::new();
    let mut last = String::new();
    loop {
        // Behind every id of the last name, so that the next row has another name.
        let after = (Bound::Excluded((last.as_str(), LAST)), Bound::Unbounded);
        let next = index
            .range::<(&str, &[u8; 16])>(after)?
            .next()
            .transpose()?;
        let Some((key, _)) = next else {
            return Ok(names);
        };
        last = key.value().0.to_owned();
        names.insert(Incarnation::from_text(&last));
    }
}

fn unexpired(
    transaction: &ReadTransaction,
    id: TaskId,
    now_ms: u64,
) -> Result<Option<RecordRow>, redb::Error> {
    let found = records::read(transaction, id)?;
    Ok(found.filter(|found| found.expires_ms > now_ms))
}

const FIRST: Id = &[0; 16];
const LAST: Id = &[0xff; 16];
