//! A place on the network that raincheck itself asks over HTTP, and that is not the wrapped server: an issuer of
//! tokens, a collector of traces. Each request has a connection of its own, and no redirect is followed.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::tls::kept::Kept;

/// A larger response head is refused.
const HEAD_BYTES_MAX: usize = 16 * 1024;

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The address of an http or https URL.
#[derive(Debug, Clone)]
pub struct HttpAddress {
    host: Box<str>,
    port: u16,
    authority: Box<str>,
    path: Box<str>,
    tls: Option<(Arc<Kept<ClientConfig>>, ServerName<'static>)>,
}

/// What came of a request.
#[derive(Debug)]
pub struct HttpAnswer {
    pub status: StatusCode,
    /// Empty if the status is no success: such a body is not read.
    pub body: Bytes,
}

impl HttpAddress {
    /// `tls` is for https. `None`: nothing can be asked there.
    pub fn new(url: &Uri, tls: Option<Arc<Kept<ClientConfig>>>) -> Option<Self> {
        let authority = url.authority()?;
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
        })
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
        let stream = TcpStream::connect((&*self.host, self.port)).await?;
        let Some((config, name)) = &self.tls else {
            return self.ask_over(stream, request, bytes_max).await;
        };
        let connecting = TlsConnector::from(config.current()).connect(name.clone(), stream);
        self.ask_over(connecting.await?, request, bytes_max).await
    }

    async fn ask_over(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send,
        mut request: Request<Full<Bytes>>,
        bytes_max: usize,
    ) -> Result<HttpAnswer, BoxError> {
        let mut builder = http1::Builder::new();
        builder.max_buf_size(HEAD_BYTES_MAX);
        let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        request.headers_mut().insert(HOST, self.authority.parse()?);
        let asking = async {
            let response = sender.send_request(request).await?;
            let status = response.status();
            let body = if status.is_success() {
                let limited = Limited::new(response.into_body(), bytes_max);
                limited.collect().await?.to_bytes()
            } else {
                Bytes::new()
            };
            Ok(HttpAnswer { status, body })
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
}
