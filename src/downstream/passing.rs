//! A `tools/call` that passes, and what becomes of it if its client closes its connection before the answer has passed: if
//! the client's clock ended, the runner reads the rest.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, Stream, StreamExt as _};
use hyper::Response;
use tokio::time::Instant;
use tracing::debug;

use super::calls::item::StreamItem;
use super::calls::kept;
use super::calls::server_answer::{CallAtServer, ReadState, Relaying, ServerAnswer};
use super::inbound::idempotency::given_up_claim_of;
use super::inbound::request::Inbound;
use super::inbound::requester::Requester;
use crate::mcp::error::Failure;
use crate::mcp::meta::PROGRESS_TOKEN;
use crate::runner::client_note::{ClientNote, Leaving};
use crate::runner::{CallClient, Runner};
use crate::sharing::room::SMALL;
use crate::task::clocks::RungClock;
use crate::task::gave_up::is_time_of_clock;
use crate::task::policy::Rules;
use crate::upstream::Exchange;
use crate::upstream::http::ResponseBody;
use crate::upstream::relay::Relayed;
use crate::upstream::wrapped::Upstream;

/// A `tools/call` that passes, while its request is answered.
#[derive(Clone, Copy)]
pub(super) struct PassingRequest<'a> {
    runner: &'a Arc<Runner>,
    upstream: &'a Arc<Upstream>,
    by: &'a Requester,
    /// The request.
    sent: &'a Bytes,
    began: Instant,
}

/// A `tools/call` that passes, while its response is sent.
pub(super) struct PassingCall {
    runner: Arc<Runner>,
    upstream: Arc<Upstream>,
    client: CallClient,
    rules: Arc<Rules>,
    /// The request.
    sent: Bytes,
    began: Instant,
}

/// A call that the runner can keep.
pub(super) trait Keepable {
    /// Gives the rest of the call to the runner, if its client's clock has just ended.
    fn give_up(self, rest: impl ReadOn);
}

impl<'a> PassingRequest<'a> {
    /// `None`: the client cannot be distinguished from others, or the request is too large to be kept.
    pub(super) fn of(
        (runner, upstream): (&'a Arc<Runner>, &'a Arc<Upstream>),
        by: &'a Requester,
        sent: &'a Bytes,
    ) -> Option<Self> {
        // The request is kept until the answer has passed. Large ones would take the room of others.
        let can_be_kept = by.gives_up_as().is_some() && sent.len() <= SMALL;
        can_be_kept.then(|| Self {
            runner,
            upstream,
            by,
            sent,
            began: Instant::now(),
        })
    }

    fn kept(self) -> PassingCall {
        PassingCall {
            runner: Arc::clone(self.runner),
            upstream: Arc::clone(self.upstream),
            client: self.by.client_of_call(None),
            rules: Arc::clone(&self.by.rules),
            sent: self.sent.clone(),
            began: self.began,
        }
    }
}

impl Keepable for PassingRequest<'_> {
    fn give_up(self, rest: impl ReadOn) {
        self.kept().give_up(rest);
    }
}

impl Keepable for PassingCall {
    fn give_up(self, rest: impl ReadOn) {
        let waited = Instant::now().saturating_duration_since(self.began);
        let gave_up = match self.client.note.as_ref().map(ClientNote::leaving) {
            Some(Leaving::GaveUp) => true,
            Some(Leaving::Cancelled) => false,
            Some(Leaving::Disconnected) | None => is_time_of_clock(waited),
        };
        if !gave_up {
            debug!(
                ?waited,
                "the client closed its connection; its call is cancelled"
            );
            return;
        }
        let message = Inbound::read(&self.sent);
        let (Some(id), Some(params)) = (message.request_id(), message.params()) else {
            return;
        };
        let whose = self.client.gives_up_as;
        let claim = whose.and_then(|whose| given_up_claim_of(params, &whose, &self.rules));
        let Some(claim) = claim else { return };
        let tool = params.get_str("name").unwrap_or_default();
        let at_server = CallAtServer {
            upstream: self.upstream,
            id: id.to_owned(),
            bytes_max: usize::try_from(self.rules.result_bytes_max()).unwrap_or(usize::MAX),
        };
        let meta = params.get_object("_meta");
        // Progress may have started the client's clock anew.
        let is_since_begin = !meta.is_some_and(|meta| meta.contains(PROGRESS_TOKEN));
        let clock = self.client.clock_of(&tool).filter(|_| is_since_begin);
        let clock = clock.map(|name| RungClock { name, waited });
        if let Some(exchange) = rest.read_on(at_server) {
            let claim = (claim, clock);
            self.runner.keep_passed(self.client, claim, &tool, exchange);
        }
    }
}

