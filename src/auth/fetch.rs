//! Fetches the keys of an issuer over https, or http on loopback. No redirect is followed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::ACCEPT;
use hyper::{Request, StatusCode, Uri};
use rustls::ClientConfig;

use crate::net::http_address::{BoxError, HttpAddress};
use crate::tls::kept::Kept;

/// A larger set of keys is refused.
const BYTES_MAX: usize = 256 * 1024;

/// The time that a fetch may take, from the look-up of the name to the last byte.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

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
pub struct KeysAddress(HttpAddress);

impl KeysAddress {
    /// `tls` is for https. `None`: it is no address that keys are fetched from.
    pub fn new(url: &Uri, tls: Option<Arc<Kept<ClientConfig>>>) -> Option<Self> {
        HttpAddress::new(url, tls)?
            .through_proxy(url)
            .ok()
            .map(Self)
    }

    pub(super) async fn fetch(&self) -> Result<String, FetchError> {
        let fetching = tokio::time::timeout(PATIENCE, self.ask());
        fetching.await.unwrap_or(Err(FetchError::TooSlow))
    }

    async fn ask(&self) -> Result<String, FetchError> {
        let request = Request::get(self.0.path())
            .header(ACCEPT, "application/json")
            .body(Full::<Bytes>::default())
            .map_err(BoxError::from)?;
        let answer = self.0.ask(request, BYTES_MAX).await?;
        if answer.status != StatusCode::OK {
            return Err(FetchError::Status(answer.status));
        }
        let text = String::from_utf8(answer.body.into());
        Ok(text.map_err(BoxError::from)?)
    }
}
