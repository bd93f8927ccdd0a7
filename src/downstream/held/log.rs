//! The log of a held call in the store: what was said, and who it is that writes.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::call::Place;
use super::entry::{Entry, Meaning};
use super::resume::Seal;
use crate::downstream::heartbeat::Heartbeat;
use crate::downstream::proxy::Shared;
use crate::store::StoreError;
use crate::store::kv::{Kind, Name};
use crate::store::ledger::Ledger;
use crate::task::id::TaskId;

/// A larger message, but for the answer, is shown to who is there and not kept.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// What there is of a call whose owner is gone.
#[derive(Debug)]
pub(super) enum Left {
    /// The server has the rest behind this event, and the log has so many entries.
    Resumable { event_id: String, last: u64 },
    /// All that its client waits for.
    Answered,
    /// Nobody can carry it on.
    Lost,
}

/// What another replica must know to read on.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Head {
    /// Who writes: an incarnation.
    pub(super) owner: Box<str>,
    /// The request's id, for an answer in place of the one that will never come.
    pub(super) id: Box<RawValue>,
    pub(super) began_ms: u64,
    pub(super) terms: Terms,
    /// Where the server can be come back to, if an event without a message told that last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) point: Option<Point>,
    /// The client's progress token, where it shall hear that the call runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) heartbeat: Option<Box<RawValue>>,
    /// All that was said is in the log.
    #[serde(default)]
    pub(super) is_over: bool,
}

/// A head as it is in the store.
#[derive(Debug, Clone)]
pub(super) struct Written(Bytes);

/// What the rules said when the call began.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Terms {
    pub(super) ends_ms: u64,
    pub(super) retention_ms: u64,
    pub(super) bytes_max: usize,
}

/// Behind which entry of the log that was, and the server's own id of it, sealed.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Point {
    pub(super) behind: u64,
    pub(super) sealed: Box<str>,
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
    hold: TaskId,
    seal: Seal,
}

impl Log {
    pub(super) fn of(front: &Shared, place: &Place, hold: TaskId) -> Self {
        let caller = uuid::Uuid::from_bytes(*place.caller.as_bytes()).to_string();
        let text = hold.to_string();
        let name = |kind| Name::of(kind, &[&caller, &*place.session, &*text]);
        Self {
            ledger: front.runner.ledger().clone(),
            entries: name(Kind::Events),
            head: name(Kind::Hold),
            hold,
            seal: Seal::of(front, place.caller, hold),
        }
    }

    pub(super) fn seal(&self) -> &Seal {
        &self.seal
    }

    pub(super) fn name(&self) -> Name {
        self.entries
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.ledger.now_ms()
    }

    /// Writes it in place of that one, or where none is. `None`: another one is there.
    pub(super) async fn write_head(
        &self,
        head: &Head,
        stands: Option<&Written>,
        expires_ms: u64,
    ) -> Result<Option<Written>, StoreError> {
        let text: Bytes = serde_json::to_vec(head).map_err(|_| UNREADABLE)?.into();
        let (store, own) = (self.ledger.store(), text.clone());
        let is_written = match stands {
            Some(Written(stands)) => {
                let stands = stands.clone();
                store.replace(self.head, stands, own, expires_ms).await?
            }
            // Whose it is stands in it: no other replica writes the same.
            None => store.claim(self.head, own, expires_ms).await?.is_none(),
        };
        Ok(is_written.then_some(Written(text)))
    }

    pub(super) async fn head(&self) -> Result<Option<Head>, StoreError> {
        Ok(self.standing().await?.map(|(head, _)| head))
    }

    pub(super) async fn standing(&self) -> Result<Option<(Head, Written)>, StoreError> {
        let Some(text) = self.ledger.store().find(self.head).await? else {
            return Ok(None);
        };
        let head = serde_json::from_slice(&text).map_err(|_| UNREADABLE)?;
        Ok(Some((head, Written(text))))
    }

    /// How much that takes.
    pub(super) async fn append(
        &self,
        number: u64,
        entry: &Entry,
        expires_ms: u64,
    ) -> Result<usize, StoreError> {
        let is_kept = entry.meaning() != Meaning::Message || entry.len() <= MESSAGE_BYTES_MAX;
        let entry = if is_kept {
            entry.clone()
        } else {
            let sealed = entry.sealed().unwrap_or_default();
            Entry::resumable(Meaning::Lost, String::new(), sealed)
        };
        let (bytes, store) = (entry.len(), self.ledger.store());
        store
            .append(self.entries, number, entry.0, expires_ms)
            .await?;
        Ok(bytes)
    }

    /// Forgets what is before that entry.
    pub(super) async fn trim(&self, first: u64) -> Result<(), StoreError> {
        self.ledger.store().trim(self.entries, first).await
    }

    /// What its owner left of the call.
    pub(super) async fn left(&self, head: &Head) -> Result<Left, StoreError> {
        let entries = self.behind(0).await?;
        let last = entries.last();
        if last.is_some_and(|(_, entry)| entry.meaning().is_last()) {
            return Ok(Left::Answered);
        }
        let last = last.map_or(0, |(number, _)| *number);
        let of_entry = |(number, entry): &(u64, Entry)| Some((*number, entry.sealed()?.into()));
        let of_entries: Option<(u64, Box<str>)> = entries.iter().rev().find_map(of_entry);
        let of_head = head.point.as_ref();
        let of_head = of_head.map(|point| (point.behind, point.sealed.clone()));
        let later = match (of_entries, of_head) {
            (Some(entry), Some(head)) if entry.0 > head.0 => Some(entry),
            (entry, head) => head.or(entry),
        };
        let opened = later.and_then(|(_, sealed)| self.seal.open(&sealed));
        Ok(opened.map_or(Left::Lost, |event_id| Left::Resumable { event_id, last }))
    }

    /// Of those who would carry the call on after this owner one may.
    ///
    /// Gives back who that is, if it is somebody else.
    pub(super) async fn claim_after(
        &self,
        owner: &str,
        claimant: &str,
        expires_ms: u64,
    ) -> Result<Option<Bytes>, StoreError> {
        let hold = self.hold.to_string();
        let name = Name::of(Kind::Claim, &["held after", &hold, owner]);
        let claimant = Bytes::copy_from_slice(claimant.as_bytes());
        let store = self.ledger.store();
        store.claim(name, claimant, expires_ms).await
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
impl Log {
    /// A log of nobody's, that cannot seal.
    pub(super) fn of_nobody() -> Self {
        use std::sync::Arc;

        use crate::clock::{Clock, Manual};
        use crate::store::memory::Memory;
        use crate::store::patience::Patience;
        use crate::task::id::Caller;

        let clock: Arc<dyn Clock> = Arc::new(Manual::at(0));
        let patience = Patience {
            read: Duration::ZERO,
            create: Duration::ZERO,
        };
        let (caller, hold) = (Caller::from_bytes([1; 16]), TaskId::random());
        Self {
            ledger: Ledger::new(Arc::new(Memory::new(Arc::clone(&clock))), clock, patience),
            entries: Name::of(Kind::Events, &["log"]),
            head: Name::of(Kind::Hold, &["log"]),
            hold,
            seal: Seal::of_none(caller, hold),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written() {
        let head = Head {
            owner: "a/1".into(),
            id: RawValue::from_string("\"x\"".into()).unwrap(),
            began_ms: 7,
            terms: Terms {
                ends_ms: 9,
                retention_ms: 1,
                bytes_max: 2,
            },
            point: None,
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
