//! Values and logs in Redis: one key for each value, and one hash for each log.
//!
//! A log entry is the field of its number. A large entry is split into pieces: the later pieces have fields of their own
//! (`7:1`, `7:2`, ..) and are written first. The head (`3`, a line feed, the first piece) is written last and holds the
//! number of pieces. An entry counts only if its head and all its pieces exist. Writing the head also removes pieces of
//! an earlier, longer entry with the same number.
//!
//! The field `0:0` is the fence below which appends are refused.
//!
//! So every append is a sequence of short scripts that leave no key without an expiry. One script with 32 MiB would
//! hold up the server for 80 ms.

use std::collections::BTreeMap;

use async_trait::async_trait;
use bytes::Bytes;
use redis::Cmd;

use super::super::LOG_LENGTH;
use super::Redis;
use super::link::Link;
use super::log::TOLD_MS;
use super::replies::{UNREADABLE, bytes, get};
use crate::store::error::StoreError;
use crate::store::kv::{ENTRIES_MAX, Kind, KvStore, Name};
use crate::store::ledger::INLINE_BYTES_MAX;
use crate::task::id::Fence;

#[async_trait]
impl KvStore for Redis {
    /// A claim is durable if the operator asked for durable writes, because the claimed call must not run twice.
    async fn claim(
        &self,
        name: Name,
        value: Bytes,
        expires_ms: u64,
    ) -> Result<Option<Bytes>, StoreError> {
        let key = self.keys.note(name);
        let script = &self.notes.claim;
        let fill = |command: &mut Cmd| {
            let command = command.arg(1).arg(&key);
            command.arg(value.as_ref()).arg(expires_ms);
        };
        let reply: Vec<redis::Value> = match &self.durable {
            Some(durable) => durable.call(script, &key, fill).await?,
            None => self.link.call(script, &key, fill).await?,
        };
        let current = reply.into_iter().next();
        let current = current.map(|current| bytes(current).map(Bytes::from));
        current.map(|current| current.ok_or(UNREADABLE)).transpose()
    }

    async fn put(&self, name: Name, value: Bytes, expires_ms: u64) -> Result<(), StoreError> {
        let key = self.keys.note(name);
        let mut command = redis::cmd("SET");
        command
            .arg(&key)
            .arg(value.as_ref())
            .arg("PXAT")
            .arg(expires_ms);
        self.for_bytes(value.len()).query(&key, &command).await
    }

    async fn replace(
        &self,
        name: Name,
        expected: Bytes,
        value: Bytes,
        expires_ms: u64,
    ) -> Result<bool, StoreError> {
        let key = self.keys.note(name);
        let fill = |command: &mut Cmd| {
            let command = command.arg(1).arg(&key).arg(expected.as_ref());
            command.arg(value.as_ref()).arg(expires_ms);
        };
        let link = self.for_bytes(expected.len() + value.len());
        let written: u64 = link.call(&self.notes.replace, &key, fill).await?;
        Ok(written == 1)
    }

    async fn find(&self, name: Name) -> Result<Option<Bytes>, StoreError> {
        get(self.for_kind(name.kind), &self.keys.note(name)).await
    }

    async fn remove(&self, name: Name) -> Result<(), StoreError> {
        let key = self.keys.note(name);
        // UNLINK frees a large log in the background, while DEL would hold up the commands behind it.
        let mut command = redis::cmd("UNLINK");
        command.arg(&key);
        self.link.query::<u64>(&key, &command).await.map(drop)
    }

