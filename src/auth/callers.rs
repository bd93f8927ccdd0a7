//! Which caller a request is of: a keyed hash of who the client proved to be, or of its credential itself.

use std::sync::Arc;

use aws_lc_rs::hmac;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderName};
use uuid::Uuid;

use super::identity::Identity;
use crate::task::id::Caller;

/// The first byte of what is hashed: hashes for one purpose never are hashes for another. A header's value has none of
/// these bytes.
mod purpose {
    pub(super) const CREDENTIAL: u8 = 1;
    pub(super) const SEAL: u8 = 2;
    pub(super) const CLIENT: u8 = 3;
    pub(super) const FURTHER: u8 = 4;
}

/// Turns clients into callers. Credentials are never kept.
#[derive(Debug, Clone)]
pub struct Callers {
    key: hmac::Key,
    /// Most requests have no credentials: theirs is computed once.
    anonymous: Caller,
    /// Headers beside `Authorization` that servers know their clients by.
    further: Arc<[HeaderName]>,
}

impl Callers {
    /// The key is the store's: the same for every replica, and unknown to a reader of the records.
    pub fn new(key: &[u8; 32]) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, key);
        let anonymous = Caller::from_bytes(half(hmac::Context::with_key(&key)));
        Self {
            key,
            anonymous,
            further: [].into(),
        }
    }

    /// These headers of a request are part of the caller.
    #[must_use]
    pub fn by_headers(self, further: impl IntoIterator<Item = HeaderName>) -> Self {
        Self {
            further: further.into_iter().collect(),
            ..self
        }
    }

    /// A text that only a process with the key can make of these words.
    pub fn seal(&self, words: &[&str]) -> String {
        let mut context = self.begin(purpose::SEAL);
        for word in words {
            context.update(word.as_bytes());
            context.update(&[0]);
        }
        Uuid::from_bytes(half(context)).simple().to_string()
    }

    /// The caller of all requests without credentials.
    pub fn anonymous(&self) -> Caller {
        self.anonymous
    }

    /// Returns the caller for a client that proved, with this scheme, the identity that these words describe.
    pub fn of_client(&self, scheme: &str, words: &[&str]) -> Caller {
        let mut context = self.begin(purpose::CLIENT);
        for word in std::iter::once(&scheme).chain(words) {
            // The length first: the words are the client's, and may have any byte.
            context.update(&(word.len() as u64).to_be_bytes());
            context.update(word.as_bytes());
        }
        Caller::from_bytes(half(context))
    }

    /// Returns the caller of a request. Without an identity, the credential itself distinguishes callers: a renewed
    /// token is another caller, and all requests without credentials belong to the anonymous caller. With an
    /// identity, the configured headers make another caller of the same account, because they are not proved.
    pub fn of(&self, identity: Option<&Identity>, headers: &HeaderMap) -> Caller {
        if !self.are_told_apart(identity, headers) {
            return self.anonymous;
        }
        let has_further = self.further.iter().any(|name| headers.contains_key(name));
        let proved = identity.map(|identity| identity.caller);
        let mut context = match proved {
            Some(proved) if !has_further => return proved,
            Some(proved) => {
                let mut context = self.begin(purpose::FURTHER);
                context.update(proved.as_bytes());
                context
            }
            None => {
                let mut context = hmac::Context::with_key(&self.key);
                // No header value has the byte of a purpose, so two values never hash like one.
                for value in headers.get_all(AUTHORIZATION) {
                    context.update(&[purpose::CREDENTIAL]);
                    context.update(value.as_bytes());
                }
                context
            }
        };
        for name in self.further.iter() {
            for value in headers.get_all(name) {
                context.update(&[purpose::FURTHER]);
                context.update(name.as_str().as_bytes());
                context.update(&[0]);
                context.update(value.as_bytes());
            }
        }
        let hash = half(context);
        proved.map_or_else(
            || Caller::from_bytes(hash),
            |proved| proved.with_further(hash),
        )
    }

    /// Returns `true` if the request identifies its caller. All other requests belong to the anonymous caller.
    fn are_told_apart(&self, identity: Option<&Identity>, headers: &HeaderMap) -> bool {
        identity.is_some()
            || headers.contains_key(AUTHORIZATION)
            || self.further.iter().any(|name| headers.contains_key(name))
    }

    fn begin(&self, purpose: u8) -> hmac::Context {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&[purpose]);
        context
    }
}

