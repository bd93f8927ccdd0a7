//! The event log of one call in the store, and the record whose owner writes it.

use std::sync::Arc;
use std::time::Duration;

use super::super::carried::CarriedTasks;
use super::super::custody::Custody;
use super::super::state::Runner;
use super::super::watch::{Watch, Watches};
use super::entry::{EntryKind, LogEntry};
use super::point_seal::PointSeal;
use super::standing::CallStanding;
use crate::store::StoreError;
use crate::store::kv::{Kind, Name};
use crate::store::ledger::Ledger;
use crate::task::digest::Digest;
use crate::task::id::{Caller, Fence, Incarnation, TaskId};
use crate::task::log_terms::{LogTerms, SealedPoint};

/// The time that one command waits for a store that is away: the owner of a call tries again by itself.
const STORE_PATIENCE: Duration = Duration::from_secs(1);

/// The log does not keep larger messages: only the readers that are connected get them. It keeps every answer.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// The time that one [mark](EventLog::mark_read) makes an owner send notifications of the entries of a log.
pub const MARK_LASTS: Duration = Duration::from_mins(1);

/// The rest of a call whose owner is gone.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LogRest {
    /// The server has the rest behind this event; the log has entries up to this number.
    Resumable { event_id: String, last: u64 },
    /// The log has the answer.
    Answered,
    /// No replica can continue the call. The log has entries up to this number.
    Lost { last: u64 },
}

/// The event log of one call. Cheap to clone.
#[derive(Debug, Clone)]
pub struct EventLog {
    ledger: Ledger,
    watches: Arc<Watches>,
    carried: Arc<CarriedTasks>,
    incarnation: Incarnation,
    entries: Name,
    session: Digest,
    caller: Caller,
    call: TaskId,
    seal: PointSeal,
}

impl EventLog {
    /// The log of this call, for its caller on this session only.
    pub fn of(runner: &Runner, caller: Caller, session: &str, call: TaskId) -> Self {
        let of_caller = uuid::Uuid::from_bytes(*caller.as_bytes()).to_string();
        let text = call.to_string();
        Self {
            ledger: runner.ledger.waiting(STORE_PATIENCE),
            watches: Arc::clone(&runner.watches),
            carried: Arc::clone(&runner.carried),
            incarnation: runner.incarnation.clone(),
            entries: Name::of(Kind::Events, &[&of_caller, session, &*text]),
            session: Digest::of(&[session]),
            caller,
            call,
            seal: PointSeal::of(runner, caller, call),
        }
    }

    pub(super) fn seal(&self) -> &PointSeal {
        &self.seal
    }

    pub fn name(&self) -> Name {
        self.entries
    }

    pub fn now_ms(&self) -> u64 {
        self.ledger.now_ms()
    }

    /// The session for which the log is, as the record has it.
    pub fn session(&self) -> Digest {
        self.session
    }

    pub(super) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(super) fn call(&self) -> TaskId {
        self.call
    }

    pub fn caller(&self) -> Caller {
        self.caller
    }

    pub(super) fn incarnation(&self) -> &Incarnation {
        &self.incarnation
    }

    pub(super) fn custody(&self) -> Custody {
        Custody::within(&self.watches, &self.carried, self.call, self.caller)
    }

    /// Watches the record of the call, and the log while it is [marked](Self::mark_read): a change after this returns
    /// is seen.
    pub fn watch(&self) -> Watch {
        self.watches.watch(vec![self.call, self.entries.told_as()])
    }

    /// Makes the owner of the call send a notification of each entry that it writes from now on, for [`MARK_LASTS`].
    pub async fn mark_read(&self) -> Result<(), StoreError> {
        let until_ms = self.now_ms().saturating_add(MARK_LASTS.as_secs() * 1000);
        let store = self.ledger.store();
        store
            .put(self.entries.read_as(), "1".into(), until_ms)
            .await
    }

    /// Returns the standing of the call in the store. `None`: the store has nothing of the call, or nothing for this
    /// caller on this session.
    pub async fn standing(&self) -> Result<Option<CallStanding>, StoreError> {
        let Some(loaded) = self.ledger.load(self.call).await? else {
            return Ok(None);
        };
        let belongs = loaded.task.belongs_to(&self.caller);
        let standing = CallStanding::of(loaded).filter(|_| belongs);
        Ok(standing.filter(|standing| standing.terms.session == self.session))
    }

    /// Appends an entry, and returns the number of bytes that it takes. `None`: a replica with a later fence writes the
    /// log.
    pub(super) async fn append(
        &self,
        fence: Fence,
        number: u64,
        entry: &LogEntry,
        expires_ms: u64,
    ) -> Result<Option<usize>, StoreError> {
        let is_small = |entry: &LogEntry| entry.len() <= MESSAGE_BYTES_MAX;
        // The other events are dropped first, because clients ignore them and need the message.
        let entry = if is_small(entry) {
            entry.clone()
        } else {
            entry.alone()
        };
        let entry = if entry.kind() != EntryKind::Message || is_small(&entry) {
            entry
        } else {
            // The event id stays in the log: behind a message that is left out, the call can still be resumed.
            let sealed = entry.sealed().unwrap_or_default();
            LogEntry::resumable(EntryKind::Omitted, String::new(), sealed)
        };
        let (bytes, store) = (entry.len(), self.ledger.store());
        let appending = store.append(self.entries, fence, number, entry.0, expires_ms);
        Ok(appending.await?.then_some(bytes))
    }

