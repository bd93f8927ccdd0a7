//! Large values, in pieces that fill the pages of the file. A value of its own would get a page of the
//! next power of two, and the file would be up to twice as large as what is in it.

use std::ops::RangeInclusive;

use bytes::Bytes;
use redb::{ReadableTable, Table, WriteTransaction};

use super::rows::{Key, PIECES};
use crate::task::id::TaskId;

/// With what redb adds it just fits.
const PIECE: usize = 256 * 1024 - 512;

/// What stands in the place of a value that lies in pieces. No value of ours is empty.
const IN_PIECES: &[u8] = &[];

/// The pieces, open in one transaction.
pub(super) struct Pieces<'t> {
    table: Table<'t, (Key, u64, u32), &'static [u8]>,
    /// What became free in this transaction, and what was written.
    pub(super) freed: u64,
    pub(super) written: u64,
}

impl<'t> Pieces<'t> {
    pub(super) fn open(transaction: &'t WriteTransaction) -> Result<Self, redb::Error> {
        Ok(Self {
            table: transaction.open_table(PIECES)?,
            freed: 0,
            written: 0,
        })
    }

    /// Keeps the pieces of a large value; what to write in its own place.
    pub(super) fn put<'v>(
        &mut self,
        key: &[u8; 17],
        number: u64,
        value: &'v [u8],
    ) -> Result<&'v [u8], redb::Error> {
        if value.len() <= PIECE {
            return Ok(value);
        }
        self.remove(key, number..=number)?;
        for (piece, bytes) in (0..).zip(value.chunks(PIECE)) {
            self.table.insert((key, number, piece), bytes)?;
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
        self.table.retain_in(pieces, |_, piece| {
            freed += piece.len() as u64;
            false
        })?;
        self.freed += freed;
        Ok(())
    }
}

/// Whether a value lies in pieces, by what stands in its place.
pub(super) fn is_in_pieces(value: &[u8]) -> bool {
    value.is_empty()
}

/// The value in whose place that stands.
pub(super) fn whole(
    pieces: &impl ReadableTable<(Key, u64, u32), &'static [u8]>,
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

/// As no note is named.
pub(super) fn of_request(id: TaskId) -> [u8; 17] {
    of(b'Q', id)
}

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
