//! Writes the event log of one call, and shows its events to the readers here.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::entry::{EntryKind, LogEntry};
use super::log::EventLog;
use super::log_budget::LogBudget;
use super::owner::{LogOwner, SealedPoint, StoredOwner};
use super::recent::RecentEvents;
use crate::store::StoreError;
use crate::store::kv::ENTRIES_MAX;

/// The pause between attempts to write what the store did not take.
pub(super) const RETRY: Duration = Duration::from_secs(1);

/// After a successful owner check, ownership is certain for this long: shorter than the time another replica
/// needs to declare this one lost. A successful append proves nothing: it does not check the owner.
const SURE_FOR: Duration = Duration::from_secs(2);

/// A client may name an event up to this many entries behind the log: the log keeps no more.
const UNWRITTEN_MAX: u64 = ENTRIES_MAX;

pub(super) struct LogWriter {
    log: EventLog,
    recent: watch::Sender<RecentEvents>,
    owner: LogOwner,
    owner_is_written: bool,
    /// The owner note in the store, as far as is known here.
    written: Option<StoredOwner>,
    ownership: Ownership,
    /// The number of the last entry.
    said: u64,
    /// The number of the last entry that a client may have seen, whether or not the log has it.
    seen: u64,
    /// The number of the last entry that is in the log, or was dropped before the store took it.
    logged: u64,
    /// The answer was replaced, but the store may have it after all.
    is_in_doubt: bool,
    /// When the store last failed.
    tried: Option<Instant>,
    /// The store did not take the last write: warned once.
    is_behind: bool,
    expires_ms: u64,
    budget: LogBudget,
    /// When the owner note was last seen to name this replica.
    checked: Instant,
    /// How long the store keeps the log once the call is over.
    lasts_ms: u64,
}

/// Which replica carries the call, as far as is known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ownership {
    Ours,
    /// Another replica carries the call now, or will.
    Theirs,
}

impl LogWriter {
    /// `behind`: the number of the last entry that another replica wrote. `checked`: when the owner note was
    /// last seen to name this replica.
    pub(super) fn new(
        log: EventLog,
        owner: LogOwner,
        recent: watch::Sender<RecentEvents>,
        behind: u64,
        checked: Instant,
    ) -> Self {
        let limits = owner.limits;
        Self {
            log,
            recent,
            owner,
            owner_is_written: false,
            written: None,
            ownership: Ownership::Ours,
            said: behind,
            seen: behind,
            logged: behind,
            is_in_doubt: false,
            tried: None,
            is_behind: false,
            expires_ms: limits.ends_ms.saturating_add(limits.retention_ms),
            budget: LogBudget::default(),
            checked,
            lasts_ms: limits.retention_ms,
        }
    }

    /// The owner note of this replica is in the store already.
    pub(super) fn with_stored_owner(self, written: StoredOwner) -> Self {
        Self {
            written: Some(written),
            ..self
        }
    }

    /// A client came back behind this entry, which the previous owner showed but could not write. The server
    /// repeats the events behind the log, which get the same numbers. If the server repeats fewer, the answer
    /// must get a number that the client has not seen.
    pub(super) fn seen(self, number: u64) -> Self {
        let seen = number.min(self.said.saturating_add(UNWRITTEN_MAX));
        Self { seen, ..self }
    }

    /// Announces the call to other replicas, as far as the store takes it, and then to the readers here.
    pub(super) async fn begin(&mut self) {
        self.write_down().await;
        self.recent.send_modify(|recent| recent.is_begun = true);
    }

    pub(super) fn log(&self) -> &EventLog {
        &self.log
    }

    pub(super) fn owner(&self) -> &LogOwner {
        &self.owner
    }

    /// Another replica carries the call: nothing more may be shown or written here.
    pub(super) fn is_lost(&self) -> bool {
        self.ownership == Ownership::Theirs
    }

    /// When a failed write is tried again.
    pub(super) fn retries_at(&self) -> Option<Instant> {
        self.tried.map(|tried| tried + RETRY)
    }

    /// Writes an event before it is shown, so that a client that saw it finds it on every replica. `event_id`:
    /// the server's own.
    pub(super) async fn say(&mut self, kind: EntryKind, json: String, event_id: Option<&str>) {
        let sealed = event_id.and_then(|event_id| self.log.seal().seal(event_id));
        let entry = LogEntry::resumable(kind, json, &sealed.unwrap_or_default());
        self.said += 1;
        let number = self.said;
        self.write_down().await;
        if self.logged + 1 == number && self.owner_is_written && !self.is_lost() {
            let appended = self.append(number, &entry).await;
            if let Err(error) = appended {
                self.store_failed(&error);
            }
        }
        if !self.is_lost() {
            self.recent.send_modify(|recent| recent.push(number, entry));
        }
    }

