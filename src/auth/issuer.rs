//! An issuer of tokens: the requirements for its tokens, and its keys, which one job of the process fetches and
//! keeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tracing::{info, warn};

use super::algorithm::Algorithm;
use super::challenge::Denied;
use super::fetch::{FetchError, KeysAddress, PATIENCE};
use super::jwt::{Expected, TokenFault, Unverified, Verified};
use super::keys::KeySet;
use super::refetch::{self, RefetchBudget};
use crate::base::clock::Clock;
use crate::base::io_reason::with_causes;
use crate::base::lock::Mutex;

/// The requirements for the tokens of an issuer.
#[derive(Debug, Clone)]
pub struct IssuerSettings {
    /// Exactly as tokens write it.
    pub issuer: Box<str>,
    /// A token must be for one of these.
    pub audience: Box<[Box<str>]>,
    pub algorithms: Box<[Algorithm]>,
    /// Claims that are part of who the client is, beside issuer and subject.
    pub caller_claims: Box<[Box<str>]>,
    /// The claim with the name that operators know the client by.
    pub label_claim: Option<Box<str>>,
    pub keys: KeysAddress,
}

/// An issuer and its keys.
#[derive(Debug)]
pub(super) struct Issuer {
    settings: IssuerSettings,
    clock: Arc<dyn Clock>,
    state: Mutex<IssuerState>,
    /// Counts changes of the keys: what was verified by other keys is verified anew.
    generation: AtomicU64,
    /// When the keys were fetched, in Unix milliseconds. 0: never.
    fetched_ms: AtomicU64,
    /// Asks the job to fetch now.
    wanted: Notify,
    /// Counts attempts that came to an end.
    attempts: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct IssuerState {
    keys: Option<Arc<KeySet>>,
    budget: RefetchBudget,
    /// A fetch was asked for and has not come to its end.
    is_asked: bool,
}

impl Issuer {
    pub(super) fn new(settings: IssuerSettings, clock: Arc<dyn Clock>) -> Self {
        Self {
            settings,
            clock,
            state: Mutex::default(),
            generation: AtomicU64::new(0),
            fetched_ms: AtomicU64::new(0),
            wanted: Notify::new(),
            attempts: watch::Sender::new(0),
        }
    }

    /// The claim `iss` of its tokens.
    pub(super) fn name(&self) -> &str {
        &self.settings.issuer
    }

    /// Returns the number that distinguishes the present keys from others. `None`: no keys are valid now.
    pub(super) fn generation(&self, now_ms: u64) -> Option<u64> {
        let fetched_ms = self.fetched_ms.load(Ordering::Acquire);
        let counts = fetched_ms > 0 && refetch::counts(fetched_ms, now_ms);
        counts.then(|| self.generation.load(Ordering::Acquire))
    }

    /// Verifies a token. If no key has the id that the token names, the keys are fetched before the token is refused.
    pub(super) async fn verify(
        &self,
        token: &Unverified<'_>,
        now_ms: u64,
    ) -> Result<(Verified, u64), Denied> {
        for is_last in [false, true] {
            let Some((keys, generation)) = self.keys(now_ms) else {
                return Err(Denied::Unjudged);
            };
            if let Some(signer) = keys.signer(token.key_id.as_deref()) {
                let verified = token.verify(signer, &self.expected(), now_ms);
                let verified = verified.map_err(|TokenFault(why)| Denied::Invalid(why))?;
                return Ok((verified, generation));
            }
            // A token without a key id gives no sign that a key is missing, so it causes no fetch.
            if is_last || token.key_id.is_none() || !self.fetch_for_stranger(now_ms).await {
                break;
            }
        }
        Err(Denied::Invalid("the token is signed with an unknown key"))
    }

    fn expected(&self) -> Expected<'_> {
        Expected {
            audience: &self.settings.audience,
            caller_claims: &self.settings.caller_claims,
            label_claim: self.settings.label_claim.as_deref(),
        }
    }

