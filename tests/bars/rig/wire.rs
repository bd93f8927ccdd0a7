//! A wire to a server that can fail without a word: bytes stop, and no end of a connection says so.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

/// A wire. Gone when dropped.
#[derive(Debug)]
pub(crate) struct Wire {
    address: SocketAddr,
    frozen: Arc<Mutex<CancellationToken>>,
    _stop: DropGuard,
}

impl Wire {
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("the port that was bound");
        let frozen = Arc::new(Mutex::new(CancellationToken::new()));
        let stop = CancellationToken::new();
        let (stopped, current) = (stop.clone(), Arc::clone(&frozen));
        let serving = async move {
            loop {
                let Ok((outside, _)) = listener.accept().await else {
                    continue;
                };
                let frozen = current
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .clone();
                let stop = stopped.clone();
                tokio::spawn(async move {
                    stop.run_until_cancelled(carry(outside, server, frozen))
                        .await
                });
            }
        };
        let ended = stop.clone();
        tokio::spawn(async move { ended.run_until_cancelled(serving).await });
        Self {
            address,
            frozen,
            _stop: stop.drop_guard(),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
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
