//! Which failures somebody has looked at.

use serde::{Deserialize, Serialize};

use crate::task::id::TaskId;

/// The longest note, in characters.
pub const NOTE_MAX: usize = 400;

/// The longest name of who looked, in characters.
pub const BY_MAX: usize = 64;

/// The most acknowledgements of failures of one day: about 1 MB.
const ACKS_MAX: usize = 10_000;

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
    /// The name that the operator gave. Nobody has checked it.
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

    /// Adds one. Returns `false` if the task had one: the first one stays.
    pub fn add(&mut self, ack: Acknowledged) -> Result<bool, TooMany> {
        if self.0.iter().any(|known| known.id == ack.id) {
            return Ok(false);
        }
        if self.0.len() >= ACKS_MAX {
            return Err(TooMany);
        }
        self.0.push(ack);
        Ok(true)
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
    fn the_first_one_stays() {
        let ack = |id, note: &str| Acknowledged {
            id,
            ended_ms: DAY_MS + 1,
            at_ms: 3,
            by: "ada".into(),
            note: note.into(),
        };
        let (one, other) = (TaskId::random(), TaskId::random());
        let mut acks = Acknowledgements::default();
        assert_eq!(acks.add(ack(one, "a")), Ok(true));
        assert_eq!(acks.add(ack(one, "b")), Ok(false));
        assert_eq!(acks.add(ack(other, "")), Ok(true));
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
        let full = (0..ACKS_MAX).map(|_| ack()).collect();
        assert_eq!(Acknowledgements(full).add(ack()), Err(TooMany));
    }
}