    /// Waits up to five seconds for each piece.
    async fn append(
        &self,
        log: Name,
        fence: Fence,
        number: u64,
        entry: Bytes,
        expires_ms: u64,
    ) -> Result<bool, StoreError> {
        // The writer numbers entries one by one, so at most one entry is too old.
        let oldest = number.saturating_sub(ENTRIES_MAX);
        let link = self.for_bytes(entry.len());
        let (first, rest) = entry.split_at(entry.len().min(PIECE));
        let rest = rest.chunks(PIECE);
        let pieces = 1 + rest.len();
        let head = head(pieces, first);
        let rest = rest.zip(1_usize..);
        let rest = rest.map(|(piece, at)| (format!("{number}:{at}"), piece, None));
        for (field, piece, pieces) in rest.chain([(number.to_string(), &*head, Some(pieces))]) {
            let pieces = pieces.map_or_else(String::new, |pieces| pieces.to_string());
            let fill = |command: &mut Cmd| {
                command.arg(&field).arg(piece).arg(expires_ms);
                command.arg(oldest).arg(&pieces);
            };
            // A fence that comes between two pieces leaves an entry without a head, which no reader counts.
            if !self.write_field(link, log, fence, fill).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn fence(&self, log: Name, fence: Fence, expires_ms: u64) -> Result<(), StoreError> {
        let fill = |command: &mut Cmd| {
            command.arg(FENCE).arg(fence.0).arg(expires_ms);
            // No entry goes for a fence, and without a number of pieces the script notifies no reader.
            command.arg(0).arg("");
        };
        self.write_field(&self.link, log, fence, fill)
            .await
            .map(drop)
    }

    /// Waits up to five seconds for the list of fields, and for each command that removes fields.
    async fn trim(&self, log: Name, first: u64) -> Result<(), StoreError> {
        let key = self.keys.note(log);
        let mut places = self.places(&key).await?;
        places.retain(|place| place.number < first);
        // Heads go first, because an entry without its head does not count.
        places.sort_unstable_by_key(|place| (place.piece, place.number));
        for some in places.chunks(PIECES) {
            let mut command = redis::cmd("HDEL");
            command.arg(&key);
            for place in some {
                command.arg(place.field());
            }
            self.bulk.query::<u64>(&key, &command).await?;
        }
        Ok(())
    }

    /// Waits up to five seconds for each command.
    async fn entries(&self, log: Name, after: u64) -> Result<Vec<(u64, Bytes)>, StoreError> {
        let key = self.keys.note(log);
        // The names of the fields come first, because one command for all values could carry a whole log.
        let mut places = self.places(&key).await?;
        places.retain(|place| place.number > after);
        places.sort_unstable();
        let mut entries: BTreeMap<u64, Option<Vec<Vec<u8>>>> = BTreeMap::new();
        for some in places.chunks(PIECES) {
            let mut command = redis::cmd("HMGET");
            command.arg(&key);
            for place in some {
                command.arg(place.field());
            }
            let found: Vec<Option<Vec<u8>>> = self.bulk.query(&key, &command).await?;
            for (place, piece) in some.iter().zip(found) {
                let entry = entries.entry(place.number).or_insert_with(|| Some(vec![]));
                match (entry.as_mut(), piece) {
                    (Some(pieces), Some(piece)) if pieces.len() == place.piece => {
                        pieces.push(piece);
                    }
                    // The entry is being written, or was removed after its fields were read.
                    _ => *entry = None,
                }
            }
        }
        let whole = |(number, pieces): (_, Option<_>)| Some((number, join(pieces?)?));
        Ok(entries.into_iter().filter_map(whole).collect())
    }
}

impl Redis {
    /// Writes one field of a log. Returns false if a later fence stands.
    async fn write_field(
        &self,
        link: &Link,
        log: Name,
        fence: Fence,
        field: impl Fn(&mut Cmd),
    ) -> Result<bool, StoreError> {
        let key = self.keys.note(log);
        let (reader, changes) = (self.keys.note(log.read_as()), self.keys.note_log(log));
        let told_as = log.told_as().to_string();
        let fill = |command: &mut Cmd| {
            field(command.arg(3).arg(&key).arg(&reader).arg(&changes));
            let command = command.arg(&told_as).arg(LOG_LENGTH).arg(TOLD_MS);
            command.arg(FENCE).arg(fence.0);
        };
        let written: u64 = link.call(&self.notes.append, &key, fill).await?;
        Ok(written == 1)
    }

    /// The fields of the entries of a log.
    async fn places(&self, key: &str) -> Result<Vec<PieceKey>, StoreError> {
        let mut command = redis::cmd("HKEYS");
        command.arg(key);
        let fields: Vec<String> = self.bulk.query(key, &command).await?;
        let read = |field: &String| PieceKey::parse(field).ok_or(UNREADABLE);
        let entries = fields.iter().filter(|field| *field != FENCE);
        entries.map(read).collect()
    }

    /// The connection for a value of this size. Large values must not hold up other commands.
    fn for_bytes(&self, bytes: usize) -> &Link {
        if bytes > INLINE_BYTES_MAX {
            &self.bulk
        } else {
            &self.link
        }
    }

    /// The connection to read a value of unknown size. Values that clients and servers wrote may be large.
    fn for_kind(&self, kind: Kind) -> &Link {
        match kind {
            Kind::Session
            | Kind::Claim
            | Kind::Token
            | Kind::Cancel
            | Kind::QuestionStream
            | Kind::SealKey
            | Kind::IdenticalCall
            | Kind::GivenUp
            | Kind::LogReader
            | Kind::Client
            | Kind::DigestKey => &self.link,
            Kind::Answer
            | Kind::Events
            | Kind::Durations
            | Kind::Subscriptions
            | Kind::Pauses
            | Kind::History
            | Kind::HistoryChunk
            | Kind::HistoryIndex
            | Kind::HistorySums
            | Kind::Acknowledgements => &self.bulk,
        }
    }
}

/// The field of one piece of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PieceKey {
    number: u64,
    piece: usize,
}

impl PieceKey {
    fn parse(field: &str) -> Option<Self> {
        let (number, piece) = match field.split_once(':') {
            None => (field, 0),
            Some((number, piece)) => (number, piece.parse().ok()?),
        };
        let number = number.parse().ok()?;
        Some(Self { number, piece })
    }

