//! The address of the MCP endpoint: as configured, or where the server redirects to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use hyper::header::LOCATION;
use hyper::http::Extensions;
use hyper::{HeaderMap, Method, Response, StatusCode, Uri};
use url::Url;

use crate::base::lock::Mutex;
use crate::base::printable::short_bytes;
use crate::upstream::http::response_body::ResponseBody;
use crate::upstream::http::same_origin;

#[derive(Debug)]
pub(super) struct Address {
    /// The configured URL, without credentials.
    configured: Url,
    /// Path and query, as last learned.
    target: ArcSwap<Uri>,
    has_learned: AtomicBool,
    /// A POST to the target was answered with success, so that no redirect is expected any more.
    is_settled: AtomicBool,
    /// The redirect that was last logged as not followed.
    refused: Mutex<Option<String>>,
}

/// The meaning of a response for the address of its request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// It is no redirect.
    Here,
    /// The same request is to be sent to this path and query.
    To(Uri),
    /// A redirect that is not followed, and its target without what may be secret.
    Elsewhere(String),
}

/// In the extensions of a response: a redirect whose target is known now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moved;

/// In the extensions of a response: the target of a redirect that is not followed, without what may be secret.
#[derive(Debug, Clone)]
pub(super) struct UnfollowedRedirect(pub(super) String);

/// Returns `true` if the request ran nothing, and would go to the right address if it were made once more.
pub(in crate::upstream) fn is_of_moved(extensions: &Extensions) -> bool {
    extensions.get::<Moved>().is_some()
}

/// Returns `true` if a response to a client's message is a redirect: its target is an address that no client can reach.
pub(super) fn is_redirected_message(response: &Response<ResponseBody>) -> bool {
    response.status().is_redirection() && response.status() != StatusCode::NOT_MODIFIED
}

impl Address {
    pub(super) fn new(url: &Uri, target: Uri) -> Option<Self> {
        let mut configured = Url::parse(&url.to_string()).ok()?;
        configured.set_username("").ok()?;
        configured.set_password(None).ok()?;
        Some(Self {
            configured,
            target: ArcSwap::from_pointee(target),
            has_learned: AtomicBool::new(false),
            is_settled: AtomicBool::new(false),
            refused: Mutex::default(),
        })
    }

    /// Path and query.
    pub(super) fn target(&self) -> Uri {
        Uri::clone(&self.target.load())
    }

    /// The address of that path and query at the server.
    pub(super) fn url_of(&self, target: &Uri) -> Url {
        let url = self.configured.join(&target.to_string());
        url.unwrap_or_else(|_| self.configured.clone())
    }

    /// The whole address of the endpoint, without its query, if the server redirected to it.
    pub(super) fn learned(&self) -> Option<String> {
        if !self.has_learned.load(Ordering::Relaxed) {
            return None;
        }
        let mut learned = self.url_of(&self.target.load());
        learned.set_query(None);
        Some(learned.into())
    }

    /// Returns `true` if a redirect of that request would be no surprise, so that the request is to be kept until its response.
    pub(super) fn may_be_redirected(&self, method: &Method, uri: &Uri) -> bool {
        // Requests other than POST are rare, so it costs little to keep each of them.
        !self.is_settled.load(Ordering::Relaxed)
            || method != Method::POST
            || uri.path() != self.target.load().path()
    }

