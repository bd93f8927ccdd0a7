//! Writes the event log of one call, and shows its events to the readers here.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::budget::LogBudget;
use super::entry::{EntryKind, LogEntry};
use super::log::EventLog;
use super::recent::RecentEvents;
use super::record::OwnedRecord;
use crate::store::StoreError;
use crate::store::kv::ENTRIES_MAX;
use crate::task::log_terms::{LogTerms, SealedPoint};

/// The pause between attempts to write what the store did not take.
pub const RETRY: Duration = Duration::from_secs(1);

/// A client may name an event up to this many entries behind the log: the log keeps no more.
const UNWRITTEN_MAX: u64 = ENTRIES_MAX;

#[derive(Debug)]
pub struct LogWriter {
    log: EventLog,
    record: OwnedRecord,
    recent: watch::Sender<RecentEvents>,
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
    /// The time that the store keeps the log once the call is over.
    lasts_ms: u64,
}

impl LogWriter {
    /// Writes the log of a new call of this tool.
    pub fn new(
        log: EventLog,
        tool: &str,
        terms: LogTerms,
        recent: watch::Sender<RecentEvents>,
    ) -> Self {
        let record = OwnedRecord::new(log.clone(), tool, terms);
        Self::behind(log, record, recent, 0)
    }

    /// Writes on behind this entry, the last that another replica wrote. `seen`: a client came back behind this
    /// entry, which the previous owner showed but could not write. The server repeats the events behind the log,
    /// which get the same numbers. If the server repeats fewer, the answer must get a number that the client has
    /// not seen.
    pub(super) fn of_successor(
        log: EventLog,
        record: OwnedRecord,
        recent: watch::Sender<RecentEvents>,
        last: u64,
        seen: u64,
    ) -> Self {
        let seen = seen.min(last.saturating_add(UNWRITTEN_MAX));
        Self {
            seen,
            ..Self::behind(log, record, recent, last)
        }
    }

    fn behind(
        log: EventLog,
        record: OwnedRecord,
        recent: watch::Sender<RecentEvents>,
        last: u64,
    ) -> Self {
        let terms = record.terms();
        Self {
            expires_ms: terms.ends_ms.saturating_add(terms.retention_ms),
            lasts_ms: terms.retention_ms,
            log,
            record,
            recent,
            said: last,
            seen: last,
            logged: last,
            is_in_doubt: false,
            tried: None,
            is_behind: false,
            budget: LogBudget::default(),
        }
    }

    /// Announces the call to other replicas, as far as the store takes it, and then to the readers here.
    pub async fn begin(&mut self) {
        self.write_down().await;
        self.recent.send_modify(|recent| recent.is_begun = true);
    }

    pub fn log(&self) -> &EventLog {
        &self.log
    }

    /// The tool that was called.
    pub fn tool(&self) -> &str {
        self.record.tool()
    }

    pub fn terms(&self) -> &LogTerms {
        self.record.terms()
    }

    /// Another replica carries the call: nothing more may be shown or written here.
    pub fn is_lost(&self) -> bool {
        self.record.is_lost()
    }

    /// Resolves when the record of the call changed, here or on another replica. Cancel safe.
    pub async fn changed(&self) {
        self.record.changed().await;
    }

    /// Looks which replica carries the call.
    pub async fn look(&mut self) {
        if let Err(error) = self.record.look().await {
            self.store_failed(&error);
        }
    }

    /// When a failed write is tried again.
    pub fn retries_at(&self) -> Option<Instant> {
        self.tried.map(|tried| tried + RETRY)
    }

    /// Writes an event before it is shown, so that a client that saw it finds it on every replica. `event_id`:
    /// the server's own.
    pub async fn say(&mut self, kind: EntryKind, json: String, event_id: Option<&str>) {
        let sealed = event_id.and_then(|event_id| self.log.seal().seal(event_id));
        let entry = LogEntry::resumable(kind, json, &sealed.unwrap_or_default());
        let entry = entry.after(self.recent.borrow().others());
        self.said += 1;
        let number = self.said;
        self.write_down().await;
        // An entry never goes into the log before an earlier one, because readers would take the gap for dropped
        // entries.
        if self.logged + 1 == number && self.record.is_written() && !self.is_lost() {
            let appended = self.append(number, &entry).await;
            if let Err(error) = appended {
                self.store_failed(&error);
            }
        }
        if !self.is_lost() {
            self.recent.send_modify(|recent| recent.push(number, entry));
        }
    }

    /// Shows an event that is no message. The log gets it with the next entry.
    pub fn show_other(&mut self, event: &str) {
        if !self.is_lost() {
            self.recent.send_modify(|recent| recent.add_other(event));
        }
    }