    /// The call can be resumed at the server behind this event, which had no message.
    pub(super) async fn resumes_at(&mut self, event_id: &str) {
        let Some(sealed) = self.log.seal().seal(event_id) else {
            return;
        };
        let behind = self.said;
        self.owner.point = Some(SealedPoint { behind, sealed });
        self.owner_is_written = false;
        self.write_down().await;
    }

    /// Sets how long the store keeps the log once the call is over.
    pub(super) fn keep_for(&mut self, lasts_ms: u64) {
        self.lasts_ms = lasts_ms;
    }

    /// Writes the last event, and that the call is over. The retention begins here.
    pub(super) async fn end(&mut self, kind: EntryKind, json: String) {
        self.keep_from_now();
        self.tried = None;
        self.said = self.said.max(self.seen);
        self.say(kind, json, None).await;
        self.owner.is_over = true;
        self.owner_is_written = false;
        self.write_down().await;
    }

    /// Replaces the events that the store did not take by this one.
    pub(super) async fn end_instead(&mut self, json: String) {
        let (number, entry) = (self.said, LogEntry::new(EntryKind::Answer, json));
        self.recent.send_modify(|recent| recent.only(number, entry));
        self.logged = self.logged.max(number.saturating_sub(1));
        self.is_in_doubt = self.logged < number;
        self.write_again().await;
    }

    /// Leaves the call to another replica, which resumes it at the server. `false`: the call cannot be resumed,
    /// or the store does not take it. A store that has just failed is asked once more.
    pub(super) async fn leave(&mut self) -> bool {
        let is_resumable = self.owner.point.is_some() || self.recent.borrow().is_resumable();
        if is_resumable {
            self.tried = None;
            self.write_down().await;
        }
        if is_resumable && self.is_written_down() {
            self.ownership = Ownership::Theirs;
        }
        self.is_lost()
    }

    pub(super) fn is_written_down(&self) -> bool {
        self.is_lost() || (self.owner_is_written && self.logged == self.said)
    }

    /// Writes what the store has not taken yet, with the whole retention ahead.
    pub(super) async fn write_again(&mut self) {
        self.keep_from_now();
        self.tried = None;
        self.write_down().await;
    }

    fn keep_from_now(&mut self) {
        self.expires_ms = self.log.now_ms().saturating_add(self.lasts_ms);
    }

    /// Writes what the store has not taken yet, in order, unless the store has just failed.
    pub(super) async fn write_down(&mut self) {
        let is_too_early = self.retries_at().is_some_and(|then| Instant::now() < then);
        if is_too_early || self.is_written_down() {
            return;
        }
        self.tried = None;
        match self.try_write_down().await {
            Ok(()) => self.is_behind = false,
            Err(error) => self.store_failed(&error),
        }
    }

    async fn try_write_down(&mut self) -> Result<(), StoreError> {
        if self.is_in_doubt {
            // The write of the answer may have succeeded although it failed here: then the answer stays.
            let taken = self.log.behind(self.logged).await?;
            if taken.iter().any(|(number, _)| *number == self.said) {
                self.logged = self.said;
            }
            self.is_in_doubt = false;
        }
        let behind = self.recent.borrow().kept_behind(self.logged);
        for (number, entry) in behind {
            self.append(number, &entry).await?;
        }
        // After the entries, because the owner note may say that the log is complete.
        if self.owner_is_written {
            Ok(())
        } else {
            self.write_owner().await
        }
    }

    /// Writes the owner note, but never over that of another replica.
    async fn write_owner(&mut self) -> Result<(), StoreError> {
        for _ in 0..2 {
            let (began, stands) = (Instant::now(), self.written.as_ref());
            let written = self.log.write_owner(&self.owner, stands, self.expires_ms);
            if let Some(written) = written.await? {
                self.written = Some(written);
                self.owner_is_written = true;
                self.checked = began;
                return Ok(());
            }
            // Another replica's note is there, or one of this replica whose write seemed to fail.
            self.look().await?;
            if self.is_lost() {
                return Ok(());
            }
        }
        Err(StoreError::Corrupt(
            "the owner note of a resumable call that changes",
        ))
    }

    async fn append(&mut self, number: u64, entry: &LogEntry) -> Result<(), StoreError> {
        self.check_owner().await?;
        if !self.is_lost() {
            let bytes = self.log.append(number, entry, self.expires_ms).await?;
            self.logged = number;
            let is_message = entry.kind() == EntryKind::Message;
            let first = is_message.then(|| self.budget.add(number, bytes));
            if let Some(first) = first.flatten() {
                self.log.trim(first).await?;
            }
        }
        Ok(())
    }

    /// Checks the owner note if the last check is too old: a replica that was frozen or cut off must not write
    /// over the events of its successor.
    pub(super) async fn check_owner(&mut self) -> Result<(), StoreError> {
        let is_sure = Instant::now().saturating_duration_since(self.checked) < SURE_FOR;
        if is_sure { Ok(()) } else { self.look().await }
    }

