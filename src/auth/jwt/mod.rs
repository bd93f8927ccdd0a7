//! A signed token (RFC 7519, 8725, 9068): read, verified, judged. Pure: the time and the keys are given.

use serde_json::value::RawValue;

use super::algorithm::Algorithm;
use super::keys::Signer;
use crate::mcp::base64::decode_url;
use crate::mcp::json::Object;

/// The largest accepted difference between the clocks of an issuer and of raincheck.
pub(super) const LEEWAY_MS: u64 = 30_000;

/// A token is good until year 9999 at most: what is beyond is no time.
const TIME_MAX_S: f64 = 253_402_300_799.0;

/// Why a token does not count. The texts are for the client and quote nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TokenFault(pub(super) &'static str);

const NO_TOKEN: TokenFault = TokenFault("the token is not known");
const UNREADABLE: TokenFault = TokenFault("the token cannot be read");
const CRITICAL: TokenFault = TokenFault("the token has a critical header that is not understood");
const ALGORITHM: TokenFault = TokenFault("the token is signed in a way that does not count here");
const TYPE: TokenFault = TokenFault("the token is not an access token");
const SIGNATURE: TokenFault = TokenFault("the signature of the token is wrong");
const AUDIENCE: TokenFault = TokenFault("the token was issued for another audience");
const NO_END: TokenFault = TokenFault("the token has no end");
const EXPIRED: TokenFault = TokenFault("the token has expired");
const NOT_YET: TokenFault = TokenFault("the token does not count yet");
const NO_SUBJECT: TokenFault = TokenFault("the token does not say whose it is");

/// A token as it is written. Nothing of it is to be believed but for what it asks to be verified by.
#[derive(Debug)]
pub(super) struct Unverified<'t> {
    /// The signed part of the token.
    message: &'t str,
    signature: Vec<u8>,
    algorithm: Algorithm,
    pub(super) key_id: Option<String>,
    /// The issuer that the token claims to be from.
    pub(super) issuer: String,
    payload: String,
}

/// The requirements for a token.
#[derive(Debug, Clone)]
pub(super) struct Expected<'e> {
    pub(super) audience: &'e [Box<str>],
    /// Claims that are part of who the client is.
    pub(super) caller_claims: &'e [Box<str>],
    pub(super) label_claim: Option<&'e str>,
}

/// The properties of the client that a valid token contains.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verified {
    pub(super) subject: String,
    /// Names and values, in the order of the configuration.
    pub(super) caller_claims: Vec<String>,
    pub(super) label: Option<String>,
    pub(super) scopes: Vec<String>,
    /// The end, with the leeway.
    pub(super) ends_at_ms: u64,
}

impl<'t> Unverified<'t> {
    /// `Err`: no issuer's key could make it count.
    pub(super) fn read(token: &'t str) -> Result<Self, TokenFault> {
        let (message, signature) = token.rsplit_once('.').ok_or(NO_TOKEN)?;
        let (header, payload) = message.split_once('.').ok_or(NO_TOKEN)?;
        // An encrypted token (JWE) has five parts.
        if payload.contains('.') {
            return Err(UNREADABLE);
        }
        let text = |part: &str| String::from_utf8(decode_url(part)?).ok();
        let (header, payload) = text(header).zip(text(payload)).ok_or(UNREADABLE)?;
        let header = Object::parse(&header).map_err(|_| UNREADABLE)?;
        // Of two members of one name, the issuer may mean the one that is not read here.
        if header.is_ambiguous(&["alg", "crit", "kid", "typ"]) {
            return Err(UNREADABLE);
        }
        // RFC 7515, section 4.1.11, requires this refusal, because no extension is implemented.
        if header.contains("crit") {
            return Err(CRITICAL);
        }
        let algorithm = header.get_str("alg").as_deref().and_then(Algorithm::named);
        let algorithm = algorithm.ok_or(ALGORITHM)?;
        if header.contains("typ")
            && !header
                .get_str("typ")
                .as_deref()
                .is_some_and(is_access_token)
        {
            return Err(TYPE);
        }
        let key_id = match header.get("kid") {
            None => None,
            Some(_) => Some(header.get_str("kid").ok_or(UNREADABLE)?.into_owned()),
        };
        // Read before the signature is verified, because the issuer selects the keys.
        let claims = claims(&payload)?;
        let issuer = claims.get_str("iss").ok_or(UNREADABLE)?.into_owned();
        Ok(Self {
            message,
            signature: decode_url(signature).ok_or(UNREADABLE)?,
            algorithm,
            key_id,
            issuer,
            payload,
        })
    }