    /// Resolves when the newest reader here has read so much that it misses no further event. The reader's connection
    /// ends if it reads nothing for long. Cancel safe.
    pub async fn room(&self) {
        let pace = Arc::clone(self.recent.borrow().pace());
        while !self.recent.borrow().has_room() {
            pace.moved().await;
        }
    }

    /// The call can be resumed at the server behind this event, which had no message.
    pub async fn resumes_at(&mut self, event_id: &str) {
        // Without a seal key no other replica could use the point, so nothing is written.
        let Some(sealed) = self.log.seal().seal(event_id) else {
            return;
        };
        let behind = self.said;
        self.record.resumes_at(SealedPoint { behind, sealed });
        self.write_down().await;
    }

    /// Sets how long the store keeps the log once the call is over.
    pub fn keep_for(&mut self, lasts_ms: u64) {
        self.lasts_ms = lasts_ms;
    }

    /// Writes the last event, and that the call is over. The retention begins here.
    pub async fn end(&mut self, kind: EntryKind, json: String) {
        self.keep_from_now();
        // The last event is worth an attempt at once, even if the store has just failed.
        self.tried = None;
        // A client that saw more than the log has must not take the answer for an event that it has already.
        self.said = self.said.max(self.seen);
        self.say(kind, json, None).await;
        self.record.ends();
        self.write_down().await;
    }

    /// Replaces the events that the store did not take by this one.
    pub async fn end_instead(&mut self, json: String) {
        let (number, entry) = (self.said, LogEntry::new(EntryKind::Answer, json));
        self.recent.send_modify(|recent| recent.only(number, entry));
        // The earlier events count as dropped, so that the answer is the next entry to be written.
        self.logged = self.logged.max(number.saturating_sub(1));
        self.is_in_doubt = self.logged < number;
        self.write_again().await;
    }

    /// Leaves the call to another replica, which resumes it at the server. `false`: the call cannot be resumed,
    /// or the store does not take it. A store that has just failed is asked once more.
    pub async fn leave(&mut self) -> bool {
        let is_resumable = self.record.has_point() || self.recent.borrow().is_resumable();
        if !is_resumable {
            return false;
        }
        self.tried = None;
        self.write_down().await;
        // A successor resumes behind the last entry, so nothing may be missing when the record is released.
        if self.is_written_down()
            && !self.is_lost()
            && let Err(error) = self.record.release().await
        {
            self.store_failed(&error);
        }
        self.is_lost()
    }

    pub fn is_written_down(&self) -> bool {
        self.is_lost() || (self.record.is_written() && self.logged == self.said)
    }

    /// Writes what the store has not taken yet, with the whole retention ahead.
    pub async fn write_again(&mut self) {
        self.keep_from_now();
        self.tried = None;
        self.write_down().await;
    }

    fn keep_from_now(&mut self) {
        self.expires_ms = self.log.now_ms().saturating_add(self.lasts_ms);
    }

    /// Writes what the store has not taken yet, in order, unless the store has just failed.
    pub async fn write_down(&mut self) {
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
        // After the entries, because the record may say that the log is complete.
        self.record.write().await
    }

    async fn append(&mut self, number: u64, entry: &LogEntry) -> Result<(), StoreError> {
        // An append just before this one may have been refused for a later fence.
        if self.is_lost() {
            return Ok(());
        }
        let (fence, expires_ms) = (self.record.fence(), self.expires_ms);
        let appending = self.log.append(fence, number, entry, expires_ms);
        let Some(bytes) = appending.await? else {
            self.record.lost();
            return Ok(());
        };
        // Noted before the trim, which may fail although the entry is in the log.
        self.logged = number;
        let is_message = entry.kind() == EntryKind::Message;
        let first = is_message.then(|| self.budget.add(number, bytes));
        if let Some(first) = first.flatten() {
            self.log.trim(first).await?;
        }
        Ok(())
    }

