//! The children that translated and modern callers share: one for each caller with one set of
//! capabilities, started when it is needed and ended when it is not. While a call on it asks its
//! client something, calls that may ask as well have another one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use super::channel::{Asks, Channel, Said};
use super::child::Nursery;
use super::exchange::ask;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::json::{Object, Writer, string};
use crate::mcp::tools::Tools;
use crate::mcp::version::{Era, LEGACY_NEWEST};
use crate::upstream::cache::Cache;
use crate::upstream::sessions::NoSession;
use crate::upstream::settings::SessionMode;
use crate::upstream::wrapped::Discovered;
use crate::upstream::{Outgoing, UpstreamError, translate};

/// An unused child is ended after this.
pub(super) const IDLE: Duration = Duration::from_mins(5);

/// How long a server's handshake may take: `npx -y` may have to fetch it first.
pub(super) const START_PATIENCE: Duration = Duration::from_mins(1);

/// Whose child.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    caller: [u8; 16],
    /// What is declared to a legacy server in its handshake, as JSON. A modern one hears it with
    /// each request, and is one child whatever its callers can do.
    capabilities: Option<Arc<str>>,
}

impl Key {
    pub(super) fn of(era: Era, outgoing: &Outgoing) -> Self {
        Self::new(era, outgoing.caller, &outgoing.capabilities)
    }

    /// The capabilities are a modern client's, as it declares them.
    pub(super) fn new(era: Era, caller: [u8; 16], capabilities: &str) -> Self {
        let capabilities = || translate::legacy_capabilities(capabilities).into();
        Self {
            caller,
            capabilities: (era == Era::Legacy).then(capabilities),
        }
    }
}

type Slot = Arc<OnceCell<Arc<Channel>>>;

/// Never an empty list. As many in all as there are processes, and starts that wait for one.
type ByKey = HashMap<Key, Vec<Slot>>;

#[derive(Debug)]
pub(super) struct Children {
    pub(super) nursery: Arc<Nursery>,
    by_key: Mutex<ByKey>,
    /// Processes of all kinds; each holds one until nothing is left of it.
    permits: Arc<Semaphore>,
    processes_max: u32,
    /// For a process to end, where all are in use.
    wait: Duration,
    session: SessionMode,
    pub(super) tools: Arc<Cache<Tools>>,
}

const UNREACHABLE: Failure = Failure {
    reason: Reason::UpstreamUnreachable,
    effect: SideEffect::None,
};

impl Children {
    pub(super) fn new(
        nursery: Arc<Nursery>,
        children_max: usize,
        wait: Duration,
        session: SessionMode,
    ) -> Self {
        Self {
            nursery,
            by_key: Mutex::default(),
            permits: Arc::new(Semaphore::new(children_max)),
            processes_max: u32::try_from(children_max).unwrap_or(u32::MAX),
            wait,
            session,
            tools: Arc::default(),
        }
    }

    fn by_key(&self) -> MutexGuard<'_, ByKey> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A child of that key for such a request, started by one of all who want it. It may have ended
    /// by the time it is used. Dropped before it resolves, the start goes on: the next may have it.
    pub(super) async fn get(
        self: &Arc<Self>,
        key: &Key,
        asks: Asks,
    ) -> Result<Arc<Channel>, NoSession> {
        let slot = self.slot(key, asks);
        if let Some(channel) = slot.get() {
            return Ok(Arc::clone(channel));
        }
        let (this, key, own) = (Arc::clone(self), key.clone(), Arc::clone(&slot));
        let opening = self.nursery.services.spawn(async move {
            let opened = own.get_or_try_init(|| Box::pin(this.open(&key))).await;
            if opened.is_err() {
                this.forget(&key, &own);
            }
            opened.cloned()
        });
        opening.await.map_err(|_| NoSession::Failed(UNREACHABLE))?
    }

    /// What names no call is said of the only one that may be meant: a call whose client was asked
    /// shares its child only where there is no room for another, or all shall share one.
    fn slot(&self, key: &Key, asks: Asks) -> Slot {
        let mut by_key = self.by_key();
        let slots = by_key.entry(key.clone()).or_default();
        slots.retain(|slot| slot.get().is_none_or(|channel| channel.is_open()));
        let is_asking = |slot: &Slot| slot.get().is_some_and(|channel| channel.is_asking());
        let mut fitting = slots.iter();
        if let Some(slot) = fitting.find(|slot| asks == Asks::Never || !is_asking(slot)) {
            return Arc::clone(slot);
        }
        let first = slots.first().cloned();
        let has_room = || self.permits.available_permits() > 0 || unused(&by_key).next().is_some();
        let may_have_another = self.session == SessionMode::Pool && has_room();
        match first {
            Some(first) if !may_have_another => first,
            _ => {
                let slot = Slot::default();
                by_key
                    .entry(key.clone())
                    .or_default()
                    .push(Arc::clone(&slot));
                slot
            }
        }
    }

