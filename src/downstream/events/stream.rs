//! `events/stream`: the events of a caller's tasks as they happen.
//!
//! A stream holds a place in the events, and a watch over the tasks that have not ended. New tasks are found by looking at
//! the caller's list now and then: no change log names a task before somebody can know of it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use hyper::Response;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::asked::{Asked, Filter, too_many_streams};
use super::poll::{Page, page};
use super::scan::{in_order, listed, read};
use super::state::{Events, Place};
use crate::downstream::body::Body;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::outbound::keepalive::comments;
use crate::downstream::outbound::response::{self, Rpc};
use crate::downstream::proxy::Proxy;
use crate::mcp::envelope;
use crate::mcp::json::{Writer, prepend, quote};
use crate::mcp::meta::SUBSCRIPTION_ID;
use crate::mcp::sse;
use crate::runner::watch::Watch;
use crate::store::StoreError;
use crate::task::events::position::Position;
use crate::task::events::{EventMark, occurrence};
use crate::task::id::TaskId;
use crate::task::state::Task;

/// The pause between two looks at the caller's list.
const LOOK: Duration = Duration::from_secs(2);

pub(super) async fn answer(
    (proxy, events): (&Arc<Proxy>, &Arc<Events>),
    id: &str,
    by: &Requester,
    asked: Asked,
) -> Response<Body> {
    let Some(place) = events.place(by.caller) else {
        return Rpc::error(id, &too_many_streams()).into_response();
    };
    match EventStream::open((proxy, events), (id, place), by, asked).await {
        Ok(stream) => response::event_stream(Body::Events(stream.into_stream().boxed())),
        Err(error) => {
            tracing::warn!(%error, "the store did not answer a stream of events");
            Rpc::store_unavailable(id).into_response()
        }
    }
}

struct EventStream {
    proxy: Arc<Proxy>,
    events: Arc<Events>,
    by: Requester,
    /// The id of the request as JSON, by which the client knows the stream.
    id: Box<str>,
    filter: Filter,
    /// The place behind the events that are told or wait.
    position: Position,
    /// The place behind the events that are told.
    told: Position,
    /// The tasks that were looked at. A watch tells of the changes of those that have not ended.
    known: BTreeSet<TaskId>,
    watch: Watch,
    waiting: VecDeque<Waiting>,
    look: Interval,
    beat: Interval,
    ended: bool,
    _place: Place,
}

/// What waits for the client's socket.
enum Waiting {
    Message(Bytes),
    /// An event, as JSON without its cursor: the cursor is long, and made when the event is sent.
    Event(EventMark, String),
}

enum Woke {
    Closing,
    Task(TaskId),
    Look,
    Beat,
}

