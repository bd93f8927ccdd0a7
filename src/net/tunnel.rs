//! A tunnel through a proxy to a server that speaks https (RFC 9110, CONNECT): the way to the internet in many companies.
//!
//! The environment names the proxy, as it does for curl and the official clients: `HTTPS_PROXY` or `ALL_PROXY`, and
//! `NO_PROXY` for what is reached without it. A server that speaks http without TLS is reached directly.

use std::env;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::LazyLock;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderValue, PROXY_AUTHORIZATION};
use hyper::upgrade::Upgraded;
use hyper::{Request, Uri};
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// A larger response head is refused.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// The variables that name a proxy for https.
const VARIABLES: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

static ENVIRONMENT: LazyLock<Matcher> = LazyLock::new(Matcher::from_env);

/// The environment names a proxy that raincheck cannot use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "HTTPS_PROXY or ALL_PROXY is not the address of a proxy that raincheck can use: it must begin with http:// (a proxy that \
     speaks TLS or SOCKS cannot be used, and what a URL cannot contain is written as %40 in a password); or name the server in \
     NO_PROXY"
)]
pub struct UnusableProxy;

/// The proxy on the way to a server.
#[derive(Clone)]
pub struct Tunnel {
    host: Box<str>,
    port: u16,
    authorization: Option<HeaderValue>,
}

impl Tunnel {
    /// The proxy on the way to this URL, by the environment of the process. `None`: it is reached directly.
    pub fn to(url: &Uri) -> Result<Option<Self>, UnusableProxy> {
        if !may_be_proxied(url) {
            return Ok(None);
        }
        let tunnel = Self::by(&ENVIRONMENT, url)?;
        if tunnel.is_some() || is_exempt(url) {
            return Ok(tunnel);
        }
        // A value that nobody can read must not lead around the proxy.
        #[expect(
            clippy::disallowed_methods,
            reason = "these variables are of all programs, and no settings of raincheck"
        )]
        let named = VARIABLES.iter().filter_map(|name| env::var(name).ok());
        let named = named.filter(|value| !value.is_empty());
        if named.map(|value| reads(&value)).any(|reads| !reads) {
            return Err(UnusableProxy);
        }
        Ok(None)
    }

    fn by(matcher: &Matcher, url: &Uri) -> Result<Option<Self>, UnusableProxy> {
        if !may_be_proxied(url) {
            return Ok(None);
        }
        let Some(proxy) = matcher.intercept(url) else {
            return Ok(None);
        };
        let uri = proxy.uri();
        if uri.scheme_str() != Some("http") || proxy.raw_auth().is_some() {
            return Err(UnusableProxy);
        }
        Ok(Some(Self {
            host: host_of(uri).into(),
            port: uri.port_u16().unwrap_or(80),
            authorization: proxy.basic_auth().cloned(),
        }))
    }

    /// Where the proxy listens.
    pub fn place(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    /// Has the proxy, at the other end of `stream`, connect to the server. Cancel safe: the stream ends with the future.
    pub async fn open(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        (host, port): (&str, u16),
    ) -> io::Result<TokioIo<Upgraded>> {
        let host = if host.contains(':') {
            format!("[{host}]")
        } else {
            host.to_owned()
        };
        let server = format!("{host}:{port}");
        let mut request = Request::connect(&server).header(HOST, &server);
        if let Some(authorization) = &self.authorization {
            request = request.header(PROXY_AUTHORIZATION, authorization);
        }
        let request = request
            .body(Empty::<Bytes>::new())
            .map_err(io::Error::other)?;
        let mut builder = http1::Builder::new();
        builder.max_buf_size(HEAD_BYTES_MAX);
        let asking = async {
            let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
            let driving = connection.with_upgrades();
            // Moved, so that the connection of a refusal ends with its answer.
            let asked = async move {
                let response = sender.send_request(request).await?;
                let status = response.status();
                if !status.is_success() {
                    return Ok(Err(status));
                }
                hyper::upgrade::on(response).await.map(Ok)
            };
            // If the connection fails, the question fails, too.
            let (asked, _driven) = tokio::join!(asked, driving);
            asked
        };
        match asking.await {
            Ok(Ok(tunnel)) => Ok(TokioIo::new(tunnel)),
            Ok(Err(status)) => Err(io::Error::other(format!(
                "the proxy {self} does not connect to {server}: it answers {status}"
            ))),
            Err(error) => Err(io::Error::other(format!(
                "the proxy {self} does not connect to {server}: {error}"
            ))),
        }
    }
}

impl fmt::Display for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Without what may be secret.
impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tunnel({self})")
    }
}

/// Returns `true` if `NO_PROXY` names the host.
fn is_exempt(url: &Uri) -> bool {
    #[expect(
        clippy::disallowed_methods,
        reason = "this variable is of all programs, and no setting of raincheck"
    )]
    let no = ["NO_PROXY", "no_proxy"]
        .iter()
        .find_map(|name| env::var(name).ok());
    let matcher = Matcher::builder()
        .https("http://any")
        .no(no.unwrap_or_default());
    matcher.build().intercept(url).is_none()
}

