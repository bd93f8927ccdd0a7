//! The wrapped server's address, and what is common to all requests to it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::http::request;
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri};

use super::cache::Cache;
use super::forward::{ClientHeaders, Forward};
use super::hop;
use super::http::{Http, RequestBody, ResponseBody};
use super::request_id::RequestId;
use super::settings::Settings;
use crate::failpoint::{Point, hit};
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::tools::Tools;

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
    forward: Forward,
    pub(super) message_bytes_max: usize,
    next_id: AtomicU64,
    /// Each caller's tools, as last listed.
    pub(super) tools: Cache<Tools>,
}

impl Origin {
    pub(super) fn new(url: &Uri, http: Http, settings: &Settings) -> Option<Self> {
        let authority = url.authority()?.as_str();
        // Credentials in a URL are none of the server's name.
        let authority = authority
            .rsplit_once('@')
            .map_or(authority, |(_, host)| host);
        let path = url.path_and_query().map_or("/", |path| path.as_str());
        Some(Self {
            forward: Forward {
                is_local: http.is_local(),
                further: settings.forward_headers.as_slice().into(),
            },
            http,
            path: path.parse().ok()?,
            host: HeaderValue::try_from(authority).ok()?,
            message_bytes_max: settings.message_bytes_max,
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

    /// What of a client's headers goes to the server with a request that is carried.
    pub(super) fn carried(&self, headers: &HeaderMap) -> ClientHeaders {
        self.forward.carried(headers)
    }

    /// Passes a client's request on, with those of its headers that the server is told.
    pub(super) async fn pass(
        &self,
        mut parts: request::Parts,
        body: RequestBody,
        well_known: Option<&str>,
    ) -> Result<Response<ResponseBody>, Failure> {
        self.forward.strip(&mut parts.headers);
        if !self.http.takes_credentials() {
            parts.headers.remove(AUTHORIZATION);
        }
        self.readdress(&mut parts, well_known);
        let request = Request::from_parts(parts, body);
        let mut response = self.http.send(request).await?;
        // Nobody asked for it, and a client that believes it reads what follows as something else.
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(Failure::new(Reason::UpstreamHttp, SideEffect::None));
        }
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