    /// A child of that caller that runs already, whatever was declared to it.
    pub(super) fn any_of(&self, caller: [u8; 16]) -> Option<Arc<Channel>> {
        let by_key = self.by_key();
        let own = by_key.iter().filter(|(key, _)| key.caller == caller);
        let mut channels = own
            .flat_map(|(_, slots)| slots)
            .filter_map(|slot| slot.get());
        channels.find(|channel| channel.is_open()).cloned()
    }

    fn forget(&self, key: &Key, slot: &Slot) {
        let mut by_key = self.by_key();
        if let Some(slots) = by_key.get_mut(key) {
            slots.retain(|kept| !(Arc::ptr_eq(kept, slot) && kept.get().is_none()));
            if slots.is_empty() {
                by_key.remove(key);
            }
        }
    }

    async fn open(&self, key: &Key) -> Result<Arc<Channel>, NoSession> {
        let permit = self.permit().await?;
        let capabilities = key.capabilities.clone();
        let declared = capabilities.clone().unwrap_or_else(|| "{}".into());
        let tools = Arc::clone(&self.tools);
        let start = self
            .nursery
            .start(permit, |mouth| Channel::new(mouth, declared, tools));
        let channel = start.await?;
        if let Some(capabilities) = capabilities {
            let shaken = timeout(START_PATIENCE, handshake(&channel, &capabilities)).await;
            let shaken = shaken.unwrap_or(Err(NoSession::Failed(UNREACHABLE)));
            if let Err(why) = shaken {
                channel.close();
                return Err(why);
            }
        }
        Ok(channel)
    }

    /// The right to one more process. Where all are in use, the one that was unused for longest
    /// makes room.
    pub(super) async fn permit(&self) -> Result<OwnedSemaphorePermit, Failure> {
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            return Ok(permit);
        }
        self.close_unused_longest();
        let waiting = Arc::clone(&self.permits).acquire_owned();
        let waited = timeout(self.wait, waiting).await;
        waited.ok().and_then(Result::ok).ok_or(UNREACHABLE)
    }

    fn close_unused_longest(&self) {
        let by_key = self.by_key();
        if let Some((_, channel)) = unused(&by_key).min_by_key(|(since, _)| *since) {
            channel.close();
        }
    }

    /// Ends what nobody has used for so long, and forgets what has ended.
    pub(super) fn close_unused(&self, idle: Duration) {
        let now = Instant::now();
        let mut by_key = self.by_key();
        for (since, channel) in unused(&by_key) {
            if now.saturating_duration_since(since) >= idle {
                channel.close();
            }
        }
        by_key.retain(|_, slots| {
            slots.retain(|slot| slot.get().is_none_or(|channel| channel.is_open()));
            !slots.is_empty()
        });
    }

    /// Ends all, and waits until nothing is left of any process, for a bounded time.
    pub(super) async fn stop(&self, patience: Duration) {
        self.nursery.stop.cancel();
        let all = self.permits.acquire_many(self.processes_max);
        let _ = timeout(patience, all).await;
        // Whoever waits for a process gets none.
        self.permits.close();
    }
}

/// The running children that nobody uses, and since when.
fn unused(by_key: &ByKey) -> impl Iterator<Item = (Instant, &Arc<Channel>)> {
    let channels = by_key.values().flatten().filter_map(|slot| slot.get());
    channels
        .filter(|channel| channel.is_open())
        .filter_map(|channel| channel.unused_since().map(|since| (since, channel)))
}

/// A legacy server is told who we are, and says who it is.
async fn handshake(channel: &Arc<Channel>, capabilities: &str) -> Result<(), NoSession> {
    let mut params = Writer::object();
    params
        .str("protocolVersion", LEGACY_NEWEST)
        .raw("capabilities", capabilities)
        .raw("clientInfo", &translate::client_info());
    let invalid = || NoSession::Failed(Failure::new(Reason::UpstreamInvalid, SideEffect::None));
    let result = match ask(channel, "initialize", &params.end()).await {
        Said::Result(result) => result,
        Said::Error(error) => {
            return Err(NoSession::Error(UpstreamError {
                error,
                status: 200,
                www_authenticate: None,
            }));
        }
        Said::Failed(_) => return Err(NoSession::Failed(UNREACHABLE)),
        Said::Progress(_) | Said::Log(_) | Said::Notice(_) | Said::Question(_) => {
            return Err(invalid());
        }
    };
    let object = Object::parse(result.get()).map_err(|_| invalid())?;
    object
        .get("protocolVersion")
        .and_then(string)
        .ok_or_else(invalid)?;
    let member = |key| object.get(key).map(ToOwned::to_owned);
    let described = Discovered {
        capabilities: member("capabilities").ok_or_else(invalid)?,
        server_info: member("serverInfo"),
        instructions: member("instructions"),
        supported_versions: None,
    };
    // The first and only one.
    let _ = channel.described.set(Arc::new(described));
    let ready = translate::notification("notifications/initialized", "{}");
    channel.tell(ready).await;
    Ok(())
}
