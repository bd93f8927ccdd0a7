//! What every front needs: `Front`, one for the process, shared by all connections.

use std::sync::Arc;

use hyper::HeaderMap;
use hyper::http::request::Parts;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::calls::registry::CallRegistry;
use super::calls::resumable::registry::ResumableCalls;
use super::companion::state::Companion;
use super::facade::state::Facade;
use super::inbound::access::Names;
use super::inbound::requester::Requester;
use super::legacy::agreed::Agreed;
use super::legacy::pushes::Pushes;
use super::stand_ins::StandIns;
use super::tasks::v2025::deliveries::Deliveries;
use super::tasks::v2025::native::NativeTools;
use super::way::RequestWay;
use crate::auth::authenticator::Authenticator;
use crate::auth::callers::Callers;
use crate::mcp::version::Era;
use crate::room::BufferBudget;
use crate::runner::Runner;
use crate::store::key_value::KeyValue;
use crate::task::policy::Rules;
use crate::upstream::Forwarded;
use crate::upstream::wrapped::Upstream;

/// What the downstream side is told.
#[derive(Debug, Clone)]
pub struct Settings {
    pub names: Names,
    pub way: RequestWay,
    pub body_bytes_max: usize,
    pub listen_task_ids_max: usize,
    /// What the server calls read-only or idempotent may be run again.
    pub trust_annotations: bool,
    /// A modern server's own tasks are the client's business.
    pub pass_native_tasks: bool,
    /// A rule may refuse a call: what cannot be read for certain is refused, too.
    pub reads_all: bool,
}

/// Everything that a request needs.
#[derive(Debug)]
pub struct Front {
    pub runner: Arc<Runner>,
    pub upstream: Arc<Upstream>,
    pub rules: Arc<Rules>,
    pub callers: Callers,
    /// Where clients must say who they are.
    pub auth: Option<Arc<Authenticator>>,
    pub settings: Settings,
    /// For what is read from clients and written to them.
    pub room: Arc<BufferBudget>,
    /// Cancelled when streams without an end of their own must come to one.
    pub closing: CancellationToken,
    /// The answers that pass through now.
    pub passing: TaskTracker,
    /// The calls of legacy sessions that run here, by the clients' ids.
    pub calls: CallRegistry,
    /// The streams of legacy sessions that are open here.
    pub pushes: Arc<Pushes>,
    /// What is kept for clients beside their tasks.
    pub notes: KeyValue,
    /// Whose tasks are told of on them.
    pub deliveries: Arc<Deliveries>,
    pub native_tools: Arc<NativeTools>,
    pub agreed: Agreed,
    /// The logs of calls that run here and outlive a dropped connection.
    pub resumable: Arc<ResumableCalls>,
    pub facade: Facade,
    pub stand_ins: StandIns,
    /// Tools for clients without Tasks, where they are wanted.
    pub companion: Option<Companion>,
}

/// A front is shared by all connections.
pub(super) type Shared = Arc<Front>;

impl Front {
    pub(super) fn passes_native_tasks(&self) -> bool {
        self.settings.pass_native_tasks && self.upstream.known_era() == Some(Era::Modern)
    }

    /// Who sent a request of a client of that era.
    pub(super) fn requester(&self, parts: &Parts, era: Era) -> Requester {
        let forwards_credentials = self.upstream.forwards_credentials();
        Requester::of(&self.callers, parts, era, forwards_credentials)
    }

    /// What goes to the server of the headers of a client's request that is carried.
    pub(super) fn forwarded(&self, by: &Requester, headers: &HeaderMap) -> Forwarded {
        Forwarded {
            credentials: by.credentials.clone(),
            headers: self.upstream.client_headers(headers),
        }
    }
}