    /// Where the response to a request for that path and query leads.
    pub(super) fn direction(
        &self,
        asked: &Uri,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Direction {
        if !is_redirect(status) {
            return Direction::Here;
        }
        let location = headers.get(LOCATION).map(|it| it.to_str());
        let Some(Ok(location)) = location else {
            return Direction::Here;
        };
        let base = self.url_of(asked);
        // The other statuses make a GET of a POST.
        let keeps_method = matches!(
            status,
            StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT
        );
        match same_origin::resolve(&base, location).filter(|_| keeps_method) {
            // A redirect to the same address would go in a circle.
            Some(target) if target != *asked => Direction::To(target),
            _ => Direction::Elsewhere(described(&base, location)),
        }
    }

    /// Learns from a redirect of a request, if that was for the endpoint.
    pub(super) fn learn(&self, method: &Method, asked: &Uri, target: &Uri) {
        let known = self.target.load();
        let is_settled = self.is_settled.load(Ordering::Relaxed);
        // The stream of a GET may be elsewhere than the endpoint for messages, which is what counts.
        if asked.path() != known.path() || (is_settled && method != Method::POST) {
            return;
        }
        let query = if *asked == **known {
            target.query()
        } else {
            // The query was a client's.
            known.query()
        };
        let learned = match query {
            Some(query) => format!("{}?{query}", target.path()),
            None => target.path().to_owned(),
        };
        let Ok(learned) = learned.parse::<Uri>() else {
            return;
        };
        let path = short_bytes(learned.path().as_bytes()).into_owned();
        // The new address may redirect, too, so requests are kept until it has answered.
        self.is_settled.store(false, Ordering::Relaxed);
        self.target.store(Arc::new(learned));
        self.has_learned.store(true, Ordering::Relaxed);
        tracing::warn!(
            path,
            "the server redirects, and requests go to this path from now on; write it in upstream.url"
        );
    }

    /// A response came that is no redirect.
    pub(super) fn answered(&self, method: &Method, asked: &Uri, status: StatusCode) {
        // Only a POST shows where messages go, because the stream of a GET may be elsewhere.
        if method == Method::POST
            && status.is_success()
            && asked.path() == self.target.load().path()
        {
            self.is_settled.store(true, Ordering::Relaxed);
        }
    }

    /// A redirect came that nobody expected, so that the next request expects one.
    pub(super) fn unsettle(&self) {
        self.is_settled.store(false, Ordering::Relaxed);
    }

    /// Logs a redirect that is not followed, once for each target.
    pub(super) fn refuse(&self, status: StatusCode, location: &str) {
        let before = self.refused.lock().replace(location.to_owned());
        if before.as_deref() != Some(location) {
            tracing::warn!(
                status = status.as_u16(),
                location,
                "the server redirects, which is not followed; write the address of its MCP endpoint in upstream.url"
            );
        }
    }
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// The target of a redirect, without what may be secret: credentials, query and fragment.
fn described(base: &Url, location: &str) -> String {
    let Ok(mut target) = base.join(location.trim()) else {
        return "no address".to_owned();
    };
    target.set_query(None);
    target.set_fragment(None);
    // Only addresses with a host have credentials.
    let _ = target.set_username("");
    let _ = target.set_password(None);
    short_bytes(target.as_str().as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address() -> Address {
        let url = Uri::from_static("http://user:s3cret@tools.local:8000/mcp?key=k");
        Address::new(&url, Uri::from_static("/mcp?key=k")).unwrap()
    }

    fn direction(asked: &'static str, status: u16, location: &'static str) -> Direction {
        let mut headers = HeaderMap::new();
        headers.insert(LOCATION, location.parse().unwrap());
        let status = StatusCode::from_u16(status).unwrap();
        address().direction(&Uri::from_static(asked), status, &headers)
    }

    #[test]
    fn only_what_repeats_the_request_at_the_same_origin_is_followed() {
        let to = |target| Direction::To(Uri::from_static(target));
        for status in [307, 308] {
            for location in [
                "/mcp/",
                "mcp/",
                "http://tools.local:8000/mcp/",
                "//tools.local:8000/mcp/",
                " HTTP://TOOLS.local:8000/mcp/#there",
            ] {
                assert_eq!(
                    direction("/mcp", status, location),
                    to("/mcp/"),
                    "{location}"
                );
            }
            assert_eq!(direction("/mcp?a=b", status, "?c=d"), to("/mcp?c=d&a=b"));
        }
        let elsewhere = |target: &str| Direction::Elsewhere(target.to_owned());
        for (status, location, target) in [
            (301, "/mcp/", "http://tools.local:8000/mcp/"),
            (302, "/login?s3cret", "http://tools.local:8000/login"),
            (303, "/mcp", "http://tools.local:8000/mcp"),
            (307, "/mcp", "http://tools.local:8000/mcp"),
            (
                307,
                "https://tools.local:8000/mcp/",
                "https://tools.local:8000/mcp/",
            ),
            (308, "http://tools.local/mcp/", "http://tools.local/mcp/"),
            (
                307,
                "http://user:s3cret@evil.example/x?s3cret#s3cret",
                "http://evil.example/x",
            ),
        ] {
            let found = direction("/mcp", status, location);
            assert_eq!(found, elsewhere(target), "{status} {location}");
        }
        for status in [200, 300, 304, 404] {
            assert_eq!(direction("/mcp", status, "/mcp/"), Direction::Here);
        }
    }

    #[test]
    fn what_is_learned_is_the_address_of_the_endpoint() {
        let (get, post) = (Method::GET, Method::POST);
        let uri = Uri::from_static;
        let address = address();
        assert_eq!(address.learned(), None);
        // Metadata are no endpoint.
        address.learn(&get, &uri("/.well-known/x"), &uri("/y"));
        assert_eq!(address.target(), "/mcp?key=k");
        address.learn(&post, &uri("/mcp?client=1"), &uri("/mcp/?client=1"));
        assert_eq!(address.target(), "/mcp/?key=k");
        address.learn(&post, &uri("/mcp/?key=k"), &uri("/v2/mcp?key=l"));
        assert_eq!(address.target(), "/v2/mcp?key=l");
        assert_eq!(address.learned().unwrap(), "http://tools.local:8000/v2/mcp");
        assert!(address.may_be_redirected(&post, &uri("/v2/mcp")));
        address.answered(&post, &uri("/v2/mcp"), StatusCode::OK);
        assert!(!address.may_be_redirected(&post, &uri("/v2/mcp?a=b")));
        assert!(address.may_be_redirected(&get, &uri("/v2/mcp")));
        // A stream that is elsewhere is not where messages go.
        address.learn(&get, &uri("/v2/mcp"), &uri("/stream"));
        assert_eq!(address.target(), "/v2/mcp?key=l");
        address.unsettle();
        assert!(address.may_be_redirected(&post, &uri("/v2/mcp")));
    }
}
