//! A request to a legacy server over Streamable HTTP: a POST on a session. The server may ask the client
//! meanwhile, and a stream that was cut can be resumed.

use std::sync::Arc;
use std::time::Duration;

use hyper::header::HeaderValue;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::base::lock::Mutex;
use crate::base::unfold::Unfold as _;
use crate::mcp::version::Era;
use crate::upstream::client_session::registry::ClientSessions;
use crate::upstream::exchange::session::call::{CallStream, SessionCall};
use crate::upstream::exchange::session::control::{CallResumePoint, CallUnderway, SessionControl};
use crate::upstream::exchange::session::merged::MergedEvents;
use crate::upstream::exchange::{Driver, Phase};
use crate::upstream::http::origin::Origin;
use crate::upstream::pool::{PoolKey, SlotUse};
use crate::upstream::port::{Event, Exchange, UpstreamRequest};
use crate::upstream::request_id::RequestId;
use crate::upstream::sessions::calls;
use crate::upstream::sessions::pinned;
use crate::upstream::sessions::pool::{HttpSessionPool, SessionLease};
use crate::upstream::sessions::session::{ServerSession, SessionHandover};

mod call;
mod control;
mod fitness;
mod merged;
mod resume;
mod send;

/// Begins one request; it is sent when the events are first polled.
pub(in crate::upstream) fn begin(
    origin: &Arc<Origin>,
    sessions: Arc<HttpSessionPool>,
    request: Arc<UpstreamRequest>,
    slot: Option<SlotUse<ServerSession>>,
) -> Exchange {
    let (taken, is_taken) = watch::channel(false);
    let (beside, said_beside) = calls::events();
    // A request without a pin runs on no client's session, so its token is never cancelled.
    let ended = request.pin.as_ref().map(pinned::ended).unwrap_or_default();
    let call = SessionCall {
        key: match &slot {
            Some(slot) => slot.key().clone(),
            None => PoolKey::of(Era::Legacy, &request),
        },
        origin: Arc::clone(origin),
        sessions,
        request,
        slot,
        lease: None,
        lost: None,
        underway: Arc::default(),
        taken,
        id: RequestId::number(0),
        has_told_resumable: false,
        has_begun: false,
        has_moved: false,
        beside,
        joined: None,
    };
    exchange(call, Phase::Unsent, said_beside, is_taken, ended)
}

/// Carries on a call that another process sent. Nothing is sent but the request for the rest of its stream.
/// `None`: raincheck did not write the resume point.
pub(in crate::upstream) fn adopt(
    sessions: &Arc<HttpSessionPool>,
    client_sessions: &ClientSessions,
    request: UpstreamRequest,
    resume_point: &str,
) -> Option<Exchange> {
    let point: CallResumePoint = serde_json::from_str(resume_point).ok()?;
    let event_id = HeaderValue::try_from(point.event).ok()?;
    let capabilities: Arc<str> = point.capabilities.into();
    let key = PoolKey::new(Era::Legacy, request.caller, Arc::clone(&capabilities));
    let request = request.declaring(capabilities);
    let (lease, ended) = adopted_session(sessions, client_sessions, &request, &point.session)?;
    let underway = CallUnderway {
        session: Arc::clone(&lease.session),
        id: point.request.clone(),
        event_id: Some(event_id.clone()),
    };
    // The server has sent an event of the call, so it has the call, and one cancel is enough.
    let (taken, is_taken) = watch::channel(true);
    let (beside, said_beside) = calls::events();
    let calls = lease.session.calls();
    // Joined before `resume` opens the session's own stream, where questions of the call may come.
    let joined = calls.join(point.request.clone(), &request, beside.clone());
    let call = SessionCall {
        request: Arc::new(request),
        key,
        origin: Arc::clone(sessions.origin()),
        sessions: Arc::clone(sessions),
        slot: None,
        lease: Some(lease),
        lost: None,
        underway: Arc::new(Mutex::new(Some(underway))),
        taken,
        id: point.request,
        // The record has a resume point already, and a call that runs must not be sent again.
        has_told_resumable: true,
        has_begun: true,
        has_moved: true,
        beside,
        joined: Some(joined),
    };
    let cut = CallStream::Cut {
        event_id,
        retry: Some(Duration::ZERO),
        is_refused: false,
    };
    Some(exchange(
        call,
        Phase::Open(cut),
        said_beside,
        is_taken,
        ended,
    ))
}

/// The session of a call that another process sent, and the token that its end cancels.
pub(in crate::upstream) fn adopted_session(
    sessions: &Arc<HttpSessionPool>,
    client_sessions: &ClientSessions,
    request: &UpstreamRequest,
    handover: &SessionHandover,
) -> Option<(SessionLease, CancellationToken)> {
    if handover.borrowed {
        let session = client_sessions.get(handover.identity(request)?)?;
        let ended = session.ended();
        return Some((sessions.borrow(session), ended));
    }
    let capabilities = Arc::clone(&request.capabilities);
    let key = PoolKey::new(Era::Legacy, request.caller, capabilities);
    let lease = sessions.adopt(&key, handover, request.credentials.as_ref())?;
    Some((lease, CancellationToken::new()))
}

fn exchange(
    call: SessionCall,
    phase: Phase<CallStream>,
    beside: mpsc::Receiver<Event>,
    taken: watch::Receiver<bool>,
    ended: CancellationToken,
) -> Exchange {
    let capabilities = Arc::clone(&call.key.declared);
    let underway = Arc::clone(&call.underway);
    let (answered, was_answered) = watch::channel(None);
    let patience = call.request.answer_patience;
    let merged = MergedEvents {
        on_stream: Driver::new(call, phase).into_stream(),
        beside,
        underway: Arc::clone(&underway),
        answered: was_answered,
        patience,
        silent_since: None,
        ended,
        is_over: false,
    };
    Exchange {
        events: merged.into_stream(),
        control: Arc::new(SessionControl {
            underway,
            capabilities,
            taken,
            answered,
        }),
    }
}
