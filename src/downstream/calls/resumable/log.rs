//! The event log of one call in the store, with the note that names its owner.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::call::CallerSession;
use super::entry::{EntryKind, LogEntry};
use super::owner::{LogOwner, SealedPoint, StoredOwner};
use super::point_seal::PointSeal;
use crate::downstream::outbound::keepalive::Keepalive;
use crate::downstream::proxy::Proxy;
use crate::store::StoreError;
use crate::store::kv::{Kind, Name};
use crate::store::ledger::Ledger;
use crate::task::id::TaskId;

/// The log does not keep larger messages: only the readers that are connected get them. It keeps every answer.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// What is left of a call whose owner is gone.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// The server has the rest behind this event; the log has entries up to this number.
    Resumable { event_id: String, last: u64 },
    /// The log has the answer.
    Answered,
    /// No replica can continue the call.
    Lost,
}

/// The event log of one call. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct EventLog {
    ledger: Ledger,
    entries: Name,
    owner: Name,
    call: TaskId,
    seal: PointSeal,
}

impl EventLog {
    pub(super) fn of(proxy: &Arc<Proxy>, session: &CallerSession, call: TaskId) -> Self {
        let caller = uuid::Uuid::from_bytes(*session.caller.as_bytes()).to_string();
        let text = call.to_string();
        let name = |kind| Name::of(kind, &[&caller, &*session.id, &*text]);
        Self {
            ledger: proxy.runner.ledger().clone(),
            entries: name(Kind::Events),
            owner: name(Kind::Hold),
            call,
            seal: PointSeal::of(proxy, session.caller, call),
        }
    }

    pub(super) fn seal(&self) -> &PointSeal {
        &self.seal
    }

    pub(super) fn name(&self) -> Name {
        self.entries
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.ledger.now_ms()
    }

    /// Writes the owner note in place of `stands`, or where there is none. `None`: another note is there.
    pub(super) async fn write_owner(
        &self,
        owner: &LogOwner,
        stands: Option<&StoredOwner>,
        expires_ms: u64,
    ) -> Result<Option<StoredOwner>, StoreError> {
        let text: Bytes = serde_json::to_vec(owner).map_err(|_| UNREADABLE)?.into();
        let (store, own) = (self.ledger.store(), text.clone());
        let is_written = match stands {
            Some(StoredOwner(stands)) => {
                let stands = stands.clone();
                store.replace(self.owner, stands, own, expires_ms).await?
            }
            // The note names its replica, so that no other replica writes the same bytes.
            None => store.claim(self.owner, own, expires_ms).await?.is_none(),
        };
        Ok(is_written.then_some(StoredOwner(text)))
    }

    pub(super) async fn owner(&self) -> Result<Option<LogOwner>, StoreError> {
        Ok(self.stored_owner().await?.map(|(owner, _)| owner))
    }

    pub(super) async fn stored_owner(&self) -> Result<Option<(LogOwner, StoredOwner)>, StoreError> {
        let Some(text) = self.ledger.store().find(self.owner).await? else {
            return Ok(None);
        };
        let owner = serde_json::from_slice(&text).map_err(|_| UNREADABLE)?;
        Ok(Some((owner, StoredOwner(text))))
    }

    /// Appends an entry, and says how many bytes it takes.
    pub(super) async fn append(
        &self,
        number: u64,
        entry: &LogEntry,
        expires_ms: u64,
    ) -> Result<usize, StoreError> {
        let is_kept = entry.kind() != EntryKind::Message || entry.len() <= MESSAGE_BYTES_MAX;
        let entry = if is_kept {
            entry.clone()
        } else {
            let sealed = entry.sealed().unwrap_or_default();
            LogEntry::resumable(EntryKind::Omitted, String::new(), sealed)
        };
        let (bytes, store) = (entry.len(), self.ledger.store());
        store
            .append(self.entries, number, entry.0, expires_ms)
            .await?;
        Ok(bytes)
    }

    /// Drops the entries before that one.
    pub(super) async fn trim(&self, first: u64) -> Result<(), StoreError> {
        self.ledger.store().trim(self.entries, first).await
    }

    /// What the owner left of the call.
    pub(super) async fn rest(&self, owner: &LogOwner) -> Result<Rest, StoreError> {
        let entries = self.behind(0).await?;
        Ok(rest_of(&entries, owner.point.as_ref(), |sealed| {
            self.seal.open(sealed)
        }))
    }

    /// Lets one claimant of all replicas continue the call after this owner. `Some`: another one was first.
    pub(super) async fn claim_after(
        &self,
        owner: &str,
        claimant: &str,
        expires_ms: u64,
    ) -> Result<Option<Bytes>, StoreError> {
        let call = self.call.to_string();
        let name = Name::of(Kind::Claim, &["held after", &call, owner]);
        let claimant = Bytes::copy_from_slice(claimant.as_bytes());
        let store = self.ledger.store();
        store.claim(name, claimant, expires_ms).await
    }

