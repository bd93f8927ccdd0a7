//! A request over a line of the pool, of either era.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::base::lock::Mutex;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::json::Writer;
use crate::mcp::version::Era;
use crate::upstream::exchange::{RequestTransport, Unsent, Untaken};
use crate::upstream::failures::UNREACHABLE;
use crate::upstream::line::ask::ask;
use crate::upstream::line::event::LineEvent;
use crate::upstream::line::pool::{LinePool, PooledLine};
use crate::upstream::line::shared::{LineTicket, SharedLine};
use crate::upstream::message::{log, may_ask, response};
use crate::upstream::pin::Pinned;
use crate::upstream::pool::{MayAsk, PoolKey};
use crate::upstream::port::{
    Answer, CANCEL_PATIENCE, Control, Event, Exchange, UpstreamError, UpstreamRequest,
};
use crate::upstream::request_id::RequestId;
use crate::upstream::translate;

/// The number of lines that are tried for one request, if they end before the request is on them.
const LINES_MAX: u32 = 3;

/// The longest wait for a server to set its log level. The call is sent after it in any case.
const LOG_PATIENCE: Duration = Duration::from_secs(2);

/// Begins one request; it is sent when the events are first polled.
pub(in crate::upstream) fn begin(
    pool: Arc<LinePool>,
    era: Era,
    request: Arc<UpstreamRequest>,
    pooled: Option<PooledLine>,
) -> Exchange {
    let underway = CurrentLine::default();
    let control = LineControl(Arc::clone(&underway));
    let transport = LineRequest {
        key: match &pooled {
            Some(pooled) => pooled.key().clone(),
            None => PoolKey::of(era, &request),
        },
        pooled,
        pool,
        era,
        request,
        underway,
    };
    super::begin(transport, Arc::new(control))
}

/// The line over which the request was sent, and its id there.
type CurrentLine = Arc<Mutex<Option<(Arc<SharedLine>, u64)>>>;

struct LineControl(CurrentLine);

impl LineControl {
    fn underway(&self) -> Option<(Arc<SharedLine>, u64)> {
        self.0.lock().clone()
    }
}

#[async_trait]
impl Control for LineControl {
    async fn answer(&self, id: &str, answer: Answer) -> Result<(), Failure> {
        let Some((line, _)) = self.underway() else {
            // The call has ended, so the server needs no answer to its question.
            return Ok(());
        };
        line.answer(response(id, &answer)).await
    }

    async fn cancel(&self) {
        if let Some((line, id)) = self.underway() {
            // A server that reads nothing must not hold up the end of the call.
            let _ = tokio::time::timeout(CANCEL_PATIENCE, line.cancel(id)).await;
        }
    }
}

struct LineRequest {
    pool: Arc<LinePool>,
    era: Era,
    request: Arc<UpstreamRequest>,
    key: PoolKey,
    /// The line that the call has before it is sent.
    pooled: Option<PooledLine>,
    underway: CurrentLine,
}

/// A request under way. When it is dropped, its place on the line is free.
struct OnLine {
    ticket: LineTicket,
    _pooled: PooledLine,
}

impl RequestTransport for LineRequest {
    type Open = OnLine;

    const TELLS_SENT: bool = true;

