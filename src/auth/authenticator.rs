//! Who asks: the one question that is answered before the body of a request is read.

use std::sync::Arc;

use hyper::HeaderMap;

use super::bearer;
use super::callers::Callers;
use super::challenge::{Challenge, Denied};
use super::identity::Identity;
use super::tokens::{self, Tokens, TokensError};

/// Judges the credential of each request. There is none where raincheck asks nobody.
#[derive(Debug)]
pub struct Authenticator {
    callers: Callers,
    tokens: Option<Tokens>,
    challenge: Challenge,
}

impl Authenticator {
    pub fn new(callers: Callers, tokens: Option<Tokens>, challenge: Challenge) -> Self {
        Self {
            callers,
            tokens,
            challenge,
        }
    }

    /// The client of a request, by nothing but its head.
    pub fn client(&self, headers: &HeaderMap) -> Result<Arc<Identity>, Denied> {
        let token = bearer::token(headers)?;
        let hash = tokens::hash(token);
        let client = self.tokens.as_ref().and_then(|tokens| tokens.client(&hash));
        client.ok_or(Denied::Invalid("the token is not known"))
    }

    /// What refused clients are told.
    pub fn challenge(&self) -> &Challenge {
        &self.challenge
    }

    /// Reads the file of tokens anew. `None`: there is no file.
    pub fn reload(&self) -> Option<Result<(), TokensError>> {
        let tokens = self.tokens.as_ref()?;
        Some(tokens.reload(&self.callers))
    }
}
