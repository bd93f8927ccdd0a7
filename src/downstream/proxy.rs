//! The state that every part of the downstream side needs: `Proxy`, one for the process, shared by all connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hyper::http::request::Parts;
use hyper::{HeaderMap, Response};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::body::Body;
use super::calls::registry::CallRegistry;
use super::calls::resumable::registry::ResumableCalls;
use super::companion::state::Companion;
use super::events::state::{Events, EventsFor};
use super::forwarded::ForwardedHeaders;
use super::held_polls::HeldPolls;
use super::inbound::access::Names;
use super::inbound::requester::Requester;
use super::outbound::response;
use super::sessions::agreed_versions::AgreedVersions;
use super::sessions::hosted::lifetimes::Lifetimes;
use super::sessions::mailbox::Mailboxes;
use super::sessions::session_clients::SessionClients;
use super::sessions::session_owners::SessionOwners;
use super::stand_ins::StandIns;
use super::tasks::v2025::deliveries::Deliveries;
use super::tasks::v2025::native::NativeTools;
use crate::auth::authenticator::Authenticator;
use crate::auth::callers::Callers;
use crate::auth::challenge::Denied;
use crate::auth::identity::Identity;
use crate::auth::public::ResourceMetadata;
use crate::mcp::version::Era;
use crate::runner::Runner;
use crate::sharing::room::BufferBudget;
use crate::sharing::shares::Shares;
use crate::store::key_value::KeyValue;
use crate::store::quota::Quotas;
use crate::upstream::Forwarded;
use crate::upstream::wrapped::Upstream;

/// The settings of the downstream side.
#[derive(Debug, Clone)]
pub struct ProxySettings {
    pub names: Names,
    pub way: ForwardedHeaders,
    /// Where clients know raincheck. `None`: `listen.public_url` is not set.
    pub metadata: Option<ResourceMetadata>,
    /// raincheck may run a call again whose tool the server calls read-only or idempotent.
    pub trust_annotations: bool,
    /// A modern server's own tasks are the client's business.
    pub pass_native_tasks: bool,
}

/// The settings of the downstream side that change while it serves. Each means something by itself, so that a request may
/// see one of them changed and another one not yet.
#[derive(Debug)]
pub struct LiveSettings {
    pub body_bytes_max: AtomicUsize,
    pub listen_task_ids_max: AtomicUsize,
    /// Each request has a line in the log.
    pub access_log: AtomicBool,
}

impl LiveSettings {
    pub(super) fn body_bytes_max(&self) -> usize {
        self.body_bytes_max.load(Ordering::Relaxed)
    }

    pub(super) fn listen_task_ids_max(&self) -> usize {
        self.listen_task_ids_max.load(Ordering::Relaxed)
    }

    pub(super) fn has_access_log(&self) -> bool {
        self.access_log.load(Ordering::Relaxed)
    }
}

/// Everything that a request needs.
#[derive(Debug)]
pub struct Proxy {
    pub runner: Arc<Runner>,
    pub upstream: Arc<Upstream>,
    pub callers: Callers,
    /// The shares that one caller may have at the same time, where clients must identify themselves.
    pub fair: Option<FairShares>,
    pub held_polls: HeldPolls,
    /// `Some`: each request must carry a credential.
    pub auth: Option<Arc<Authenticator>>,
    pub settings: ProxySettings,
    pub live: Arc<LiveSettings>,
    /// The memory for bodies from clients and answers to them.
    pub room: Arc<BufferBudget>,
    /// Cancelled when streams that have no end of their own must end.
    pub closing: CancellationToken,
    /// The answers that pass through now.
    pub passing: TaskTracker,
    /// Cancelled shortly before a drain is over: the answers that still pass must end.
    pub passing_ends: CancellationToken,
    /// The calls of legacy sessions that run here, by the clients' ids.
    pub calls: CallRegistry,
    /// The cancels of calls that may run on other replicas.
    pub cancels: Quotas,
    /// The answers to questions that may have been asked by other replicas.
    pub answers: Quotas,
    /// raincheck's own messages for the GET streams of legacy sessions that are open here.
    pub mailboxes: Arc<Mailboxes>,
    /// The values that are kept for clients beside their tasks.
    pub kv: KeyValue,
    /// The sessions that are notified of their tasks on those streams.
    pub deliveries: Arc<Deliveries>,
    pub native_tools: Arc<NativeTools>,
    pub agreed: AgreedVersions,
    /// Which known client has which session.
    pub session_clients: SessionClients,
    pub session_owners: SessionOwners,
    /// The logs of calls that run here and outlive a dropped connection.
    pub resumable: Arc<ResumableCalls>,
    pub session_lifetimes: Lifetimes,
    pub stand_ins: StandIns,
    /// The event of raincheck's own. `None`: events are switched off.
    pub events: Option<Arc<Events>>,
    /// The tools for clients without Tasks. `None`: they are switched off.
    pub companion: Option<Companion>,
}

/// The shares that each caller has now of this process.
#[derive(Debug)]
pub struct FairShares {
    /// Requests under way, streams among them.
    pub requests: Arc<Shares>,
    /// Bytes of large requests.
    pub bytes: Arc<Shares>,
}

impl Proxy {
    pub(super) fn passes_native_tasks(&self) -> bool {
        self.settings.pass_native_tasks && self.upstream.known_era() == Some(Era::Modern)
    }

    /// Which clients raincheck offers its event to, and whether this client is one of them.
    pub(super) fn events_for(&self, by: &Requester) -> EventsFor<'_> {
        match &self.events {
            None => EventsFor::Nobody,
            Some(events) if by.has_credentials => EventsFor::ThisClient(events),
            Some(_) => EventsFor::Others,
        }
    }

    /// The companion tools, if this client has them.
    pub(super) fn companion_of(&self, by: &Requester) -> Option<&Companion> {
        let companion = self.companion.as_ref()?;
        companion.is_for(by.client, by.era).then_some(companion)
    }

    /// The requester of a request, whose client is of that era.
    pub(super) fn requester(
        &self,
        parts: &Parts,
        era: Era,
        client: Option<Arc<Identity>>,
    ) -> Requester {
        let credentials = self.upstream.credentials(&parts.headers);
        let by = Requester::of(
            &self.callers,
            parts,
            era,
            client,
            credentials,
            self.runner.rules(),
        );
        Requester {
            query: self.upstream.forwarded_query(parts.uri.query()),
            ..by
        }
    }

    /// The refusal of a request without a good credential.
    pub(super) fn denied(&self, why: Denied, auth: &Authenticator) -> Response<Body> {
        let rules = self.runner.rules();
        response::denied(why, auth.challenge(), &rules.defaults().scopes)
    }

    /// The headers and parameters of a carried request that go to the server.
    pub(super) fn forwarded(&self, by: &Requester, headers: &HeaderMap) -> Forwarded {
        Forwarded {
            credentials: by.credentials.clone(),
            headers: self.upstream.client_headers(headers),
            query: by.query.clone(),
        }
    }
}
