//! Who calls: a keyed hash of the request's `Authorization`. Credentials are never kept.

use aws_lc_rs::hmac;
use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use uuid::Uuid;

use crate::task::id::Caller;

/// Turns credentials into callers.
#[derive(Debug)]
pub struct Callers {
    key: hmac::Key,
    /// Most requests have no credentials: theirs is computed once.
    anonymous: Caller,
}

impl Callers {
    /// The key is the store's: the same for every replica, and unknown to whoever reads records.
    pub fn new(key: &[u8; 32]) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, key);
        let anonymous = Caller::from_bytes(half(hmac::Context::with_key(&key)));
        Self { key, anonymous }
    }

    /// What only who has the key can say of these words.
    pub(super) fn seal(&self, words: &[&str]) -> String {
        let mut context = hmac::Context::with_key(&self.key);
        // As no `Authorization` begins.
        context.update(&[2]);
        for word in words {
            context.update(word.as_bytes());
            context.update(&[0]);
        }
        Uuid::from_bytes(half(context)).simple().to_string()
    }

    /// The caller of all requests without `Authorization`.
    pub fn anonymous(&self) -> Caller {
        self.anonymous
    }

    /// All requests without `Authorization` are one caller, the anonymous one.
    pub(super) fn of(&self, headers: &HeaderMap) -> Caller {
        if !has_credentials(headers) {
            return self.anonymous;
        }
        let mut context = hmac::Context::with_key(&self.key);
        for value in headers.get_all(AUTHORIZATION) {
            context.update(&[1]);
            context.update(value.as_bytes());
        }
        Caller::from_bytes(half(context))
    }
}

fn half(context: hmac::Context) -> [u8; 16] {
    let mut half = [0_u8; 16];
    for (to, from) in half.iter_mut().zip(context.sign().as_ref()) {
        *to = *from;
    }
    half
}

/// Whether the request says who asks. All requests without credentials are the anonymous caller's.
pub(super) fn has_credentials(headers: &HeaderMap) -> bool {
    headers.contains_key(AUTHORIZATION)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let mut map = HeaderMap::new();
            for value in values {
                map.append(AUTHORIZATION, value.parse().unwrap());
            }
            map
        };
        let callers = Callers::new(&[1; 32]);
        let alice = callers.of(&headers(&["Bearer a"]));
        assert_eq!(alice, callers.of(&headers(&["Bearer a"])));
        assert_ne!(alice, callers.of(&headers(&["Bearer b"])));
        assert_ne!(alice, callers.of(&headers(&[])));
        assert_ne!(callers.of(&headers(&[""])), callers.of(&headers(&[])));
        assert_ne!(alice, Callers::new(&[2; 32]).of(&headers(&["Bearer a"])));
    }
}
