//! The settings of the upstream side, from the configuration.

use hyper::HeaderMap;

use crate::config::{
    self, Config, CredentialUse, EraChoice, Secret, SessionUse, TransportChoice, Wrapped,
};
use crate::mcp::version::Era;
use crate::tls::client::{self, Files};
use crate::upstream::stdio::Program;
use crate::upstream::wrapped::{SessionMode, Settings, Transport};

/// The settings of the upstream side. Reads the TLS files. An error is one line.
pub fn settings(config: &Config) -> Result<Settings, String> {
    let mut told = Settings::default();
    match &config.upstream.server {
        Wrapped::Url(url) => {
            told.url = url.to_string();
            if url.scheme_str() == Some("https") {
                let tls = client::client(files(&config.upstream));
                told.tls = Some(tls.map_err(|error| format!("upstream.tls: {error}"))?);
            }
        }
        Wrapped::Unix(socket) => {
            // HTTP needs a host, and a socket has none.
            told.url = format!("http://localhost{}", socket.path);
            told.socket = Some(socket.file.clone());
        }
        Wrapped::Command(command) => told.command = Some(program(command)),
    }
    told.headers = config
        .upstream
        .headers
        .iter()
        .filter_map(|header| {
            let mut value: hyper::header::HeaderValue = header.value.expose().parse().ok()?;
            // Debug output leaves out a sensitive value, and HTTP/2 keeps it in no table.
            value.set_sensitive(true);
            Some((header.name.clone(), value))
        })
        .collect::<HeaderMap>();
    Ok(Settings {
        forwards_credentials: Some(config.upstream.credentials.used == CredentialUse::Forward),
        credential_headers: config.auth.credential_headers.as_slice().into(),
        caller_header: config.upstream.credentials.caller_header.clone(),
        forward_headers: config.upstream.forward_headers.clone(),
        forward_query: config.upstream.forward_query.clone(),
        children_max: config.upstream.children_max,
        transport: match config.upstream.transport {
            TransportChoice::Auto => Transport::Auto,
            TransportChoice::StreamableHttp => Transport::StreamableHttp,
            TransportChoice::Sse => Transport::Sse,
        },
        era: match config.upstream.era {
            EraChoice::Auto => None,
            EraChoice::Legacy => Some(Era::Legacy),
            EraChoice::Modern => Some(Era::Modern),
        },
        session: match config.upstream.session {
            SessionUse::Pool => SessionMode::Pool,
            SessionUse::Caller => SessionMode::Caller,
        },
        sessions_max: config.upstream.sessions_max,
        connect_timeout: config.upstream.connect_timeout,
        http2: config.upstream.http2,
        // Room for the envelope around the largest result.
        message_bytes_max: usize::try_from(config.rules.result_bytes_max())
            .unwrap_or(usize::MAX)
            .saturating_add(64 * 1024),
        ..told
    })
}

fn files(upstream: &config::UpstreamSettings) -> Files {
    let identity = upstream.tls.identity.as_ref();
    Files {
        roots: upstream.tls.roots.clone(),
        http2: upstream.http2,
        identity: identity.map(|files| (files.certificate.clone(), files.key.clone())),
    }
}

fn program(command: &config::WrappedCommand) -> Program {
    let exposed = |(name, value): &(String, Secret)| (name.clone(), value.expose().to_owned());
    let arguments = command
        .arguments
        .iter()
        .map(|text| text.expose().to_owned());
    Program {
        name: command.program.clone(),
        arguments: arguments.collect(),
        environment: command.environment.iter().map(exposed).collect(),
        directory: command.directory.clone(),
        ..Program::default()
    }
}
