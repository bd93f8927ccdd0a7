//! The client behind a request. raincheck decides about its credentials before it reads the body of the request.

use std::sync::Arc;

use futures_util::future::join_all;
use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use rustls::pki_types::CertificateDer;
use tracing::debug;

use super::bearer;
use super::callers::Callers;
use super::challenge::{Challenge, Denied};
use super::identity::{Identity, label_of, name_of};
use super::issuer::{Issuer, IssuerSettings};
use super::jwt::{TokenFault, Unverified, Verified};
use super::tokens::{self, NewTokens, Tokens, TokensError};
use super::verified::{VerifiedToken, VerifiedTokens};
use crate::base::clock::Clock;
use crate::net::connection_threads::PerThread;
use crate::tls::client_name::client_name;

/// Checks the credential of each request. Absent if the configuration asks for no credentials.
#[derive(Debug)]
pub struct Authenticator {
    callers: Callers,
    clock: Arc<dyn Clock>,
    tokens: Option<Tokens>,
    takes_certificates: bool,
    issuers: Box<[Issuer]>,
    verified: PerThread<VerifiedTokens>,
    challenge: Challenge,
}

impl Authenticator {
    pub fn new(callers: Callers, clock: Arc<dyn Clock>, challenge: Challenge) -> Self {
        Self {
            callers,
            clock,
            tokens: None,
            takes_certificates: false,
            issuers: [].into(),
            verified: PerThread::default(),
            challenge,
        }
    }

    /// Takes these tokens, too.
    #[must_use]
    pub fn by_tokens(self, tokens: Option<Tokens>) -> Self {
        Self { tokens, ..self }
    }

    /// Takes certificates, too, that the TLS handshake of a connection has verified.
    #[must_use]
    pub fn by_certificates(self, takes_certificates: bool) -> Self {
        Self {
            takes_certificates,
            ..self
        }
    }

    /// The client that has shown this certificate when its connection began. `None`: the certificate names no one client.
    pub fn by_certificate(&self, certificate: &CertificateDer<'_>) -> Option<Arc<Identity>> {
        if !self.takes_certificates {
            return None;
        }
        let name = client_name(certificate)?;
        Some(Arc::new(Identity {
            caller: self.callers.of_client("certificate", &[&name]),
            name: name_of(&[&name]),
            label: Some(label_of(&name)),
            scopes: [].into(),
            ends_at_ms: None,
        }))
    }

    /// Takes the tokens of these issuers, too.
    #[must_use]
    pub fn by_issuers(self, issuers: impl IntoIterator<Item = IssuerSettings>) -> Self {
        let issuers = issuers.into_iter();
        let issuers = issuers.map(|settings| Issuer::new(settings, Arc::clone(&self.clock)));
        Self {
            issuers: issuers.collect(),
            ..self
        }
    }

    /// The client of a request, by its head, and by the certificate of its connection. A token counts before the
    /// certificate, which may be that of a gateway.
    pub async fn client(
        &self,
        headers: &HeaderMap,
        by_certificate: Option<Arc<Identity>>,
    ) -> Result<Arc<Identity>, Denied> {
        let takes_tokens = self.tokens.is_some() || !self.issuers.is_empty();
        if let Some(client) = by_certificate
            && (!takes_tokens || !headers.contains_key(AUTHORIZATION))
        {
            return Ok(client);
        }
        if !takes_tokens {
            return Err(Denied::NoCertificate);
        }
        let sent = bearer::sent(headers)?;
        let hash = tokens::hash(sent.bytes());
        if let Some(client) = self.tokens.as_ref().and_then(|tokens| tokens.client(&hash)) {
            return Ok(client);
        }
        let now_ms = self.clock.now_ms();
        if let Some(known) = self.verified.here().get(&hash)
            && self.stands(&known, now_ms)
        {
            return Ok(known.identity);
        }
        let judged = Box::pin(self.verify(sent.token()?, now_ms)).await;
        let verified = judged.inspect_err(|denied| debug!(?denied, "a token was refused"))?;
        let identity = Arc::clone(&verified.identity);
        // Good tokens only: made-up ones would push them out of the bounded map.
        self.verified.here().put(hash, verified);
        Ok(identity)
    }

    /// Returns `true` if a token that was verified earlier would be verified now.
    fn stands(&self, known: &VerifiedToken, now_ms: u64) -> bool {
        let issuer = self.issuers.get(known.issuer);
        let generation = issuer.and_then(|issuer| issuer.generation(now_ms));
        let ends_at_ms = known.identity.ends_at_ms.unwrap_or(u64::MAX);
        generation == Some(known.generation) && now_ms < ends_at_ms
    }

    async fn verify(&self, token: &str, now_ms: u64) -> Result<VerifiedToken, Denied> {
        let unknown = Denied::Invalid("the token is not known");
        if self.issuers.is_empty() {
            return Err(unknown);
        }
        let token = Unverified::read(token).map_err(|TokenFault(why)| Denied::Invalid(why))?;
        // The name is not verified yet. It only selects the keys that judge the token.
        let mut issuers = self.issuers.iter().enumerate();
        let found = issuers.find(|(_, issuer)| issuer.name() == token.issuer);
        let (place, issuer) = found.ok_or(Denied::Invalid(
            "the issuer of the token does not count here",
        ))?;
        let (verified, generation) = issuer.verify(&token, now_ms).await?;
        let identity = self.identity(issuer.name(), verified);
        debug!(client = ?identity.label, "a client has shown a new token");
        Ok(VerifiedToken {
            identity: Arc::new(identity),
            issuer: place,
            generation,
        })
    }

    fn identity(&self, issuer: &str, verified: Verified) -> Identity {
        let mut words = vec![issuer, &*verified.subject];
        words.extend(verified.caller_claims.iter().map(String::as_str));
        Identity {
            caller: self.callers.of_client("jwt", &words),
            name: name_of(&words),
            label: verified.label.as_deref().map(label_of),
            scopes: verified.scopes.into_iter().map(Into::into).collect(),
            ends_at_ms: Some(verified.ends_at_ms),
        }
    }

    /// The time by which credentials are judged, in Unix milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// Returns the challenge that refused clients receive.
    pub fn challenge(&self) -> &Challenge {
        &self.challenge
    }

    /// Reads the file of tokens anew, and changes nothing. `None`: there is no file.
    pub fn reread_tokens(&self) -> Option<Result<NewTokens, TokensError>> {
        let tokens = self.tokens.as_ref()?;
        Some(tokens.reread(&self.callers))
    }

    /// From now on these tokens count, and no others of the file.
    pub fn replace_tokens(&self, new: NewTokens) {
        if let Some(tokens) = &self.tokens {
            tokens.replace(new);
        }
    }

    /// Fetches the keys of all issuers, and keeps them fresh. Runs as long as the process.
    pub async fn keep_keys(&self) {
        join_all(self.issuers.iter().map(Issuer::keep_keys)).await;
    }

    /// Resolves once the keys of each issuer were fetched.
    pub async fn ready(&self) {
        join_all(self.issuers.iter().map(Issuer::ready)).await;
    }
}
