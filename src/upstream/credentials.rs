//! What the wrapped server knows a client by: `Authorization`, the configured credential headers, and the header in which
//! raincheck names the caller. They go together, with every request that raincheck sends for the client.

use std::fmt;
use std::sync::Arc;

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};
use hyper::http::request;

use crate::base::lock::Mutex;
use crate::mcp::headers::owned;

/// The credentials of one client, as the server gets them. In memory only, never stored.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials(Arc<[(HeaderName, HeaderValue)]>);

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

impl From<HeaderValue> for Credentials {
    /// Those of a client with this `Authorization`.
    fn from(authorization: HeaderValue) -> Self {
        Self([(AUTHORIZATION, authorization)].into())
    }
}

impl Credentials {
    /// Writes the credentials into a request.
    pub(super) fn put(&self, mut builder: request::Builder) -> request::Builder {
        for (name, value) in &*self.0 {
            builder = builder.header(name, value);
        }
        builder
    }
}

/// Which headers of a client's request are credentials, and which of these the server gets.
#[derive(Debug, Clone, Default)]
pub struct CredentialRule {
    /// The server gets the client's own credentials: raincheck and the server are one resource.
    pub forwards: bool,
    /// Credentials beside `Authorization`.
    pub further: Arc<[HeaderName]>,
    /// The header in which raincheck tells the server who calls. It is no credential of the client's.
    pub caller_header: Option<HeaderName>,
}

/// A value that no text of the server may bring back to anybody.
pub(super) fn secret(value: &HeaderValue) -> HeaderValue {
    let mut value = owned(value);
    value.set_sensitive(true);
    value
}

impl CredentialRule {
    /// The part of the client's credentials that the server gets.
    pub fn of(&self, headers: &HeaderMap) -> Option<Credentials> {
        let authorization = headers.get(AUTHORIZATION).filter(|_| self.forwards);
        let authorization = authorization.map(|value| (AUTHORIZATION, secret(value)));
        let own = self.further.iter().filter(|_| self.forwards);
        let further = own.chain(&self.caller_header).flat_map(|name| {
            let values = headers.get_all(name).iter();
            // The header that names the caller is written by raincheck itself, and is no secret of the client.
            let is_secret = self.further.contains(name);
            values.map(move |value| {
                let value = if is_secret {
                    secret(value)
                } else {
                    owned(value)
                };
                (name.clone(), value)
            })
        });
        let mut found = authorization.into_iter().chain(further).peekable();
        // Nothing is allocated for a client without credentials.
        found.peek()?;
        Some(Credentials(found.collect()))
    }

    /// Returns `true` if the rule is about this header.
    pub(super) fn names(&self, name: &HeaderName) -> bool {
        *name == AUTHORIZATION
            || self.further.contains(name)
            || self.caller_header.as_ref() == Some(name)
    }

    /// Returns `true` if a header that the rule is about goes to the server with a request that passes.
    pub(super) fn passes(&self, name: &HeaderName) -> bool {
        self.forwards || self.caller_header.as_ref() == Some(name)
    }

    /// Returns `true` if the server can distinguish callers by the credentials that it gets. Then its words for one caller are not for another.
    pub fn tells_callers_apart(&self) -> bool {
        self.forwards || self.caller_header.is_some()
    }
}

/// The credentials of a session or of a line, as its caller last showed them. A renewed token takes the place of the token
/// that the session was opened with, which the server would refuse from its end on.
#[derive(Debug, Clone, Default)]
pub(super) struct LatestCredentials(Arc<Mutex<Option<Credentials>>>);

impl LatestCredentials {
    pub(super) fn new(credentials: Option<&Credentials>) -> Self {
        Self(Arc::new(Mutex::new(credentials.cloned())))
    }

    pub(super) fn get(&self) -> Option<Credentials> {
        self.0.lock().clone()
    }

    /// Takes over what the caller showed now. A request of raincheck's own shows nothing, and changes nothing.
    pub(super) fn renew(&self, credentials: Option<&Credentials>) {
        if let Some(credentials) = credentials {
            *self.0.lock() = Some(credentials.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
    const CALLER: HeaderName = HeaderName::from_static("x-caller");

    fn sent(credentials: Option<Credentials>) -> Vec<String> {
        let Some(credentials) = credentials else {
            return Vec::new();
        };
        let request = credentials.put(hyper::Request::builder()).body(()).unwrap();
        let text = |value: &HeaderValue| value.to_str().unwrap().to_owned();
        let headers = request.headers().iter();
        headers
            .map(|(name, value)| format!("{name}: {}", text(value)))
            .collect()
    }

    fn request() -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer a"));
        headers.append(API_KEY, HeaderValue::from_static("k"));
        headers.append(API_KEY, HeaderValue::from_static("l"));
        headers.insert(CALLER, HeaderValue::from_static("alice"));
        headers
    }

    #[test]
    fn the_rule_says_what_the_server_gets() {
        let nothing = CredentialRule::default();
        assert_eq!(sent(nothing.of(&request())), [""; 0]);
        let plain = CredentialRule {
            forwards: true,
            ..CredentialRule::default()
        };
        assert_eq!(sent(plain.of(&request())), ["authorization: Bearer a"]);
        assert_eq!(plain.of(&HeaderMap::new()), None);
        let keyed = CredentialRule {
            further: [API_KEY].into(),
            ..plain
        };
        assert_eq!(
            sent(keyed.of(&request())),
            ["authorization: Bearer a", "x-api-key: k", "x-api-key: l"]
        );
        let named = CredentialRule {
            forwards: false,
            caller_header: Some(CALLER),
            ..keyed
        };
        assert_eq!(sent(named.of(&request())), ["x-caller: alice"]);
        for name in [AUTHORIZATION, API_KEY, CALLER] {
            assert!(named.names(&name));
            assert_eq!(named.passes(&name), name == CALLER);
        }
        assert!(named.tells_callers_apart() && !nothing.tells_callers_apart());
    }

    #[test]
    fn a_session_has_the_newest_token_of_its_caller() {
        let rule = CredentialRule {
            forwards: true,
            ..CredentialRule::default()
        };
        let of = |token: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_static(token));
            rule.of(&headers)
        };
        let latest = LatestCredentials::new(of("Bearer a").as_ref());
        latest.renew(of("Bearer b").as_ref());
        latest.renew(None);
        assert_eq!(latest.get(), of("Bearer b"));
    }
}
