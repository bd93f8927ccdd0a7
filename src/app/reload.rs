//! Takes over changed settings, certificates and tokens while raincheck serves: all of them, or none.
//!
//! Everything is read and checked first. Only then, and without anything that could fail, the parts get what is new.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use async_trait::async_trait;
use rustls::{ClientConfig, ServerConfig};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tracing::{error, info};

use super::error::{AppError, line};
use super::live::LiveParts;
use crate::admin::operator::Reloads;
use crate::auth::authenticator::Authenticator;
use crate::auth::tokens::NewTokens;
use crate::base::lock::Mutex;
use crate::config::load::reload;
use crate::config::{ChangedSetting, Config, warnings};
use crate::telemetry::log;
use crate::telemetry::reloads::{self, ReloadOutcome};
use crate::tls::kept::Kept;

/// The setting that a person may also change by `POST /level`.
const LEVEL: &str = "telemetry.log";

/// The parts of the process that can be reloaded. Open connections keep the TLS configuration that they began with;
/// new tokens apply from the next request on.
#[derive(Debug, Clone)]
pub struct Reload(Arc<Reloadable>);

#[derive(Debug)]
struct Reloadable {
    /// The settings that the process runs on.
    running: Mutex<Arc<Config>>,
    /// The parts that receive the new settings. Other parts replace them once, if the store was not available at the
    /// start.
    reloaded: Mutex<Arc<Reloaded>>,
    /// One reload at a time.
    turn: Semaphore,
}

/// The parts that receive new settings.
#[derive(Debug)]
pub(super) struct Reloaded {
    pub(super) parts: LiveParts,
    pub(super) files: ReloadedFiles,
}

/// The values that are made from files, beside the settings.
#[derive(Debug)]
pub(super) struct ReloadedFiles {
    pub(super) listener: Option<Arc<Kept<ServerConfig>>>,
    pub(super) upstream: Option<Arc<Kept<ClientConfig>>>,
    pub(super) auth: Option<Arc<Authenticator>>,
}

/// Everything that was read and checked, and does not count yet.
struct Prepared {
    config: Config,
    listener: Option<Arc<ServerConfig>>,
    upstream: Option<Arc<ClientConfig>>,
    tokens: Option<NewTokens>,
}

impl Reload {
    pub(super) fn new(config: &Config, reloaded: Reloaded) -> Self {
        Self(Arc::new(Reloadable {
            running: Mutex::new(Arc::new(config.clone())),
            reloaded: Mutex::new(Arc::new(reloaded)),
            turn: Semaphore::new(1),
        }))
    }

    /// The settings that the process runs on.
    pub(super) fn running(&self) -> Arc<Config> {
        Arc::clone(&self.0.running.lock())
    }

    /// Builds other parts from the settings that count now, and gives them the reloads from now on. No reload happens in
    /// between.
    pub(super) async fn replace_parts<T>(
        &self,
        build: impl FnOnce(&Config) -> Result<(T, Reloaded), AppError>,
    ) -> Result<T, AppError> {
        // A reload in between would reach only the parts that are about to be replaced.
        let _turn = self.0.turn.acquire().await.map_err(line)?;
        let (built, reloaded) = build(&self.running())?;
        *self.0.reloaded.lock() = Arc::new(reloaded);
        Ok(built)
    }

    /// Reloads everything, and logs each change. `Err`: something has a mistake, and nothing was changed.
    pub async fn all(&self) -> Result<Value, String> {
        let Ok(_turn) = self.0.turn.acquire().await else {
            return Err("raincheck ends".to_owned());
        };
        let this = Arc::clone(&self.0);
        // Files may lie on a disk that is slow.
        let reloading = tokio::task::spawn_blocking(move || this.reload()).await;
        let reloaded = reloading.unwrap_or_else(|_| Err("raincheck ends".to_owned()));
        if let Err(why) = &reloaded {
            reloads::ended(ReloadOutcome::Failed, Some(why));
        }
        reloaded
    }
}

