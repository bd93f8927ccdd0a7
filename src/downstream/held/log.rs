//! The log of a held call in the store: what was said, and who it is that writes.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Place;
use crate::downstream::heartbeat::Heartbeat;
use crate::downstream::tasks::Shared;
use crate::store::StoreError;
use crate::store::ledger::Ledger;
use crate::store::notes::{Kind, Name};
use crate::task::id::TaskId;

/// A larger message, but for the answer, is shown to who is there and not kept.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// What was said at one time: JSON, and a last byte that tells what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry(Bytes);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// A notification, or a request of the server's.
    Message,
    /// The answer. Nothing follows.
    Answer,
    /// There will be no answer.
    End,
    /// A message that was too large to be kept.
    Lost,
}

impl Meaning {
    fn letter(self) -> char {
        match self {
            Self::Message => 'm',
            Self::Answer => 'a',
            Self::End => 'e',
            Self::Lost => 'l',
        }
    }

    fn of(letter: u8) -> Option<Self> {
        [Self::Message, Self::Answer, Self::End, Self::Lost]
            .into_iter()
            .find(|meaning| meaning.letter() == char::from(letter))
    }
}

impl Entry {
    pub(super) fn new(meaning: Meaning, mut json: String) -> Self {
        json.push(meaning.letter());
        Self(json.into())
    }

    /// As the store had it. What nobody here wrote is passed over.
    fn read(bytes: Bytes) -> Option<Self> {
        let entry = Self(bytes);
        entry.parts().map(|_| ())?;
        Some(entry)
    }

    fn parts(&self) -> Option<(Meaning, &str)> {
        let (last, json) = self.0.split_last()?;
        Some((Meaning::of(*last)?, std::str::from_utf8(json).ok()?))
    }

    pub(super) fn meaning(&self) -> Meaning {
        self.parts().map_or(Meaning::End, |(meaning, _)| meaning)
    }

    pub(super) fn json(&self) -> &str {
        self.parts().map_or("", |(_, json)| json)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// What another replica must know to read on.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Head {
    /// Who writes: an incarnation.
    pub(super) owner: Box<str>,
    /// The request's id, for an answer in place of the one that will never come.
    pub(super) id: Box<RawValue>,
    pub(super) began_ms: u64,
    /// The client's progress token, where it shall hear that the call runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) heartbeat: Option<Box<RawValue>>,
    /// All that was said is in the log.
    #[serde(default)]
    pub(super) is_over: bool,
}

impl Head {
    /// Goes on from what was heard before.
    pub(super) async fn heartbeat(&self, log: &Log) -> Option<Heartbeat> {
        let token = self.heartbeat.clone()?;
        let age = log.ledger.now_ms().saturating_sub(self.began_ms);
        let mut heartbeat = Heartbeat::resumed(Duration::from_millis(age), token);
        for (_, entry) in log.behind(0).await.unwrap_or_default() {
            heartbeat.saw(entry.json());
        }
        Some(heartbeat)
    }
}

/// Where the log of one call is. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Log {
    ledger: Ledger,
    entries: Name,
    head: Name,
}

impl Log {
    pub(super) fn of(front: &Shared, place: &Place, hold: TaskId) -> Self {
        let caller = uuid::Uuid::from_bytes(*place.caller.as_bytes()).to_string();
        let hold = hold.to_string();
        let name = |kind| Name::of(kind, &[&caller, &*place.session, &*hold]);
        Self {
            ledger: front.runner.ledger().clone(),
            entries: name(Kind::Events),
            head: name(Kind::Hold),
        }
    }

    pub(super) fn name(&self) -> Name {
        self.entries
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.ledger.now_ms()
    }

    pub(super) async fn write_head(&self, head: &Head, expires_ms: u64) -> Result<(), StoreError> {
        let text = serde_json::to_vec(head).map_err(|_| UNREADABLE)?;
        let store = self.ledger.store();
        store.put(self.head, text.into(), expires_ms).await
    }

    pub(super) async fn head(&self) -> Result<Option<Head>, StoreError> {
        let Some(text) = self.ledger.store().find(self.head).await? else {
            return Ok(None);
        };
        let head = serde_json::from_slice(&text).map_err(|_| UNREADABLE)?;
        Ok(Some(head))
    }

    pub(super) async fn append(
        &self,
        number: u64,
        entry: &Entry,
        expires_ms: u64,
    ) -> Result<(), StoreError> {
        let is_kept = entry.meaning() != Meaning::Message || entry.len() <= MESSAGE_BYTES_MAX;
        let entry = if is_kept {
            entry.clone()
        } else {
            Entry::new(Meaning::Lost, String::new())
        };
        let store = self.ledger.store();
        store
            .append(self.entries, number, entry.0, expires_ms)
            .await
    }

    /// What is behind that entry, in order. Some of it may be forgotten.
    pub(super) async fn behind(&self, after: u64) -> Result<Vec<(u64, Entry)>, StoreError> {
        let entries = self.ledger.store().entries(self.entries, after).await?;
        let read = |(number, bytes)| Some((number, Entry::read(bytes)?));
        Ok(entries.into_iter().filter_map(read).collect())
    }
}

const UNREADABLE: StoreError = StoreError::Corrupt("the head of a held call");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        for meaning in [
            Meaning::Message,
            Meaning::Answer,
            Meaning::End,
            Meaning::Lost,
        ] {
            let entry = Entry::new(meaning, r#"{"é":1}"#.into());
            let read = Entry::read(entry.0.clone()).unwrap();
            assert_eq!((read.meaning(), read.json()), (meaning, r#"{"é":1}"#));
        }
        for foreign in ["", "{}", "x"] {
            assert_eq!(Entry::read(Bytes::from_static(foreign.as_bytes())), None);
        }
    }

    #[test]
    fn a_head_is_read_as_it_was_written() {
        let head = Head {
            owner: "a/1".into(),
            id: RawValue::from_string("\"x\"".into()).unwrap(),
            began_ms: 7,
            heartbeat: None,
            is_over: false,
        };
        let text = serde_json::to_string(&head).unwrap();
        let read: Head = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&*read.owner, read.id.get(), read.is_over),
            ("a/1", "\"x\"", false)
        );
    }
}
