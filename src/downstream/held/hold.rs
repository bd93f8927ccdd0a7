//! Begins to hold a call, and reads it to the client that called.

use futures_util::stream::{BoxStream, StreamExt as _};
use hyper::Response;

use super::call::Call;
use super::carry;
use super::log::Log;
use super::reader::{self, Reader};
use super::words::Word;
use crate::downstream::body::Body;
use crate::downstream::proxy::Shared;
use crate::downstream::reply;
use crate::task::id::TaskId;
use crate::upstream::channel::session::Said;

/// Holds a call from here on: what its source says is read whether or not the client is there. The
/// source ends after the answer, or without one where its client wants none any more.
///
/// Without room for another one, the call ends with its client's connection, as it did before.
pub(in crate::downstream) fn hold(
    front: &Shared,
    call: Call,
    source: BoxStream<'static, Said>,
) -> Response<Body> {
    hold_words(front, call, source.map(Word::from).boxed())
}

/// The same for a source that tells where it can be come back to.
pub(super) fn hold_words(
    front: &Shared,
    call: Call,
    source: BoxStream<'static, Word>,
) -> Response<Body> {
    let hold = TaskId::random();
    let log = Log::of(front, &call.place, hold);
    let primes = call.primes;
    let (stream, heartbeat) = match carry::begin(front, call, log.clone(), source) {
        Ok(begun) => begun,
        Err(source) => return reply::event_stream(Body::Events(reader::unheld(source))),
    };
    let reader = Reader::new(front, hold, log, heartbeat).following(stream);
    let reader = if primes { reader.primed() } else { reader };
    reply::event_stream(Body::Events(reader.events()))
}
