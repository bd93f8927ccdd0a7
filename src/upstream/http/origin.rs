//! The wrapped server's address, and what is common to all requests to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use hyper::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HOST, HeaderValue};
use hyper::http::request;
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use url::Url;

use crate::base::failpoint::{Point, hit};
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::tools::Tools;
use crate::upstream::cache::Cache;
use crate::upstream::credentials::{CredentialRule, Credentials};
use crate::upstream::forward::{ClientHeaders, Forward, also_read_as};
use crate::upstream::http::address::{self, Address};
use crate::upstream::http::cookies::{Cookies, FirstOfName};
use crate::upstream::http::hop_headers;
use crate::upstream::http::refusal;
use crate::upstream::http::refusal::SentSecrets;
use crate::upstream::http::{Http, RequestBody, ResponseBody};
use crate::upstream::query::{QueryRule, joined};
use crate::upstream::request_id::RequestId;
use crate::upstream::settings::Settings;

/// The time that a server may take to describe itself or to begin a session. Some servers are started by the
/// request.
pub(in crate::upstream) const FIRST_WORDS: Duration = Duration::from_secs(30);

/// The `Accept` header. Servers refuse requests that do not accept both forms.
pub(in crate::upstream) const BOTH: HeaderValue =
    HeaderValue::from_static("application/json, text/event-stream");
pub(in crate::upstream) const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
pub(in crate::upstream) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The `Accept-Encoding` header where raincheck reads the answer. Without it a server may choose any coding (RFC 9110, 12.5.3).
pub(in crate::upstream) const NO_CODING: HeaderValue = HeaderValue::from_static("identity");

/// One wrapped server, shared by everything that talks to it.
#[derive(Debug)]
pub(in crate::upstream) struct Origin {
    pub(in crate::upstream) http: Http,
    /// The MCP endpoint.
    pub(super) address: Address,
    host: HeaderValue,
    forward: Forward,
    pub(in crate::upstream) message_bytes_max: usize,
    next_id: AtomicU64,
    /// Each caller's tools, as last listed.
    pub(in crate::upstream) tools: Cache<Tools>,
}

impl Origin {
    pub(in crate::upstream) fn new(url: &Uri, http: Http, settings: &Settings) -> Option<Self> {
        let authority = url.authority()?.as_str();
        // Credentials in a URL are not part of the server's name.
        let authority = authority
            .rsplit_once('@')
            .map_or(authority, |(_, host)| host);
        let path = url.path_and_query().map_or("/", |path| path.as_str());
        let written = http.configured_names().chain(&settings.caller_header);
        let taken: Vec<_> = written.chain(settings.credential_headers.iter()).collect();
        Some(Self {
            forward: Forward {
                is_local: http.is_local(),
                query: QueryRule::new(&settings.forward_query),
                further: settings.forward_headers.as_slice().into(),
                taken: also_read_as(&taken),
                credentials: CredentialRule {
                    forwards: settings
                        .forwards_credentials
                        .unwrap_or_else(|| http.takes_credentials()),
                    further: Arc::clone(&settings.credential_headers),
                    caller_header: settings.caller_header.clone(),
                },
            },
            http,
            address: Address::new(url, path.parse().ok()?)?,
            host: HeaderValue::try_from(authority).ok()?,
            message_bytes_max: settings.message_bytes_max,
            next_id: AtomicU64::new(1),
            tools: Cache::default(),
        })
    }

