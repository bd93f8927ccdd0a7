//! The cookies that the server set on clients' own sessions. Many clients keep none, and a load balancer may send the
//! next request of a session elsewhere without them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hyper::HeaderMap;
use hyper::header::{HeaderValue, SET_COOKIE};
use hyper::http::request;

use super::newest::NewestSessions;
use crate::base::lock::Mutex;
use crate::mcp::headers::SESSION_ID;
use crate::upstream::http::cookies::Cookies;

/// In the extensions of a request on a client's session: its caller, whose cookies no other caller's request has.
#[derive(Debug, Clone, Copy)]
pub struct OfCaller(pub [u8; 16]);

type Key = ([u8; 16], HeaderValue);

#[derive(Debug, Default)]
pub(in crate::upstream) struct ClientCookies {
    newest: Mutex<NewestSessions<Key, Arc<Cookies>>>,
    /// Most servers set none, and then no request looks for any.
    are_any: AtomicBool,
}

impl ClientCookies {
    /// The cookies of that caller's session, to which responses add.
    pub(in crate::upstream) fn of(&self, caller: [u8; 16], session: &HeaderValue) -> Arc<Cookies> {
        let key = (caller, session.clone());
        let mut newest = self.newest.lock();
        if let Some(known) = newest.find(&key) {
            return known;
        }
        self.are_any.store(true, Ordering::Relaxed);
        let cookies: Arc<Cookies> = Arc::default();
        // Requests of a session that is forgotten here carry only the cookies that the client itself sends.
        newest.remember(key, Arc::clone(&cookies));
        cookies
    }

    /// The cookies for a request that passes.
    pub(in crate::upstream) fn for_request(&self, parts: &request::Parts) -> Option<Arc<Cookies>> {
        if !self.are_any.load(Ordering::Relaxed) {
            return None;
        }
        let OfCaller(caller) = *parts.extensions.get()?;
        let key = (caller, parts.headers.get(SESSION_ID)?.clone());
        self.newest.lock().find(&key)
    }

    /// The cookies that the response to a passed request adds to: those of the session that it begins, or of the session
    /// that the request named.
    pub(in crate::upstream) fn for_response(
        &self,
        caller: Option<OfCaller>,
        named: Option<&HeaderValue>,
        head: &HeaderMap,
    ) -> Option<Arc<Cookies>> {
        if !head.contains_key(SET_COOKIE) {
            return None;
        }
        let OfCaller(caller) = caller?;
        Some(self.of(caller, head.get(SESSION_ID).or(named)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_caller_has_cookies_of_its_own_for_its_newest_sessions() {
        let cookies = ClientCookies::default();
        let session = |number: usize| HeaderValue::from_str(&number.to_string()).unwrap();
        let first = cookies.of([1; 16], &session(0));
        assert!(Arc::ptr_eq(&first, &cookies.of([1; 16], &session(0))));
        assert!(!Arc::ptr_eq(&first, &cookies.of([2; 16], &session(0))));
        for number in 0..=10_000 {
            cookies.of([1; 16], &session(number));
        }
        assert!(!Arc::ptr_eq(&first, &cookies.of([1; 16], &session(0))));
    }
}