    /// Appends the entry behind the answer, with which the whole log expires sooner.
    pub async fn end(&self, number: u64, expires_ms: u64) -> Result<(), StoreError> {
        let end = LogEntry::new(EntryKind::End, String::new());
        // No replica carries the call.
        let fence = Fence(u64::MAX);
        let appending = self.append(fence, number, &end, expires_ms);
        appending.await.map(drop)
    }

    /// Drops the entries before that one.
    pub(super) async fn trim(&self, first: u64) -> Result<(), StoreError> {
        self.ledger.store().trim(self.entries, first).await
    }

    /// Returns what the owners before this fence left of the call. They write nothing more.
    pub(super) async fn rest(&self, terms: &LogTerms, fence: Fence) -> Result<LogRest, StoreError> {
        // A call may be taken over after its time, and its log still needs the whole retention.
        let ends_ms = terms.ends_ms.max(self.now_ms());
        let (store, expires_ms) = (
            self.ledger.store(),
            ends_ms.saturating_add(terms.retention_ms),
        );
        // The fence comes before the read: after it no earlier owner can append, so the entries below are complete.
        store.fence(self.entries, fence, expires_ms).await?;
        let entries = self.behind(0).await?;
        Ok(rest_of(&entries, terms.point.as_ref(), |sealed| {
            self.seal.open(sealed)
        }))
    }

    /// Returns `true` if the log has its last entry.
    pub async fn is_complete(&self) -> Result<bool, StoreError> {
        let entries = self.behind(0).await?;
        Ok(entries
            .last()
            .is_some_and(|(_, entry)| entry.kind().is_last()))
    }

    /// The entries behind that one, in order. Some of them may have been dropped.
    pub async fn behind(&self, after: u64) -> Result<Vec<(u64, LogEntry)>, StoreError> {
        let entries = self.ledger.store().entries(self.entries, after).await?;
        // Readers expect gaps, so an entry that cannot be read counts as one that was dropped.
        let read = |(number, bytes)| Some((number, LogEntry::read(bytes)?));
        Ok(entries.into_iter().filter_map(read).collect())
    }
}

/// The later of two places counts: the last entry with an event id, or the id that came without a message.
fn rest_of(
    entries: &[(u64, LogEntry)],
    point: Option<&SealedPoint>,
    open: impl FnOnce(&str) -> Option<String>,
) -> LogRest {
    let last = entries.last();
    if last.is_some_and(|(_, entry)| entry.kind().is_last()) {
        return LogRest::Answered;
    }
    let last = last.map_or(0, |(number, _)| *number);
    let of_entry =
        |(number, entry): &'_ (u64, LogEntry)| Some((*number, entry.sealed()?.to_owned()));
    let of_entries = entries.iter().rev().find_map(of_entry);
    let of_record = point.map(|point| (point.behind, point.sealed.to_string()));
    let later = match (of_entries, of_record) {
        (Some(entry), Some(record)) if entry.0 > record.0 => Some(entry),
        (entry, record) => record.or(entry),
    };
    let opened = later.and_then(|(_, sealed)| open(&sealed));
    opened.map_or(LogRest::Lost { last }, |event_id| LogRest::Resumable {
        event_id,
        last,
    })
}

#[cfg(test)]
impl EventLog {
    /// A log in memory that cannot seal.
    pub(super) fn in_memory() -> Self {
        use crate::base::clock::{Clock, Manual};
        use crate::store::memory::Memory;
        use crate::store::patience::StorePatience;

        let clock: Arc<dyn Clock> = Arc::new(Manual::at(0));
        let patience = StorePatience {
            read: Duration::ZERO,
            create: Duration::ZERO,
        };
        let (caller, call) = (Caller::from_bytes([1; 16]), TaskId::random());
        Self {
            ledger: Ledger::new(Arc::new(Memory::new(Arc::clone(&clock))), clock, patience),
            watches: Arc::default(),
            carried: Arc::default(),
            incarnation: Incarnation::new("a"),
            entries: Name::of(Kind::Events, &["log"]),
            session: Digest::of(&["s"]),
            caller,
            call,
            seal: PointSeal::of_none(caller, call),
        }
    }

    /// The same log at another replica.
    pub(super) fn at(&self, replica: &str) -> Self {
        Self {
            incarnation: Incarnation::new(replica),
            ..self.clone()
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
        let resumable = |event_id: &str, last| LogRest::Resumable {
            event_id: event_id.to_owned(),
            last,
        };
        let log = [message(1, "a"), message(2, "b"), message(3, "")];
        for (entries, point, expected) in [
            (&log[..], None, resumable("b", 3)),
            (&log, Some(point(3, "p")), resumable("p", 3)),
            (&log, Some(point(2, "p")), resumable("p", 3)),
            (&log, Some(point(1, "p")), resumable("b", 3)),
            (&log[2..], None, LogRest::Lost { last: 3 }),
            (&[], Some(point(0, "p")), resumable("p", 0)),
            (&[], None, LogRest::Lost { last: 0 }),
            (
                &log,
                Some(point(3, "unreadable")),
                LogRest::Lost { last: 3 },
            ),
            (
                &[message(1, "a"), entry(2, EntryKind::Answer, "")],
                None,
                LogRest::Answered,
            ),
            (
                &[message(1, "a"), entry(2, EntryKind::End, "")],
                None,
                LogRest::Answered,
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