    /// Verifies the signature with the key, and the claims against the expected ones. The key determines the
    /// algorithm: a token that names another one is not valid.
    pub(super) fn verify(
        &self,
        signer: Signer<'_>,
        expected: &Expected<'_>,
        now_ms: u64,
    ) -> Result<Verified, TokenFault> {
        if self.algorithm != signer.algorithm {
            return Err(ALGORITHM);
        }
        let verified = signer
            .key
            .verify_sig(self.message.as_bytes(), &self.signature);
        verified.map_err(|_| SIGNATURE)?;
        judge(&claims(&self.payload)?, expected, now_ms)
    }
}

fn claims(payload: &str) -> Result<Object<'_>, TokenFault> {
    let claims = Object::parse(payload).map_err(|_| UNREADABLE)?;
    let read = ["aud", "exp", "iss", "nbf", "scope", "scp", "sub"];
    if claims.is_ambiguous(&read) {
        return Err(UNREADABLE);
    }
    Ok(claims)
}

/// Returns `true` if this is the type of an access token. RFC 9068 has a type of its own; most issuers use "JWT".
/// Tokens for other purposes (logout, proof of possession) have types that are refused, so that none of them can
/// replace an access token (RFC 8725, section 3.11).
fn is_access_token(kind: &str) -> bool {
    let kind = kind.to_ascii_lowercase();
    let kind = kind.strip_prefix("application/").unwrap_or(&kind);
    kind == "jwt" || kind == "at+jwt"
}

fn judge(
    claims: &Object<'_>,
    expected: &Expected<'_>,
    now_ms: u64,
) -> Result<Verified, TokenFault> {
    let audience = claims.get("aud").and_then(strings).ok_or(AUDIENCE)?;
    if !audience
        .iter()
        .any(|one| expected.audience.iter().any(|ours| **ours == **one))
    {
        return Err(AUDIENCE);
    }
    let ends_at_ms = claims.get("exp").and_then(millis).ok_or(NO_END)?;
    let ends_at_ms = ends_at_ms.saturating_add(LEEWAY_MS);
    if ends_at_ms <= now_ms {
        return Err(EXPIRED);
    }
    if let Some(begin) = claims.get("nbf")
        && millis(begin).is_none_or(|begin| begin > now_ms.saturating_add(LEEWAY_MS))
    {
        return Err(NOT_YET);
    }
    let subject = claims.get_str("sub").filter(|subject| !subject.is_empty());
    let mut caller_claims = Vec::with_capacity(2 * expected.caller_claims.len());
    for name in expected.caller_claims {
        // Without this claim, equal subjects of two tenants would be one caller.
        let value = claims.get(name).and_then(plain).ok_or(NO_SUBJECT)?;
        caller_claims.extend([name.as_ref().to_owned(), value]);
    }
    Ok(Verified {
        subject: subject.ok_or(NO_SUBJECT)?.into_owned(),
        caller_claims,
        label: expected
            .label_claim
            .and_then(|name| claims.get(name))
            .and_then(plain),
        scopes: scopes(claims),
        ends_at_ms,
    })
}

/// `scope` has words (RFC 9068, section 2.2.3); some issuers have a list, or `scp`.
fn scopes(claims: &Object<'_>) -> Vec<String> {
    let written = claims.get("scope").or_else(|| claims.get("scp"));
    let listed = written.and_then(strings).unwrap_or_default();
    let words = listed.iter().flat_map(|text| text.split(' '));
    words
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

/// A text, or a list of texts.
fn strings(raw: &RawValue) -> Option<Vec<String>> {
    let one = serde_json::from_str::<String>(raw.get()).map(|text| vec![text]);
    one.or_else(|_| serde_json::from_str(raw.get())).ok()
}

/// A string, a number or a boolean as text. Objects and lists are refused, because one value has several spellings.
fn plain(raw: &RawValue) -> Option<String> {
    let text = raw.get();
    if text.starts_with('"') {
        return serde_json::from_str(text).ok();
    }
    // `n` begins `null`, which would be one value for all clients that lack the claim.
    let is_plain = !text.starts_with(['{', '[', 'n']);
    is_plain.then(|| text.to_owned())
}

/// Seconds, perhaps with a part of one (RFC 7519, `NumericDate`).
fn millis(raw: &RawValue) -> Option<u64> {
    let seconds: f64 = serde_json::from_str(raw.get()).ok()?;
    if !(0.0..=TIME_MAX_S).contains(&seconds) {
        return None;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be in range"
    )]
    let millis = (seconds * 1000.0) as u64;
    Some(millis)
}

#[cfg(test)]
mod tests;
