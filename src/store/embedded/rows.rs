//! The tables of the file, and the row of a record. The names of tables are part of the file format.

use bytes::Bytes;
use redb::TableDefinition;

use super::super::{Nonce, Stored, Version};
use crate::task::id::{Caller, Revision};

pub(super) type Id = &'static [u8; 16];
/// Revision, nonce, caller, expiry, due time, record.
pub(super) type Row<'a> = (u64, u128, &'a [u8; 16], u64, Option<u64>, &'a [u8]);

/// The numbers of the records, by task.
pub(super) const NUMBERS: TableDefinition<'_, Id, u64> = TableDefinition::new("record_numbers");
/// The records by number: in the order of creation.
pub(super) const RECORDS: TableDefinition<'_, u64, Row<'static>> =
    TableDefinition::new("numbered_records");
/// The records of a file of format 1, by task.
pub(super) const RECORDS_BY_ID: TableDefinition<'_, Id, Row<'static>> =
    TableDefinition::new("records");
pub(super) const REQUESTS: TableDefinition<'_, Id, &[u8]> = TableDefinition::new("requests");
/// Expiry and result, by task and fence.
pub(super) const RESULTS: TableDefinition<'_, (Id, u64), (u64, &[u8])> =
    TableDefinition::new("results");
pub(super) const INDEX: TableDefinition<'_, (&str, Id), ()> = TableDefinition::new("index");
pub(super) const DUE: TableDefinition<'_, (u64, Id), ()> = TableDefinition::new("due");
pub(super) const EXPIRY: TableDefinition<'_, (u64, Id), ()> = TableDefinition::new("expiry");
pub(super) const RESULT_EXPIRY: TableDefinition<'_, (u64, Id, u64), ()> =
    TableDefinition::new("result_expiry");
/// The listed tasks of each caller, and of each session, with their expiry. What a session's list names has a row the
/// other way round, too, by which the end of the record finds the list.
pub(super) const LISTS: TableDefinition<'_, (Id, Id), u64> = TableDefinition::new("lists");

/// The last entries of the history by number, with their expiry.
pub(super) const ENDED: TableDefinition<'_, u64, (u64, Id, &[u8])> = TableDefinition::new("ended");

/// A name: the letter of its kind, then its digest.
pub(super) type KvKey = &'static [u8; 17];

/// Expiry and value, or no value for a log.
pub(super) const VALUES: TableDefinition<'_, KvKey, (u64, Option<&[u8]>)> =
    TableDefinition::new("notes");
pub(super) const VALUE_EXPIRY: TableDefinition<'_, (u64, KvKey), ()> =
    TableDefinition::new("note_expiry");
/// Entries of logs by number.
pub(super) const ENTRIES: TableDefinition<'_, (KvKey, u64), &[u8]> =
    TableDefinition::new("entries");

/// The pieces of large values, by name, entry number and piece number.
pub(super) const PIECES: TableDefinition<'_, (KvKey, u64, u32), &[u8]> =
    TableDefinition::new("pieces");

/// The parts of a record that a write compares and that the indexes hold, expired or not.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowHead {
    pub(super) version: Version,
    pub(super) expires_ms: u64,
    pub(super) due_ms: Option<u64>,
}

impl From<Row<'_>> for RowHead {
    fn from((revision, nonce, _, expires_ms, due_ms, _): Row<'_>) -> Self {
        Self {
            version: Version {
                revision: Revision(revision),
                nonce: Nonce(nonce),
            },
            expires_ms,
            due_ms,
        }
    }
}

/// A record with its times, expired or not.
pub(super) struct RecordRow {
    pub(super) stored: Stored,
    pub(super) expires_ms: u64,
    pub(super) due_ms: Option<u64>,
}

impl From<Row<'_>> for RecordRow {
    fn from(row: Row<'_>) -> Self {
        let (_, _, caller, _, _, record) = row;
        let RowHead {
            version,
            expires_ms,
            due_ms,
        } = RowHead::from(row);
        Self {
            stored: Stored {
                version,
                caller: Caller::from_bytes(*caller),
                // A copy, because the row ends with its transaction and the record outlives it.
                record: Bytes::copy_from_slice(record),
            },
            expires_ms,
            due_ms,
        }
    }
}
