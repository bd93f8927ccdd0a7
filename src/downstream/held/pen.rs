//! Who writes the log of one held call, and shows what it says to the readers here.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::budget::Budget;
use super::entry::{Entry, Meaning};
use super::live::Tail;
use super::log::{Head, Log, Point, Written};
use crate::store::StoreError;
use crate::store::kv::ENTRIES_MAX;

/// Between attempts to write into a log that its store did not take.
pub(super) const RETRY: Duration = Duration::from_secs(1);

/// For so long after the log named us nobody else can have taken the call over. Less than it takes a
/// reader elsewhere to miss us. Entries do not count: they are written whoever is named.
const SURE_FOR: Duration = Duration::from_secs(2);

/// What a client says that it saw is believed up to so many entries behind the log: a log has no more.
const UNWRITTEN_MAX: u64 = ENTRIES_MAX;

pub(super) struct Pen {
    log: Log,
    tail: watch::Sender<Tail>,
    head: Head,
    head_is_written: bool,
    /// The head as it is in the store, as far as we know.
    written: Option<Written>,
    standing: Standing,
    /// The number of the last entry.
    said: u64,
    /// A client may have seen so many, whatever the log has.
    seen: u64,
    /// That of the last one which is in the log, or was forgotten before it could be.
    logged: u64,
    /// The answer was given up, and may be there.
    is_in_doubt: bool,
    /// When the store last failed.
    tried: Option<Instant>,
    /// It is known that the store has not all of it.
    is_behind: bool,
    expires_ms: u64,
    budget: Budget,
    /// When the log was last known to name nobody else.
    sure: Instant,
    /// For so long it is kept once it is over.
    lasts_ms: u64,
}

/// Whose call it is, as far as we know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Ours,
    /// Another replica carries it now, or will.
    Theirs,
}

impl Pen {
    /// `behind`: the number of the last entry that somebody else wrote. `sure`: when the log
    /// was last known to name nobody else.
    pub(super) fn new(
        log: Log,
        head: Head,
        tail: watch::Sender<Tail>,
        behind: u64,
        sure: Instant,
    ) -> Self {
        let terms = head.terms;
        Self {
            log,
            tail,
            head,
            head_is_written: false,
            written: None,
            standing: Standing::Ours,
            said: behind,
            seen: behind,
            logged: behind,
            is_in_doubt: false,
            tried: None,
            is_behind: false,
            expires_ms: terms.ends_ms.saturating_add(terms.retention_ms),
            budget: Budget::default(),
            sure,
            lasts_ms: terms.retention_ms,
        }
    }

    /// The head that stands, which is ours.
    pub(super) fn over(self, written: Written) -> Self {
        Self {
            written: Some(written),
            ..self
        }
    }

    /// A client came back behind this entry, which its owner could not write any more. The server
    /// repeats what came behind the log, under the same numbers; if it repeats less, the answer must
    /// not be taken for what was seen.
    pub(super) fn seen(self, number: u64) -> Self {
        let seen = number.min(self.said.saturating_add(UNWRITTEN_MAX));
        Self { seen, ..self }
    }

    /// Tells others of the call, as far as the store lets it, and then those here.
    pub(super) async fn begin(&mut self) {
        self.write_down().await;
        self.tail.send_modify(|tail| tail.is_begun = true);
    }

    pub(super) fn log(&self) -> &Log {
        &self.log
    }

    pub(super) fn head(&self) -> &Head {
        &self.head
    }

    /// Another replica carries the call now: nothing more is to be said or written here.
    pub(super) fn is_lost(&self) -> bool {
        self.standing == Standing::Theirs
    }

    /// When the store is to be asked again.
    pub(super) fn retries_at(&self) -> Option<Instant> {
        self.tried.map(|tried| tried + RETRY)
    }

    /// Kept before it is shown: a client that saw it finds it on every replica. `event_id`: the
    /// server's own.
    pub(super) async fn say(&mut self, meaning: Meaning, json: String, event_id: Option<&str>) {
        let sealed = event_id.and_then(|event_id| self.log.seal().close(event_id));
        let entry = Entry::resumable(meaning, json, &sealed.unwrap_or_default());
        self.said += 1;
        let number = self.said;
        self.write_down().await;
        if self.logged + 1 == number && self.head_is_written && !self.is_lost() {
            let appended = self.append(number, &entry).await;
            if let Err(error) = appended {
                self.store_failed(&error);
            }
        }
        if !self.is_lost() {
            self.tail.send_modify(|tail| tail.push(number, entry));
        }
    }

