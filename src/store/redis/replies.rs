//! Reads the answers of our scripts and the fields of our keys.

use bytes::Bytes;
use redis::Value;

use super::super::error::StoreError;
use super::super::{Commit, Nonce, Stored, Version};
use super::link::Link;
use crate::task::id::{Caller, Revision, TaskId};

pub(super) const UNREADABLE: StoreError =
    StoreError::Corrupt("fields that raincheck does not write");

/// Reads the commit script's answer: the new revision, or a list with the reason why nothing was written.
pub(super) fn outcome(reply: Value) -> Option<Commit> {
    let Value::Array(reply) = reply else {
        return revision(reply).map(Commit::Done);
    };
    let mut reply = reply.into_iter();
    match bytes(reply.next()?)?.as_slice() {
        b"conflict" => Some(Commit::Conflict(stored(reply)?)),
        b"gone" => Some(Commit::Gone),
        _ => None,
    }
}

/// The fields r, w, c, d.
pub(super) fn stored(mut fields: impl Iterator<Item = Value>) -> Option<Stored> {
    let revision = revision(fields.next()?)?;
    let nonce = Nonce(u128::from_be_bytes(bytes(fields.next()?)?.try_into().ok()?));
    let caller = Caller::from_bytes(bytes(fields.next()?)?.try_into().ok()?);
    let record = Bytes::from(bytes(fields.next()?)?);
    Some(Stored {
        version: Version { revision, nonce },
        caller,
        record,
    })
}

fn revision(value: Value) -> Option<Revision> {
    Some(Revision(
        std::str::from_utf8(&bytes(value)?).ok()?.parse().ok()?,
    ))
}

pub(super) fn bytes(value: Value) -> Option<Vec<u8>> {
    // Our scripts and fields return nothing else.
    if let Value::BulkString(bytes) = value {
        Some(bytes)
    } else {
        None
    }
}

pub(super) fn parse_id(text: &str) -> Result<TaskId, StoreError> {
    TaskId::parse(text).ok_or(UNREADABLE)
}

pub(super) async fn get(link: &Link, key: &str) -> Result<Option<Bytes>, StoreError> {
    let mut command = redis::cmd("GET");
    command.arg(key);
    let found: Option<Vec<u8>> = link.query(key, &command).await?;
    Ok(found.map(Bytes::from))
}
