//! One request to the wrapped server, from its sending to its answer, as a stream of events.
//!
//! The [`Driver`] knows the order: send, send again where the server is busy, read until the answer.
//! A [`RequestTransport`] knows how the request reaches the server, and what the server says about it there.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::base::retry_after::TRIES;
use crate::base::unfold::Unfold;
use crate::mcp::error::Failure;
use crate::upstream::failures::Postponed;
use crate::upstream::no_session::SessionError;
use crate::upstream::port::{Answer, Control, Event, Exchange};

pub(super) mod borrowed_line;
pub(super) mod line;
pub(super) mod modern;
pub(super) mod remote_task;
pub(super) mod session;

/// How one request reaches the server, and what the server says about it there.
trait RequestTransport: Send + 'static {
    /// The object that is read while the request is under way.
    type Open: Send;

    /// `true` if the client hears that the request was sent: a program may have to be started first.
    const TELLS_SENT: bool = false;

    /// Sends the request. Called again after [`Untaken::Later`] and [`Unsent`].
    fn send(&mut self) -> impl Future<Output = Result<Self::Open, Untaken>> + Send;

    /// The next event of the request.
    fn next(&mut self, open: &mut Self::Open)
    -> impl Future<Output = Result<Event, Unsent>> + Send;

    /// The server is busy: nothing is under way until the request is sent again.
    fn pause(&mut self) {}

    /// Gives up what the request used. Called once, before the last event is handed out.
    fn end(&mut self, open: Option<Self::Open>, last: &Event);
}

/// Why a request is not under way.
enum Untaken {
    /// The server ran nothing, and wants the request again after this pause.
    Later(Postponed),
    /// There will be no answer but this.
    End(Event),
}

/// The request provably had no effect, and may be sent again.
struct Unsent(Failure);

impl From<SessionError> for Untaken {
    fn from(why: SessionError) -> Self {
        match why {
            SessionError::Failed(failure) => Self::End(Event::Failed(failure)),
            SessionError::Error(error) => Self::End(Event::Error(error)),
            SessionError::Later(later) => Self::Later(later),
        }
    }
}

/// Sends one request over one transport, and reads its events.
struct Driver<T: RequestTransport> {
    transport: T,
    tries: u32,
    phase: Phase<T::Open>,
}

enum Phase<O> {
    Unsent,
    Waiting(Duration),
    Open(O),
    Over,
}

/// An exchange whose request is sent when the events are first polled.
fn begin<T: RequestTransport>(transport: T, control: Arc<dyn Control>) -> Exchange {
    Exchange {
        events: Driver::new(transport, Phase::Unsent).into_stream(),
        control,
    }
}

impl<T: RequestTransport> Driver<T> {
    fn new(transport: T, phase: Phase<T::Open>) -> Self {
        Self {
            transport,
            tries: 0,
            phase,
        }
    }

    /// `None`: the request is on its way to [`Phase::Open`], and nothing is to be told.
    async fn send(&mut self) -> Option<Event> {
        let was_refused = self.tries > 0;
        self.tries += 1;
        match self.transport.send().await {
            Ok(open) => {
                self.phase = Phase::Open(open);
                if T::TELLS_SENT {
                    Some(Event::Sent)
                } else {
                    // Revokes an earlier `Later`, which the task shows as its status message.
                    was_refused.then_some(Event::Later(None))
                }
            }
            Err(Untaken::Later(later)) if self.tries < TRIES && !later.is_long => {
                self.transport.pause();
                self.phase = Phase::Waiting(later.pause);
                Some(Event::Later(Some(later.pause)))
            }
            Err(Untaken::Later(later)) => Some(Event::Failed(later.failure)),
            Err(Untaken::End(event)) => Some(event),
        }
    }

    fn end(&mut self, last: &Event) {
        let open = match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Open(open) => Some(open),
            Phase::Unsent | Phase::Waiting(_) | Phase::Over => None,
        };
        self.transport.end(open, last);
    }
}

impl<T: RequestTransport> Unfold for Driver<T> {
    type Item = Event;

    async fn next(&mut self) -> Option<Event> {
        loop {
            let event = match &mut self.phase {
                Phase::Over => return None,
                Phase::Waiting(pause) => {
                    tokio::time::sleep(*pause).await;
                    self.phase = Phase::Unsent;
                    continue;
                }
                Phase::Unsent => match self.send().await {
                    Some(event) => event,
                    None => continue,
                },
                Phase::Open(open) => match self.transport.next(open).await {
                    Ok(event) => event,
                    Err(Unsent(_)) if self.tries < TRIES => {
                        self.phase = Phase::Unsent;
                        continue;
                    }
                    Err(Unsent(failure)) => Event::Failed(failure),
                },
            };
            // Before the event goes out, because its reader need not poll again.
            if event.is_last() {
                self.end(&event);
            }
            return Some(event);
        }
    }
}

/// The control of a call that asks nothing while it runs, and that dropping its exchange cancels.
#[derive(Debug)]
pub struct NoopControl;

#[async_trait]
impl Control for NoopControl {
    async fn answer(&self, _id: &str, _answer: Answer) -> Result<(), Failure> {
        Ok(())
    }

    async fn cancel(&self) {}
}

#[cfg(test)]
mod tests;
