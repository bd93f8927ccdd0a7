//! The job of one resumable call: reads the server's events, writes them into the log, shows them to readers.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::kept;
use super::registry::Registration;
use super::resumable_call::{CANCELLED_PATIENCE, KeptAs, ResumableCall, ServerOfCall, cancel_of};
use crate::base::clock::at;
use crate::downstream::calls::cancel::cancelled_elsewhere;
use crate::downstream::calls::item::StreamItem;
use crate::downstream::calls::registry::CallKind;
use crate::downstream::inbound::session_key::SessionKey;
use crate::downstream::outbound::keepalive::Keepalive;
use crate::downstream::outbound::response::Rpc;
use crate::downstream::proxy::Proxy;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::runner::call_log::entry::EntryKind;
use crate::runner::call_log::log::EventLog;
use crate::runner::call_log::recent::RecentEvents;
use crate::runner::call_log::writer::{LogWriter, RETRY};
use crate::runner::client_note::{ClientNote, Leaving};
use crate::task::log_terms::LogTerms;

/// The longest time for a timer: later ends overflow the clock.
const LASTS_MAX: Duration = Duration::from_hours(24 * 365);

/// Upper bound of the time in which a server accepts the notification that no client waits.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// The time that an answer waits in memory for the store.
const ANSWER_WAITS: Duration = Duration::from_mins(10);

/// The pause between two requests to the store to take the error in place of an answer that is no longer kept.
const ASKED_AGAIN: Duration = Duration::from_secs(5);

/// The events of a call as readers here see them, and the clock of its client.
type Begun = (watch::Receiver<RecentEvents>, Option<Keepalive>);

/// Begins the job. `Err`: there is no room for it; here is the source.
pub(super) fn begin(
    proxy: &Arc<Proxy>,
    mut call: ResumableCall,
    log: EventLog,
    source: BoxStream<'static, StreamItem>,
) -> Result<Begun, BoxStream<'static, StreamItem>> {
    let (recent, shown) = watch::channel(RecentEvents::default());
    let session = call.session.key();
    let entry = proxy
        .calls
        .enter(CallKind::Resumable, session, call.id.get());
    // The record counts among the tasks of its caller.
    let has_room = proxy.runner.ledger().has_room(&log.caller());
    let registration = entry.ok().filter(|_| has_room).and_then(|entry| {
        entry.waits_since(call.began);
        if let Some(kept_as) = &mut call.kept_as {
            let note = kept_as.client.note.get_or_insert_default();
            let joined_by = kept_as.is_all_of_call.then(|| note.clone());
            entry.is_call(kept_as.digest, joined_by);
        }
        let recent = shown.clone();
        proxy.resumable.begin(log.name(), entry, recent)
    });
    let Some(registration) = registration else {
        tracing::warn!("too many resumable calls: one more ends with its client's connection");
        return Err(source);
    };
    let token = call.heartbeat.clone();
    // The log keeps times of day and no `Instant`, so the begin of the call is counted back from now.
    let age = Instant::now().saturating_duration_since(call.began);
    let age_ms = u64::try_from(age.as_millis()).unwrap_or_default();
    let began_ms = log.now_ms().saturating_sub(age_ms);
    let terms = LogTerms {
        session: log.session(),
        id: call.id.clone(),
        began_ms,
        ends_ms: began_ms.saturating_add(call.rule.max_duration_ms),
        retention_ms: call.rule.retention_ms,
        bytes_max: call.bytes_max(),
        heartbeat: token.clone(),
        point: None,
    };
    let writer = LogWriter::new(log, &call.tool, terms, recent);
    let way = (call.server, call.kept_as);
    let job = CallJob::new(proxy, writer, registration, session, way);
    proxy.runner.spawn_tracked(job.run(source));
    Ok((
        shown,
        token.map(|token| Keepalive::since(call.began, token)),
    ))
}

pub(super) struct CallJob {
    proxy: Arc<Proxy>,
    writer: LogWriter,
    registration: Registration,
    server: ServerOfCall,
    kept_as: Option<Box<KeptAs>>,
    deadline: Instant,
    /// Resolves when the client cancels the call at another replica. Kept while events come, so that no cancel is
    /// missed.
    cancelled_elsewhere: BoxFuture<'static, Leaving>,
    is_cancelled: bool,
    /// The client's clock ended.
    gave_up: bool,
    /// The runner carries the call, for the client and for the same calls that joined it: the client's note, and what says
    /// that the server was told of a cancel.
    carried_for: Option<(ClientNote, CancellationToken)>,
}

