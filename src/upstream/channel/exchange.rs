//! One request over a line, of either era.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream;

use super::super::message::log;
use super::super::message::{may_ask, response};
use super::super::pin::Pinned;
use super::super::port::CANCEL_PATIENCE;
use super::super::port::{Answer, Control, Event, Exchange, Outgoing, UpstreamError};
use super::ask::ask;
use super::pool::{Claim, Held, Key, Pool};
use super::requests::{Asks, Channel, Ticket};
use super::said::Said;
use crate::lock::Mutex;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::json::Writer;
use crate::mcp::version::Era;
use crate::upstream::request_id::RequestId;
use crate::upstream::translate;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// A request that was provably not sent is sent over another line, at most so often.
const TRIES: u32 = 3;

/// A server that does not answer how much it shall log is asked to work all the same.
const LOG_PATIENCE: Duration = Duration::from_secs(2);

/// Begins one request; it is sent when the events are first polled.
pub(super) fn begin(pool: Arc<Pool>, era: Era, outgoing: Outgoing) -> Exchange {
    let current = Current::default();
    let conversation = Conversation {
        key: Key::of(era, &outgoing),
        pool,
        era,
        outgoing,
        current: Arc::clone(&current),
        phase: Phase::Unsent,
        tries: 1,
    };
    let events = stream::unfold(conversation, |mut conversation| async {
        let event = conversation.next().await?;
        Some((event, conversation))
    });
    Exchange {
        events: events.boxed(),
        control: Arc::new(Side { current }),
    }
}

/// The line over which the request was sent to, and its id there.
type Current = Arc<Mutex<Option<(Arc<Channel>, u64)>>>;

struct Side {
    current: Current,
}

impl Side {
    fn current(&self) -> Option<(Arc<Channel>, u64)> {
        self.current.lock().clone()
    }
}

#[async_trait]
impl Control for Side {
    async fn answer(&self, id: &str, answer: Answer) -> Result<(), Failure> {
        let Some((channel, _)) = self.current() else {
            return Ok(());
        };
        channel.answer(response(id, &answer)).await
    }

    async fn cancel(&self) {
        if let Some((channel, id)) = self.current() {
            let _ = tokio::time::timeout(CANCEL_PATIENCE, channel.cancel(id)).await;
        }
    }
}

struct Conversation {
    pool: Arc<Pool>,
    era: Era,
    outgoing: Outgoing,
    key: Key,
    current: Current,
    phase: Phase,
    tries: u32,
}

enum Phase {
    Unsent,
    Reading(Underway),
    Over,
}

struct Underway {
    ticket: Ticket,
    _claim: Option<Claim>,
}

impl Conversation {
    async fn next(&mut self) -> Option<Event> {
        loop {
            let ticket = match &mut self.phase {
                Phase::Reading(underway) => &mut underway.ticket,
                Phase::Over => return None,
                Phase::Unsent => {
                    match self.send().await {
                        Ok(underway) => self.phase = Phase::Reading(underway),
                        Err(event) => return Some(self.end(event)),
                    }
                    return Some(Event::Sent);
                }
            };
            match ticket.next().await {
                Said::Progress(params) if self.outgoing.wants_progress => {
                    return Some(Event::Progress(params));
                }
                Said::Log(params) => {
                    if let Some(event) = log(Some(params), &self.outgoing) {
                        return Some(event);
                    }
                }
                Said::Question(question) => return Some(Event::Question(question)),
                Said::Progress(_) | Said::Notice(_) => {}
                Said::Result(result) => return Some(self.end(Event::Result(result))),
                Said::Error(error) => {
                    let error = UpstreamError {
                        error,
                        status: 200,
                        www_authenticate: None,
                    };
                    return Some(self.end(Event::Error(error)));
                }
                Said::Refused(error) => return Some(self.end(Event::Error(error))),
                Said::Unsent(_) if self.tries < TRIES => {
                    self.tries += 1;
                    self.phase = Phase::Unsent;
                }
                Said::Unsent(failure) | Said::Failed(failure) => {
                    return Some(self.end(Event::Failed(failure)));
                }
            }
        }
    }

    fn end(&mut self, event: Event) -> Event {
        self.phase = Phase::Over;
        *self.current.lock() = None;
        event
    }

    async fn send(&self) -> Result<Underway, Event> {
        let failed = |reason| Event::Failed(Failure::new(reason, SideEffect::None));
        let asks = asks(&self.outgoing.method);
        for _ in 0..TRIES {
            let Held { channel, claim } = self.line(asks).await?;
            if self.era == Era::Legacy
                && let Some(level) = &self.outgoing.log_level
            {
                set_log_level(&channel, level).await;
            }
            // It may have ended in between.
            let Some(mut ticket) = channel.open(asks) else {
                continue;
            };
            let id = RequestId::number(ticket.id);
            let params = match self.era {
                Era::Legacy => translate::for_legacy(&self.outgoing, &id),
                Era::Modern => translate::for_modern(&self.outgoing, &id),
            };
            let params = params.map_err(|_| failed(Reason::UpstreamInvalid))?;
            // A modern server learns of a cancel when nobody waits; a legacy call runs on until
            // it is cancelled.
            ticket.cancel_on_drop = self.era == Era::Modern;
            *self.current.lock() = Some((Arc::clone(&channel), ticket.id));
            let text = translate::request(&id, &self.outgoing.method, &params);
            ticket.send(text).await;
            return Ok(Underway {
                ticket,
                _claim: claim,
            });
        }
        Err(failed(Reason::UpstreamUnreachable))
    }
}

impl Conversation {
    /// The line that the request's pin holds, or one from the pool.
    async fn line(&self, asks: Asks) -> Result<Held, Event> {
        let pinned = self
            .outgoing
            .pin
            .as_ref()
            .and_then(|pin| pin.held(|line: &Line| Some(line.also())));
        if let Some(held) = pinned
            && held.channel.is_open()
        {
            return Ok(held);
        }
        let credentials = self.outgoing.credentials.as_ref();
        let held = self.pool.get(&self.key, asks, credentials).await;
        let held = held.map_err(Event::from)?;
        Ok(match &self.outgoing.pin {
            Some(pin) => {
                let line = Line(held);
                let also = line.also();
                pin.hold(line);
                also
            }
            None => held,
        })
    }
}

/// A line that several requests of one call use.
struct Line(Held);

impl Line {
    /// For one more request; the claim stays.
    fn also(&self) -> Held {
        Held {
            channel: Arc::clone(&self.0.channel),
            claim: None,
        }
    }
}

impl Pinned for Line {
    fn is_a_clients(&self) -> bool {
        false
    }

    fn stays(&self) -> bool {
        false
    }

    fn keep(&self) -> Option<TaskTrackerToken> {
        None
    }

    fn give_back(self: Box<Self>) {}
}

fn asks(method: &str) -> Asks {
    if may_ask(method) {
        Asks::Maybe
    } else {
        Asks::Never
    }
}

/// The line's log level, set where the call wants another one. What each call gets of it is
/// filtered by its own.
async fn set_log_level(channel: &Arc<Channel>, level: &Arc<str>) {
    let known = {
        let mut known = channel.log_level.lock();
        known.replace(Arc::clone(level))
    };
    if known.as_ref() == Some(level) {
        return;
    }
    let mut params = Writer::object();
    params.str("level", level);
    let params = params.end();
    let asked = ask(channel, "logging/setLevel", &params);
    // A server without logging refuses; then it will not log either.
    let _ = tokio::time::timeout(LOG_PATIENCE, asked).await;
}