fn may_be_proxied(url: &Uri) -> bool {
    // No proxy leads back to this machine.
    url.scheme_str() == Some("https") && !is_loopback(host_of(url))
}

/// Returns `true` if this is the value of a variable that names a proxy.
fn reads(value: &str) -> bool {
    let any = Uri::from_static("https://a.example/");
    let matcher = Matcher::builder().https(value).build();
    matcher.intercept(&any).is_some()
}

/// Returns `true` for this machine.
pub fn is_loopback(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    host.eq_ignore_ascii_case("localhost")
        // An IPv4 address may also be written as a mapped IPv6 address, such as `::ffff:127.0.0.1`.
        || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// The host without the brackets that an IPv6 address has in a URL.
fn host_of(url: &Uri) -> &str {
    let host = url.host().unwrap_or_default();
    host.trim_start_matches('[').trim_end_matches(']')
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    fn tunnel(https: &str, no: &str, url: &'static str) -> Result<Option<String>, UnusableProxy> {
        let matcher = Matcher::builder().https(https).no(no).build();
        let tunnel = Tunnel::by(&matcher, &Uri::from_static(url))?;
        Ok(tunnel.map(|tunnel| tunnel.to_string()))
    }

    #[test]
    fn a_server_of_the_internet_is_reached_through_the_proxy() {
        let by = |place: &str| Ok(Some(place.to_owned()));
        for (https, no, url, expected) in [
            (
                "http://proxy:3128",
                "",
                "https://a.example/mcp",
                by("proxy:3128"),
            ),
            ("proxy:3128", "", "https://a.example/mcp", by("proxy:3128")),
            (
                "http://ada:pw@[::1]:3128",
                "",
                "https://a.example/",
                by("::1:3128"),
            ),
            (
                "http://proxy:3128",
                "b.example",
                "https://a.example/",
                by("proxy:3128"),
            ),
            (
                "http://proxy:3128",
                ".example",
                "https://a.example/",
                Ok(None),
            ),
            ("http://proxy:3128", "*", "https://a.example/", Ok(None)),
            (
                "http://proxy:3128",
                "10.0.0.0/8",
                "https://10.1.2.3/",
                Ok(None),
            ),
            ("http://proxy:3128", "", "http://a.example/", Ok(None)),
            ("http://proxy:3128", "", "https://localhost:1/", Ok(None)),
            (
                "http://proxy:3128",
                "",
                "https://[::ffff:127.0.0.1]/",
                Ok(None),
            ),
            ("", "", "https://a.example/", Ok(None)),
        ] {
            assert_eq!(tunnel(https, no, url), expected, "{https} {no} {url}");
        }
        for refused in ["socks5://proxy:1080", "https://proxy"] {
            let refused = tunnel(refused, "", "https://a.example/");
            assert_eq!(refused, Err(UnusableProxy));
        }
        assert!(reads("proxy:3128") && !reads("socks://proxy") && !reads("http://a b"));
    }

    /// The request that the proxy gets, and the outcome of its answer.
    async fn asked(https: &str, answer: &'static str) -> (String, io::Result<TokioIo<Upgraded>>) {
        let matcher = Matcher::builder().https(https).build();
        let url = Uri::from_static("https://a.example/mcp");
        let tunnel = Tunnel::by(&matcher, &url).unwrap().unwrap();
        let (ours, mut theirs) = duplex(4096);
        let proxy = async {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(theirs.read_u8().await.unwrap());
            }
            theirs.write_all(answer.as_bytes()).await.unwrap();
            (String::from_utf8(head).unwrap(), theirs)
        };
        let ((head, _theirs), opened) = tokio::join!(proxy, tunnel.open(ours, ("a.example", 443)));
        (head, opened)
    }

    #[tokio::test]
    async fn the_proxy_connects_or_says_why_not() {
        let (head, opened) =
            asked("http://ada:pw@proxy:3128", "HTTP/1.1 200 OK\r\n\r\nhello").await;
        assert_eq!(
            head,
            "CONNECT a.example:443 HTTP/1.1\r\nhost: a.example:443\r\n\
             proxy-authorization: Basic YWRhOnB3\r\n\r\n"
        );
        // What comes behind the answer is the server's.
        let mut hello = [0; 5];
        opened.unwrap().read_exact(&mut hello).await.unwrap();
        assert_eq!(&hello, b"hello");
        let refused = "HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n";
        let (head, opened) = asked("http://proxy:3128", refused).await;
        assert!(!head.contains("authorization"), "{head}");
        assert_eq!(
            opened.unwrap_err().to_string(),
            "the proxy proxy:3128 does not connect to a.example:443: it answers 407 Proxy Authentication Required"
        );
        let (_, opened) = asked("http://proxy:3128", "what\r\n\r\n").await;
        assert!(opened.is_err());
    }
}