    fn store_failed(&mut self, error: &StoreError) {
        if !std::mem::replace(&mut self.is_behind, true) {
            tracing::warn!(%error, "the store did not take the events of a resumable call");
        }
        self.tried = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::super::takeover::TakenOver;
    use super::*;

    fn writer(log: &EventLog) -> (LogWriter, watch::Receiver<RecentEvents>) {
        let (recent, shown) = watch::channel(RecentEvents::default());
        let terms = LogTerms {
            session: log.session(),
            id: serde_json::value::RawValue::from_string("7".into()).unwrap(),
            began_ms: 0,
            ends_ms: 60_000,
            retention_ms: 60_000,
            bytes_max: 1 << 20,
            heartbeat: None,
            point: None,
        };
        (LogWriter::new(log.clone(), "t", terms, recent), shown)
    }

    /// Another replica takes the call over.
    async fn take(log: &EventLog, seen: u64) -> (TakenOver, watch::Receiver<RecentEvents>) {
        let (recent, shown) = watch::channel(RecentEvents::default());
        let other = log.at("b");
        let stands = other.standing().await.unwrap().unwrap();
        let taken = other.take_over(stands, seen, recent).await.unwrap();
        (taken.unwrap(), shown)
    }

    async fn owner(log: &EventLog) -> (String, bool) {
        let stands = log.standing().await.unwrap().unwrap();
        let owner = stands.owner.unwrap();
        (owner.replica().to_owned(), stands.is_over)
    }

    /// In the very moment in which ownership counts as certain.
    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_call_is_not_written_over_its_successor() {
        let log = EventLog::in_memory();
        let (mut writer, _shown) = writer(&log);
        writer.begin().await;
        let _taken = take(&log, 0).await;
        writer.end(EntryKind::Answer, "[]".into()).await;
        assert!(writer.is_lost());
        assert_eq!(owner(&log).await, ("b".to_owned(), false));
    }

    /// The store took the record, but its reply was lost; then the call went on.
    #[tokio::test]
    async fn a_record_that_was_in_doubt_is_written_over() {
        let log = EventLog::in_memory();
        let (mut first, _shown) = writer(&log);
        first.begin().await;
        let (mut writer, _shown) = writer(&log);
        writer.end(EntryKind::Answer, "[]".into()).await;
        assert!(writer.is_written_down() && !writer.is_lost());
        assert!(owner(&log).await.1);
    }

    /// Nothing but the append itself shows that another replica carries the call.
    #[tokio::test(start_paused = true)]
    async fn no_event_is_written_or_shown_after_the_takeover() {
        let log = EventLog::in_memory();
        let (mut writer, shown) = writer(&log);
        writer.begin().await;
        writer.say(EntryKind::Message, "1".into(), None).await;
        let (
            TakenOver {
                writer: mut of_b, ..
            },
            _shown,
        ) = take(&log, 1).await;
        for _ in 0..3 {
            writer.say(EntryKind::Message, "2".into(), None).await;
        }
        assert!(writer.is_lost());
        assert_eq!(shown.borrow().kept_behind(0).len(), 1);
        of_b.begin().await;
        of_b.say(EntryKind::Message, "of b".into(), None).await;
        let kept = log.behind(0).await.unwrap();
        let kept: Vec<_> = kept.iter().map(|(_, entry)| entry.json()).collect();
        assert_eq!(kept, ["1", "of b"]);
        assert_eq!(owner(&log).await, ("b".to_owned(), false));
    }

    /// A replica that was taken for lost carries on what no other replica carries.
    #[tokio::test]
    async fn a_call_that_nobody_took_over_stays_with_its_owner() {
        let log = EventLog::in_memory();
        let (mut writer, _shown) = writer(&log);
        writer.begin().await;
        let stands = log.standing().await.unwrap().unwrap().loaded;
        let fence = stands.task.fence;
        let orphaned = crate::task::machine::TaskEvent::Orphaned { fence };
        log.ledger().apply(&stands, orphaned).await.unwrap();
        assert!(log.standing().await.unwrap().unwrap().owner.is_none());
        writer.look().await;
        assert!(!writer.is_lost());
        assert_eq!(owner(&log).await, ("a".to_owned(), false));
        writer.end(EntryKind::Answer, "[]".into()).await;
        assert!(writer.is_written_down() && owner(&log).await.1);
    }

    /// The previous owner showed the client three entries that no log has.
    #[tokio::test]
    async fn a_client_that_saw_more_than_is_written_gets_the_answer() {
        for (saw, answered_as) in [(5, 6), (2, 4), (u64::MAX, 3 + UNWRITTEN_MAX)] {
            let log = EventLog::in_memory();
            let (mut before, _shown) = writer(&log);
            before.begin().await;
            for _ in 0..2 {
                before.say(EntryKind::Message, "{}".into(), None).await;
            }
            let (TakenOver { mut writer, .. }, shown) = take(&log, saw).await;
            writer.begin().await;
            writer.say(EntryKind::Message, "{}".into(), None).await;
            writer.end(EntryKind::Answer, "[]".into()).await;
            assert!(writer.is_written_down());
            for kept in [log.behind(3).await.unwrap(), shown.borrow().kept_behind(3)] {
                let (number, answer) = &kept[0];
                assert_eq!((*number, answer.kind()), (answered_as, EntryKind::Answer));
                assert_eq!(kept.len(), 1);
            }
        }
    }
}
