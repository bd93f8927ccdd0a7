//! The stored form of a task: a format number, a space, JSON.

use bytes::Bytes;

use super::StoreError;
use crate::task::state::Task;

/// The format that this program writes, and the newest that it reads.
pub const FORMAT: u32 = 1;

pub fn encode(task: &Task) -> Result<Bytes, StoreError> {
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(FORMAT.to_string().as_bytes());
    out.push(b' ');
    serde_json::to_writer(&mut out, task).map_err(|_| StoreError::Corrupt("task record"))?;
    Ok(out.into())
}

pub fn decode(record: &[u8]) -> Result<Task, StoreError> {
    let space = record.iter().position(|b| *b == b' ').ok_or(UNREADABLE)?;
    let (format, json) = record.split_at_checked(space).ok_or(UNREADABLE)?;
    let format = std::str::from_utf8(format)
        .ok()
        .and_then(|text| text.parse::<u32>().ok());
    match format {
        Some(FORMAT) => serde_json::from_slice(json).map_err(|_| UNREADABLE),
        Some(_) => Err(StoreError::Corrupt("task record of a newer raincheck")),
        None => Err(UNREADABLE),
    }
}

const UNREADABLE: StoreError = StoreError::Corrupt("task record");
