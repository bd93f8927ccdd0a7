//! The response to a legacy client's request: one JSON body where the answer comes soon and alone, else
//! a stream.

use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use hyper::Response;
use tokio::sync::mpsc;

use super::super::body::Body;
use super::super::call::keep_alive;
use super::super::reply;
use super::call::Said;
use crate::mcp::sse;

/// How long the head waits for the first word, so that a challenge rides its own status.
const HEAD_PATIENCE: Duration = Duration::from_secs(3);

/// `streams`: the client reads event streams. Else it hears the answer only.
pub(super) async fn respond(mut said: mpsc::Receiver<Said>, streams: bool) -> Response<Body> {
    let head = async {
        loop {
            match said.recv().await {
                Some(Said::Message(_)) if !streams => {}
                first => return first,
            }
        }
    };
    let first = if streams {
        tokio::time::timeout(HEAD_PATIENCE, head).await
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
