//! Acknowledgements: failures that somebody has looked at.

use serde::{Deserialize, Serialize};

use crate::task::id::TaskId;

/// The longest note, in characters.
pub const NOTE_MAX: usize = 400;

/// The longest name of who looked, in characters.
pub const BY_MAX: usize = 64;

/// The most bytes of the acknowledgements of failures of one day, about: 30,000 with short notes.
const BYTES_MAX: usize = 4 << 20;

/// The bytes of one without its texts, at most.
const ACK_BYTES: usize = 100;

const DAY_MS: u64 = 24 * 3_600_000;

/// One failure that somebody has looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledged {
    #[serde(rename = "i")]
    pub id: TaskId,
    /// The end of the task, in Unix milliseconds.
    #[serde(rename = "e")]
    pub ended_ms: u64,
    #[serde(rename = "t")]
    pub at_ms: u64,
    /// The name of the operator's token, or else the name that the operator gave, which nobody has checked.
    #[serde(rename = "b", default, skip_serializing_if = "str::is_empty")]
    pub by: Box<str>,
    #[serde(rename = "n", default, skip_serializing_if = "str::is_empty")]
    pub note: Box<str>,
}

/// The failures of one day that somebody has looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledgements(Vec<Acknowledged>);

/// There are as many as one day has.
#[derive(Debug, PartialEq, Eq)]
pub struct TooMany;

impl Acknowledgements {
    /// Reads the value of a day. What raincheck did not write counts as none.
    pub fn decode(value: &[u8]) -> Self {
        serde_json::from_slice(value).unwrap_or_default()
    }

    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Adds one, in place of an earlier one of the same task.
    pub fn put(&mut self, ack: Acknowledged) -> Result<(), TooMany> {
        let bytes = |ack: &Acknowledged| ACK_BYTES + ack.by.len() + ack.note.len();
        let is_full = self.0.iter().map(bytes).sum::<usize>() >= BYTES_MAX;
        let known = self.0.iter_mut().find(|known| known.id == ack.id);
        match known {
            Some(known) => *known = ack,
            None if is_full => return Err(TooMany),
            None => self.0.push(ack),
        }
        Ok(())
    }
}

impl IntoIterator for Acknowledgements {
    type Item = Acknowledged;
    type IntoIter = std::vec::IntoIter<Acknowledged>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// The day of an end, under which it is acknowledged.
pub fn day_of(ended_ms: u64) -> u64 {
    ended_ms / DAY_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_of_a_task_counts() {
        let ack = |id, note: &str| Acknowledged {
            id,
            ended_ms: DAY_MS + 1,
            at_ms: 3,
            by: "ada".into(),
            note: note.into(),
        };
        let (one, other) = (TaskId::random(), TaskId::random());
        let mut acks = Acknowledgements::default();
        for (id, note) in [(one, "b"), (other, ""), (one, "a")] {
            assert_eq!(acks.put(ack(id, note)), Ok(()));
        }
        assert_eq!(Acknowledgements::decode(&acks.encode()), acks);
        assert_eq!(Acknowledgements::decode(b"?"), Acknowledgements::default());
        let notes: Vec<_> = acks.into_iter().map(|ack| ack.note).collect();
        assert_eq!(notes, ["a".into(), Box::from("")]);
        assert_eq!((day_of(DAY_MS - 1), day_of(DAY_MS)), (0, 1));
    }

    #[test]
    fn a_day_is_bounded() {
        let ack = || Acknowledged {
            id: TaskId::random(),
            ended_ms: 1,
            at_ms: 1,
            by: "".into(),
            note: "".into(),
        };
        let full = (0..BYTES_MAX.div_ceil(ACK_BYTES)).map(|_| ack()).collect();
        assert_eq!(Acknowledgements(full).put(ack()), Err(TooMany));
    }
}
