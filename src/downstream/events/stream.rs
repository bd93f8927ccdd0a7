//! `events/stream`: the events of a caller's tasks as they happen.
//!
//! A stream looks at the tasks that have not ended, again and again, and sends the news. So an event that one look
//! missed is found by the next, whatever the reason was.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::Response;
use tokio::time::{Instant, Interval, sleep_until};
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::look::{EventLook, EventLooker, EventNews, LookError};
use super::request::{
    EventRequest, STREAM_ID_BYTES_MAX, too_long_id, too_many_looks, too_many_streams,
};
use super::start::Beginning;
use super::state::StreamPermit;
use crate::base::unfold::Unfold;
use crate::downstream::body::Body;
use crate::downstream::outbound::keepalive::comments;
use crate::downstream::outbound::response::{self, Rpc};
use crate::mcp::json::{Writer, prepend, quote};
use crate::mcp::{envelope, meta, sse};
use crate::task::events::position::EventPosition;
use crate::task::id::TaskId;
use crate::telemetry::repeats::OF_OUTAGE;

/// The shortest pause between two looks of a stream, and what is added at random, so that streams do not look in step.
const LOOK: Duration = Duration::from_millis(1_600);
const LOOK_SPREAD: Duration = Duration::from_millis(400);

/// The largest random addition to the pause after a look that found no answer: many streams wait for the same store.
const RETRY_SPREAD: Duration = Duration::from_secs(3);

pub(super) async fn answer(id: &str, looker: EventLooker, asked: EventRequest) -> Response<Body> {
    if id.len() > STREAM_ID_BYTES_MAX {
        return Rpc::error(id, &too_long_id()).into_response();
    }
    let Some(permit) = looker.events.stream_permit(looker.by.caller) else {
        return Rpc::error(id, &too_many_streams()).into_response();
    };
    match EventStream::open(id, looker, permit, asked).await {
        Ok(stream) => response::event_stream(Body::Events(stream.into_stream())),
        Err(LookError::NoTurn) => Rpc::error(id, &too_many_looks()).into_response(),
        Err(LookError::Store(error)) => {
            tracing::warn!(name: OF_OUTAGE, %error, "events/stream: the store does not answer");
            Rpc::store_unavailable(id).into_response()
        }
    }
}

struct EventStream {
    looker: Arc<EventLooker>,
    /// The id of the request as JSON, by which the client knows the stream.
    id: Box<str>,
    /// Behind the events that were sent.
    position: EventPosition,
    /// The tasks that are not read again, as far as the list still has them.
    settled: Arc<BTreeSet<TaskId>>,
    /// The first message, until it is sent.
    active: Option<Bytes>,
    /// The events that the last look found and the client was not sent yet. The stream does not look while something
    /// waits.
    waiting: VecDeque<EventNews>,
    /// The time until which everything was sent once nothing waits any more.
    told_until_ms: u64,
    next_look: NextLook,
    beat: Interval,
    ended: bool,
    _permit: StreamPermit,
}

/// The look that comes next.
enum NextLook {
    At(Instant),
    /// It runs by itself, so that its turn ends also while the client's socket takes nothing. It began at this time.
    Running(AbortOnDropHandle<Result<EventLook, LookError>>, u64),
}

enum StreamWoke {
    Closing,
    Beat,
    Due,
    Looked(u64, EventLook),
    Failed,
}

impl EventStream {
    async fn open(
        id: &str,
        looker: EventLooker,
        permit: StreamPermit,
        asked: EventRequest,
    ) -> Result<Self, LookError> {
        let at = looker.asked_at();
        let mut beginning = Beginning::of(asked.start, asked.age_ms_max, at, looker.kept_ms());
        let mut look = looker.look(&beginning.position, &BTreeSet::new()).await?;
        beginning.drop_earlier(&mut look.news);
        let mut params = Writer::object();
        let truncated = beginning.truncated || look.is_cut;
        params
            .str("cursor", &beginning.position.encode())
            .raw("truncated", if truncated { "true" } else { "false" })
            .raw("_meta", &meta::of_subscription(id));
        Ok(Self {
            looker: Arc::new(looker),
            id: id.into(),
            position: beginning.position,
            settled: Arc::new(look.settled),
            active: Some(notification("active", &params.end())),
            waiting: look.news.into(),
            told_until_ms: at.visible_ms,
            next_look: NextLook::At(later(LOOK, LOOK_SPREAD)),
            beat: comments(),
            ended: false,
            _permit: permit,
        })
    }
}

