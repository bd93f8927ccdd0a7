//! The wrapped server's address, and what is common to all requests to it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, HeaderValue, ORIGIN};
use hyper::http::request;
use hyper::{Method, Request, Response, Uri};

use super::cache::Cache;
use super::hop;
use super::http::{Http, RequestBody, ResponseBody};
use super::request_id::RequestId;
use crate::failpoint::{Point, hit};
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::tools::Tools;

pub(super) const METHOD: HeaderName = HeaderName::from_static("mcp-method");
pub(super) const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// How long a server may take to say what it is and has, or to begin a session. Some are started by the
/// request.
pub(super) const FIRST_WORDS: Duration = Duration::from_secs(30);

/// Servers refuse requests that do not accept both forms.
pub(super) const BOTH: HeaderValue =
    HeaderValue::from_static("application/json, text/event-stream");
pub(super) const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// One wrapped server, shared by everything that talks to it.
#[derive(Debug)]
pub(super) struct Origin {
    pub(super) http: Http,
    /// Path and query of the MCP endpoint.
    path: Uri,
    host: HeaderValue,
    pub(super) message_bytes_max: usize,
    next_id: AtomicU64,
    /// Each caller's tools, as last listed.
    pub(super) tools: Cache<Tools>,
}

impl Origin {
    pub(super) fn new(url: &Uri, http: Http, message_bytes_max: usize) -> Option<Self> {
        let authority = url.authority()?.as_str();
        // Credentials in a URL are none of the server's name.
        let authority = authority
            .rsplit_once('@')
            .map_or(authority, |(_, host)| host);
        let path = url.path_and_query().map_or("/", |path| path.as_str());
        Some(Self {
            http,
            path: path.parse().ok()?,
            host: HeaderValue::try_from(authority).ok()?,
            message_bytes_max,
            next_id: AtomicU64::new(1),
            tools: Cache::default(),
        })
    }

    /// A JSON-RPC id, never used twice at this server.
    pub(super) fn next_id(&self) -> RequestId {
        RequestId::number(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// A POST of one JSON-RPC message.
    pub(super) fn post(&self, credentials: Option<&HeaderValue>) -> request::Builder {
        self.builder(Method::POST, credentials)
            .header(ACCEPT, BOTH)
            .header(CONTENT_TYPE, JSON)
    }

    /// A GET of a legacy event stream.
    pub(super) fn get(&self, credentials: Option<&HeaderValue>) -> request::Builder {
        self.builder(Method::GET, credentials)
            .header(ACCEPT, EVENTS)
    }

    pub(super) fn delete(&self, credentials: Option<&HeaderValue>) -> request::Builder {
        self.builder(Method::DELETE, credentials)
    }

    fn builder(&self, method: Method, credentials: Option<&HeaderValue>) -> request::Builder {
        let builder = Request::builder()
            .method(method)
            .uri(self.path.clone())
            .header(HOST, &self.host);
        match credentials {
            Some(credentials) => builder.header(AUTHORIZATION, credentials),
            None => builder,
        }
    }

    /// Sends a request of that method, until the head of the response is there.
    pub(super) async fn request(
        &self,
        builder: request::Builder,
        method: &str,
        message: String,
    ) -> Result<Response<ResponseBody>, Failure> {
        if method != "tools/call" {
            return self.send(builder, RequestBody::json(message)).await;
        }
        let response = self.send(builder, RequestBody::call(message)).await;
        response.inspect(|_| hit(Point::FirstByte))
    }

    pub(super) async fn send(
        &self,
        builder: request::Builder,
        body: RequestBody,
    ) -> Result<Response<ResponseBody>, Failure> {
        let request = builder
            .body(body)
            .map_err(|_| Failure::new(Reason::UpstreamInvalid, SideEffect::None))?;
        self.http.send(request).await
    }

    /// Passes a client's request on, but for what belongs to its connection to us.
    pub(super) async fn pass(
        &self,
        mut parts: request::Parts,
        body: RequestBody,
        well_known: Option<&str>,
    ) -> Result<Response<ResponseBody>, Failure> {
        hop::strip(&mut parts.headers);
        parts.headers.remove(ORIGIN);
        if !self.http.takes_credentials() {
            parts.headers.remove(AUTHORIZATION);
        }
        self.readdress(&mut parts, well_known);
        let request = Request::from_parts(parts, body);
        let mut response = self.http.send(request).await?;
        hop::strip(response.headers_mut());
        Ok(response)
    }

    /// A client's own request, for this server: same bytes, another address.
    fn readdress(&self, parts: &mut request::Parts, well_known: Option<&str>) {
        let own = self.path.path();
        let target = match well_known {
            // Metadata of this very endpoint: its path follows the prefix.
            Some(prefix) if parts.uri.path().len() > prefix.len() => format!("{prefix}{own}"),
            Some(prefix) => prefix.to_owned(),
            None => match parts.uri.query() {
                Some(query) => format!("{own}?{query}"),
                None => self.path.to_string(),
            },
        };
        parts.uri = target.parse().unwrap_or_else(|_| self.path.clone());
        parts.version = hyper::Version::HTTP_11;
        parts.headers.insert(HOST, self.host.clone());
    }
}
