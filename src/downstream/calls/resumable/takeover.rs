//! Continues a call whose replica died, on the replica that its client comes back to. The server must keep its
//! events: the call is resumed behind the last known one, on the client's session and with its credentials.

use std::sync::Arc;

use futures_util::stream::{self, BoxStream, StreamExt as _};
use hyper::http::request::Parts;
use tokio::sync::watch;

use super::job::CallJob;
use super::resumable_call::{CallerSession, server_of};
use crate::downstream::calls::item::StreamItem;
use crate::downstream::calls::registry::CallKind;
use crate::downstream::calls::server_answer::{CallAtServer, ReadState, ServerAnswer};
use crate::downstream::outbound::response::Rpc;
use crate::downstream::proxy::Proxy;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::headers::LAST_EVENT_ID;
use crate::runner::call_log::log::EventLog;
use crate::runner::call_log::recent::RecentEvents;
use crate::runner::call_log::takeover::TakenOver;
use crate::store::StoreError;
use crate::task::log_terms::LogTerms;
use crate::upstream::relay::ResumePoint;

/// Continues a call here, for a client that came back to it.
#[derive(Clone)]
pub(super) struct Takeover {
    proxy: Arc<Proxy>,
    /// The head of the request with which the client came back.
    parts: Parts,
    session: CallerSession,
}

impl Takeover {
    pub(super) fn new(proxy: &Arc<Proxy>, parts: &Parts, session: CallerSession) -> Self {
        let mut parts = parts.clone();
        // The client's value is an id of raincheck's own, which the server cannot resolve.
        parts.headers.remove(LAST_EVENT_ID);
        Self {
            proxy: Arc::clone(proxy),
            parts,
            session,
        }
    }

    /// Begins in a job of its own, which goes on when the client leaves again. `seen`: the last entry that the
    /// client has.
    pub(super) fn begin(self, log: EventLog, seen: u64) {
        let proxy = Arc::clone(&self.proxy);
        proxy.runner.spawn_tracked(async move {
            if let Err(error) = Box::pin(self.carry_on(log, seen)).await {
                tracing::warn!(%error, "the store did not let a resumable call be taken over");
            }
        });
    }

    async fn carry_on(self, log: EventLog, seen: u64) -> Result<(), StoreError> {
        // Another replica may have taken the call over, or ended it, since the reader looked.
        let stands = log.standing().await?;
        let Some(stands) = stands.filter(|stands| !stands.is_over) else {
            return Ok(());
        };
        let (recent, shown) = watch::channel(RecentEvents::default());
        let key = self.session.key();
        // One takeover at a time on this replica, and then one of all replicas.
        let proxy = &self.proxy;
        let entry = proxy
            .calls
            .enter(CallKind::Resumable, key, stands.terms.id.get());
        let registered = entry
            .ok()
            .and_then(|entry| proxy.resumable.begin(log.name(), entry, shown));
        // This replica carries the call already, or has no room for it. The reader looks again.
        let Some(registration) = registered else {
            return Ok(());
        };
        let taken = log.take_over(stands, seen, recent).await?;
        let Some(TakenOver { writer, event_id }) = taken else {
            return Ok(());
        };
        let items = self.rest(writer.terms(), event_id);
        let server = server_of(&self.proxy, &self.parts);
        let job = CallJob::new(&self.proxy, writer, registration, key, (server, None));
        job.run(items).await;
        Ok(())
    }

    /// The rest of the answer, behind this event of the server, or an error in place of it.
    fn rest(&self, terms: &LogTerms, event_id: Option<String>) -> BoxStream<'static, StreamItem> {
        let Some(event_id) = event_id else {
            let failure = Failure::new(Reason::OwnerLost, SideEffect::Unknown);
            let lost = StreamItem::Answer(Rpc::failure(terms.id.get(), failure).json);
            return stream::iter([lost]).boxed();
        };
        let point = ResumePoint {
            event_id,
            // The pause that the server asked for is in no record, so it is lost with the replica that read it.
            retry: None,
        };
        let lost = Reason::OwnerLost;
        let state = ReadState::Cut { point, lost };
        let call = CallAtServer {
            upstream: Arc::clone(&self.proxy.upstream),
            id: terms.id.clone(),
            bytes_max: terms.bytes_max,
        };
        ServerAnswer::new(call, Some(self.parts.clone()), state).items()
    }
}