impl CallJob {
    pub(super) fn new(
        proxy: &Arc<Proxy>,
        writer: LogWriter,
        registration: Registration,
        session: SessionKey,
        (server, kept_as): (ServerOfCall, Option<Box<KeptAs>>),
    ) -> Self {
        let LogTerms {
            id,
            began_ms,
            ends_ms,
            ..
        } = writer.terms();
        let left_ms = ends_ms.saturating_sub(writer.log().now_ms());
        let cancelled_elsewhere = cancelled_elsewhere(proxy, session, id, *began_ms).boxed();
        Self {
            proxy: Arc::clone(proxy),
            writer,
            registration,
            server,
            kept_as,
            deadline: Instant::now() + Duration::from_millis(left_ms).min(LASTS_MAX),
            cancelled_elsewhere,
            is_cancelled: false,
            gave_up: false,
            carried_for: None,
        }
    }

    pub(super) async fn run(mut self, mut source: BoxStream<'static, StreamItem>) {
        self.writer.begin().await;
        let (kind, answer) = loop {
            // A successor carries the call on, so this job writes no end, and the server gets no cancel.
            if self.writer.is_lost() {
                return;
            }
            match self.listen(&mut source).await {
                Some(StreamItem::Message { json, event_id }) => {
                    let event_id = event_id.as_deref();
                    self.writer.say(EntryKind::Message, json, event_id).await;
                }
                Some(StreamItem::Other { event, event_id }) => {
                    self.writer.show_other(&String::from_utf8_lossy(&event));
                    if let Some(event_id) = event_id {
                        self.writer.resumes_at(&event_id).await;
                    }
                }
                Some(StreamItem::EventId(event_id)) => self.writer.resumes_at(&event_id).await,
                Some(StreamItem::Answer(json)) => break (EntryKind::Answer, json),
                Some(StreamItem::End) => break (EntryKind::End, String::new()),
                None => {}
            }
            if self.gave_up {
                if let Some(kept_as) = self.kept_as.take() {
                    let (server, id) = (self.server.clone(), self.writer.terms().id.clone());
                    kept::hand_over(
                        &self.proxy,
                        *kept_as,
                        self.writer.tool(),
                        (server, id),
                        source,
                    );
                    // Later calls of the session wait for the claim, and not for the end of this log in the store.
                    self.registration.entry.leave();
                    source = stream::empty().boxed();
                } else {
                    self.stop().await;
                }
                break (EntryKind::End, String::new());
            }
        };
        // Closed before the store is asked, so that a slow store keeps no connection to the server open.
        drop(source);
        let gave_up = Instant::now() >= self.deadline || self.proxy.runner.halt().is_cancelled();
        // The client's own cancel, or the end of its session, reaches the server without this notification.
        let must_tell = gave_up && !self.is_cancelled;
        let size = answer.len();
        let (log, retention_ms) = (self.writer.log(), self.writer.terms().retention_ms);
        let (name, now_ms) = (log.name(), log.now_ms());
        let large_answers = &self.proxy.resumable.large_answers;
        let lasts_ms = large_answers.add(name, size, now_ms, retention_ms);
        // The write of the end sets when the log expires, so the lifetime must be set before it.
        self.writer.keep_for(lasts_ms);
        self.writer.end(kind, answer).await;
        if self.writer.is_lost() {
            return;
        }
        // Sent after the answer is in the log: a slow server must not delay the client.
        if must_tell {
            self.stop().await;
        }
        if !self.writer.is_written_down() {
            // The wait may take minutes, and a process that stops does not have them.
            let halt = self.proxy.runner.halt().clone();
            halt.run_until_cancelled(self.wait_for_the_store(size))
                .await;
        }
    }

    /// The next item of the source, or what ends the call instead. `None`: another replica may carry the call.
    async fn listen(&mut self, source: &mut BoxStream<'static, StreamItem>) -> Option<StreamItem> {
        let halt = self.proxy.runner.halt().clone();
        loop {
            let retry = at(self.writer.retries_at());
            // A server that says more than its client reads waits, as it would without raincheck.
            let item = async {
                self.writer.room().await;
                source.next().await
            };
            tokio::select! {
                item = item => {
                    let item = item.unwrap_or(StreamItem::End);
                    return self.unless_given_up(item, source);
                }
                () = halt.cancelled() => {
                    let may_leave =
                        self.carried_for.is_none() && self.proxy.runner.others_carry_logs_on();
                    let is_left = may_leave && self.writer.leave().await;
                    if !is_left {
                        return Some(failed(&self.writer.terms().id, Reason::Shutdown));
                    }
                }
                () = tokio::time::sleep_until(self.deadline) => {
                    // No client waits for a cancelled call, and the server was told.
                    if self.is_cancelled {
                        return Some(StreamItem::End);
                    }
                    return Some(failed(&self.writer.terms().id, Reason::Deadline));
                }
                how = self.registration.entry.cancelled(), if !self.is_cancelled => self.cancel(how),
                // A future that has resolved must not be polled again.
                // The replica to which the cancel came has passed it on, so the server ends the call.
                _ = &mut self.cancelled_elsewhere, if !self.is_cancelled => {
                    if let Some((_, ended)) = &self.carried_for {
                        ended.cancel();
                    }
                    self.cancel(Leaving::Cancelled);
                }
                () = sent_again(self.kept_as.as_deref()), if !self.is_cancelled => self.carry_on(source),
                () = retry => self.writer.write_down().await,
                // A change of the record may mean that another replica owns the call by now.
                () = self.writer.changed() => self.writer.look().await,
            }
            if self.writer.is_lost() || self.gave_up {
                return None;
            }
        }
    }