    /// The server can be come back to behind this event, which said nothing else.
    pub(super) async fn resumes_at(&mut self, event_id: &str) {
        let Some(sealed) = self.log.seal().close(event_id) else {
            return;
        };
        let behind = self.said;
        self.head.point = Some(Point { behind, sealed });
        self.head_is_written = false;
        self.write_down().await;
    }

    /// Once it is over it is kept for so long only.
    pub(super) fn keep_for(&mut self, lasts_ms: u64) {
        self.lasts_ms = lasts_ms;
    }

    /// The last thing that is said, and that it is over. From here on it is kept for its retention.
    pub(super) async fn end(&mut self, meaning: Meaning, json: String) {
        self.keep_from_now();
        self.tried = None;
        self.said = self.said.max(self.seen);
        self.say(meaning, json, None).await;
        self.head.is_over = true;
        self.head_is_written = false;
        self.write_down().await;
    }

    /// Says this in place of what the store did not take.
    pub(super) async fn end_instead(&mut self, json: String) {
        let (number, entry) = (self.said, Entry::new(Meaning::Answer, json));
        self.tail.send_modify(|tail| tail.only(number, entry));
        self.logged = self.logged.max(number.saturating_sub(1));
        self.is_in_doubt = self.logged < number;
        self.write_again().await;
    }

    /// Leaves the call to whoever can carry it on behind what is written. `false`: nobody can. A store
    /// that has just failed is asked once more.
    pub(super) async fn leave(&mut self) -> bool {
        let is_resumable = self.head.point.is_some() || self.tail.borrow().is_resumable();
        if is_resumable {
            self.tried = None;
            self.write_down().await;
        }
        if is_resumable && self.is_written_down() {
            self.standing = Standing::Theirs;
        }
        self.is_lost()
    }

    pub(super) fn is_written_down(&self) -> bool {
        self.is_lost() || (self.head_is_written && self.logged == self.said)
    }

    /// What the store has not taken yet, with the whole retention before it.
    pub(super) async fn write_again(&mut self) {
        self.keep_from_now();
        self.tried = None;
        self.write_down().await;
    }

    fn keep_from_now(&mut self) {
        self.expires_ms = self.log.now_ms().saturating_add(self.lasts_ms);
    }

