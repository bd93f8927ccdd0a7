//! The harness: a scripted server, the proxy, and clients, with methods named after the domain.

use std::future::Future;
use std::time::Duration;

pub(crate) mod answer;
pub(crate) mod client;
pub(crate) mod collector;
mod grpc_collector;
pub(crate) mod http;
pub(crate) mod issuer;
pub(crate) mod operator;
pub(crate) mod pair;
pub(crate) mod proxy;
pub(crate) mod receiver;
pub(crate) mod session;
pub(crate) mod shape;
pub(crate) mod stream;
pub(crate) mod tap;
pub(crate) mod terminal;
pub(crate) mod upstream;

pub(crate) use crate::directory::TempDir;
pub(crate) use crate::eventually::{eventually, try_eventually};
pub(crate) use client::Client;
pub(crate) use proxy::{Config, Proxy};
pub(crate) use upstream::{Era, Upstream};

/// The usual bound of a wait in this suite.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);

/// Waits for an event and fails with a sentence when it does not come.
pub(crate) async fn within<F: Future>(patience: Duration, what: &str, event: F) -> F::Output {
    let output = tokio::time::timeout(patience, event).await;
    output.unwrap_or_else(|_elapsed| panic!("waited {patience:?} in vain: {what}"))
}

/// RFC 4648, with padding.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let bits = (0..3).fold(0_usize, |bits, at| {
            bits << 8 | usize::from(chunk.get(at).copied().unwrap_or_default())
        });
        for at in 0..4 {
            let digit = char::from(DIGITS[bits >> (18 - 6 * at) & 63]);
            out.push(if at <= chunk.len() { digit } else { '=' });
        }
    }
    out
}

/// The value of a header that says this text (Value Encoding).
pub(crate) fn encoded(text: &str) -> String {
    format!("=?base64?{}?=", base64(text.as_bytes()))
}

/// A server with the proxy in front of it.
#[derive(Debug)]
pub(crate) struct Rig {
    pub(crate) proxy: Proxy,
    pub(crate) upstream: Upstream,
}

impl Rig {
    pub(crate) async fn start(era: Era, config: Config) -> Self {
        let upstream = Upstream::start(era).await;
        let proxy = config.start(&upstream.url()).await;
        Self { proxy, upstream }
    }

    /// A client that declares Tasks and can answer questions.
    pub(crate) fn client(&self) -> Client {
        Client::of(self.proxy.address())
    }
}

/// The same tests in front of a legacy and of a modern server.
macro_rules! in_both_eras {
    ($($name:ident),* $(,)?) => {
        mod legacy {
            $(#[tokio::test]
            async fn $name() {
                super::$name($crate::support::Era::Legacy).await;
            })*
        }
        mod modern {
            $(#[tokio::test]
            async fn $name() {
                super::$name($crate::support::Era::Modern).await;
            })*
        }
    };
}
pub(crate) use in_both_eras;
