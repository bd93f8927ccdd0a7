//! Large values, split into pieces that fill the pages of the file.
//!
//! redb gives a value a page of the next power of two. Without pieces the file would be up to twice as large
//! as its content.

use std::ops::RangeInclusive;

use bytes::Bytes;
use redb::{ReadableTable, WriteTransaction};

use super::lazy_table::LazyTable;
use super::rows::{KvKey, PIECES};
use crate::task::id::TaskId;

/// The size of a piece. With redb's own bytes it just fits a page.
const PIECE: usize = 256 * 1024 - 512;

/// The mark that replaces a value stored in pieces. A real value is never empty.
const IN_PIECES: &[u8] = &[];

/// The table of pieces, open in one transaction.
pub(super) struct Pieces<'t> {
    table: LazyTable<'t, (KvKey, u64, u32), &'static [u8]>,
    /// Bytes that this transaction freed.
    pub(super) freed: u64,
    /// Bytes that this transaction wrote.
    pub(super) written: u64,
}

impl<'t> Pieces<'t> {
    pub(super) fn new(transaction: &'t WriteTransaction) -> Self {
        Self {
            table: LazyTable::new(transaction, PIECES),
            freed: 0,
            written: 0,
        }
    }

    /// Creates the table if the file does not have it.
    pub(super) fn create(&mut self) -> Result<(), redb::Error> {
        self.table.open()?;
        Ok(())
    }

    /// Stores a large value in pieces. Returns what to write in the place of the value: the value itself if it is
    /// small.
    pub(super) fn put<'v>(
        &mut self,
        key: &[u8; 17],
        number: u64,
        value: &'v [u8],
    ) -> Result<&'v [u8], redb::Error> {
        if value.len() <= PIECE {
            return Ok(value);
        }
        // The value that this one replaces may have had more pieces.
        self.remove(key, number..=number)?;
        for (piece, bytes) in (0..).zip(value.chunks(PIECE)) {
            self.table.open()?.insert((key, number, piece), bytes)?;
        }
        self.written += value.len() as u64;
        Ok(IN_PIECES)
    }

    pub(super) fn remove(
        &mut self,
        key: &[u8; 17],
        numbers: RangeInclusive<u64>,
    ) -> Result<(), redb::Error> {
        let (first, last) = numbers.into_inner();
        let mut freed = 0;
        let pieces = (key, first, 0)..=(key, last, u32::MAX);
        self.table.open()?.retain_in(pieces, |_, piece| {
            freed += piece.len() as u64;
            false
        })?;
        self.freed += freed;
        Ok(())
    }
}

/// Returns `true` if a value is stored in pieces. `value` is the value itself, or the mark that replaces it.
pub(super) fn is_in_pieces(value: &[u8]) -> bool {
    value.is_empty()
}

/// The whole value, read from its pieces if it is stored in pieces.
pub(super) fn whole(
    pieces: &impl ReadableTable<(KvKey, u64, u32), &'static [u8]>,
    key: &[u8; 17],
    number: u64,
    value: &[u8],
) -> Result<Bytes, redb::Error> {
    if !is_in_pieces(value) {
        return Ok(Bytes::copy_from_slice(value));
    }
    let mut whole = Vec::new();
    for piece in pieces.range((key, number, 0)..=(key, number, u32::MAX))? {
        whole.extend_from_slice(piece?.1.value());
    }
    Ok(whole.into())
}

/// The key of a request's pieces. Its letter belongs to no kind of name.
pub(super) fn of_request(id: TaskId) -> [u8; 17] {
    of(b'Q', id)
}

/// The key of a result's pieces.
pub(super) fn of_result(id: TaskId) -> [u8; 17] {
    of(b'R', id)
}

fn of(letter: u8, id: TaskId) -> [u8; 17] {
    let mut key = [letter; 17];
    for (place, byte) in key.iter_mut().skip(1).zip(id.as_bytes()) {
        *place = *byte;
    }
    key
}