    /// Returns the item, or puts it back where the client gave the call up before it came: it is for the same call then.
    fn unless_given_up(
        &mut self,
        item: StreamItem,
        source: &mut BoxStream<'static, StreamItem>,
    ) -> Option<StreamItem> {
        if self.is_cancelled || !self.registration.entry.gave_up() {
            return Some(item);
        }
        self.cancel(Leaving::GaveUp);
        let rest = mem::replace(source, stream::empty().boxed());
        *source = stream::iter([item]).chain(rest).boxed();
        None
    }

    /// Notifies the server that no client waits.
    fn stop(&self) -> impl Future<Output = ()> + Send + use<> {
        let (server, cancel) = (self.server.clone(), cancel_of(&self.writer.terms().id));
        async move {
            let _ = tokio::time::timeout(STOP_PATIENCE, server.tell(cancel)).await;
        }
    }

    /// No client waits for the answer any more.
    fn cancel(&mut self, how: Leaving) {
        self.gave_up = how == Leaving::GaveUp;
        self.is_cancelled = true;
        // A cancel that came to another replica has not reached the entry here.
        self.registration.entry.cancel();
        self.deadline = self.deadline.min(Instant::now() + CANCELLED_PATIENCE);
        if let Some((note, _)) = &self.carried_for {
            // The answer is for the same calls that joined.
            note.leaves(how);
            self.deadline = Instant::now();
        }
    }

    /// Lets the same call, which the client sent again while it waits, join this one: the runner carries the rest of it.
    fn carry_on(&mut self, source: &mut BoxStream<'static, StreamItem>) {
        let Some(kept_as) = self.kept_as.take() else {
            return;
        };
        let Some(note) = kept_as.client.note.clone() else {
            return;
        };
        // From here on a cancel is not for the server, unless it came before.
        if !self.registration.entry.is_carried() {
            note.take_sent_again();
            self.kept_as = Some(kept_as);
            return;
        }
        let way = (self.server.clone(), self.writer.terms().id.clone());
        let ended = CancellationToken::new();
        let tool = self.writer.tool();
        let items = kept::carry_on(&self.proxy, &kept_as, tool, (way, &ended), source);
        if let Some(items) = items {
            *source = items;
            self.server = ServerOfCall::silent();
            self.carried_for = Some((note, ended));
        } else {
            // Without room the same call is a call of its own.
            self.registration.entry.passes();
            note.take_sent_again();
            self.kept_as = Some(kept_as);
        }
    }

    /// Keeps the answer in memory until the store takes it: a client that comes back to this replica gets it.
    /// When the answer is kept no longer, clients on other replicas get an error as soon as the store takes that.
    async fn wait_for_the_store(&mut self, answer_bytes: usize) {
        if let Some(_room) = self.proxy.resumable.memory_for(answer_bytes) {
            let retention = Duration::from_millis(self.writer.terms().retention_ms);
            let write = write_until_taken(&mut self.writer, RETRY);
            let _ = tokio::time::timeout(retention.min(ANSWER_WAITS), write).await;
        }
        if self.writer.is_written_down() {
            return;
        }
        tracing::warn!("an answer that the store did not take is kept no longer");
        let failure = Failure::new(Reason::StoreLost, SideEffect::Unknown);
        let instead = Rpc::failure(self.writer.terms().id.get(), failure).json;
        self.writer.end_instead(instead).await;
        // Until the store has nothing of the call any more.
        let LogTerms {
            ends_ms,
            retention_ms,
            ..
        } = *self.writer.terms();
        let forgotten_ms = ends_ms.saturating_add(retention_ms);
        let left = Duration::from_millis(forgotten_ms.saturating_sub(self.writer.log().now_ms()));
        let write = write_until_taken(&mut self.writer, ASKED_AGAIN);
        let _ = tokio::time::timeout(left.min(LASTS_MAX), write).await;
    }
}

/// Resolves when the client has sent the same call again. Cancel safe.
async fn sent_again(kept_as: Option<&KeptAs>) {
    match kept_as.and_then(|kept_as| kept_as.client.note.as_ref()) {
        Some(note) => note.sent_again().await,
        None => std::future::pending().await,
    }
}

async fn write_until_taken(writer: &mut LogWriter, pause: Duration) {
    while !writer.is_written_down() {
        tokio::time::sleep(pause).await;
        writer.write_again().await;
    }
}

fn failed(id: &RawValue, reason: Reason) -> StreamItem {
    let failure = Failure::new(reason, SideEffect::Unknown);
    StreamItem::Answer(Rpc::failure(id.get(), failure).json)
}