    /// A JSON-RPC id that was never used at this server.
    pub(in crate::upstream) fn next_id(&self) -> RequestId {
        RequestId::number(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// A POST of one JSON-RPC message.
    pub(in crate::upstream) fn post(&self, credentials: Option<&Credentials>) -> request::Builder {
        self.builder(Method::POST, credentials)
            .header(ACCEPT, BOTH)
            .header(CONTENT_TYPE, JSON)
    }

    /// A GET of a legacy event stream.
    pub(in crate::upstream) fn get(&self, credentials: Option<&Credentials>) -> request::Builder {
        self.builder(Method::GET, credentials)
            .header(ACCEPT, EVENTS)
    }

    pub(in crate::upstream) fn delete(
        &self,
        credentials: Option<&Credentials>,
    ) -> request::Builder {
        self.builder(Method::DELETE, credentials)
    }

    fn builder(&self, method: Method, credentials: Option<&Credentials>) -> request::Builder {
        let builder = Request::builder()
            .method(method)
            .uri(self.address.target())
            .header(HOST, &self.host)
            .header(ACCEPT_ENCODING, NO_CODING);
        match credentials {
            Some(credentials) => credentials.put(builder),
            None => builder,
        }
    }

    /// Sends a request of that method, and waits for the head of the response.
    pub(in crate::upstream) fn request(
        &self,
        builder: request::Builder,
        method: &str,
        message: String,
    ) -> impl Future<Output = Result<Response<ResponseBody>, Failure>> + Send {
        let is_call = method == "tools/call";
        let body = if is_call {
            RequestBody::call(message)
        } else {
            RequestBody::json(message)
        };
        self.send(builder, body).map(move |response| {
            response.inspect(|_| {
                if is_call {
                    hit(Point::FirstByte);
                }
            })
        })
    }

    /// Sends a request. It is made before there is a future, which has no room for its parts then.
    pub(in crate::upstream) fn send(
        &self,
        builder: request::Builder,
        body: RequestBody,
    ) -> impl Future<Output = Result<Response<ResponseBody>, Failure>> + Send {
        let request = builder.body(body).map(Box::new);
        async move {
            let request =
                request.map_err(|_| Failure::new(Reason::UpstreamInvalid, SideEffect::None))?;
            // Collected before `deliver` takes the request, because a refusal may repeat these values.
            let sent = request.headers().values();
            let sent: Vec<_> = sent.filter(|it| it.is_sensitive()).cloned().collect();
            let mut response = self.deliver(request).await?;
            // Only the text of such an answer can get into an error, so no other needs the list of secrets.
            if !response.status().is_success() || !is_of_mcp(response.headers()) {
                let ours = self.http.configured_secrets();
                let all = SentSecrets(sent.into_iter().chain(ours).collect());
                response.extensions_mut().insert(all);
            }
            Ok(response)
        }
    }

    /// The address of the endpoint, by which cookies are chosen.
    pub(in crate::upstream) fn url(&self) -> Url {
        self.url_of(&self.address.target())
    }

    /// The address of that path and query at the server.
    pub(in crate::upstream) fn url_of(&self, target: &Uri) -> Url {
        self.address.url_of(target)
    }

    /// The whole address of the endpoint, without its query, if the server redirected to it.
    pub(in crate::upstream) fn learned_address(&self) -> Option<String> {
        self.address.learned()
    }

    /// Returns the part of a client's credentials that the server gets.
    pub(in crate::upstream) fn credentials(&self) -> &CredentialRule {
        &self.forward.credentials
    }

    /// The client's headers that go to the server with a request that is carried.
    pub(in crate::upstream) fn carried(&self, headers: &HeaderMap) -> ClientHeaders {
        self.forward.carried(headers)
    }

    /// The parameters of a client's query that go to the server, as a query.
    pub(in crate::upstream) fn forwarded_query(&self, query: Option<&str>) -> Option<Arc<str>> {
        self.forward.query.of(query)
    }

    /// The request, with the parameters of its client's query that go to the server. No client replaces a parameter of
    /// the operator's.
    pub(in crate::upstream) fn with_query(
        &self,
        builder: request::Builder,
        query: Option<&str>,
    ) -> request::Builder {
        match query {
            Some(query) => builder.uri(joined(&self.address.target(), query)),
            None => builder,
        }
    }

    /// Passes a client's request on, with those headers that go to the server, and with the cookies of its session.
    pub(in crate::upstream) async fn pass(
        &self,
        mut parts: Box<request::Parts>,
        body: RequestBody,
        well_known: Option<&str>,
        cookies: Option<&Cookies>,
    ) -> Result<Response<ResponseBody>, Failure> {
        self.forward.strip(&mut parts.headers);
        if let Some(cookies) = cookies {
            let first = FirstOfName::Clients;
            cookies.put(&mut parts.headers, first, || self.url());
        }
        self.readdress(&mut parts, well_known);
        let request = Box::new(Request::from_parts(*parts, body));
        let mut response = self.deliver(request).await?;
        if well_known.is_none() && address::is_redirected_message(&response) {
            return Err(refusal::failure(&response.into_parts().0, ""));
        }
        // No client asked for another protocol. A client that believed the answer would read what follows as
        // one.
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(Failure::new(Reason::UpstreamHttp, SideEffect::None));
        }
        // They describe the connection to the server, and the client has another one (RFC 9110, 7.6.1).
        hop_headers::strip(response.headers_mut());
        Ok(response)
    }

    /// Makes a client's own request one for this server: same bytes, another address.
    fn readdress(&self, parts: &mut request::Parts, well_known: Option<&str>) {
        let address = self.address.target();
        let target = match well_known {
            None => {
                let query = self.forward.query.of(parts.uri.query());
                query.map(|query| joined(&address, &query))
            }
            // Metadata of this endpoint: the endpoint's path follows the prefix.
            Some(prefix) if parts.uri.path().len() > prefix.len() => {
                format!("{prefix}{}", address.path()).parse().ok()
            }
            Some(prefix) => prefix.parse().ok(),
        };
        parts.uri = target.unwrap_or(address);
        // hyper writes the version that the request names, and a client may have sent HTTP/1.0.
        parts.version = hyper::Version::HTTP_11;
        parts.headers.insert(HOST, self.host.clone());
    }
}

/// True for the types of bodies that hold messages.
fn is_of_mcp(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.is_some_and(|kind| {
        kind.starts_with(b"application/json") || kind.starts_with(b"text/event-stream")
    })
}
