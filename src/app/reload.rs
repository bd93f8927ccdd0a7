//! Reloads the TLS files while raincheck serves.

use std::sync::Arc;

use rustls::{ClientConfig, ServerConfig};
use tracing::{info, warn};

use crate::tls::TlsError;
use crate::tls::kept::Kept;

/// The TLS configurations that can be reloaded. Open connections keep the configuration that they began with.
#[derive(Debug, Clone)]
pub struct Reload {
    listener: Option<Arc<Kept<ServerConfig>>>,
    upstream: Option<Arc<Kept<ClientConfig>>>,
}

impl Reload {
    pub(super) fn new(
        listener: Option<Arc<Kept<ServerConfig>>>,
        upstream: Option<Arc<Kept<ClientConfig>>>,
    ) -> Self {
        Self { listener, upstream }
    }

    /// Reloads all files and logs it. If a file cannot be used, the old configuration stays.
    pub async fn all(&self) {
        if let Some(listener) = &self.listener {
            tell("listen.tls", listener.reload().await);
        }
        if let Some(upstream) = &self.upstream {
            tell("upstream.tls", upstream.reload().await);
        }
        if self.listener.is_none() && self.upstream.is_none() {
            info!("nothing to read anew: no certificates are configured");
        }
    }
}

fn tell(section: &str, read: Result<(), TlsError>) {
    match read {
        Ok(()) => info!(section, "read anew"),
        Err(error) => warn!(section, %error, "cannot be used; the old files stay in use"),
    }
}