    fn keys(&self, now_ms: u64) -> Option<(Arc<KeySet>, u64)> {
        // Keys and generation change under this lock, so the two that are read here belong together.
        let state = self.state.lock();
        let generation = self.generation(now_ms)?;
        Some((Arc::clone(state.keys.as_ref()?), generation))
    }

    /// Has the keys fetched because of a token that anybody may have made up. All who ask meanwhile wait for the one fetch.
    /// The job fetches, not the request, so that a client that goes away stops nothing. False: there were too many.
    async fn fetch_for_stranger(&self, now_ms: u64) -> bool {
        let mut attempts = self.attempts.subscribe();
        {
            let mut state = self.state.lock();
            // Under the lock, so that an attempt that ended before does not count as the one asked for here.
            attempts.mark_unchanged();
            if !state.is_asked {
                if !state.budget.take(now_ms) {
                    return false;
                }
                state.is_asked = true;
                self.wanted.notify_one();
            }
        }
        let ended = tokio::time::timeout(2 * PATIENCE, attempts.changed()).await;
        matches!(ended, Ok(Ok(())))
    }

    /// Resolves once keys were fetched for the first time.
    pub(super) async fn ready(&self) {
        // Before the first look, so that a fetch that ends in between is not missed.
        let mut attempts = self.attempts.subscribe();
        while self.fetched_ms.load(Ordering::Acquire) == 0 {
            if attempts.changed().await.is_err() {
                return;
            }
        }
    }

    /// Fetches the keys: at once, when they are asked for, and before they are old. Runs as long as the process.
    pub(super) async fn keep_keys(&self) {
        let mut failures = 0_u32;
        let mut told = String::new();
        loop {
            match self.fetch_once().await {
                Ok(()) => {
                    failures = 0;
                    told.clear();
                }
                Err(error) => {
                    failures = failures.saturating_add(1);
                    let failure = with_causes(&error);
                    // Each failure is logged once, because an issuer that is away must not fill the log.
                    if failure != told {
                        let issuer = self.name();
                        warn!(issuer, %failure, "the keys of an issuer cannot be fetched; the last ones count for a day");
                        told = failure;
                    }
                }
            }
            let pause = Duration::from_millis(refetch::pause_ms(failures));
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.wanted.notified() => {}
            }
        }
    }

    async fn fetch_once(&self) -> Result<(), FetchError> {
        let fetched = self.settings.keys.fetch().await;
        let fetched = fetched.and_then(|text| {
            let keys = KeySet::parse(&text, &self.settings.algorithms);
            keys.ok_or(FetchError::NoKeys)
        });
        let now_ms = self.clock.now_ms();
        let mut state = self.state.lock();
        // Also after a failure, so that the next unknown key can ask again, within the budget.
        state.is_asked = false;
        let outcome = fetched.map(|keys| {
            let is_first = self.fetched_ms.swap(now_ms.max(1), Ordering::AcqRel) == 0;
            let before = state.keys.as_ref().map(|keys| keys.digest);
            // Equal keys keep their generation: otherwise each refresh would verify all tokens again.
            if before != Some(keys.digest) {
                self.generation.fetch_add(1, Ordering::AcqRel);
                let issuer = self.name();
                let message = if is_first {
                    "the keys of an issuer were fetched"
                } else {
                    "the keys of an issuer have changed"
                };
                info!(issuer, "{message}");
            }
            state.keys = Some(Arc::new(keys));
        });
        // Released first, because the requests that wake up take this lock at once.
        drop(state);
        self.attempts
            .send_modify(|attempts| *attempts = attempts.wrapping_add(1));
        outcome
    }
}

/// Fetches the keys of an issuer and returns the number of usable ones, for `raincheck check`. An error is one line.
pub async fn try_fetch(settings: &IssuerSettings) -> Result<usize, String> {
    let text = settings
        .keys
        .fetch()
        .await
        .map_err(|error| with_causes(&error))?;
    let keys = KeySet::parse(&text, &settings.algorithms);
    keys.map(|keys| keys.len())
        .ok_or_else(|| FetchError::NoKeys.to_string())
}
