//! Tells the operator at the start whether the server can be reached, before a client finds out.

use std::io;
use std::path::Path;
use std::time::Duration;

use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tracing::warn;

use super::error::AppError;
use crate::config::{Wrapped, WrappedCommand};
use crate::io_reason::io_reason;

/// Opens one connection to the server and closes it again. Nothing is sent.
pub(super) async fn tell_if_away(server: Wrapped, patience: Duration) {
    let connecting = async {
        match &server {
            Wrapped::Url(url) => {
                let usual = if url.scheme_str() == Some("https") {
                    443
                } else {
                    80
                };
                let host = url.host().unwrap_or_default();
                let host = host.trim_matches(['[', ']']);
                let port = url.port_u16().unwrap_or(usual);
                TcpStream::connect((host, port)).await.map(drop)
            }
            Wrapped::Unix(socket) => UnixStream::connect(&socket.file).await.map(drop),
            // A program that cannot be run is told of when it is started.
            Wrapped::Command(_) => Ok(()),
        }
    };
    let connected = timeout(patience, connecting).await;
    let connected = connected.unwrap_or_else(|_elapsed| Err(io::ErrorKind::TimedOut.into()));
    if let Err(error) = connected {
        // The first line of the log names the server.
        warn!(error = %io_reason(&error), "the server cannot be reached yet; calls fail until it can");
    }
}

/// Refuses a program that does not exist: nothing that raincheck does lets it start.
pub(super) fn refuse_missing_program(server: &Wrapped) -> Result<(), AppError> {
    let Wrapped::Command(command) = server else {
        return Ok(());
    };
    let program = &command.program;
    let why = if program.contains('/') {
        let directory = command
            .directory
            .as_deref()
            .unwrap_or_else(|| Path::new(""));
        (!directory.join(program).exists()).then_some("does not exist")
    } else {
        (!is_on_path(command)).then_some("is not on the PATH")
    };
    match why {
        Some(why) => Err(AppError(format!("upstream.command: {program} {why}"))),
        None => Ok(()),
    }
}

/// True if the program is on the PATH that it gets, or if that is not known.
fn is_on_path(command: &WrappedCommand) -> bool {
    let mut variables = command.environment.iter();
    let path = variables.find(|(name, _)| name == "PATH");
    path.is_none_or(|(_, path)| {
        let directory = command
            .directory
            .as_deref()
            .unwrap_or_else(|| Path::new(""));
        path.expose()
            .split(':')
            .any(|part| directory.join(part).join(&command.program).exists())
    })
}
