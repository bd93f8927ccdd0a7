//! What is between a server and raincheck, or strange about the server: a redirect, a load balancer that knows a
//! session by a cookie, and the words in which a lost session is refused.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{Request, Response};
use serde_json::Value;

use super::super::http::{self, Body};
use super::super::session::SESSION;
use super::{Shared, Upstream};

#[derive(Debug, Default)]
pub(super) struct Ways {
    /// Requests for `/mcp` are redirected: with that status, to that address.
    moved: Mutex<Option<(u16, String)>>,
    redirected: AtomicUsize,
    /// The status, and the error or the text, of a request on a session that is not known.
    lost: Mutex<Option<(u16, &'static str)>>,
    is_sticky: AtomicBool,
    allows_pages: AtomicBool,
    /// The node of each session, by the session's name.
    nodes: Mutex<BTreeMap<String, String>>,
    /// Requests on a session that came with the cookie of no node, or of another.
    strays: AtomicUsize,
}

impl Upstream {
    /// From now on requests are redirected to this address. A path of this server is one where they are answered.
    pub(crate) fn move_to(&self, status: u16, location: &str) {
        *self.shared.ways.moved.lock().unwrap() = Some((status, location.to_owned()));
    }

    /// How many requests were redirected.
    pub(crate) fn redirected(&self) -> usize {
        self.shared.ways.redirected.load(Ordering::Relaxed)
    }

    /// From now on a session that is not known is refused so. An object is a JSON-RPC error, and else it is the body.
    pub(crate) fn refuse_lost(&self, status: u16, words: &'static str) {
        *self.shared.ways.lost.lock().unwrap() = Some((status, words));
    }

    /// From now on each session lives on a node of its own, which a cookie names.
    pub(crate) fn stick(&self) {
        self.shared.ways.is_sticky.store(true, Ordering::Relaxed);
    }

    /// From now on nothing is answered.
    pub(crate) fn hang(&self) {
        self.shared.hangs.store(true, Ordering::Relaxed);
    }

    /// From now on every request without credentials meets a challenge.
    pub(crate) fn challenge(&self) {
        self.shared.challenges.store(true, Ordering::Relaxed);
    }

    /// From now on every request is answered with an error of the server's own, but Alice's.
    pub(crate) fn forbid(&self) {
        self.shared.forbids.store(true, Ordering::Relaxed);
    }

    /// From now on every answer has CORS headers, twice.
    pub(crate) fn allow_pages(&self) {
        self.shared.ways.allows_pages.store(true, Ordering::Relaxed);
    }

    /// How many requests on a session came without its cookie, or with that of another session.
    pub(crate) fn strays(&self) -> usize {
        self.shared.ways.strays.load(Ordering::Relaxed)
    }
}

impl Ways {
    /// The refusal of a message on a session that is not known.
    pub(super) fn refusal(&self, message: &Value) -> Option<Response<Body>> {
        let (status, words) = (*self.lost.lock().unwrap())?;
        if !words.starts_with('{') {
            return Some(http::json(status, words.to_owned()));
        }
        Some(http::json(
            status,
            super::modern::error(&message["id"], words),
        ))
    }

    fn redirect(&self, path: &str) -> Option<Response<Body>> {
        let (status, location) = self
            .moved
            .lock()
            .unwrap()
            .clone()
            .filter(|_| path == "/mcp")?;
        self.redirected.fetch_add(1, Ordering::Relaxed);
        let mut response = http::empty(status);
        response
            .headers_mut()
            .insert("location", location.parse().unwrap());
        Some(response)
    }

    /// Whether the request has the cookie of its session's node, and no other node's.
    fn is_astray(&self, parts: &Parts) -> bool {
        let Some(session) = parts.headers.get(SESSION) else {
            return false;
        };
        let nodes = self.nodes.lock().unwrap();
        let Some(node) = nodes.get(session.to_str().unwrap()) else {
            return false;
        };
        let cookies = parts.headers.get_all("cookie").iter();
        let cookies: Vec<&str> = cookies.map(|line| line.to_str().unwrap()).collect();
        let cookies = cookies.join("; ");
        let named = cookies.split("; ").filter(|pair| pair.starts_with("node="));
        named.collect::<Vec<_>>() != [format!("node={node}")]
    }
}

pub(super) async fn handle(shared: Arc<Shared>, request: Request<Incoming>) -> Response<Body> {
    let ways = &shared.ways;
    if let Some(redirect) = ways.redirect(request.uri().path()) {
        return redirect;
    }
    let (mut parts, body) = request.into_parts();
    let is_moved = {
        let moved = ways.moved.lock().unwrap();
        moved.as_ref().is_some_and(|(_, to)| to == parts.uri.path())
    };
    if is_moved {
        parts.uri = "/mcp".parse().unwrap();
    }
    let is_sticky = ways.is_sticky.load(Ordering::Relaxed);
    if is_sticky && ways.is_astray(&parts) {
        ways.strays.fetch_add(1, Ordering::Relaxed);
        return http::json(404, "no such session on this node".to_owned());
    }
    let mut response = super::handle(Arc::clone(&shared), Request::from_parts(parts, body)).await;
    if is_sticky && let Some(session) = response.headers().get(SESSION).cloned() {
        let session = session.to_str().unwrap().to_owned();
        let node = format!("of-{session}");
        let cookie = format!("node={node}; Path=/mcp; HttpOnly; SameSite=None");
        shared.ways.nodes.lock().unwrap().insert(session, node);
        response
            .headers_mut()
            .insert("set-cookie", cookie.parse().unwrap());
    }
    if ways.allows_pages.load(Ordering::Relaxed) {
        http::allow_pages(response.headers_mut());
    }
    response
}
