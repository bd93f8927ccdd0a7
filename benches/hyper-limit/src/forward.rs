//! The way to the upstream.

use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::header::{self, HeaderMap, HeaderName};
use hyper::http::request::Parts;
use hyper::{Request, Response, StatusCode, Uri, Version};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::answer::{Body, refusal};

const IDLE_MAX: usize = 4096;
const IDLE_TIME: Duration = Duration::from_mins(1);

/// Headers that belong to one connection.
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// The upstream, and the connections that are kept to it.
#[derive(Debug)]
pub(crate) struct Upstream {
    base: String,
    client: Client<HttpConnector, Body>,
}

impl Upstream {
    pub(crate) fn new(base: &str, uses_http2: bool) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIME)
            .pool_max_idle_per_host(IDLE_MAX)
            .http2_only(uses_http2)
            .build(connector);
        Self {
            base: base.to_owned(),
            client,
        }
    }

    /// Sends a request on, and answers 502 if there is no answer.
    pub(crate) async fn forward(&self, mut parts: Parts, body: Body) -> Response<Body> {
        let target = parts.uri.path_and_query().map_or("/", |it| it.as_str());
        let Ok(uri) = format!("{}{target}", self.base).parse::<Uri>() else {
            return refusal(StatusCode::BAD_REQUEST, "null", -32600, "target");
        };
        parts.uri = uri;
        parts.version = Version::HTTP_11;
        strip(&mut parts.headers);
        parts.headers.remove(header::HOST);
        match self.client.request(Request::from_parts(parts, body)).await {
            Ok(response) => {
                let (mut parts, body) = response.into_parts();
                strip(&mut parts.headers);
                parts.version = Version::HTTP_11;
                Response::from_parts(parts, body.map_err(Into::into).boxed())
            }
            Err(error) => {
                let message = format!("upstream: {error}");
                refusal(StatusCode::BAD_GATEWAY, "null", -32603, &message)
            }
        }
    }
}

fn strip(headers: &mut HeaderMap) {
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}
