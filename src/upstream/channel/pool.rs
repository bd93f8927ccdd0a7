//! The lines that translated and modern callers share: of each caller with one set of capabilities,
//! started when they are needed and ended when they are not.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use hyper::header::HeaderValue;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};
use tracing::warn;

use crate::lock::Mutex;
use crate::mcp::error::Failure;
use crate::mcp::tools::Tools;
use crate::mcp::version::Era;
use crate::upstream::cache::Cache;
use crate::upstream::channel::handshake::{START_PATIENCE, agreed};
use crate::upstream::channel::sessions::LineSessions;
use crate::upstream::channel::shared::{MayAsk, SharedLine};
use crate::upstream::channel::source::LineSource;
use crate::upstream::channel::spare::{Bench, Lobby, Spare};
use crate::upstream::failures::UNREACHABLE;
use crate::upstream::no_session::NoSession;
use crate::upstream::port::Outgoing;
use crate::upstream::translate;

/// An unused line is ended after this.
pub(in crate::upstream) const IDLE: Duration = Duration::from_mins(5);

/// Whose line.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::upstream) struct LineKey {
    caller: [u8; 16],
    /// What is declared to a legacy server in its handshake, as JSON. A modern one hears it with
    /// each request, and shares a line whatever its callers can do.
    capabilities: Option<Arc<str>>,
}

impl LineKey {
    pub(in crate::upstream) fn of(era: Era, outgoing: &Outgoing) -> Self {
        Self::new(era, outgoing.caller, &outgoing.capabilities)
    }

    /// The capabilities are a modern client's, as it declares them.
    pub(in crate::upstream) fn new(era: Era, caller: [u8; 16], capabilities: &str) -> Self {
        let capabilities = || translate::legacy_capabilities(capabilities).into();
        Self {
            caller,
            capabilities: (era == Era::Legacy).then(capabilities),
        }
    }

    fn era(&self) -> Era {
        match &self.capabilities {
            Some(_) => Era::Legacy,
            None => Era::Modern,
        }
    }
}

/// How many lines there may be, and who may use one at the same time.
#[derive(Debug, Clone, Copy)]
pub(in crate::upstream) struct LineLimits {
    pub(in crate::upstream) lines_max: usize,
    /// For a line to end, where all are in use.
    pub(in crate::upstream) wait: Duration,
    pub(in crate::upstream) sharing: Sharing,
}

/// Whether a call in whose course the server may ask shares its line with others like it. A
/// question on the line names none of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum Sharing {
    /// Where it holds state.
    Always,
    /// For what is dear, as a process is: a call whose client was asked has it to itself, because
    /// what comes next names no call either, and one that was cancelled may still ask, while another
    /// line may be started.
    UntilAsked,
    /// Where no other line may be started.
    AtTheLimit,
}

#[derive(Debug, Default)]
struct LineSlot {
    line: OnceCell<Arc<SharedLine>>,
    /// Calls that may be asked, from before the line is there.
    claims: AtomicUsize,
    /// For the first who starts the line.
    permit: Mutex<Option<OwnedSemaphorePermit>>,
}

impl LineSlot {
    fn is_over(&self) -> bool {
        self.line.get().is_some_and(|line| !line.is_open())
    }

    /// No question on it could be another call's.
    fn is_free(&self) -> bool {
        self.claims.load(Ordering::Relaxed) == 0
            && self.line.get().is_none_or(|line| line.is_free())
    }

    fn is_asking(&self) -> bool {
        self.line.get().is_some_and(|line| line.is_asking())
    }

    fn is_doubtful(&self) -> bool {
        self.line.get().is_some_and(|line| line.is_doubtful())
    }

    fn unused_since(&self) -> Option<Instant> {
        let line = self.line.get().filter(|line| line.is_open())?;
        let is_claimed = self.claims.load(Ordering::Relaxed) > 0;
        line.unused_since().filter(|_| !is_claimed)
    }
}

/// A line, and for a call that may be asked its place there.
pub(in crate::upstream) struct HeldLine {
    pub(in crate::upstream) line: Arc<SharedLine>,
    pub(in crate::upstream) claim: Option<LineClaim>,
}

/// Dropped when the call is over.
pub(in crate::upstream) struct LineClaim(Arc<LineSlot>);

impl LineClaim {
    fn on(slot: &Arc<LineSlot>) -> Self {
        slot.claims.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(slot))
    }
}

