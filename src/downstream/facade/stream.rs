//! The response to a legacy client's request: one JSON body where the answer comes soon and alone, else
//! a stream.

use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use hyper::{HeaderMap, Response};
use tokio::sync::mpsc;

use super::super::accept::accepts_events;
use super::super::body::Body;
use super::super::keep_alive::keep_alive;
use super::super::proxy::Shared;
use super::super::{held, patience, reply};
use super::said::Said;
use crate::mcp::sse;
use crate::upstream::channel::session::Said as OnLine;

/// How long the head waits for the first word, so that a challenge rides its own status.
const HEAD_PATIENCE: Duration = Duration::from_secs(3);

/// Held where it can be, so that its stream outlives its connection. The headers are the request's.
pub(in crate::downstream) async fn answer(
    front: &Shared,
    held: Option<held::Call>,
    said: mpsc::Receiver<Said>,
    headers: &HeaderMap,
) -> Response<Body> {
    if let Some(call) = held {
        let patience = call.head_patience(headers, HEAD_PATIENCE);
        return hold(front, call, said, patience).await;
    }
    let patience = patience::of_legacy(headers, HEAD_PATIENCE);
    respond(said, accepts_events(headers), patience).await
}

async fn hold(
    front: &Shared,
    call: held::Call,
    mut said: mpsc::Receiver<Said>,
    patience: Duration,
) -> Response<Body> {
    let first = match tokio::time::timeout(patience, said.recv()).await {
        Ok(Some(Said::Answer(rpc))) => return rpc.into_response(),
        Ok(first) => first,
        Err(_elapsed) => None,
    };
    let rest = stream::unfold(said, |mut said| async {
        let next = said.recv().await?;
        Some((next, said))
    });
    let source = stream::iter(first).chain(rest).map(|said| match said {
        Said::Message(message) => OnLine::Message(message),
        Said::Answer(rpc) => OnLine::Answer(rpc.json),
    });
    held::hold(front, call, source.boxed())
}

/// Without `streams` the client hears the answer only.
async fn respond(
    mut said: mpsc::Receiver<Said>,
    streams: bool,
    patience: Duration,
) -> Response<Body> {
    let head = async {
        loop {
            match said.recv().await {
                Some(Said::Message(_)) if !streams => {}
                first => return first,
            }
        }
    };
    let first = if streams {
        tokio::time::timeout(patience, head).await
    } else {
        Ok(head.await)
    };
    let first = match first {
        Ok(Some(Said::Answer(rpc))) => return rpc.into_response(),
        Ok(Some(Said::Message(message))) => Some(message),
        Ok(None) | Err(_) => None,
    };
    let first = stream::iter(first.map(|message| sse::event(&message)));
    let rest = stream::unfold((Some(said), keep_alive()), |(said, mut beat)| async {
        let mut said = said?;
        tokio::select! {
            next = said.recv() => match next? {
                Said::Message(message) => Some((sse::event(&message), (Some(said), beat))),
                Said::Answer(rpc) => Some((sse::event(&rpc.json), (None, beat))),
            },
            _ = beat.tick() => Some((sse::COMMENT, (Some(said), beat))),
        }
    });
    reply::event_stream(Body::Events(first.chain(rest).boxed()))
}
