//! The response to a legacy client's request: one JSON body where the answer comes soon and alone, else
//! a stream.

use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use hyper::Response;
use tokio::sync::mpsc;

use super::super::body::Body;
use super::super::inbound::requester::Requester;
use super::super::keep_alive::keep_alive;
use super::super::proxy::Shared;
use super::super::{held, reply};
use super::said::Said;
use crate::mcp::sse;
use crate::upstream::channel::session::Said as OnLine;

/// How long the head waits for the first word, so that a challenge rides its own status.
const HEAD_PATIENCE: Duration = Duration::from_secs(3);

/// Held where it can be, so that its stream outlives its connection.
pub(in crate::downstream) async fn answer(
    front: &Shared,
    by: &Requester,
    held: Option<held::Call>,
    said: mpsc::Receiver<Said>,
) -> Response<Body> {
    if let Some(call) = held {
        let patience = call.head_patience(by, HEAD_PATIENCE);
        return hold(front, call, said, patience).await;
    }
    respond(said, by.reads_events, by.head_patience(HEAD_PATIENCE)).await
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
