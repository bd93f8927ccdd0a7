//! A legacy server: sessions, and questions to the client in the middle of a call.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use hyper::header::HeaderValue;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::client_session::registry::ClientSessions;
use super::origin::Origin;
use super::pinned;
use super::port::{Event, Exchange, Outgoing};
use super::request_id::RequestId;
use super::sessions::{Key, Sessions};
use super::translate;
use crate::lock::Mutex;
use conversation::{Conversation, Phase};

mod both;
mod conversation;
pub(in crate::upstream) mod hearers;
mod resume;
mod send;
mod side;
pub(in crate::upstream) mod standing;

use both::Both;
use side::{Call, Current, ResumePoint, Side};

/// Begins one request; it is sent when the events are first polled.
pub(in crate::upstream) fn begin(
    origin: &Arc<Origin>,
    sessions: Arc<Sessions>,
    outgoing: Outgoing,
) -> Exchange {
    let current = Current::default();
    let (taken, is_taken) = watch::channel(false);
    let (beside, said_beside) = hearers::events();
    let pin = outgoing.pin.as_ref();
    let ended = pin.map(pinned::ended).unwrap_or_default();
    let conversation = Conversation {
        key: Key {
            caller: outgoing.caller,
            capabilities: translate::legacy_capabilities(&outgoing.capabilities).into(),
        },
        origin: Arc::clone(origin),
        sessions,
        outgoing,
        lease: None,
        current: Arc::clone(&current),
        taken,
        id: RequestId::number(0),
        tries: 0,
        phase: Phase::Unsent,
        resumed: false,
        told_resumable: false,
        beside,
        hearing: None,
    };
    exchange(conversation, said_beside, is_taken, ended)
}

/// Carries on a call that another process sent, from where it says; nothing is sent but the
/// request for the rest of its stream. `None`: not a resume point of ours.
pub(in crate::upstream) fn adopt(
    sessions: &Arc<Sessions>,
    client_sessions: &ClientSessions,
    caller: [u8; 16],
    resume_point: &str,
) -> Option<Exchange> {
    let origin = sessions.origin();
    let point: ResumePoint = serde_json::from_str(resume_point).ok()?;
    let event_id = HeaderValue::try_from(point.event).ok()?;
    let capabilities: Arc<str> = point.capabilities.into();
    let key = Key {
        caller,
        capabilities: Arc::clone(&capabilities),
    };
    let (lease, ended) = if point.session.borrowed {
        let identity = point.session.identity(caller)?;
        let session = client_sessions.get(identity)?;
        let ended = session.ended();
        (sessions.borrow(session), ended)
    } else {
        let lease = sessions.adopt(key.clone(), &point.session)?;
        (lease, CancellationToken::new())
    };
    let current = Arc::new(Mutex::new(Some(Call {
        session: Arc::clone(&lease.session),
        id: point.request.clone(),
        event_id: Some(event_id.clone()),
    })));
    let (taken, is_taken) = watch::channel(true);
    let (beside, said_beside) = hearers::events();
    let outgoing = Outgoing::adopted(caller, capabilities);
    let hearers = lease.session.hearers();
    let hearing = hearers.join(point.request.clone(), &outgoing, beside.clone());
    let conversation = Conversation {
        outgoing,
        key,
        origin: Arc::clone(origin),
        sessions: Arc::clone(sessions),
        lease: Some(lease),
        current: Arc::clone(&current),
        taken,
        id: point.request,
        tries: 1,
        phase: Phase::Cut {
            event_id,
            retry: Some(Duration::ZERO),
        },
        resumed: true,
        told_resumable: true,
        beside,
        hearing: Some(hearing),
    };
    Some(exchange(conversation, said_beside, is_taken, ended))
}

fn exchange(
    conversation: Conversation,
    said_beside: mpsc::Receiver<Event>,
    taken: watch::Receiver<bool>,
    ended: CancellationToken,
) -> Exchange {
    let capabilities = Arc::clone(&conversation.key.capabilities);
    let current = Arc::clone(&conversation.current);
    let (answered, was_answered) = watch::channel(None);
    let patience = conversation.outgoing.answer_patience;
    let on_stream = stream::unfold(conversation, |mut conversation| async {
        let event = conversation.next().await?;
        Some((event, conversation))
    });
    let both = Both {
        on_stream: on_stream.boxed(),
        said_beside,
        current: Arc::clone(&current),
        answered: was_answered,
        patience,
        silent_since: None,
        ended,
        is_over: false,
    };
    let events = stream::unfold(both, |mut both| async {
        let event = both.next().await?;
        Some((event, both))
    });
    Exchange {
        events: events.boxed(),
        control: Arc::new(Side {
            current,
            capabilities,
            taken,
            answered,
        }),
    }
}