    /// The clock of the call's client, as if the client had read the log until now.
    pub(super) async fn heartbeat(&self, owner: &LogOwner) -> Option<Keepalive> {
        let token = owner.heartbeat.clone()?;
        let age = self.now_ms().saturating_sub(owner.began_ms);
        let mut heartbeat = Keepalive::resumed(Duration::from_millis(age), token);
        for (_, entry) in self.behind(0).await.unwrap_or_default() {
            heartbeat.saw(entry.json());
        }
        Some(heartbeat)
    }

    /// The entries behind that one, in order. Some of them may have been dropped.
    pub(super) async fn behind(&self, after: u64) -> Result<Vec<(u64, LogEntry)>, StoreError> {
        let entries = self.ledger.store().entries(self.entries, after).await?;
        let read = |(number, bytes)| Some((number, LogEntry::read(bytes)?));
        Ok(entries.into_iter().filter_map(read).collect())
    }
}

/// The later of two places counts: the last entry with an event id, or the id that came without a message.
fn rest_of(
    entries: &[(u64, LogEntry)],
    point: Option<&SealedPoint>,
    open: impl FnOnce(&str) -> Option<String>,
) -> Rest {
    let last = entries.last();
    if last.is_some_and(|(_, entry)| entry.kind().is_last()) {
        return Rest::Answered;
    }
    let last = last.map_or(0, |(number, _)| *number);
    let of_entry =
        |(number, entry): &'_ (u64, LogEntry)| Some((*number, entry.sealed()?.to_owned()));
    let of_entries = entries.iter().rev().find_map(of_entry);
    let of_owner = point.map(|point| (point.behind, point.sealed.to_string()));
    let later = match (of_entries, of_owner) {
        (Some(entry), Some(owner)) if entry.0 > owner.0 => Some(entry),
        (entry, owner) => owner.or(entry),
    };
    let opened = later.and_then(|(_, sealed)| open(&sealed));
    opened.map_or(Rest::Lost, |event_id| Rest::Resumable { event_id, last })
}

const UNREADABLE: StoreError = StoreError::Corrupt("the owner note of a resumable call");

#[cfg(test)]
impl EventLog {
    /// A log in memory that cannot seal.
    pub(super) fn in_memory() -> Self {
        use std::sync::Arc;

        use crate::clock::{Clock, Manual};
        use crate::store::memory::Memory;
        use crate::store::patience::StorePatience;
        use crate::task::id::Caller;

        let clock: Arc<dyn Clock> = Arc::new(Manual::at(0));
        let patience = StorePatience {
            read: Duration::ZERO,
            create: Duration::ZERO,
        };
        let (caller, call) = (Caller::from_bytes([1; 16]), TaskId::random());
        Self {
            ledger: Ledger::new(Arc::new(Memory::new(Arc::clone(&clock))), clock, patience),
            entries: Name::of(Kind::Events, &["log"]),
            owner: Name::of(Kind::Hold, &["log"]),
            call,
            seal: PointSeal::of_none(caller, call),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_event_id_is_where_a_lost_call_goes_on() {
        let entry = |number, kind, sealed: &str| {
            (number, LogEntry::resumable(kind, "{}".to_owned(), sealed))
        };
        let message = |number, sealed| entry(number, EntryKind::Message, sealed);
        let point = |behind, sealed: &str| SealedPoint {
            behind,
            sealed: sealed.into(),
        };
        let resumable = |event_id: &str, last| Rest::Resumable {
            event_id: event_id.to_owned(),
            last,
        };
        let log = [message(1, "a"), message(2, "b"), message(3, "")];
        for (entries, point, expected) in [
            (&log[..], None, resumable("b", 3)),
            (&log, Some(point(3, "p")), resumable("p", 3)),
            (&log, Some(point(2, "p")), resumable("p", 3)),
            (&log, Some(point(1, "p")), resumable("b", 3)),
            (&log[2..], None, Rest::Lost),
            (&[], Some(point(0, "p")), resumable("p", 0)),
            (&[], None, Rest::Lost),
            (&log, Some(point(3, "unreadable")), Rest::Lost),
            (
                &[message(1, "a"), entry(2, EntryKind::Answer, "")],
                None,
                Rest::Answered,
            ),
            (
                &[message(1, "a"), entry(2, EntryKind::End, "")],
                None,
                Rest::Answered,
            ),
        ] {
            let open = |sealed: &str| (sealed != "unreadable").then(|| sealed.to_owned());
            assert_eq!(
                rest_of(entries, point.as_ref(), open),
                expected,
                "{point:?}"
            );
        }
    }
}
