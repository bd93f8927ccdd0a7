//! A wire to a server that can fail without a word: bytes stop, and no end of a connection says so.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::scripted::Listening;

/// A wire. Gone when dropped.
#[derive(Debug)]
pub(crate) struct Wire {
    listening: Listening,
    frozen: Arc<Mutex<CancellationToken>>,
}

impl Wire {
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let frozen = Arc::new(Mutex::new(CancellationToken::new()));
        let current = Arc::clone(&frozen);
        let listening = Listening::start(move |outside| {
            let frozen = current.lock().unwrap_or_else(PoisonError::into_inner);
            carry(outside, server, frozen.clone())
        });
        Self {
            listening: listening.await,
            frozen,
        }
    }

    pub(crate) fn url(&self) -> String {
        self.listening.url()
    }

    /// All connections that there are go silent and stay open; later ones work.
    pub(crate) fn freeze(&self) {
        let mut frozen = self.frozen.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *frozen).cancel();
    }
}

async fn carry(mut outside: TcpStream, server: SocketAddr, frozen: CancellationToken) {
    let Ok(mut inside) = TcpStream::connect(server).await else {
        return;
    };
    let copying = tokio::io::copy_bidirectional(&mut outside, &mut inside);
    if frozen.run_until_cancelled(copying).await.is_none() {
        // Both sides stay open, and neither is read.
        std::future::pending::<()>().await;
    }
}