impl Reloadable {
    fn reload(&self) -> Result<Value, String> {
        // The locks are not held while files are read, because `turn` keeps other reloads out.
        let running = Arc::clone(&self.running.lock());
        let reloaded = Arc::clone(&self.reloaded.lock());
        let next = reloaded.prepare(&running)?;
        let changes = running.changes(&next.config);
        let (live, mut after_restart): (Vec<ChangedSetting>, Vec<ChangedSetting>) =
            changes.into_iter().partition(ChangedSetting::is_live);
        // A level that was set by `POST /level` stays as long as the written level does not change.
        let new_level = live.iter().any(|change| change.setting == LEVEL);
        // Of all changes only this one can fail, so it comes first: all or nothing.
        if new_level {
            log::set_filter(&next.config.telemetry.log)?;
        }
        // From here on nothing fails.
        let outgrown = reloaded.parts.apply(&next.config);
        after_restart.extend(outgrown);
        let files = reloaded.replace_files(&next);
        if let (Some(auth), Some(tokens)) = (&reloaded.files.auth, next.tokens) {
            auth.replace_tokens(tokens);
        }
        warnings::log(&next.config);
        // Settings that need a restart stay as they run, so that the next reload reports them again.
        *self.running.lock() = Arc::new(running.with_live(next.config));
        tell(&live, &after_restart, &files);
        let live: Vec<Value> = live
            .iter()
            .map(|it| json!({"setting": it.setting, "before": it.before, "after": it.after}))
            .collect();
        Ok(json!({
            "changed": live,
            "files": files,
            "after_restart": after_restart.iter().map(|it| &it.setting).collect::<Vec<_>>(),
        }))
    }
}

impl Reloaded {
    /// Reads and checks everything. A mistake is an error in the log and no warning: of warnings that repeat only some are
    /// written, and who sends SIGHUP has nothing but the log.
    fn prepare(&self, running: &Config) -> Result<Prepared, String> {
        let mistaken = |error: String| {
            error!(%error, "the settings have a mistake; everything stays as it is");
            error
        };
        let config = reload(&running.source).map_err(|error| mistaken(error.to_string()))?;
        let scopes = config.refuse_unheld_scopes(&running.auth);
        scopes.map_err(|error| mistaken(error.to_string()))?;
        let files = &self.files;
        let listener = files.listener.as_ref().map(|it| it.read()).transpose();
        let upstream = files.upstream.as_ref().map(|it| it.read()).transpose();
        let tokens = files.auth.as_ref().and_then(|auth| auth.reread_tokens());
        Ok(Prepared {
            config,
            listener: listener.map_err(|error| unusable("listen.tls", error))?,
            upstream: upstream.map_err(|error| unusable("upstream.tls", error))?,
            tokens: tokens
                .transpose()
                .map_err(|error| unusable("auth.tokens_file", error))?,
        })
    }

    /// Replaces the certificates. Returns which files were read, those of tokens among them.
    fn replace_files(&self, next: &Prepared) -> BTreeMap<&'static str, &'static str> {
        let mut read = BTreeMap::new();
        if let (Some(kept), Some(next)) = (&self.files.listener, &next.listener) {
            kept.replace(Arc::clone(next));
            read.insert("listen.tls", "read anew");
        }
        if let (Some(kept), Some(next)) = (&self.files.upstream, &next.upstream) {
            kept.replace(Arc::clone(next));
            read.insert("upstream.tls", "read anew");
        }
        if next.tokens.is_some() {
            read.insert("auth.tokens_file", "read anew");
        }
        read
    }
}

#[async_trait]
impl Reloads for Reload {
    async fn reload(&self) -> Result<Value, String> {
        self.all().await
    }

    fn settings(&self) -> Arc<Value> {
        Arc::clone(&self.0.running.lock().shown)
    }
}

fn unusable(section: &'static str, error: impl Display) -> String {
    error!(
        section,
        %error,
        "cannot be used; the old files stay in use, and so do all settings"
    );
    format!("{section}: {error}")
}

/// Writes a line for each change, and counts the reload.
fn tell(live: &[ChangedSetting], after_restart: &[ChangedSetting], files: &BTreeMap<&str, &str>) {
    for ChangedSetting {
        setting,
        before,
        after,
    } in live
    {
        info!(setting, %before, %after, "a setting has changed");
    }
    for change in after_restart {
        let setting = &change.setting;
        // No warning: of warnings that repeat only some are written.
        info!(setting, "a changed setting needs a restart");
    }
    for section in files.keys() {
        info!(section, "read anew");
    }
    if live.is_empty() && after_restart.is_empty() && files.is_empty() {
        info!("reloaded: nothing has changed");
    }
    let is_change = !(live.is_empty() && after_restart.is_empty());
    let outcome = if is_change {
        ReloadOutcome::Changed
    } else {
        ReloadOutcome::Unchanged
    };
    reloads::ended(outcome, None);
}