    async fn look(&mut self) -> Result<(), StoreError> {
        let began = Instant::now();
        let (owner, written) = self.log.stored_owner().await?.unzip();
        if owner.is_some_and(|owner| owner.incarnation != self.owner.incarnation) {
            tracing::info!("a resumable call was taken over by another replica");
            self.ownership = Ownership::Theirs;
        }
        self.written = written;
        self.checked = began;
        Ok(())
    }

    pub(super) fn store_failed(&mut self, error: &StoreError) {
        if !std::mem::replace(&mut self.is_behind, true) {
            tracing::warn!(%error, "the store did not take the events of a resumable call");
        }
        self.tried = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::downstream::calls::resumable::owner::CallLimits;

    fn owner(owner: &str) -> LogOwner {
        LogOwner {
            incarnation: owner.into(),
            id: serde_json::value::RawValue::from_string("7".into()).unwrap(),
            began_ms: 0,
            limits: CallLimits {
                ends_ms: 60_000,
                retention_ms: 60_000,
                bytes_max: 1 << 20,
            },
            point: None,
            heartbeat: None,
            is_over: false,
        }
    }

    /// Another replica puts its owner note in place of any other.
    async fn take(writer: &LogWriter, owner: &LogOwner) {
        let stands = writer.log().stored_owner().await.unwrap();
        let stands = stands.map(|(_, stands)| stands);
        let taken = writer
            .log()
            .write_owner(owner, stands.as_ref(), 120_000)
            .await;
        assert!(taken.unwrap().is_some());
    }

    /// In the very moment in which ownership counts as certain.
    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_call_is_not_written_over_its_successor() {
        let (recent, _shown) = watch::channel(RecentEvents::default());
        let mut writer =
            LogWriter::new(EventLog::in_memory(), owner("a"), recent, 0, Instant::now());
        writer.begin().await;
        take(&writer, &owner("b")).await;
        writer.end(EntryKind::Answer, "[]".into()).await;
        assert!(writer.is_lost());
        let owner = writer.log().owner().await.unwrap().unwrap();
        assert_eq!((&*owner.incarnation, owner.is_over), ("b", false));
    }

    /// The store took the note, but its reply was lost; then the call went on.
    #[tokio::test]
    async fn an_owner_note_that_was_in_doubt_is_written_over() {
        let (recent, _shown) = watch::channel(RecentEvents::default());
        let mut writer =
            LogWriter::new(EventLog::in_memory(), owner("a"), recent, 0, Instant::now());
        take(&writer, &owner("a")).await;
        writer.end(EntryKind::Answer, "[]".into()).await;
        assert!(writer.is_written_down() && !writer.is_lost());
        assert!(writer.log().owner().await.unwrap().unwrap().is_over);
    }

    /// However many events there are: only the owner note tells which replica carries the call.
    #[tokio::test(start_paused = true)]
    async fn a_call_with_events_without_a_pause_notices_its_successor() {
        let (recent, shown) = watch::channel(RecentEvents::default());
        let mut writer =
            LogWriter::new(EventLog::in_memory(), owner("a"), recent, 0, Instant::now());
        writer.begin().await;
        take(&writer, &owner("b")).await;
        for _ in 0..3 {
            tokio::time::advance(SURE_FOR / 2).await;
            writer.say(EntryKind::Message, "{}".into(), None).await;
        }
        assert!(writer.is_lost());
        assert_eq!(shown.borrow().kept_behind(0).len(), 1);
        assert_eq!(writer.log().behind(0).await.unwrap().len(), 1);
        assert_eq!(
            &*writer.log().owner().await.unwrap().unwrap().incarnation,
            "b"
        );
    }

    /// The previous owner showed the client three entries that no log has.
    #[tokio::test]
    async fn a_client_that_saw_more_than_is_written_gets_the_answer() {
        for (saw, answered_as) in [(5, 6), (2, 4), (u64::MAX, 3 + UNWRITTEN_MAX)] {
            let (recent, shown) = watch::channel(RecentEvents::behind_entry(2));
            let writer =
                LogWriter::new(EventLog::in_memory(), owner("b"), recent, 2, Instant::now());
            let mut writer = writer.seen(saw);
            writer.begin().await;
            writer.say(EntryKind::Message, "{}".into(), None).await;
            writer.end(EntryKind::Answer, "[]".into()).await;
            assert!(writer.is_written_down());
            for kept in [
                writer.log().behind(3).await.unwrap(),
                shown.borrow().kept_behind(3),
            ] {
                let (number, answer) = &kept[0];
                assert_eq!((*number, answer.kind()), (answered_as, EntryKind::Answer));
                assert_eq!(kept.len(), 1);
            }
        }
    }
}