/// The rest of the server's response to a call, in the form in which it passes.
pub(super) trait ReadOn: Sized {
    /// Reads the rest for a carrier. `None`: it is of no use without its beginning.
    fn read_on(self, call: CallAtServer) -> Option<Exchange>;
}

/// The response of a request that passes.
pub(super) type PassedResponse = BoxFuture<'static, Result<Response<ResponseBody>, Failure>>;

impl ReadOn for PassedResponse {
    fn read_on(self, call: CallAtServer) -> Option<Exchange> {
        let bytes_max = call.bytes_max;
        let relaying = async move { Ok(Relayed::of(self.await?, bytes_max)) };
        relaying.boxed().read_on(call)
    }
}

impl ReadOn for Relaying {
    fn read_on(self, call: CallAtServer) -> Option<Exchange> {
        let answer = ServerAnswer::new(call, None, ReadState::Waiting(self));
        Some(kept::of_modern(answer.items()))
    }
}

impl ReadOn for BoxStream<'static, StreamItem> {
    fn read_on(self, _: CallAtServer) -> Option<Exchange> {
        Some(kept::of_modern(self))
    }
}

/// The rest of the response to a call that passes.
///
/// If this is dropped before the answer has passed, the client has closed its connection.
pub(super) struct ResponseRest<T: ReadOn, C: Keepable = PassingCall> {
    /// `None`: the rest is of no use, or the answer has passed.
    call: Option<C>,
    /// `None` once it was taken.
    rest: Option<T>,
}

impl<T: ReadOn> ResponseRest<T, PassingRequest<'_>> {
    /// The same, once the request is answered.
    pub(super) fn kept(mut self) -> ResponseRest<T> {
        ResponseRest {
            call: self.call.take().map(PassingRequest::kept),
            rest: self.rest.take(),
        }
    }
}

impl<T: ReadOn, C: Keepable> ResponseRest<T, C> {
    pub(super) fn new(call: Option<C>, rest: T) -> Self {
        let rest = Some(rest);
        Self { call, rest }
    }

    /// The rest in another form.
    pub(super) fn map<U: ReadOn>(mut self, map: impl FnOnce(T) -> U) -> ResponseRest<U, C> {
        ResponseRest {
            call: self.call.take(),
            rest: self.rest.take().map(map),
        }
    }

    pub(super) fn rest(&self) -> Option<&T> {
        self.rest.as_ref()
    }

    pub(super) fn rest_mut(&mut self) -> Option<&mut T> {
        self.rest.as_mut()
    }

    /// Notes that the answer has passed: the client can give up nothing any more. Returns the call.
    pub(super) fn passed(&mut self) -> Option<C> {
        self.call.take()
    }
}

impl<T: ReadOn, C: Keepable> Drop for ResponseRest<T, C> {
    fn drop(&mut self) {
        if let (Some(call), Some(rest)) = (self.call.take(), self.rest.take()) {
            call.give_up(rest);
        }
    }
}

/// Waits for the response. If this is dropped before it resolves, the client has closed its connection.
impl<T: ReadOn + Future + Unpin, C: Keepable + Unpin> Future for ResponseRest<T, C> {
    type Output = T::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(rest) = &mut self.rest else {
            return Poll::Pending;
        };
        let polled = rest.poll_unpin(context);
        if polled.is_ready() {
            // A future that has resolved must not be polled again.
            self.rest = None;
        }
        polled
    }
}

impl Stream for ResponseRest<BoxStream<'static, StreamItem>> {
    type Item = StreamItem;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<StreamItem>> {
        let Some(rest) = &mut self.rest else {
            return Poll::Ready(None);
        };
        let polled = rest.poll_next_unpin(context);
        if let Poll::Ready(None | Some(StreamItem::Answer(_) | StreamItem::End)) = polled {
            self.passed();
        }
        polled
    }
}