    /// Writes what the store has not taken yet, in order, unless it has just failed.
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
            // A write that failed may have happened after all: the answer itself is better.
            let taken = self.log.behind(self.logged).await?;
            if taken.iter().any(|(number, _)| *number == self.said) {
                self.logged = self.said;
            }
            self.is_in_doubt = false;
        }
        let behind = self.tail.borrow().kept_behind(self.logged);
        for (number, entry) in behind {
            self.append(number, &entry).await?;
        }
        // After the entries: it may say that they are all there.
        if self.head_is_written {
            Ok(())
        } else {
            self.write_head().await
        }
    }

    /// Never over a successor's.
    async fn write_head(&mut self) -> Result<(), StoreError> {
        for _ in 0..2 {
            let (began, stands) = (Instant::now(), self.written.as_ref());
            let written = self.log.write_head(&self.head, stands, self.expires_ms);
            if let Some(written) = written.await? {
                self.written = Some(written);
                self.head_is_written = true;
                self.sure = began;
                return Ok(());
            }
            // That, or one of our own, which the store took and did not say so.
            self.look().await?;
            if self.is_lost() {
                return Ok(());
            }
        }
        Err(StoreError::Corrupt("the head of a held call that changes"))
    }

    async fn append(&mut self, number: u64, entry: &Entry) -> Result<(), StoreError> {
        self.make_sure().await?;
        if !self.is_lost() {
            let bytes = self.log.append(number, entry, self.expires_ms).await?;
            self.logged = number;
            let is_message = entry.meaning() == Meaning::Message;
            let first = is_message.then(|| self.budget.add(number, bytes));
            if let Some(first) = first.flatten() {
                self.log.trim(first).await?;
            }
        }
        Ok(())
    }

    /// Whether the call is still ours, where we could have been missed: a replica that was frozen or
    /// cut off must not write over what its successor says.
    pub(super) async fn make_sure(&mut self) -> Result<(), StoreError> {
        let is_sure = Instant::now().saturating_duration_since(self.sure) < SURE_FOR;
        if is_sure { Ok(()) } else { self.look().await }
    }

    async fn look(&mut self) -> Result<(), StoreError> {
        let began = Instant::now();
        let (head, written) = self.log.standing().await?.unzip();
        if head.is_some_and(|head| head.owner != self.head.owner) {
            tracing::info!("a held call was taken over by another replica");
            self.standing = Standing::Theirs;
        }
        self.written = written;
        self.sure = began;
        Ok(())
    }

    pub(super) fn store_failed(&mut self, error: &StoreError) {
        if !std::mem::replace(&mut self.is_behind, true) {
            tracing::warn!(%error, "the store did not take what a held call said");
        }
        self.tried = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::downstream::held::log::Terms;

    fn head(owner: &str) -> Head {
        Head {
            owner: owner.into(),
            id: serde_json::value::RawValue::from_string("7".into()).unwrap(),
            began_ms: 0,
            terms: Terms {
                ends_ms: 60_000,
                retention_ms: 60_000,
                bytes_max: 1 << 20,
            },
            point: None,
            heartbeat: None,
            is_over: false,
        }
    }

    /// Another replica puts its head in place of whatever stands.
    async fn take(pen: &Pen, head: &Head) {
        let stands = pen.log().standing().await.unwrap();
        let stands = stands.map(|(_, stands)| stands);
        let taken = pen.log().write_head(head, stands.as_ref(), 120_000).await;
        assert!(taken.unwrap().is_some());
    }

    /// In the very moment in which it is sure that the call is its own.
    #[tokio::test(start_paused = true)]
    async fn who_ends_a_call_does_not_write_over_its_successor() {
        let (tail, _shown) = watch::channel(Tail::default());
        let mut pen = Pen::new(Log::of_nobody(), head("a"), tail, 0, Instant::now());
        pen.begin().await;
        take(&pen, &head("b")).await;
        pen.end(Meaning::Answer, "[]".into()).await;
        assert!(pen.is_lost());
        let head = pen.log().head().await.unwrap().unwrap();
        assert_eq!((&*head.owner, head.is_over), ("b", false));
    }

    /// The store took it, and the answer was lost; then there was more to say.
    #[tokio::test]
    async fn a_head_that_was_in_doubt_is_written_over() {
        let (tail, _shown) = watch::channel(Tail::default());
        let mut pen = Pen::new(Log::of_nobody(), head("a"), tail, 0, Instant::now());
        take(&pen, &head("a")).await;
        pen.end(Meaning::Answer, "[]".into()).await;
        assert!(pen.is_written_down() && !pen.is_lost());
        assert!(pen.log().head().await.unwrap().unwrap().is_over);
    }

    /// However much it says: only the head tells whose call it is.
    #[tokio::test(start_paused = true)]
    async fn who_talks_without_a_pause_hears_of_a_successor() {
        let (tail, shown) = watch::channel(Tail::default());
        let mut pen = Pen::new(Log::of_nobody(), head("a"), tail, 0, Instant::now());
        pen.begin().await;
        take(&pen, &head("b")).await;
        for _ in 0..3 {
            tokio::time::advance(SURE_FOR / 2).await;
            pen.say(Meaning::Message, "{}".into(), None).await;
        }
        assert!(pen.is_lost());
        assert_eq!(shown.borrow().kept_behind(0).len(), 1);
        assert_eq!(pen.log().behind(0).await.unwrap().len(), 1);
        assert_eq!(&*pen.log().head().await.unwrap().unwrap().owner, "b");
    }

    /// The last owner showed it three entries that no log has.
    #[tokio::test]
    async fn who_saw_more_than_is_written_gets_the_answer() {
        for (saw, answered_as) in [(5, 6), (2, 4), (u64::MAX, 3 + UNWRITTEN_MAX)] {
            let (tail, shown) = watch::channel(Tail::behind_entry(2));
            let pen = Pen::new(Log::of_nobody(), head("b"), tail, 2, Instant::now());
            let mut pen = pen.seen(saw);
            pen.begin().await;
            pen.say(Meaning::Message, "{}".into(), None).await;
            pen.end(Meaning::Answer, "[]".into()).await;
            assert!(pen.is_written_down());
            for kept in [
                pen.log().behind(3).await.unwrap(),
                shown.borrow().kept_behind(3),
            ] {
                let (number, answer) = &kept[0];
                assert_eq!((*number, answer.meaning()), (answered_as, Meaning::Answer));
                assert_eq!(kept.len(), 1);
            }
        }
    }
}
