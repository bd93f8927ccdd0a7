//! Responds to a request of a legacy client. A call that can be resumed goes on when the connection is cut.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use hyper::Response;

use super::job;
use super::reader::LogReader;
use super::resumable_call::{ResumableCall, Waiting};
use crate::base::unfold::Unfold as _;
use crate::downstream::body::Body;
use crate::downstream::calls::item::StreamItem;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::outbound::response::{self, Rpc};
use crate::downstream::outbound::stream::{
    self as outbound, Head, ResponseEvent, ResponseSource, head,
};
use crate::downstream::proxy::Proxy;
use crate::task::id::TaskId;

/// Responds with one JSON body where the answer comes soon, else with a stream, which the client can resume
/// if its call is resumable. `usual`: how long the head waits for a client that takes large events.
pub(in crate::downstream) fn respond<'a>(
    proxy: &'a Arc<Proxy>,
    by: &'a Requester,
    waiting: Waiting,
    mut source: impl ResponseSource,
    usual: Duration,
) -> BoxFuture<'a, Response<Body>> {
    let call = match waiting {
        Waiting::Resumable(call) => *call,
        Waiting::Connected(heartbeat) => {
            let patience = by.reads_events.then(|| by.head_patience(usual));
            return outbound::respond(source, patience, heartbeat);
        }
    };
    Box::pin(async move {
        let patience = call.head_patience(by, usual);
        // No beat can be due here: with a heartbeat the patience is shorter than its first pause.
        let (first, source) = match head(&mut source, patience, None).await {
            Head::Answer(answer) => return answer.into_response(),
            Head::Event(event) => (Some(event), Some(source)),
            Head::Nothing => (None, Some(source)),
            Head::End => (None, None),
        };
        let rest = stream::unfold(source, |source| async {
            let mut source = source?;
            let event = source.next().await?;
            Some((event, Some(source)))
        });
        let items = stream::iter(first).chain(rest).map(StreamItem::from);
        hold(proxy, call, items.boxed())
    })
}

/// Reads the items whether or not the client is there, and responds with the stream of the call. The items end
/// after the answer, or without one if the client cancelled the call.
///
/// Without room for another such call, the call ends with the client's connection.
pub(super) fn hold(
    proxy: &Arc<Proxy>,
    call: ResumableCall,
    items: BoxStream<'static, StreamItem>,
) -> Response<Body> {
    let id = TaskId::random();
    let log = call.session.log(proxy, id);
    let primes = call.primes;
    let (recent, heartbeat) = match job::begin(proxy, call, log.clone(), items) {
        Ok(begun) => begun,
        // Without a log there are no ids: an id would promise the client that it can come back.
        Err(items) => return outbound::stream_of(without_ids(items), None, None),
    };
    let reader = LogReader::new(proxy, id, log, heartbeat).of_local(recent);
    let reader = if primes { reader.primed() } else { reader };
    response::event_stream(Body::events(reader.into_stream()))
}

pub(super) fn without_ids(
    items: BoxStream<'static, StreamItem>,
) -> BoxStream<'static, ResponseEvent> {
    let events = items.filter_map(async |item| match item {
        StreamItem::Message { json, .. } => Some(ResponseEvent::Message(json)),
        StreamItem::Other { event, .. } => Some(ResponseEvent::Other(event)),
        StreamItem::Answer(json) => Some(ResponseEvent::Answer(Rpc::passed(json))),
        StreamItem::EventId(_) | StreamItem::End => None,
    });
    events.boxed()
}

impl From<ResponseEvent> for StreamItem {
    fn from(event: ResponseEvent) -> Self {
        match event {
            ResponseEvent::Message(json) => Self::Message {
                json,
                event_id: None,
            },
            ResponseEvent::Other(event) => Self::Other {
                event,
                event_id: None,
            },
            ResponseEvent::Answer(answer) => Self::Answer(answer.json),
        }
    }
}