    async fn send(&mut self) -> Result<OnLine, Untaken> {
        let failed = |failure| Untaken::End(Event::Failed(failure));
        let asks = if may_ask(&self.request.method) {
            MayAsk::Maybe
        } else {
            MayAsk::Never
        };
        for _ in 0..LINES_MAX {
            let pooled = self.line(asks).await?;
            let line = &pooled.session;
            if self.era == Era::Legacy
                && let Some(level) = &self.request.log_level
            {
                set_log_level(line, level).await;
            }
            let Some(mut ticket) = line.open(asks) else {
                // The line has ended since it was chosen.
                continue;
            };
            let id = RequestId::number(ticket.id);
            let params = match self.era {
                Era::Legacy => translate::for_legacy(&self.request, &id),
                Era::Modern => translate::for_modern(&self.request, &id),
            };
            let params = params
                .map_err(|_| failed(Failure::new(Reason::UpstreamInvalid, SideEffect::None)))?;
            // A modern call is cancelled when its exchange is dropped; a legacy call runs on until
            // its control cancels it.
            ticket.cancel_on_drop = self.era == Era::Modern;
            // Before the wait below, so that a cancel meanwhile finds the request and withdraws it.
            *self.underway.lock() = Some((Arc::clone(line), ticket.id));
            let text = translate::request(&id, &self.request.method, &params);
            ticket.send(text).await;
            return Ok(OnLine {
                ticket,
                _pooled: pooled,
            });
        }
        Err(failed(UNREACHABLE))
    }

    async fn next(&mut self, underway: &mut OnLine) -> Result<Event, Unsent> {
        loop {
            return Ok(match underway.ticket.next().await {
                LineEvent::Progress(params) if self.request.wants_progress => {
                    Event::Progress(params)
                }
                LineEvent::Log(params) => match log(params, &self.request) {
                    Some(event) => event,
                    None => continue,
                },
                LineEvent::Progress(_) | LineEvent::Notice(_) => continue,
                LineEvent::Question(question) => Event::Question(question),
                LineEvent::Result(result) => Event::Result(result),
                LineEvent::Error(error) => Event::Error(UpstreamError::in_message(error)),
                LineEvent::Refused(error) => Event::Error(error),
                LineEvent::Failed(failure) => Event::Failed(failure),
                LineEvent::Unsent(failure) => return Err(Unsent(failure)),
            });
        }
    }

    fn end(&mut self, underway: Option<OnLine>, _last: &Event) {
        drop(underway);
        *self.underway.lock() = None;
    }
}

impl LineRequest {
    /// The line that the request's pin holds, or one from the pool.
    async fn line(&mut self, asks: MayAsk) -> Result<PooledLine, Untaken> {
        let pinned = self
            .request
            .pin
            .as_ref()
            .and_then(|pin| pin.with(|line: &PinnedLine| Some(line.0.also())));
        if let Some(pooled) = pinned
            && pooled.session.is_open()
        {
            return Ok(pooled);
        }
        let credentials = self.request.credentials.as_ref();
        let pooled = match self.pooled.take() {
            Some(pooled) => pooled,
            None => self.pool.get(&self.key, asks, credentials).await?,
        };
        Ok(match &self.request.pin {
            Some(pin) => {
                // Later requests about a task of the server's own need the process that runs it.
                let also = pooled.also();
                pin.hold(PinnedLine(pooled));
                also
            }
            None => pooled,
        })
    }
}

/// A line that several requests of one call use.
struct PinnedLine(PooledLine);

impl Pinned for PinnedLine {
    fn is_a_clients(&self) -> bool {
        false
    }

    fn stays(&self) -> bool {
        false
    }

    fn is_open(&self) -> bool {
        self.0.session.is_open()
    }

    fn keep(&self) -> Option<TaskTrackerToken> {
        None
    }

    fn give_back(self: Box<Self>) {}
}

/// Sets the line's log level, if the call wants another one. Each call filters the messages by its own level.
async fn set_log_level(line: &Arc<SharedLine>, level: &Arc<str>) {
    let known = {
        let mut known = line.log_level.lock();
        // Noted before the server answers, so that a call that comes meanwhile does not send the same level again.
        known.replace(Arc::clone(level))
    };
    if known.as_ref() == Some(level) {
        return;
    }
    let mut params = Writer::object();
    params.str("level", level);
    let params = params.end();
    let asked = ask(line, "logging/setLevel", &params);
    // A server that refuses has no logging, and so logs nothing.
    let _ = tokio::time::timeout(LOG_PATIENCE, asked).await;
}
