//! What is read anew while raincheck serves: the files of TLS.

use std::sync::Arc;

use rustls::{ClientConfig, ServerConfig};
use tracing::{info, warn};

use crate::tls::TlsError;
use crate::tls::kept::Kept;

/// Whatever can be read anew. What is running keeps what it began with.
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

    /// Reads all files anew and says so; a file that cannot be used leaves the old one.
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
