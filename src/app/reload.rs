//! Reloads the settings, the TLS files and the file of tokens while raincheck serves.
//!
//! The settings come first: if they have a mistake, nothing is reloaded. Of the settings only the level of the log changes
//! while raincheck runs; the others are named, because they apply after a restart.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use async_trait::async_trait;
use rustls::{ClientConfig, ServerConfig};
use serde_json::{Value, json};
use tracing::{info, warn};

use crate::admin::operator::Reloads;
use crate::auth::authenticator::Authenticator;
use crate::config::Config;
use crate::config::load::{Source, reload};
use crate::lock::Mutex;
use crate::telemetry::log;
use crate::tls::kept::Kept;

/// The setting that a reload changes.
const LEVEL: &str = "telemetry.log";

/// What can be reloaded. Open connections keep the TLS configuration that they began with; new tokens apply
/// from the next request on.
#[derive(Debug, Clone)]
pub struct Reload {
    source: Source,
    /// The settings as they were last read.
    settings: Arc<Mutex<Arc<Value>>>,
    listener: Option<Arc<Kept<ServerConfig>>>,
    upstream: Option<Arc<Kept<ClientConfig>>>,
    auth: Option<Arc<Authenticator>>,
}

impl Reload {
    pub(super) fn new(
        config: &Config,
        listener: Option<Arc<Kept<ServerConfig>>>,
        upstream: Option<Arc<Kept<ClientConfig>>>,
        auth: Option<Arc<Authenticator>>,
    ) -> Self {
        Self {
            source: config.source.clone(),
            settings: Arc::new(Mutex::new(Arc::clone(&config.shown))),
            listener,
            upstream,
            auth,
        }
    }

    /// Whether clients must say who they are.
    pub(super) fn has_auth(&self) -> bool {
        self.auth.is_some()
    }

    /// Reloads everything and logs it. If a file cannot be used, what it had before stays. `Err`: the settings have a
    /// mistake, and nothing was reloaded.
    pub async fn all(&self) -> Result<Value, String> {
        let restart = self.settings().inspect_err(|error| {
            warn!(%error, "the settings have a mistake; everything stays as it is");
        })?;
        let mut files = BTreeMap::new();
        if let Some(listener) = &self.listener {
            files.insert("listen.tls", tell("listen.tls", listener.reload().await));
        }
        if let Some(upstream) = &self.upstream {
            files.insert(
                "upstream.tls",
                tell("upstream.tls", upstream.reload().await),
            );
        }
        if let Some(tokens) = self.auth.as_ref().and_then(|auth| auth.reload()) {
            files.insert("auth.tokens_file", tell("auth.tokens_file", tokens));
        }
        if files.is_empty() {
            info!("nothing to read anew: no certificates and no tokens are configured");
        }
        Ok(json!({"files": files, "after_restart": restart}))
    }

    /// Reads the settings again. Returns the changed ones that apply after a restart.
    fn settings(&self) -> Result<Vec<String>, String> {
        let config = reload(&self.source).map_err(|error| error.to_string())?;
        let before = std::mem::replace(&mut *self.settings.lock(), Arc::clone(&config.shown));
        let mut changed = changed(&before, &config.shown);
        if let Some(place) = changed.iter().position(|setting| setting == LEVEL) {
            changed.remove(place);
            log::set_filter(&config.telemetry.log)?;
            info!(
                level = config.telemetry.log,
                "the level of the log has changed"
            );
        }
        if !changed.is_empty() {
            let settings = changed.join(", ");
            warn!(settings, "settings have changed that apply after a restart");
        }
        Ok(changed)
    }
}

#[async_trait]
impl Reloads for Reload {
    async fn reload(&self) -> Result<Value, String> {
        self.all().await
    }
}

fn tell(section: &str, read: Result<(), impl Display>) -> Value {
    match read {
        Ok(()) => {
            info!(section, "read anew");
            json!("read anew")
        }
        Err(error) => {
            warn!(section, %error, "cannot be used; the old files stay in use");
            json!(format!("the old files stay in use: {error}"))
        }
    }
}

/// The settings that differ, by their names in the file.
fn changed(before: &Value, after: &Value) -> Vec<String> {
    let (before, after) = (flat(before), flat(after));
    let mut all: Vec<&String> = before.keys().chain(after.keys()).collect();
    all.sort_unstable();
    all.dedup();
    let differs = |name: &&String| before.get(*name) != after.get(*name);
    all.into_iter().filter(differs).cloned().collect()
}

fn flat(settings: &Value) -> BTreeMap<String, &Value> {
    let mut found = BTreeMap::new();
    let mut open = vec![(String::new(), settings)];
    while let Some((path, value)) = open.pop() {
        let Value::Object(members) = value else {
            found.insert(path, value);
            continue;
        };
        for (key, value) in members {
            let dot = if path.is_empty() { "" } else { "." };
            open.push((format!("{path}{dot}{key}"), value));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_named_as_in_the_file() {
        let before = json!({"tasks": {"mode": "auto", "queue": 1}, "tools": []});
        let after = json!({"tasks": {"mode": "never"}, "tools": [{"name": "a"}]});
        assert_eq!(
            changed(&before, &after),
            ["tasks.mode", "tasks.queue", "tools"]
        );
        assert_eq!(changed(&after, &after), [""; 0]);
    }
}
