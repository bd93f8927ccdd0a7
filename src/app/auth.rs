//! Builds the authentication from the configuration.

use std::sync::Arc;

use super::error::{AppError, line};
use crate::auth::authenticator::Authenticator;
use crate::auth::callers::Callers;
use crate::auth::challenge::Challenge;
use crate::auth::tokens::Tokens;
use crate::config::Config;

/// The authenticator of clients. `None`: no client is asked. The one client of a pipe is not asked, because
/// it started this process.
pub(super) fn authenticator(
    config: &Config,
    callers: &Callers,
    is_piped: bool,
) -> Result<Option<Arc<Authenticator>>, AppError> {
    if is_piped || !config.auth.asks() {
        return Ok(None);
    }
    let tokens = tokens(config, callers)?;
    let auth = Authenticator::new(callers.clone(), tokens, Challenge::default());
    Ok(Some(Arc::new(auth)))
}

fn tokens(config: &Config, callers: &Callers) -> Result<Option<Tokens>, AppError> {
    let path = config.auth.tokens_file.clone();
    let tokens = path.map(|path| Tokens::read(path, callers)).transpose();
    tokens.map_err(|error| AppError(format!("auth.tokens_file: {}", line(error))))
}

/// Describes who may call, for `raincheck check`. `None`: every client that reaches the listener.
pub fn check(config: &Config) -> Result<Option<String>, AppError> {
    let tokens = tokens(config, &Callers::new(&[0; 32]))?;
    Ok(tokens.map(|tokens| match tokens.len() {
        1 => "one client, by its token".to_owned(),
        clients => format!("{clients} clients, by their tokens"),
    }))
}
