//! Where requests come from: an HTTP listener, or the one client on raincheck's standard input and output.

use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio_util::sync::CancellationToken;

use super::error::{AppError, line};
use crate::config;
use crate::downstream::Proxy;
use crate::downstream::server::{self, Server};
use crate::downstream::stdio::Lines;
use crate::tls::{self, kept::Kept};

/// Where requests come from.
#[derive(Debug)]
pub(super) enum ListenerKind {
    Http(Server),
    Stdio(Lines),
}

impl ListenerKind {
    pub(super) async fn serve(
        self,
        proxy: Arc<Proxy>,
        close: CancellationToken,
        stop: CancellationToken,
        grace: Duration,
    ) {
        match self {
            Self::Http(server) => server.serve(proxy, close, stop, grace).await,
            Self::Stdio(lines) => lines.serve(proxy, close, stop, grace).await,
        }
    }
}

/// Binds the HTTP listener. Also returns its TLS configuration, which can be reloaded.
pub(super) async fn bind(
    config: &config::Config,
) -> Result<(ListenerKind, Option<Arc<Kept<ServerConfig>>>), AppError> {
    let (listen, limits) = (&config.listen, &config.limits);
    let tls = tls_files(config).map(tls::server).transpose();
    let tls = tls.map_err(line)?;
    let settings = server::Settings {
        connections_max: limits.connections,
        header_timeout: limits.header_timeout,
        h2c: listen.h2c,
        tls: tls.clone(),
    };
    let bound = Server::bind(listen.address, settings);
    let server = bound.map_err(|error| {
        AppError(format!(
            "{} cannot be listened on: {error}; choose another address with --listen",
            listen.address
        ))
    })?;
    Ok((ListenerKind::Http(server), tls))
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
