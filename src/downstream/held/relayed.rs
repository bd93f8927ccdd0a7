//! Calls to a server that speaks Streamable HTTP: passed on as they are, and held where the server
//! itself lets nobody come back.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use http_body_util::Full;
use hyper::Response;
use hyper::header::CONTENT_LENGTH;
use hyper::http::request::Parts;
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::{Call, SESSION_ID, hold};
use crate::downstream::body::Body;
use crate::downstream::pass::unreachable_upstream;
use crate::downstream::reply::Rpc;
use crate::downstream::tasks::Shared;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::json::{Object, Writer};
use crate::upstream::channel::session::Said;
use crate::upstream::http::RequestBody;
use crate::upstream::relay::{Answering, Relayed, error_of};
use crate::upstream::wrapped::Upstream;

/// How long the response head waits for the server's, so that errors ride their own status.
const HEAD_PATIENCE: Duration = Duration::from_secs(3);

/// How long a stream that began may take to say that it can be come back to.
const FIRST_PATIENCE: Duration = Duration::from_millis(500);

type Relaying = BoxFuture<'static, Result<Relayed, Failure>>;

pub(in crate::downstream) async fn post(
    front: &Shared,
    parts: Parts,
    body: Bytes,
    call: Call,
) -> Response<Body> {
    let call = stoppable(front, &parts, call);
    let upstream = Arc::clone(&front.upstream);
    let bytes_max = usize::try_from(call.rule.result_bytes_max).unwrap_or(usize::MAX);
    let body = RequestBody::Ready(Full::new(body));
    let passing = front.passing.token();
    let mut relaying: Relaying =
        async move { upstream.relay(parts, body, bytes_max).await }.boxed();
    let Ok(relayed) = timeout(HEAD_PATIENCE, &mut relaying).await else {
        let words = words(front, Stage::Waiting(relaying), &call.id);
        return hold(front, call, words);
    };
    match relayed {
        Err(failure) => unreachable_upstream(failure),
        Ok(Relayed::Passed(response)) => response.map(|body| Body::Passed {
            begun: None,
            body,
            _answer: Some(passing),
        }),
        Ok(Relayed::Answer(mut answering)) => {
            if !needs_hold(&mut answering).await {
                let (head, begun, body) = answering.untouched();
                let body = Body::Passed {
                    begun: Some(begun).filter(|begun| !begun.is_empty()),
                    body,
                    _answer: Some(passing),
                };
                return Response::from_parts(head, body);
            }
            let session = answering.head.headers.get(SESSION_ID).cloned();
            let words = words(front, Stage::Reading(answering), &call.id);
            let mut response = hold(front, call, words);
            if let Some(session) = session {
                response.headers_mut().insert(SESSION_ID, session);
            }
            response
        }
    }
}

fn stoppable(front: &Shared, parts: &Parts, call: Call) -> Call {
    let (upstream, mut parts) = (Arc::clone(&front.upstream), parts.clone());
    parts.headers.remove(CONTENT_LENGTH);
    call.stopped_by(|text| async move {
        let told = upstream.pass(parts, RequestBody::json(text)).await;
        if told.is_err() {
            tracing::debug!("a server could not be told that nobody waits");
        }
    })
}

/// Not what is answered at once, and no stream to which its server lets its client come back.
async fn needs_hold(answering: &mut Answering) -> bool {
    if !answering.is_stream() {
        return false;
    }
    match timeout(FIRST_PATIENCE, answering.first()).await {
        Ok(Ok(Some((message, has_id)))) => !has_id && !is_answer(message),
        // What cannot be read here passes as it is.
        Ok(Err(_)) => false,
        Ok(Ok(None)) | Err(_) => true,
    }
}

/// Where reading is.
enum Stage {
    Waiting(Relaying),
    Reading(Box<Answering>),
    Answered,
}

/// What the server says, and an error under the client's own id where it never answers.
fn words(front: &Shared, stage: Stage, id: &RawValue) -> BoxStream<'static, Said> {
    let state = (Arc::clone(&front.upstream), stage, id.to_owned());
    stream::unfold(state, |(upstream, stage, id)| async {
        let (said, stage) = listen(&upstream, stage, &id).await?;
        Some((said, (upstream, stage, id)))
    })
    .boxed()
}

async fn listen(upstream: &Upstream, mut stage: Stage, id: &RawValue) -> Option<(Said, Stage)> {
    let failed = |failure| {
        let answer = Rpc::failure(id.get(), failure).json;
        Some((Said::Answer(answer), Stage::Answered))
    };
    loop {
        let mut answering = match stage {
            Stage::Answered => return None,
            Stage::Reading(answering) => answering,
            Stage::Waiting(relaying) => match relaying.await {
                Ok(Relayed::Answer(answering)) => answering,
                Ok(Relayed::Passed(refusal)) => {
                    let answer = refused(id, &error_of(refusal).await);
                    return Some((Said::Answer(answer), Stage::Answered));
                }
                Err(failure) => return failed(failure),
            },
        };
        let is_stream = answering.is_stream();
        match answering.next().await {
            Ok(Some(said)) if is_answer(&said.text) => {
                upstream.finish(*answering);
                return Some((Said::Answer(said.text), Stage::Answered));
            }
            // An event that only says where to resume.
            Ok(Some(said)) if is_stream && said.text.is_empty() => {}
            Ok(Some(said)) if is_stream => {
                return Some((Said::Message(said.text), Stage::Reading(answering)));
            }
            Ok(Some(_)) => return failed(unknown(Reason::UpstreamInvalid)),
            Ok(None) => return failed(unknown(Reason::UpstreamReset)),
            Err(failure) => return failed(failure),
        }
        stage = Stage::Reading(answering);
    }
}

fn is_answer(message: &str) -> bool {
    Object::parse(message).is_ok_and(|message| {
        !message.contains("method") && (message.contains("result") || message.contains("error"))
    })
}

fn unknown(reason: Reason) -> Failure {
    Failure::new(reason, SideEffect::Unknown)
}

fn refused(id: &RawValue, error: &RawValue) -> String {
    let mut out = Writer::object();
    out.str("jsonrpc", "2.0").raw("id", id.get());
    out.raw("error", error.get());
    out.end()
}
