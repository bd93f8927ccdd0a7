//! Reloads the TLS files and the file of tokens while raincheck serves.

use std::fmt::Display;
use std::sync::Arc;

use rustls::{ClientConfig, ServerConfig};
use tracing::{info, warn};

use crate::auth::authenticator::Authenticator;
use crate::tls::kept::Kept;

/// The files that can be reloaded. Open connections keep the TLS configuration that they began with; new
/// tokens apply from the next request on.
#[derive(Debug, Clone)]
pub struct Reload {
    listener: Option<Arc<Kept<ServerConfig>>>,
    upstream: Option<Arc<Kept<ClientConfig>>>,
    auth: Option<Arc<Authenticator>>,
}

impl Reload {
    pub(super) fn new(
        listener: Option<Arc<Kept<ServerConfig>>>,
        upstream: Option<Arc<Kept<ClientConfig>>>,
        auth: Option<Arc<Authenticator>>,
    ) -> Self {
        Self {
            listener,
            upstream,
            auth,
        }
    }

    /// Reloads all files and logs it. If a file cannot be used, the old configuration stays.
    pub async fn all(&self) {
        if let Some(listener) = &self.listener {
            tell("listen.tls", listener.reload().await);
        }
        if let Some(upstream) = &self.upstream {
            tell("upstream.tls", upstream.reload().await);
        }
        let tokens = self.auth.as_ref().and_then(|auth| auth.reload());
        let has_tokens = tokens.is_some();
        if let Some(tokens) = tokens {
            tell("auth.tokens_file", tokens);
        }
        if self.listener.is_none() && self.upstream.is_none() && !has_tokens {
            info!("nothing to read anew: no certificates and no tokens are configured");
        }
    }
}

fn tell(section: &str, read: Result<(), impl Display>) {
    match read {
        Ok(()) => info!(section, "read anew"),
        Err(error) => warn!(section, %error, "cannot be used; the old files stay in use"),
    }
}
