//! The assignment of a place at the server to a call: at once, or in its turn. A call may come before the server is
//! there.

use std::fmt;

use futures_util::future::BoxFuture;

use crate::mcp::version::Era;
use crate::upstream::discovery::discovered::DiscoverError;
use crate::upstream::line::pool::PooledLine;
use crate::upstream::line::shared::SharedLine;
use crate::upstream::message::may_ask;
use crate::upstream::no_session::SessionError;
use crate::upstream::pool::{MayAsk, Placing, PoolKey, PoolWait};
use crate::upstream::port::{Event, UpstreamRequest};
use crate::upstream::seat::{Seat, SeatPlace};
use crate::upstream::server::ServerTransport;
use crate::upstream::sessions::session::ServerSession;
use crate::upstream::wrapped::Upstream;

/// The place of a call, or how the call waits for it.
#[derive(Debug)]
pub enum Seating {
    Now(Seat),
    Waits(Box<SeatWait>),
}

/// A call that has no place yet. Nothing of the call is at the server. Dropped, it leaves the queue.
pub struct SeatWait {
    upstream: Upstream,
    request: UpstreamRequest,
    stage: SeatStage,
}

enum SeatStage {
    /// The server is asked for its era.
    Era(BoxFuture<'static, Result<Era, DiscoverError>>),
    Session(PoolWait<ServerSession>),
    Line(Era, PoolWait<SharedLine>),
    /// A process or a stream is started.
    Starting(Era, BoxFuture<'static, Result<PooledLine, SessionError>>),
}

/// The reason why a call waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeatNews {
    /// The server's program is being started.
    Starting,
    /// The server has not answered yet.
    Unanswered,
    /// All sessions are in use, and so many calls have their turn before this one.
    Ahead(usize),
}

impl fmt::Debug for SeatWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SeatWait").field(&self.news()).finish()
    }
}

impl Upstream {
    /// The place of this call. `None`: the era is not known, and the call waits until it is.
    pub fn seat(&self, era: Option<Era>, request: &UpstreamRequest) -> Seating {
        let placed = era.map(|era| self.place(era, request));
        let stage = match placed {
            Some(Ok(seat)) => return Seating::Now(seat),
            Some(Err(stage)) => stage,
            None => {
                let (upstream, credentials) = (self.clone(), request.credentials.clone());
                let asking = async move { upstream.era(credentials).await };
                SeatStage::Era(Box::pin(asking))
            }
        };
        Seating::Waits(Box::new(SeatWait {
            upstream: self.clone(),
            request: request.clone(),
            stage,
        }))
    }

    fn place(&self, era: Era, request: &UpstreamRequest) -> Result<Seat, SeatStage> {
        match self.transport() {
            // The pin holds a session already.
            _ if request.pin.is_some() => Ok(Seat::anywhere(era)),
            ServerTransport::Posts(_) if era == Era::Modern => Ok(Seat::anywhere(era)),
            ServerTransport::Posts(http_server) => {
                let key = PoolKey::of(era, request);
                match http_server.sessions.place(&key) {
                    Placing::Now(slot) => Ok(Seat::new(era, SeatPlace::Session(slot))),
                    Placing::Waits(wait) => Err(SeatStage::Session(wait)),
                }
            }
            ServerTransport::Lines(lines) => {
                let asks = if may_ask(&request.method) {
                    MayAsk::Maybe
                } else {
                    MayAsk::Never
                };
                let (pool, key) = (lines.pool(), PoolKey::of(era, request));
                match pool.place(&key, asks) {
                    Placing::Now(slot) => match pool.pooled(slot, request.credentials.as_ref()) {
                        Ok(pooled) => Ok(Seat::new(era, SeatPlace::Line(pooled))),
                        Err(start) => Err(SeatStage::Starting(era, start)),
                    },
                    Placing::Waits(wait) => Err(SeatStage::Line(era, wait)),
                }
            }
        }
    }
}

impl SeatWait {
    /// Resolves when the call has its place. `Err`: the last event of the call.
    ///
    /// Cancel safe: dropped before it resolves, the position in the queue stays. It must not be polled again after it
    /// resolved.
    pub async fn seat(&mut self) -> Result<Seat, Event> {
        loop {
            let next = match &mut self.stage {
                SeatStage::Era(asking) => match asking.await {
                    Ok(era) => match self.upstream.place(era, &self.request) {
                        Ok(seat) => return Ok(seat),
                        Err(next) => next,
                    },
                    Err(DiscoverError::Failed(failure)) => return Err(Event::Failed(failure)),
                    Err(DiscoverError::Unauthorized(error) | DiscoverError::Refused(error)) => {
                        return Err(Event::Error(error));
                    }
                },
                SeatStage::Session(wait) => {
                    let slot = wait.slot().await.map_err(Event::Failed)?;
                    // Only a legacy server has sessions over HTTP.
                    return Ok(Seat::new(Era::Legacy, SeatPlace::Session(slot)));
                }
                SeatStage::Line(era, wait) => {
                    let (era, slot) = (*era, wait.slot().await.map_err(Event::Failed)?);
                    // The transport is decided once, so a call that waits for a line does not come into the `else`.
                    let ServerTransport::Lines(lines) = self.upstream.transport() else {
                        return Ok(Seat::anywhere(era));
                    };
                    match lines.pool().pooled(slot, self.request.credentials.as_ref()) {
                        Ok(pooled) => return Ok(Seat::new(era, SeatPlace::Line(pooled))),
                        Err(start) => SeatStage::Starting(era, start),
                    }
                }
                SeatStage::Starting(era, start) => {
                    return match start.await {
                        Ok(pooled) => Ok(Seat::new(*era, SeatPlace::Line(pooled))),
                        // The exchange asks again after the pause.
                        Err(SessionError::Later(_)) => Ok(Seat::anywhere(*era)),
                        Err(SessionError::Failed(failure)) => Err(Event::Failed(failure)),
                        Err(SessionError::Error(error)) => Err(Event::Error(error)),
                    };
                }
            };
            self.stage = next;
        }
    }

    /// Returns the reason why the call waits now.
    pub fn news(&self) -> SeatNews {
        match &self.stage {
            SeatStage::Session(wait) => SeatNews::Ahead(wait.ahead()),
            SeatStage::Line(_, wait) => SeatNews::Ahead(wait.ahead()),
            SeatStage::Era(_) | SeatStage::Starting(..) if self.upstream.has_address() => {
                SeatNews::Unanswered
            }
            SeatStage::Era(_) | SeatStage::Starting(..) => SeatNews::Starting,
        }
    }
}
