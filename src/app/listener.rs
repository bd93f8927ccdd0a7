//! Where requests come from: an HTTP listener, or the one client on raincheck's standard input and output.

use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::error::{AppError, line};
use crate::base::io_reason::io_reason;
use crate::config;
use crate::downstream::server::{self, BoundListener, ConnectionLimits, Served};
use crate::downstream::stdio::Lines;
use crate::net::connection_threads::ConnectionThreads;
use crate::tls::{self, kept::Kept};

/// Where requests come from.
#[derive(Debug)]
pub(super) enum ListenerKind {
    Http(BoundListener),
    Stdio(Lines),
}

impl ListenerKind {
    pub(super) async fn serve(
        self,
        served: watch::Receiver<Served>,
        close: CancellationToken,
        stop: CancellationToken,
        grace: Duration,
    ) {
        match self {
            Self::Http(server) => server.serve(served, close, stop, grace).await,
            Self::Stdio(lines) => {
                let proxy = Arc::clone(&served.borrow().proxy);
                // Boxed, so that the future that serves HTTP has no room for it.
                Box::pin(lines.serve(proxy, close, stop, grace)).await;
            }
        }
    }
}

/// A bound listener.
pub(super) struct Bound {
    pub(super) server: BoundListener,
    pub(super) reloaded: ReloadedListener,
}

/// The parts of the listener that a reload changes: the limits of its connections, and its TLS configuration. The one
/// client on standard input has neither.
#[derive(Default)]
pub(super) struct ReloadedListener {
    pub(super) limits: Option<Arc<ConnectionLimits>>,
    pub(super) tls: Option<Arc<Kept<ServerConfig>>>,
}

impl std::fmt::Debug for ReloadedListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReloadedListener")
    }
}

/// Binds the HTTP listener.
pub(super) fn bind(
    config: &config::Config,
    threads: &Arc<ConnectionThreads>,
) -> Result<Bound, AppError> {
    let listen = &config.listen;
    let limits = ConnectionLimits::new(config.limits.connections, config.limits.header_timeout);
    let tls = tls_files(config).map(tls::server).transpose();
    let tls = tls.map_err(|error| AppError(format!("listen.tls: {}", line(error))))?;
    let settings = server::ListenerSettings {
        limits: Arc::clone(&limits),
        h2c: listen.h2c,
        tls: tls.clone(),
    };
    let bound = BoundListener::bind(listen.address, settings, Arc::clone(threads));
    let server = bound.map_err(|error| {
        AppError(format!(
            "{} cannot be listened on: {}; choose another address with --listen",
            listen.address,
            io_reason(&error)
        ))
    })?;
    let reloaded = ReloadedListener {
        limits: Some(limits),
        tls,
    };
    Ok(Bound { server, reloaded })
}

/// The files for TLS of the HTTP listener. `None`: it speaks no TLS.
pub fn tls_files(config: &config::Config) -> Option<tls::ServerFiles> {
    let files = config.listen.tls.as_ref()?;
    Some(tls::ServerFiles {
        certificate: files.certificate.clone(),
        key: files.key.clone(),
        client_roots: config.auth.client_roots.clone(),
    })
}