impl Unfold for EventStream {
    type Item = Bytes;

    /// The next bytes for the client's socket; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(active) = self.active.take() {
            return Some(active);
        }
        loop {
            if self.ended {
                return None;
            }
            if let Some(news) = self.waiting.pop_front() {
                return Some(self.told(&news));
            }
            // Only when nothing waits: a cursor that was sent before must leave the later events of this look as news.
            self.position.advance(self.told_until_ms, None);
            match self.wake().await {
                StreamWoke::Closing => return Some(self.end()),
                StreamWoke::Beat => return Some(self.heartbeat()),
                StreamWoke::Due => self.look(),
                StreamWoke::Looked(began_ms, look) => {
                    // By the time at which the look began: a later commit may be missing in it.
                    self.told_until_ms = self.looker.events.visible_until(began_ms);
                    self.settled = Arc::new(look.settled);
                    self.waiting = look.news.into();
                    self.next_look = NextLook::At(later(LOOK, LOOK_SPREAD));
                }
                // Nothing was told and nothing is settled, so the next look finds what this one did not.
                StreamWoke::Failed => self.next_look = NextLook::At(later(LOOK, RETRY_SPREAD)),
            }
        }
    }
}

impl EventStream {
    async fn wake(&mut self) -> StreamWoke {
        let (looker, next_look) = (&self.looker, &mut self.next_look);
        // Each of these is seldom ready, so that none keeps the ones below it waiting.
        tokio::select! {
            biased;
            () = looker.proxy.closing.cancelled() => StreamWoke::Closing,
            _ = self.beat.tick() => StreamWoke::Beat,
            woke = next_look.ready() => woke,
        }
    }

    fn look(&mut self) {
        let began_ms = self.looker.proxy.runner.ledger().now_ms();
        let (looker, position) = (Arc::clone(&self.looker), self.position.clone());
        let settled = Arc::clone(&self.settled);
        let looking = async move { looker.look(&position, &settled).await };
        let looking = self.looker.proxy.passing.spawn(looking);
        // The handle aborts the look when the stream is dropped, so that its turn becomes free.
        self.next_look = NextLook::Running(AbortOnDropHandle::new(looking), began_ms);
    }

    /// The event as it is sent. Only then does it get its cursor, which may be long.
    fn told(&mut self, news: &EventNews) -> Bytes {
        self.position.note(news.mark);
        let cursor = quote(&self.position.encode());
        let params = prepend(&news.event, "_meta", &meta::of_subscription(&self.id));
        notification("event", &prepend(&params, "cursor", &cursor))
    }

    fn heartbeat(&self) -> Bytes {
        let mut params = Writer::object();
        params
            .str("cursor", &self.position.encode())
            .raw("_meta", &meta::of_subscription(&self.id));
        notification("heartbeat", &params.end())
    }

    /// The server's own end of the stream.
    fn end(&mut self) -> Bytes {
        self.ended = true;
        let mut result = Writer::object();
        result.str("resultType", "complete").raw("_meta", "{}");
        sse::event(&Rpc::result(&self.id, &result.end()).json)
    }
}

impl NextLook {
    /// Cancel safe.
    async fn ready(&mut self) -> StreamWoke {
        match self {
            Self::At(due) => {
                sleep_until(*due).await;
                StreamWoke::Due
            }
            Self::Running(looking, began_ms) => match looking.await {
                Ok(Ok(look)) => StreamWoke::Looked(*began_ms, look),
                Ok(Err(error)) => {
                    tracing::debug!(?error, "a stream of events looks again");
                    StreamWoke::Failed
                }
                Err(error) => {
                    tracing::error!(%error, "a look for events was broken off");
                    StreamWoke::Failed
                }
            },
        }
    }
}

fn notification(kind: &str, params: &str) -> Bytes {
    let method = format!("notifications/events/{kind}");
    sse::event(&envelope::notification(&method, params))
}

/// After the pause, and up to `spread` more.
fn later(pause: Duration, spread: Duration) -> Instant {
    let (random, _) = Uuid::new_v4().as_u64_pair();
    let part = u32::try_from(random >> 48).unwrap_or_default();
    Instant::now() + pause + spread * part / (1 << 16)
}