    fn field(self) -> String {
        match self {
            Self { number, piece: 0 } => number.to_string(),
            Self { number, piece } => format!("{number}:{piece}"),
        }
    }
}

/// The head of an entry: the number of pieces and the first piece.
fn head(pieces: usize, first: &[u8]) -> Vec<u8> {
    let mut head = format!("{pieces}\n").into_bytes();
    head.extend_from_slice(first);
    head
}

/// The entry, or `None` if a piece is missing.
fn join(mut pieces: Vec<Vec<u8>>) -> Option<Bytes> {
    let (head, rest) = pieces.split_first_mut()?;
    let end = head.iter().position(|byte| *byte == b'\n')?;
    let count = std::str::from_utf8(head.get(..end)?).ok()?;
    if count.parse() != Ok(1 + rest.len()) {
        return None;
    }
    head.drain(..=end);
    if rest.is_empty() {
        return pieces.pop().map(Bytes::from);
    }
    Some(pieces.concat().into())
}

/// The field of a log that holds its fence. Entries have the numbers from 1.
const FENCE: &str = "0:0";

/// The bytes that one script writes: about a millisecond of the server's time.
const PIECE: usize = 256 * 1024;

/// The most pieces that one command reads: 32 MiB.
const PIECES: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_whole_is_not_there() {
        let head = head(3, b"a\nb");
        let pieces = |rest: &[&str]| {
            let rest = rest.iter().map(|piece| piece.as_bytes().to_vec());
            std::iter::once(head.clone()).chain(rest).collect()
        };
        assert_eq!(join(pieces(&["c", "d"])).unwrap(), "a\nbcd");
        for short in [&[][..], &["c"], &["c", "d", "e"]] {
            assert_eq!(join(pieces(short)), None);
        }
        assert_eq!(join(vec![b"x".to_vec()]), None);
        assert_eq!(join(Vec::new()), None);
    }

    #[test]
    fn a_field_is_read_as_it_was_written() {
        for (number, piece, field) in [
            (7, 0, "7"),
            (7, 12, "7:12"),
            (u64::MAX, 1, "18446744073709551615:1"),
        ] {
            let place = PieceKey { number, piece };
            assert_eq!(place.field(), field);
            assert_eq!(PieceKey::parse(field), Some(place));
        }
        for foreign in ["", "x", "7:", ":1", "7:1:2", "-1"] {
            assert_eq!(PieceKey::parse(foreign), None, "{foreign}");
        }
    }
}
