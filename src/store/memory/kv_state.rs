//! The values and logs of the memory store: bounded, and removed when they expire.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;

use crate::store::error::StoreError;
use crate::store::kv::{ENTRIES_MAX, Name};
use crate::task::id::Fence;

/// A last bound, far above what the limits on calls allow in practice.
const BYTES_MAX: usize = 1 << 30;

#[derive(Debug, Default)]
pub(super) struct KvState {
    pub(super) values: HashMap<Name, (u64, Content)>,
    expiry: BTreeSet<(u64, Name)>,
    bytes: usize,
}

#[derive(Debug)]
pub(super) enum Content {
    Value(Bytes),
    /// Appends under an earlier fence are refused.
    Log(Fence, BTreeMap<u64, Bytes>),
}

impl Content {
    fn bytes(&self) -> usize {
        match self {
            Self::Value(value) => value.len(),
            Self::Log(_, entries) => entries.values().map(Bytes::len).sum(),
        }
    }
}

impl KvState {
    pub(super) fn sweep(&mut self, now_ms: u64) {
        while let Some(&(expires_ms, name)) = self.expiry.first()
            && expires_ms <= now_ms
        {
            self.take(name);
        }
    }

    pub(super) fn take(&mut self, name: Name) -> Option<Content> {
        let (expires_ms, content) = self.values.remove(&name)?;
        self.expiry.remove(&(expires_ms, name));
        self.bytes -= content.bytes();
        Some(content)
    }

    /// Refuses `bytes` in the place of `before` bytes if that would exceed the bound.
    fn reserve(&self, before: usize, bytes: usize) -> Result<(), StoreError> {
        if self.bytes - before + bytes > BYTES_MAX {
            return Err(StoreError::Full);
        }
        Ok(())
    }

    pub(super) fn put(
        &mut self,
        name: Name,
        value: Bytes,
        expires_ms: u64,
    ) -> Result<(), StoreError> {
        let before = self.values.get(&name).map_or(0, |(_, old)| old.bytes());
        // Refused before the old value goes, so that a full store keeps it.
        self.reserve(before, value.len())?;
        self.take(name);
        self.keep(name, Content::Value(value), expires_ms);
        Ok(())
    }

    /// Takes the log out of the map and puts it back, because a copy could be large.
    pub(super) fn append(
        &mut self,
        log: Name,
        fence: Fence,
        (number, entry): (u64, Bytes),
        expires_ms: u64,
    ) -> Result<bool, StoreError> {
        let oldest = number.saturating_sub(ENTRIES_MAX);
        let before = match self.values.get(&log) {
            Some((_, Content::Log(fenced, _))) if *fenced > fence => return Ok(false),
            Some((_, Content::Log(_, entries))) => {
                let going = entries.range(..=oldest).map(|(_, entry)| entry.len());
                going.sum::<usize>() + entries.get(&number).map_or(0, Bytes::len)
            }
            Some((_, Content::Value(value))) => value.len(),
            None => 0,
        };
        // Refused before the log is taken out, so that a full store keeps it.
        self.reserve(before, entry.len())?;
        let (fenced, mut entries) = self.take_log(log);
        entries.insert(number, entry);
        let kept = entries.split_off(&oldest.saturating_add(1));
        self.keep(log, Content::Log(fenced, kept), expires_ms);
        Ok(true)
    }

    pub(super) fn fence(&mut self, log: Name, fence: Fence, expires_ms: u64) {
        let (fenced, entries) = self.take_log(log);
        self.keep(log, Content::Log(fenced.max(fence), entries), expires_ms);
    }

    fn take_log(&mut self, log: Name) -> (Fence, BTreeMap<u64, Bytes>) {
        match self.take(log) {
            Some(Content::Log(fenced, entries)) => (fenced, entries),
            Some(Content::Value(_)) | None => (Fence(0), BTreeMap::new()),
        }
    }

    pub(super) fn trim(&mut self, log: Name, first: u64) {
        if let Some((_, Content::Log(_, entries))) = self.values.get_mut(&log) {
            let kept = entries.split_off(&first);
            self.bytes -= entries.values().map(Bytes::len).sum::<usize>();
            *entries = kept;
        }
    }

    fn keep(&mut self, name: Name, content: Content, expires_ms: u64) {
        self.bytes += content.bytes();
        self.expiry.insert((expires_ms, name));
        self.values.insert(name, (expires_ms, content));
    }

    pub(super) fn value(&self, name: Name) -> Option<Bytes> {
        match self.values.get(&name) {
            Some((_, Content::Value(value))) => Some(value.clone()),
            Some((_, Content::Log(..))) | None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::kv::Kind;

    #[test]
    fn it_is_bounded_and_room_comes_back() {
        let (log, other) = (
            Name::of(Kind::Events, &["l"]),
            Name::of(Kind::Answer, &["a"]),
        );
        let mut state = KvState::default();
        let append = |state: &mut KvState, number, entry, expires_ms| {
            state.append(log, Fence(1), (number, entry), expires_ms)
        };
        let half = Bytes::from(vec![0; BYTES_MAX / 2]);
        append(&mut state, 1, half.clone(), 10).unwrap();
        append(&mut state, 2, half.clone(), 10).unwrap();
        append(&mut state, 2, half.clone(), 10).unwrap();
        let one = Bytes::from_static(b"x");
        let full = append(&mut state, 3, one.clone(), 10);
        assert!(matches!(full, Err(StoreError::Full)), "{full:?}");
        let full = state.put(other, one.clone(), 10);
        assert!(matches!(full, Err(StoreError::Full)), "{full:?}");
        append(&mut state, 2, one, 10).unwrap();
        append(&mut state, ENTRIES_MAX + 1, half, 20).unwrap();
        assert_eq!(state.bytes, BYTES_MAX / 2 + 1, "the oldest went");
        state.trim(log, ENTRIES_MAX + 1);
        assert_eq!(state.bytes, BYTES_MAX / 2);
        state.sweep(10);
        assert!(!state.values.is_empty(), "the expiry moved");
        state.sweep(20);
        assert_eq!(state.bytes, 0);
        assert!(state.values.is_empty() && state.expiry.is_empty());
    }
}
