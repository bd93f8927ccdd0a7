//! Stands in for `crate::app` until the parts are wired. Then this file goes, and `run` and `demo`
//! say `use crate::app::App`.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};

use tokio_util::sync::CancellationToken;

use crate::config::Config;

/// Why the program cannot run; prints as one line.
#[derive(Debug)]
pub(super) struct AppError;

impl fmt::Display for AppError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the parts are not wired yet")
    }
}

#[derive(Debug)]
pub(super) struct App;

impl App {
    #[expect(clippy::unused_async, reason = "the real one connects")]
    pub(super) async fn build(_config: Config) -> Result<Self, AppError> {
        Err(AppError)
    }

    #[expect(clippy::unused_self, reason = "the real one is bound")]
    pub(super) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, 0).into()
    }

    /// Returns when drained.
    #[expect(clippy::unused_async, reason = "the real one serves")]
    pub(super) async fn serve(self, _shutdown: CancellationToken) {}
}
