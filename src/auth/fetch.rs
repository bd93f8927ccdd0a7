//! Fetches the keys of an issuer over https, or http on loopback. No redirect is followed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, HOST};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::tls::kept::Kept;

/// A larger set of keys is refused.
const BYTES_MAX: usize = 256 * 1024;

/// A larger response head is refused.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// How long a fetch may take, from the name to the last byte.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why keys could not be fetched, for the operator.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("no answer within 5 s")]
    TooSlow,
    #[error("HTTP {0}")]
    Status(StatusCode),
    #[error("it is no set of keys, or has none for the algorithms that count")]
    NoKeys,
    #[error(transparent)]
    Failed(#[from] BoxError),
}

/// Where an issuer publishes its keys.
#[derive(Debug, Clone)]
pub struct KeysAddress {
    host: Box<str>,
    port: u16,
    authority: Box<str>,
    path: Box<str>,
    tls: Option<(Arc<Kept<ClientConfig>>, ServerName<'static>)>,
}

impl KeysAddress {
    /// `tls` is for https. `None`: it is no address that keys are fetched from.
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

    pub(super) async fn fetch(&self) -> Result<String, FetchError> {
        let fetching = tokio::time::timeout(PATIENCE, self.connect_and_ask());
        fetching.await.unwrap_or(Err(FetchError::TooSlow))
    }

    async fn connect_and_ask(&self) -> Result<String, FetchError> {
        let stream = TcpStream::connect((&*self.host, self.port)).await;
        let stream = stream.map_err(BoxError::from)?;
        let Some((config, name)) = &self.tls else {
            return self.ask(stream).await;
        };
        let connecting = TlsConnector::from(config.current()).connect(name.clone(), stream);
        self.ask(connecting.await.map_err(BoxError::from)?).await
    }

    async fn ask(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    ) -> Result<String, FetchError> {
        let failed = |error: hyper::Error| FetchError::Failed(error.into());
        let mut builder = http1::Builder::new();
        builder.max_buf_size(HEAD_BYTES_MAX);
        let (mut sender, connection) = builder
            .handshake(TokioIo::new(stream))
            .await
            .map_err(failed)?;
        let request = Request::get(&*self.path)
            .header(HOST, &*self.authority)
            .header(ACCEPT, "application/json")
            .body(Empty::<Bytes>::new())
            .map_err(BoxError::from)?;
        let asking = async {
            let response = sender.send_request(request).await.map_err(failed)?;
            if response.status() != StatusCode::OK {
                return Err(FetchError::Status(response.status()));
            }
            let body = Limited::new(response.into_body(), BYTES_MAX)
                .collect()
                .await?;
            let text = String::from_utf8(body.to_bytes().into());
            Ok(text.map_err(BoxError::from)?)
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
