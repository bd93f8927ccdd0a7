//! A place on the network that raincheck itself asks over HTTP, and that is not the wrapped server: an issuer of
//! tokens, a collector of traces, a receiver of webhooks. Each request has a connection of its own, and no redirect is followed.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderMap};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::net::http2;
use crate::net::public_address::is_public;
use crate::net::tunnel::{Tunnel, UnusableProxy};
use crate::tls::kept::Kept;

/// A larger response head is refused.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// The number of bytes that are read of an answer whose body does not count, and the time that they are read, so
/// that the other side can send it.
const UNREAD_BYTES_MAX: usize = 4 * 1024;
const UNREAD_PATIENCE: Duration = Duration::from_millis(500);

/// The time that one address of a name may take to connect. Without a bound an address that drops packets leaves no
/// time for the next.
const CONNECT_MAX: Duration = Duration::from_secs(3);

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The address of an http or https URL.
#[derive(Debug, Clone)]
pub struct HttpAddress {
    host: Box<str>,
    port: u16,
    authority: Box<str>,
    path: Box<str>,
    tls: Option<(Arc<Kept<ClientConfig>>, ServerName<'static>)>,
    /// The proxy on the way.
    tunnel: Option<Tunnel>,
    allowed: AllowedAddresses,
}

/// The addresses to which a name may lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllowedAddresses {
    All,
    /// Those of the public internet.
    Public,
    /// Those of this machine and its network.
    Private,
}

impl AllowedAddresses {
    /// The addresses of receivers. `is_private`: receivers may be in the operator's own network. What is not encrypted stays
    /// there.
    pub fn of(is_private: bool, is_https: bool) -> Self {
        match (is_private, is_https) {
            (false, _) => Self::Public,
            (true, true) => Self::All,
            (true, false) => Self::Private,
        }
    }
}

/// A name leads to no address that is allowed.
#[derive(Debug, thiserror::Error)]
#[error("its name leads to {0}, which is not allowed")]
pub struct DeniedAddress(IpAddr);

/// The part of an answer that is read.
#[derive(Debug, Clone, Copy)]
enum AnswerPart {
    /// The body, of at most so many bytes.
    Body(usize),
    /// The same over HTTP/2, with the trailers.
    BodyAndTrailers(usize),
    Head,
}

/// The result of a request.
#[derive(Debug)]
pub struct HttpAnswer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// Empty if the status is no success and the request went over HTTP/1.1: such a body is not read.
    pub body: Bytes,
}