fn half(context: hmac::Context) -> [u8; 16] {
    let mut half = [0_u8; 16];
    for (to, from) in half.iter_mut().zip(context.sign().as_ref()) {
        *to = *from;
    }
    half
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

    fn headers(written: &[(HeaderName, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in written {
            map.append(name, value.parse().unwrap());
        }
        map
    }

    fn identity(caller: Caller) -> Identity {
        Identity {
            caller,
            name: HeaderValue::from_static("alice"),
            label: None,
            scopes: [].into(),
            ends_at_ms: None,
        }
    }

    #[test]
    fn a_seal_is_of_its_words_and_its_key() {
        let callers = Callers::new(&[1; 32]);
        let seal = callers.seal(&["a", "b"]);
        assert_eq!(seal, callers.seal(&["a", "b"]));
        assert_ne!(seal, callers.seal(&["a", "c"]));
        assert_ne!(seal, callers.seal(&["ab"]));
        assert_ne!(seal, Callers::new(&[2; 32]).seal(&["a", "b"]));
    }

    #[test]
    fn callers_differ_by_credentials_and_by_key() {
        let headers = |values: &[&str]| {
            let written: Vec<_> = values.iter().map(|value| (AUTHORIZATION, *value)).collect();
            headers(&written)
        };
        let callers = Callers::new(&[1; 32]);
        let of = |values: &[&str]| callers.of(None, &headers(values));
        let alice = of(&["Bearer a"]);
        assert_eq!(alice, of(&["Bearer a"]));
        assert_ne!(alice, of(&["Bearer b"]));
        assert_ne!(alice, of(&[]));
        assert_ne!(of(&[""]), of(&[]));
        let elsewhere = Callers::new(&[2; 32]);
        assert_ne!(alice, elsewhere.of(None, &headers(&["Bearer a"])));
    }

    #[test]
    fn a_client_is_who_it_is_whatever_its_token() {
        let callers = Callers::new(&[1; 32]);
        let alice = identity(callers.of_client("jwt", &["issuer", "alice"]));
        let of = |token| callers.of(Some(&alice), &headers(&[(AUTHORIZATION, token)]));
        assert_eq!(of("Bearer a"), of("Bearer b"));
        assert_eq!(of("Bearer a"), alice.caller);
        for other in [
            callers.of_client("token", &["issuer", "alice"]),
            callers.of_client("jwt", &["issuer", "bob"]),
            callers.of_client("jwt", &["issueralice", ""]),
            callers.of_client("jwt", &["issuer", "alice", "tenant"]),
            callers.of(None, &headers(&[(AUTHORIZATION, "alice")])),
            callers.anonymous(),
        ] {
            assert_ne!(alice.caller, other);
        }
    }

    #[test]
    fn a_configured_header_is_part_of_the_caller() {
        let plain = Callers::new(&[1; 32]);
        let callers = plain.clone().by_headers([API_KEY]);
        let key = |value| headers(&[(API_KEY, value)]);
        let both = headers(&[(AUTHORIZATION, "Bearer a"), (API_KEY, "1")]);
        let token = headers(&[(AUTHORIZATION, "Bearer a")]);
        assert_eq!(plain.of(None, &key("1")), plain.anonymous());
        assert!(!plain.are_told_apart(None, &key("1")));
        assert!(callers.are_told_apart(None, &key("1")));
        let alice = identity(callers.of_client("jwt", &["issuer", "alice"]));
        let all = [
            callers.anonymous(),
            callers.of(None, &key("1")),
            callers.of(None, &key("2")),
            callers.of(None, &both),
            callers.of(None, &token),
            callers.of(Some(&alice), &token),
            callers.of(Some(&alice), &both),
        ];
        for (place, one) in all.iter().enumerate() {
            assert!(!all[..place].contains(one), "{place}");
        }
        let invented = |value| callers.of(Some(&alice), &key(value));
        assert_ne!(invented("1"), invented("2"));
        assert_eq!(invented("1").account(), alice.caller.account());
        assert_eq!(invented("1").account(), invented("2").account());
        let unproved = |value| callers.of(None, &key(value)).account();
        assert_ne!(
            unproved("1"),
            unproved("2"),
            "nothing else tells them apart"
        );
        assert_eq!(callers.of(None, &token), plain.of(None, &token));
    }
}
