//! The answer to a refused client: HTTP status and `WWW-Authenticate` (RFC 6750, section 3; RFC 9728, section 5.1).
//! Pure.

use hyper::StatusCode;
use hyper::header::HeaderValue;

/// Why a request may not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// The request does not identify a client.
    Missing,
    /// Only certificates count here, and the connection has none that names one client.
    NoCertificate,
    /// It cannot be read for certain who asks.
    Malformed(&'static str),
    /// The credential is not valid, or has expired.
    Invalid(&'static str),
    /// The keys to judge the credential by cannot be had now. The credential may be good.
    Unjudged,
}

impl Denied {
    pub fn status(self) -> StatusCode {
        match self {
            Self::Missing | Self::NoCertificate | Self::Invalid(_) => StatusCode::UNAUTHORIZED,
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::Unjudged => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// One sentence for people, without a word of the credential.
    pub fn message(self) -> String {
        match self {
            Self::Missing => {
                "Unauthorized: this server wants an Authorization: Bearer header".to_owned()
            }
            Self::NoCertificate => {
                "Unauthorized: this server wants a client certificate with one SPIFFE id or DNS name"
                    .to_owned()
            }
            Self::Malformed(why) => format!("Invalid request: {why}"),
            Self::Invalid(why) => format!("Unauthorized: {why}"),
            Self::Unjudged => {
                "The keys of the token's issuer cannot be had; try again later".to_owned()
            }
        }
    }

    /// RFC 6750, section 3.1: a request without credentials gets no error code.
    fn error(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Missing | Self::NoCertificate | Self::Unjudged => None,
            Self::Malformed(why) => Some(("invalid_request", why)),
            Self::Invalid(why) => Some(("invalid_token", why)),
        }
    }
}

/// The content of every challenge beside the error.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Challenge {
    /// Where clients find out who issues tokens.
    pub resource_metadata: Option<Box<str>>,
}

impl Challenge {
    /// `WWW-Authenticate` of a refusal. `scopes`: what any call needs. `None`: no other token would help.
    pub fn to(&self, denied: Denied, scopes: &[Box<str>]) -> Option<HeaderValue> {
        if matches!(denied, Denied::Unjudged | Denied::NoCertificate) {
            return None;
        }
        Some(self.written(denied.error(), scopes))
    }

    /// `WWW-Authenticate` of a call that needs these scopes (RFC 6750, section 3.1, `insufficient_scope`).
    pub fn needs(&self, scopes: &[Box<str>]) -> HeaderValue {
        let why = "the token does not have the scope that this call needs";
        self.written(Some(("insufficient_scope", why)), scopes)
    }

    fn written(&self, error: Option<(&str, &str)>, scopes: &[Box<str>]) -> HeaderValue {
        let mut parameters = Vec::new();
        if let Some(address) = &self.resource_metadata {
            parameters.push(format!("resource_metadata=\"{address}\""));
        }
        if !scopes.is_empty() {
            parameters.push(format!("scope=\"{}\"", scopes.join(" ")));
        }
        if let Some((code, why)) = error {
            parameters.push(format!("error=\"{code}\""));
            // A description has no quotes (RFC 6750, section 3).
            let why = why.replace('"', "'");
            parameters.push(format!("error_description=\"{why}\""));
        }
        let text = format!("Bearer {}", parameters.join(", "));
        // Without parameters only the scheme is left, so the space behind it has to go.
        HeaderValue::from_str(text.trim_end()).unwrap_or(BEARER)
    }
}

const BEARER: HeaderValue = HeaderValue::from_static("Bearer");

#[cfg(test)]
mod tests {
    use super::*;

    fn scopes(names: &[&str]) -> Box<[Box<str>]> {
        names.iter().map(|name| (*name).into()).collect()
    }

    #[test]
    fn a_client_without_credentials_is_told_where_to_get_some() {
        let plain = Challenge::default();
        assert_eq!(plain.to(Denied::Missing, &[]).unwrap(), "Bearer");
        let whole = Challenge {
            resource_metadata: Some("https://a.example/.well-known/x".into()),
        };
        assert_eq!(
            whole
                .to(Denied::Missing, &scopes(&["read", "run"]))
                .unwrap(),
            "Bearer resource_metadata=\"https://a.example/.well-known/x\", scope=\"read run\""
        );
    }

    #[test]
    fn each_error_has_its_code_and_its_status() {
        let plain = Challenge::default();
        let invalid = Denied::Invalid("the token has expired");
        assert_eq!(
            plain.to(invalid, &[]).unwrap(),
            "Bearer error=\"invalid_token\", error_description=\"the token has expired\""
        );
        assert_eq!(invalid.status(), 401);
        let malformed = Denied::Malformed("not \"Bearer\"");
        assert_eq!(
            plain.to(malformed, &[]).unwrap(),
            "Bearer error=\"invalid_request\", error_description=\"not 'Bearer'\""
        );
        assert_eq!(malformed.status(), 400);
        assert_eq!(plain.to(Denied::Unjudged, &[]), None);
        assert_eq!(Denied::Unjudged.status(), 503);
        let needs = plain.needs(&scopes(&["run"]));
        let needs = needs.to_str().unwrap();
        assert!(
            needs.starts_with("Bearer scope=\"run\", error=\"insufficient_scope\""),
            "{needs}"
        );
    }
}