impl HttpAddress {
    /// `tls` is for https. `None`: nothing can be asked there.
    pub fn new(url: &Uri, tls: Option<Arc<Kept<ClientConfig>>>) -> Option<Self> {
        let authority = url.authority()?;
        // The resolver and TLS take an IPv6 address without the brackets that it has in a URL.
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']');
        let tls = match url.scheme_str()? {
            "http" => None,
            "https" => Some((tls?, ServerName::try_from(host.to_owned()).ok()?)),
            _ => return None,
        };
        let usual = if tls.is_some() { 443 } else { 80 };
        Some(Self {
            host: host.into(),
            port: authority.port_u16().unwrap_or(usual),
            authority: authority.as_str().into(),
            path: url
                .path_and_query()
                .map_or("/", |path| path.as_str())
                .into(),
            tls,
            tunnel: None,
            allowed: AllowedAddresses::All,
        })
    }

    /// The same, reached through the proxy that the environment names for this URL. Only for an address that the operator
    /// chose: the proxy resolves the name, in a network where that may lead anywhere.
    pub fn through_proxy(self, url: &Uri) -> Result<Self, UnusableProxy> {
        let tunnel = Tunnel::to(url)?;
        Ok(Self { tunnel, ..self })
    }

    /// The same, where the name may lead to these addresses only.
    #[must_use]
    pub fn only(self, allowed: AllowedAddresses) -> Self {
        Self { allowed, ..self }
    }

    #[cfg(test)]
    pub fn allowed(&self) -> AllowedAddresses {
        self.allowed
    }

    /// The path, with the query.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Sends the request. The caller bounds the time.
    pub async fn ask(
        &self,
        request: Request<Full<Bytes>>,
        bytes_max: usize,
    ) -> Result<HttpAnswer, BoxError> {
        self.send(request, AnswerPart::Body(bytes_max)).await
    }

    /// Sends the request over HTTP/2. The trailers are among the headers of the answer. The caller bounds the time.
    pub async fn ask_http2(
        &self,
        request: Request<Full<Bytes>>,
        bytes_max: usize,
    ) -> Result<HttpAnswer, BoxError> {
        self.send(request, AnswerPart::BodyAndTrailers(bytes_max))
            .await
    }

    /// Sends the request. The head of the answer counts, whatever its body is. The caller bounds the time.
    pub async fn tell(&self, request: Request<Full<Bytes>>) -> Result<HttpAnswer, BoxError> {
        self.send(request, AnswerPart::Head).await
    }

    async fn send(
        &self,
        request: Request<Full<Bytes>>,
        wanted: AnswerPart,
    ) -> Result<HttpAnswer, BoxError> {
        let Some((config, name)) = &self.tls else {
            let stream = self.connect(self.place()).await?;
            return self.send_over(stream, request, wanted).await;
        };
        let tls = TlsConnector::from(config.current());
        match &self.tunnel {
            None => {
                let stream = self.connect(self.place()).await?;
                let stream = tls.connect(name.clone(), stream).await?;
                self.send_over(stream, request, wanted).await
            }
            Some(tunnel) => {
                let proxy = self.connect(tunnel.place()).await?;
                let stream = tunnel.open(proxy, self.place()).await?;
                let stream = tls.connect(name.clone(), stream).await?;
                self.send_over(stream, request, wanted).await
            }
        }
    }

    fn place(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    /// Connects to the first of the name's addresses that is allowed and answers. The name is resolved once, so that the
    /// address that is checked is the address that is used.
    async fn connect(&self, place: (&str, u16)) -> Result<TcpStream, BoxError> {
        // This error remains if the name has no address at all, because then no attempt gives one.
        let mut failure = BoxError::from(io::Error::from(io::ErrorKind::NotFound));
        for address in lookup_host(place).await? {
            let is_allowed = match self.allowed {
                AllowedAddresses::All => true,
                AllowedAddresses::Public => is_public(address.ip()),
                AllowedAddresses::Private => !is_public(address.ip()),
            };
            if !is_allowed {
                // The next address of the name may be an allowed one, so this is not the end.
                failure = DeniedAddress(address.ip()).into();
                continue;
            }
            match timeout(CONNECT_MAX, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => failure = error.into(),
                Err(_) => failure = io::Error::from(io::ErrorKind::TimedOut).into(),
            }
        }
        Err(failure)
    }

    async fn send_over(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send,
        mut request: Request<Full<Bytes>>,
        wanted: AnswerPart,
    ) -> Result<HttpAnswer, BoxError> {
        if let AnswerPart::BodyAndTrailers(bytes_max) = wanted {
            return self.send_over_http2(stream, request, bytes_max).await;
        }
        let mut builder = http1::Builder::new();
        builder.max_buf_size(HEAD_BYTES_MAX);
        let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        // hyper adds no `Host` to a request on a bare connection, and HTTP/1.1 demands one (RFC 9112).
        request.headers_mut().insert(HOST, self.authority.parse()?);
        let asking = async {
            let (head, body) = sender.send_request(request).await?.into_parts();
            let body = match wanted {
                AnswerPart::Body(bytes_max) if head.status.is_success() => {
                    Limited::new(body, bytes_max).collect().await?.to_bytes()
                }
                AnswerPart::Body(_) | AnswerPart::BodyAndTrailers(_) => Bytes::new(),
                AnswerPart::Head => {
                    // Read so that the other side can finish its write. A failure changes nothing, because only the
                    // head counts.
                    let rest = Limited::new(body, UNREAD_BYTES_MAX).collect();
                    let _ = timeout(UNREAD_PATIENCE, rest).await;
                    Bytes::new()
                }
            };
            Ok(HttpAnswer {
                status: head.status,
                headers: head.headers,
                body,
            })
        };
        // What the connection ends with, the question hears.
        let driving = async {
            let _ = connection.await;
            std::future::pending().await
        };
        tokio::select! {
            answer = asking => answer,
            never = driving => never,
        }
    }

    async fn send_over_http2(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send,
        request: Request<Full<Bytes>>,
        bytes_max: usize,
    ) -> Result<HttpAnswer, BoxError> {
        let (mut head, body) = request.into_parts();
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        // HTTP/2 says the authority with the path, and has no `Host`.
        head.uri = Uri::builder()
            .scheme(if self.tls.is_some() { "https" } else { "http" })
            .authority(&*self.authority)
            .path_and_query(path)
            .build()?;
        let request = Request::from_parts(head, body.collect().await?.to_bytes());
        let answer = http2::ask(stream, request, bytes_max).await?;
        let (head, body) = answer.into_parts();
        Ok(HttpAnswer {
            status: head.status,
            headers: head.headers,
            body,
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    fn address(url: &str, allowed: AllowedAddresses) -> HttpAddress {
        let url: Uri = url.parse().unwrap();
        HttpAddress::new(&url, None).unwrap().only(allowed)
    }

    fn request() -> Request<Full<Bytes>> {
        Request::post("/").body(Full::default()).unwrap()
    }

    #[tokio::test]
    async fn no_spelling_of_this_machine_is_reached_where_only_public_addresses_are_allowed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in [
            "localhost",
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f000001",
            "0177.0.0.1",
            "0.0.0.0",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
        ] {
            let place = format!("http://{host}:{port}/");
            let place = address(&place, AllowedAddresses::Public);
            let error = place.tell(request()).await.expect_err(host);
            let refused = error.is::<DeniedAddress>();
            // A resolver may not know the unusual forms at all.
            let is_unknown = error.is::<io::Error>() && host.starts_with(['0', '1', '2']);
            assert!(refused || is_unknown, "{host}: {error}");
        }
        let accepting = timeout(Duration::ZERO, listener.accept()).await;
        assert!(accepting.is_err(), "a connection came");
    }

    #[tokio::test]
    async fn the_head_of_an_answer_counts_whatever_its_body_is() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = format!("http://{}/", listener.local_addr().unwrap());
        let answering = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = [0; 1024];
            let _ = stream.read(&mut head).await.unwrap();
            let answer = b"HTTP/1.1 200 OK\r\nretry-after: 7\r\ncontent-length: 1000000\r\n\r\nx";
            stream.write_all(answer).await.unwrap();
            stream
        };
        let place = address(&place, AllowedAddresses::Private);
        let (_stream, answer) = tokio::join!(answering, place.tell(request()));
        let answer = answer.unwrap();
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.headers["retry-after"], "7");
        assert!(answer.body.is_empty());
    }
}
