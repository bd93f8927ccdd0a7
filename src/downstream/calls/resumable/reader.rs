//! The stream of a resumable call to one client, from the event that the client has to the answer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use super::event_id::event_id;
use super::event_source::{EventSource, FoundEvents};
use super::takeover::Takeover;
use crate::base::unfold::Unfold;
use crate::downstream::outbound::keepalive::{self, Keepalive};
use crate::downstream::proxy::Proxy;
use crate::mcp::sse;
use crate::runner::call_log::entry::{EntryKind, LogEntry};
use crate::runner::call_log::log::EventLog;
use crate::runner::call_log::other_events::OtherEvents;
use crate::runner::call_log::pace::{PacedReader, ReadPlace};
use crate::runner::call_log::recent::RecentEvents;
use crate::task::id::TaskId;
use crate::task::log_terms::LogTerms;

/// When a client whose connection was cut should come back.
pub(super) const RETRY_MS: u64 = 1000;

/// Reads the events of one call for one client. Dropped, the client is gone, and the call goes on.
pub(super) struct LogReader {
    proxy: Arc<Proxy>,
    call: TaskId,
    log: EventLog,
    /// The place up to which the client has read.
    place: ReadPlace,
    ready: VecDeque<Bytes>,
    source: EventSource,
    /// Keeps the call at the pace of this client, if this replica carries it.
    pace: Option<PacedReader>,
    heartbeat: Option<Keepalive>,
    primes: bool,
    has_answer: bool,
}

impl LogReader {
    pub(super) fn new(
        proxy: &Arc<Proxy>,
        call: TaskId,
        log: EventLog,
        heartbeat: Option<Keepalive>,
    ) -> Self {
        Self {
            proxy: Arc::clone(proxy),
            call,
            log,
            place: ReadPlace::default(),
            ready: VecDeque::new(),
            source: EventSource::Over,
            pace: None,
            heartbeat,
            primes: false,
            has_answer: false,
        }
    }

    /// Begins behind this entry.
    pub(super) fn behind(self, after: u64) -> Self {
        let place = ReadPlace { after, others: 0 };
        Self { place, ..self }
    }

    /// Reads a call that this replica carries.
    pub(super) fn of_local(self, recent: watch::Receiver<RecentEvents>) -> Self {
        let pace = Some(recent.borrow().pace().begin(self.place));
        let source = EventSource::Unannounced(recent);
        Self {
            source,
            pace,
            ..self
        }
    }

    /// Reads a call that another replica carries. `takeover` continues the call here if that replica is lost.
    pub(super) fn of_remote(self, takeover: Takeover) -> Self {
        let source = EventSource::remote(takeover, &self.log);
        Self { source, ..self }
    }

    /// Begins with an event that contains the place for the client to come back to.
    pub(super) fn primed(self) -> Self {
        Self {
            primes: true,
            ..self
        }
    }

    /// The same for a client that came back: it looks for its place on the stream that was cut last.
    pub(super) fn resumed(mut self) -> Self {
        let id = event_id(self.call, self.place.after);
        self.ready.push_back(sse::priming(&id, RETRY_MS));
        self
    }
}

impl Unfold for LogReader {
    type Item = Bytes;

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            // The connection has taken everything before this place, so the server may be read on.
            if let Some(pace) = &self.pace {
                pace.has_read(self.place);
            }
            let found = tokio::select! {
                found = self.source.next(&self.proxy, &self.log, &mut self.place) => found,
                beat = keepalive::next(&mut self.heartbeat) => return Some(beat),
            };
            match found {
                FoundEvents::Begun(recent) => {
                    self.source = EventSource::Local(recent);
                    // Only now other replicas can find the call, so only now the client gets an id to come back with.
                    if self.primes {
                        let id = event_id(self.call, 0);
                        return Some(sse::priming(&id, RETRY_MS));
                    }
                }
                FoundEvents::Local(recent) => {
                    self.pace = Some(recent.borrow().pace().begin(self.place));
                    self.source = EventSource::Local(recent);
                }
                FoundEvents::Others(others) => self.take_others(&others),
                FoundEvents::Events(entries) => entries
                    .into_iter()
                    .for_each(|(number, entry)| self.take(number, &entry)),
                FoundEvents::Lost(answer) => {
                    let id = event_id(self.call, self.place.after + 1);
                    self.ready.push_back(sse::event_with_id(&id, &answer));
                    self.source = EventSource::Over;
                }
                FoundEvents::Over if self.ready.is_empty() => {
                    self.delivered();
                    return None;
                }
                FoundEvents::Over => self.source = EventSource::Over,
            }
        }
    }
}

impl LogReader {
    /// The connection asks for what comes after the answer: as far as raincheck can know, the client has the
    /// answer.
    fn delivered(&self) {
        if !self.has_answer {
            return;
        }
        let (log, after) = (self.log.clone(), self.place.after);
        let large_answers = &self.proxy.resumable.large_answers;
        let Some(expires_ms) = large_answers.delivered(log.name(), log.now_ms()) else {
            return;
        };
        // In a job, because the end of the stream must not wait until the store answers.
        self.proxy.runner.spawn_tracked(async move {
            if let Err(error) = log.end(after + 1, expires_ms).await {
                tracing::debug!(%error, "an answer that its client has stays as long as others");
            }
        });
    }

    /// Takes the events behind the last entry that are no messages.
    fn take_others(&mut self, others: &OtherEvents) {
        for event in others.behind(self.place.others) {
            self.ready
                .push_back(Bytes::copy_from_slice(event.as_bytes()));
        }
        self.place.others = others.count();
    }

    fn take(&mut self, number: u64, entry: &LogEntry) {
        // The count belongs to the entry behind which it began. Where entries are missing, it means nothing.
        if number != self.place.after + 1 {
            self.place.others = 0;
        }
        // These events came before the message, and a client that comes back gets them in the same place.
        self.take_others(&entry.others());
        self.place = ReadPlace {
            after: number,
            others: 0,
        };
        match entry.kind() {
            EntryKind::Message => {}
            EntryKind::Answer => {
                self.source = EventSource::Over;
                self.has_answer = true;
            }
            EntryKind::End => {
                self.source = EventSource::Over;
                return;
            }
            // The message was too large for the log. Its number stays used, so that ids are the same for all readers.
            EntryKind::Omitted => return,
        }
        if let Some(heartbeat) = &mut self.heartbeat {
            heartbeat.saw(entry.json());
        }
        let id = event_id(self.call, number);
        self.ready.push_back(sse::event_with_id(&id, entry.json()));
    }
}

/// The clock of the call's client, as if the client had read the log until now.
pub(super) async fn heartbeat(log: &EventLog, terms: &LogTerms) -> Option<Keepalive> {
    let token = terms.heartbeat.clone()?;
    let age = log.now_ms().saturating_sub(terms.began_ms);
    let mut heartbeat = Keepalive::resumed(Duration::from_millis(age), token);
    // The log adds only the last progress, so the stream begins even if the log cannot be read.
    for (_, entry) in log.behind(0).await.unwrap_or_default() {
        heartbeat.saw(entry.json());
    }
    Some(heartbeat)
}