impl EventStream {
    async fn open(
        (proxy, events): (&Arc<Proxy>, &Arc<Events>),
        (id, place): (&str, Place),
        by: &Requester,
        mut asked: Asked,
    ) -> Result<Self, StoreError> {
        let now_ms = proxy.runner.ledger().now_ms();
        let mut look = interval_at(Instant::now() + LOOK, LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut opened = Self {
            proxy: Arc::clone(proxy),
            events: Arc::clone(events),
            by: by.clone(),
            id: id.into(),
            filter: std::mem::take(&mut asked.filter),
            position: Position::now(now_ms),
            told: Position::now(now_ms),
            known: BTreeSet::new(),
            watch: proxy.runner.watches().watch(Vec::new()),
            waiting: VecDeque::new(),
            look,
            beat: comments(),
            ended: false,
            _place: place,
        };
        let (there, is_cut) = opened.new_tasks().await?;
        // The client that lost its stream hears all that it missed at once.
        asked.events_max = usize::MAX;
        let begins_at = asked.begins_at();
        let kept_ms = by.rules.retention_ms_min();
        let Page {
            told,
            position,
            truncated,
            ..
        } = page(there, asked, (now_ms, kept_ms));
        opened.told = begins_at.unwrap_or_else(|| position.clone());
        opened.activate(truncated || is_cut);
        for (mark, task) in told {
            opened.tell(mark, &task);
        }
        // Events that are too old for the client are behind it, too.
        opened.position = position;
        Ok(opened)
    }

    fn into_stream(self) -> impl stream::Stream<Item = Bytes> + Send {
        stream::unfold(self, |mut stream| async {
            let bytes = stream.next().await?;
            Some((bytes, stream))
        })
    }

    /// The next bytes for the client's socket; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            match self.waiting.pop_front() {
                Some(Waiting::Message(message)) => return Some(message),
                Some(Waiting::Event(mark, event)) => {
                    self.told.note(mark);
                    let cursor = quote(&self.told.encode());
                    let params = prepend(&event, "cursor", &cursor);
                    let message = envelope::notification("notifications/events/event", &params);
                    return Some(sse::event(&message));
                }
                None if self.ended => return None,
                None => self.told.clone_from(&self.position),
            }
            // While the store is away, the stream stays open, and looks again.
            let looked = match self.wake().await {
                Woke::Closing => {
                    self.end();
                    Ok(())
                }
                Woke::Task(id) => Box::pin(self.changed(id)).await,
                Woke::Look => Box::pin(self.look_again()).await,
                Woke::Beat => {
                    self.heartbeat();
                    Ok(())
                }
            };
            if let Err(error) = looked {
                tracing::debug!(%error, "the store did not answer a stream of events");
                self.known.clear();
            }
        }
    }

    async fn wake(&mut self) -> Woke {
        let (watch, proxy) = (&self.watch, &self.proxy);
        tokio::select! {
            biased;
            () = proxy.closing.cancelled() => Woke::Closing,
            id = watch.changed() => Woke::Task(id),
            _ = self.look.tick() => Woke::Look,
            _ = self.beat.tick() => Woke::Beat,
        }
    }

    async fn changed(&mut self, id: TaskId) -> Result<(), StoreError> {
        let read = read((&self.proxy, &self.events), &self.by, vec![id]).await?;
        let there = in_order(self.admitted(read));
        self.tell_of(there);
        Ok(())
    }

    async fn look_again(&mut self) -> Result<(), StoreError> {
        let now_ms = self.proxy.runner.ledger().now_ms();
        let (there, _) = self.new_tasks().await?;
        self.tell_of(there);
        self.position.advance(now_ms, None);
        Ok(())
    }

    /// The events of the tasks that were not looked at yet, and whether the caller has more tasks than are looked at.
    async fn new_tasks(&mut self) -> Result<(Vec<(EventMark, Task)>, bool), StoreError> {
        let all = listed(&self.proxy, &self.by).await?;
        let listed: BTreeSet<TaskId> = all.tasks.iter().copied().collect();
        let new: Vec<TaskId> = listed.difference(&self.known).copied().collect();
        self.known = listed;
        // Watched before they are read, so that no change falls in between.
        for id in &new {
            self.watch.no_more(*id);
            self.watch.also(*id);
        }
        let read = read((&self.proxy, &self.events), &self.by, new).await?;
        Ok((in_order(self.admitted(read)), all.is_cut))
    }

    /// The tasks that the client wants to hear of. A task that has ended does not change any more.
    fn admitted(&mut self, tasks: Vec<Task>) -> Vec<Task> {
        for ended in tasks.iter().filter(|task| task.is_ended()) {
            self.watch.no_more(ended.id);
        }
        let admitted = tasks.into_iter();
        admitted.filter(|task| self.filter.admits(task)).collect()
    }

    fn tell_of(&mut self, there: Vec<(EventMark, Task)>) {
        for (mark, task) in there {
            if self.position.is_news(mark) {
                self.tell(mark, &task);
            }
        }
    }

    fn tell(&mut self, mark: EventMark, task: &Task) {
        self.position.note(mark);
        let mut params = occurrence(task, mark);
        params.raw("_meta", &self.meta());
        let event = Waiting::Event(mark, params.end());
        self.waiting.push_back(event);
    }

    fn activate(&mut self, truncated: bool) {
        let mut params = Writer::object();
        params
            .str("cursor", &self.told.encode())
            .raw("truncated", if truncated { "true" } else { "false" })
            .raw("_meta", &self.meta());
        self.notify("notifications/events/active", &params.end());
    }

    fn heartbeat(&mut self) {
        let mut params = Writer::object();
        params
            .str("cursor", &self.told.encode())
            .raw("_meta", &self.meta());
        self.notify("notifications/events/heartbeat", &params.end());
    }

    fn notify(&mut self, method: &str, params: &str) {
        let message = envelope::notification(method, params);
        let message = Waiting::Message(sse::event(&message));
        self.waiting.push_back(message);
    }

    fn meta(&self) -> String {
        let mut meta = Writer::object();
        meta.raw(SUBSCRIPTION_ID, &self.id);
        meta.end()
    }

    /// The server's own end of the stream.
    fn end(&mut self) {
        self.ended = true;
        let mut result = Writer::object();
        result.str("resultType", "complete").raw("_meta", "{}");
        let rpc = Rpc::result(&self.id, &result.end());
        let last = Waiting::Message(sse::event(&rpc.json));
        self.waiting.push_back(last);
    }
}