impl Drop for LineClaim {
    fn drop(&mut self) {
        self.0.claims.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(in crate::upstream) struct LinePool {
    pub(in crate::upstream) source: LineSource,
    pub(super) sessions: LineSessions,
    /// A process that no caller uses yet.
    pub(super) bench: Bench,
    by_key: Mutex<HashMap<LineKey, Vec<Arc<LineSlot>>>>,
    /// Lines of all kinds; each holds one until nothing is left of it.
    permits: Arc<Semaphore>,
    limits: LineLimits,
    /// Lines for calls that were begun.
    starts: AtomicUsize,
    pub(in crate::upstream) tools: Arc<Cache<Tools>>,
}

impl LinePool {
    pub(in crate::upstream) fn new(source: LineSource, limits: LineLimits) -> Self {
        Self {
            source,
            sessions: LineSessions::default(),
            bench: Bench::default(),
            by_key: Mutex::default(),
            permits: Arc::new(Semaphore::new(limits.lines_max)),
            limits,
            starts: AtomicUsize::new(0),
            tools: Arc::default(),
        }
    }

    fn by_key(&self) -> MutexGuard<'_, HashMap<LineKey, Vec<Arc<LineSlot>>>> {
        self.by_key.lock()
    }

    /// A line of that key, started by one of all who want it. It may have ended by the time it is
    /// used. Dropped before it resolves, the start goes on: the next may have it.
    pub(in crate::upstream) async fn get(
        self: &Arc<Self>,
        key: &LineKey,
        asks: MayAsk,
        credentials: Option<&HeaderValue>,
    ) -> Result<HeldLine, NoSession> {
        let SlotClaim { slot, claim } = self.place(key, asks);
        if let Some(line) = slot.line.get() {
            let line = Arc::clone(line);
            return Ok(HeldLine { line, claim });
        }
        let (this, key, credentials) = (Arc::clone(self), key.clone(), credentials.cloned());
        let opening = self.source.services().spawn(async move {
            let opening = || Box::pin(this.open(&key, &slot, credentials.as_ref()));
            let opened = slot.line.get_or_try_init(opening).await.cloned();
            this.keep_or_forget(&key, &slot);
            opened
        });
        let line = opening
            .await
            .map_err(|_| NoSession::Failed(UNREACHABLE))??;
        Ok(HeldLine { line, claim })
    }

    /// The slot to use, and the place there: both in one step, so that no two calls find the same
    /// line free.
    fn place(&self, key: &LineKey, asks: MayAsk) -> SlotClaim {
        let mut by_key = self.by_key();
        let slots = by_key.entry(key.clone()).or_default();
        slots.retain(|slot| !slot.is_over());
        let fits = |slot: &&Arc<LineSlot>| match self.limits.sharing {
            Sharing::Always => true,
            // A server that waits for its client may answer no other call meanwhile.
            _ if asks == MayAsk::Never => !slot.is_asking(),
            Sharing::UntilAsked => !slot.is_asking() && !slot.is_doubtful(),
            Sharing::AtTheLimit => slot.is_free(),
        };
        // What runs may hold up what comes after it.
        let free = slots
            .iter()
            .find(|slot| asks == MayAsk::Never && slot.is_free());
        let slot = match free.or_else(|| slots.iter().find(fits)).cloned() {
            Some(slot) => slot,
            None => match self.try_permit() {
                Some(permit) => {
                    let permit = Mutex::new(Some(permit));
                    let slot = LineSlot {
                        permit,
                        ..LineSlot::default()
                    };
                    push(slots, slot)
                }
                // It has one already.
                None if self.bench.fits(key.era()) => push(slots, LineSlot::default()),
                None => match slots
                    .iter()
                    .min_by_key(|slot| slot.claims.load(Ordering::Relaxed))
                {
                    Some(least) => {
                        let least = Arc::clone(least);
                        // There will be room for the next. A process holds state, and one that is
                        // only doubtful is not ended for it.
                        let is_dear = self.limits.sharing == Sharing::UntilAsked;
                        let _kept = is_dear.then(|| LineClaim::on(&least));
                        close_unused_longest(&by_key);
                        least
                    }
                    None => push(slots, LineSlot::default()),
                },
            },
        };
        let claim = (asks == MayAsk::Maybe).then(|| LineClaim::on(&slot));
        SlotClaim { slot, claim }
    }

    pub(in crate::upstream) fn starts(&self) -> usize {
        self.starts.load(Ordering::Relaxed)
    }

    fn try_permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.permits).try_acquire_owned().ok()
    }

    /// A line of that caller that is there already, whatever was declared on it.
    pub(in crate::upstream) fn any_of(&self, caller: [u8; 16]) -> Option<Arc<SharedLine>> {
        let by_key = self.by_key();
        let own = by_key.iter().filter(|(key, _)| key.caller == caller);
        let mut lines = own
            .flat_map(|(_, slots)| slots)
            .filter_map(|slot| slot.line.get());
        lines.find(|line| line.is_open()).cloned()
    }

    /// Removes a slot whose line could not be started, and puts back a slot whose line was started for a
    /// caller that waited longer.
    fn keep_or_forget(&self, key: &LineKey, slot: &Arc<LineSlot>) {
        let mut by_key = self.by_key();
        let slots = by_key.entry(key.clone()).or_default();
        let at = slots.iter().position(|kept| Arc::ptr_eq(kept, slot));
        match (slot.line.get(), at) {
            (None, Some(at)) => drop(slots.swap_remove(at)),
            (Some(_), None) => slots.push(Arc::clone(slot)),
            (None, None) | (Some(_), Some(_)) => {}
        }
        if slots.is_empty() {
            by_key.remove(key);
        }
    }

    async fn open(
        &self,
        key: &LineKey,
        slot: &LineSlot,
        credentials: Option<&HeaderValue>,
    ) -> Result<Arc<SharedLine>, NoSession> {
        let own = slot.permit.lock().take();
        if let Some(line) = self.go_on(key).await {
            return Ok(line);
        }
        let permit = match own {
            Some(permit) => permit,
            None => self.permit().await?,
        };
        self.starts.fetch_add(1, Ordering::Relaxed);
        let capabilities = key.capabilities.clone();
        let declared = capabilities.clone().unwrap_or_else(|| "{}".into());
        let tools = Arc::clone(&self.tools);
        let start = self.source.start(permit, credentials, |writer| {
            SharedLine::new(writer, declared, tools)
        });
        agreed(start.await?, capabilities).await
    }

    /// With the spare process. `None`: there is none, or it cannot be gone on with.
    async fn go_on(&self, key: &LineKey) -> Option<Arc<SharedLine>> {
        let lobby = self.take_spare(key.era()).await?;
        let capabilities = key.capabilities.clone();
        let declared = capabilities.clone().unwrap_or_else(|| "{}".into());
        let tools = Arc::clone(&self.tools);
        let line =
            lobby.hand_over(|writer, first| SharedLine::after(first, writer, declared, tools))?;
        // What it heard before it may not bear.
        let agreed = agreed(line, capabilities).await.ok()?;
        self.starts.fetch_add(1, Ordering::Relaxed);
        Some(agreed)
    }

    /// The spare process, for one who speaks that era to it.
    pub(super) async fn take_spare(&self, era: Era) -> Option<Arc<Lobby>> {
        self.bench.take(era, START_PATIENCE).await
    }

    /// A process that is asked for the era, or has heard nothing yet.
    pub(super) async fn start_lobby(&self) -> Result<Arc<Lobby>, NoSession> {
        let permit = self.permit().await?;
        let tools = Arc::clone(&self.tools);
        let start = self.source.start(permit, None, |writer| {
            Lobby::new(SharedLine::new(writer, "{}".into(), tools))
        });
        start.await
    }

    /// Starts a process of which it is not known yet for whom.
    pub(in crate::upstream) async fn start_spare(&self) {
        if let Some(turn) = self.bench.try_turn()
            && let Ok(lobby) = self.start_lobby().await
        {
            turn.put(Spare::new(lobby, None));
        }
    }

    /// The right to one more line. Where all are in use, the one that was unused for longest makes
    /// room; a client's session holds state, and does so only where no other line is unused.
    pub(in crate::upstream) async fn permit(&self) -> Result<OwnedSemaphorePermit, Failure> {
        if let Some(permit) = self.try_permit() {
            return Ok(permit);
        }
        let has_room =
            self.bench.close_unused(Duration::ZERO) || close_unused_longest(&self.by_key());
        if !has_room {
            self.sessions.make_room();
        }
        let waiting = Arc::clone(&self.permits).acquire_owned();
        let Ok(waited) = timeout(self.limits.wait, waiting).await else {
            let (setting, lines) = (self.source.limit(), self.limits.lines_max);
            warn!(
                setting,
                lines, "all lines to the server are in use, and none became free in time"
            );
            return Err(UNREACHABLE);
        };
        waited.map_err(|_| UNREACHABLE)
    }

    /// Ends lines that were unused for so long, and forgets those that have ended.
    pub(in crate::upstream) fn close_unused(&self, idle: Duration) {
        let now = Instant::now();
        self.bench.close_unused(idle);
        self.by_key().retain(|_, slots| {
            slots.retain(|slot| {
                let unused = slot.unused_since();
                if unused.is_some_and(|since| now.saturating_duration_since(since) >= idle)
                    && let Some(line) = slot.line.get()
                {
                    line.close();
                }
                !slot.is_over()
            });
            !slots.is_empty()
        });
    }

    /// Ends all, and waits until nothing is left of any line, for a bounded time.
    pub(in crate::upstream) async fn stop(&self, patience: Duration) {
        self.source.stop().cancel();
        let lines_max = u32::try_from(self.limits.lines_max).unwrap_or(u32::MAX);
        let all = self.permits.acquire_many(lines_max);
        let _ = timeout(patience, all).await;
        // Callers that still wait for a line get none.
        self.permits.close();
    }
}

struct SlotClaim {
    slot: Arc<LineSlot>,
    claim: Option<LineClaim>,
}

fn push(slots: &mut Vec<Arc<LineSlot>>, slot: LineSlot) -> Arc<LineSlot> {
    let slot = Arc::new(slot);
    slots.push(Arc::clone(&slot));
    slot
}

/// False where all are in use.
fn close_unused_longest(by_key: &HashMap<LineKey, Vec<Arc<LineSlot>>>) -> bool {
    let slots = by_key.values().flatten();
    let unused = slots.filter_map(|slot| Some((slot.unused_since()?, slot.line.get()?)));
    let longest = unused.min_by_key(|(since, _)| *since);
    if let Some((_, line)) = longest {
        line.close();
    }
    longest.is_some()
}
