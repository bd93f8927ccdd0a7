//! Builds the authentication from the configuration.

use std::sync::Arc;

use super::error::{AppError, line};
use crate::admin::health::Health;
use crate::auth::authenticator::Authenticator;
use crate::auth::callers::Callers;
use crate::auth::challenge::Challenge;
use crate::auth::fetch::KeysAddress;
use crate::auth::issuer::{self, IssuerSettings};
use crate::auth::public::ResourceMetadata;
use crate::auth::tokens::Tokens;
use crate::base::clock::Clock;
use crate::config::{Config, JwtSettings};
use crate::tls::client::{self, Files};

/// The authenticator of clients. `None`: no client is asked. The one client of a pipe is not asked, because
/// it started this process.
pub(super) fn authenticator(
    config: &Config,
    callers: &Callers,
    clock: &Arc<dyn Clock>,
    is_piped: bool,
) -> Result<Option<Arc<Authenticator>>, AppError> {
    if is_piped || !config.auth.asks() {
        return Ok(None);
    }
    // Without an issuer the metadata names no place to get a token, so the challenge does not point there.
    let metadata = metadata(config).filter(|metadata| !metadata.issuers.is_empty());
    let challenge = Challenge {
        resource_metadata: metadata.map(|metadata| metadata.public.metadata),
    };
    let auth = Authenticator::new(callers.clone(), Arc::clone(clock), challenge)
        .by_tokens(tokens(config, callers)?)
        .by_certificates(config.auth.client_roots.is_some())
        .by_issuers(issuers(config)?);
    Ok(Some(Arc::new(auth)))
}

/// The address by which clients know raincheck, and the metadata that they find there.
pub(super) fn metadata(config: &Config) -> Option<ResourceMetadata> {
    let public = config.listen.public_url.clone()?;
    let issuers = config.auth.jwt.iter();
    let issuers = issuers.map(|jwt| jwt.issuer.as_str().into()).collect();
    Some(ResourceMetadata { public, issuers })
}

/// Fetches the keys that clients are known by, for as long as the process runs.
pub(super) async fn keep_keys(auth: Option<Arc<Authenticator>>, health: Arc<Health>) {
    let Some(auth) = auth else {
        return;
    };
    let first = async {
        auth.ready().await;
        health.keys_fetched();
    };
    // `ready` resolves when the other job has fetched the keys, so both must run together.
    tokio::join!(auth.keep_keys(), first);
}

fn tokens(config: &Config, callers: &Callers) -> Result<Option<Tokens>, AppError> {
    let path = config.auth.tokens_file.clone();
    let tokens = path.map(|path| Tokens::read(path, callers)).transpose();
    tokens.map_err(|error| AppError(format!("auth.tokens_file: {}", line(error))))
}

fn issuers(config: &Config) -> Result<Vec<IssuerSettings>, AppError> {
    let issuers = config.auth.jwt.iter().enumerate();
    let issuers = issuers.map(|(place, jwt)| {
        let wrong = |text: String| AppError(format!("[[auth.jwt]] #{}: {text}", place + 1));
        settings(jwt).map_err(wrong)
    });
    issuers.collect()
}

fn settings(jwt: &JwtSettings) -> Result<IssuerSettings, String> {
    let tls = match jwt.jwks.scheme_str() {
        Some("https") => {
            let files = Files {
                roots: jwt.roots.clone(),
                identity: None,
                http2: false,
            };
            let tls = client::client(files).map_err(|error| format!("roots: {}", line(error)))?;
            Some(tls)
        }
        _ => None,
    };
    let boxed = |texts: &[String]| texts.iter().map(|text| text.as_str().into()).collect();
    Ok(IssuerSettings {
        issuer: jwt.issuer.as_str().into(),
        audience: boxed(&jwt.audience),
        algorithms: jwt.algorithms.as_slice().into(),
        caller_claims: boxed(&jwt.caller_claims),
        label_claim: jwt.label_claim.as_deref().map(Into::into),
        keys: KeysAddress::new(&jwt.jwks, tls).ok_or("jwks: keys cannot be fetched from there")?,
    })
}

/// Describes who may call, for `raincheck check`, and fetches the keys of each issuer. Empty: every client that reaches the
/// listener.
pub async fn check(config: &Config) -> Vec<Result<String, String>> {
    let mut findings = Vec::new();
    // Any key serves here: it only makes the callers of the tokens, and no caller is used.
    match tokens(config, &Callers::new(&[0; 32])) {
        Ok(Some(tokens)) if tokens.len() == 1 => {
            findings.push(Ok("one client, by its token".to_owned()));
        }
        Ok(Some(tokens)) => findings.push(Ok(format!("{} clients, by their tokens", tokens.len()))),
        Ok(None) => {}
        Err(error) => findings.push(Err(error.to_string())),
    }
    if config.auth.client_roots.is_some() {
        findings.push(Ok(
            "clients with a certificate, by its SPIFFE id or DNS name".to_owned(),
        ));
    }
    match issuers(config) {
        Ok(issuers) => {
            for issuer in issuers {
                let name = &issuer.issuer;
                let fetched = issuer::try_fetch(&issuer).await;
                findings.push(match fetched {
                    Ok(keys) => Ok(format!("tokens of {name}, keys of use: {keys}")),
                    Err(error) => Err(format!(
                        "tokens of {name}: its keys cannot be fetched: {error}"
                    )),
                });
            }
        }
        Err(error) => findings.push(Err(error.to_string())),
    }
    findings
}
