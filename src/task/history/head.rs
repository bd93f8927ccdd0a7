//! Where the history is: which chunks there are, and up to where entries are in them.

use serde::{Deserialize, Serialize};

/// The place of an entry among those that are in no chunk yet. Places of one bucket are in the order of its commits.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct HistoryPlace {
    /// The part of the store that the task is in.
    pub bucket: u16,
    pub at: (u64, u64),
}

/// One chunk. Times are Unix milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkPlace {
    /// By what the chunk is named in the store.
    #[serde(rename = "k")]
    pub name: Box<str>,
    /// The first end in it, and the last one.
    #[serde(rename = "f")]
    pub from_ms: u64,
    #[serde(rename = "t")]
    pub to_ms: u64,
    #[serde(rename = "n")]
    pub entries: usize,
    /// The number of failures among them.
    #[serde(rename = "x", default)]
    pub failures: usize,
}

/// The value that all replicas share.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryHead {
    /// The last entry of each bucket that is in a chunk.
    pub places: Vec<HistoryPlace>,
    pub chunks: Vec<ChunkPlace>,
}

impl HistoryHead {
    /// Reads the value. `None`: raincheck did not write it.
    pub fn decode(value: &[u8]) -> Option<Self> {
        serde_json::from_slice(value).ok()
    }

    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Notes that the entry at this place is in a chunk.
    pub fn pass(&mut self, place: HistoryPlace) {
        let known = self
            .places
            .iter_mut()
            .find(|known| known.bucket == place.bucket);
        match known {
            Some(known) => *known = place.max(*known),
            None => self.places.push(place),
        }
    }

    /// Takes out the chunks that nobody needs: all of their entries ended before `since_ms`, or newer chunks have
    /// `entries_max` entries.
    pub fn take_old(&mut self, since_ms: u64, entries_max: usize) -> Vec<ChunkPlace> {
        // The newest first, so that those beyond the maximum come last.
        self.chunks
            .sort_unstable_by_key(|chunk| std::cmp::Reverse(chunk.to_ms));
        let mut entries = 0_usize;
        let (kept, old) = std::mem::take(&mut self.chunks)
            .into_iter()
            .partition(|chunk| {
                let is_kept = chunk.to_ms >= since_ms && entries < entries_max;
                entries = entries.saturating_add(chunk.entries);
                is_kept
            });
        self.chunks = kept;
        old
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(name: &str, to_ms: u64, entries: usize) -> ChunkPlace {
        ChunkPlace {
            name: name.into(),
            from_ms: to_ms - 1,
            to_ms,
            entries,
            failures: 0,
        }
    }

    #[test]
    fn old_chunks_and_those_beyond_the_maximum_go() {
        let chunks = vec![chunk("a", 10, 5), chunk("b", 20, 5), chunk("c", 30, 5)];
        let head = HistoryHead {
            chunks,
            ..HistoryHead::default()
        };
        let gone = |since_ms, entries_max| {
            let mut head = head.clone();
            let gone = head.take_old(since_ms, entries_max);
            assert_eq!(gone.len() + head.chunks.len(), 3);
            gone.iter().map(|chunk| &*chunk.name).collect::<String>()
        };
        assert_eq!(gone(0, 100), "");
        assert_eq!(gone(20, 100), "a");
        assert_eq!(gone(0, 10), "a");
        assert_eq!(gone(0, 5), "ba");
        assert_eq!(gone(31, 100), "cba");
    }

    #[test]
    fn a_place_moves_forward_only() {
        let place = |bucket, at| HistoryPlace { bucket, at };
        let mut head = HistoryHead::default();
        for passed in [place(0, (5, 1)), place(1, (9, 0)), place(0, (5, 0))] {
            head.pass(passed);
        }
        assert_eq!(head.places, [place(0, (5, 1)), place(1, (9, 0))]);
        assert_eq!(HistoryHead::decode(&head.encode()), Some(head));
        assert_eq!(HistoryHead::decode(b"[]"), None);
    }
}
