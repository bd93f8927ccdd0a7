//! The built program, told to crash.

use std::path::PathBuf;
use std::process::ExitStatus;

use super::support::proxy::{Running, command};
use super::support::{Config, Proxy};

impl Config {
    /// The first process crashes the n-th time that it comes to this point.
    pub(crate) fn crashing(mut self, point: &str, nth: u32) -> Self {
        self.crash = Some(format!("{point}:{nth}"));
        self
    }
}

impl Proxy {
    /// Starts it again to crash at this point, before or after it serves, and waits for its end.
    pub(crate) async fn crash_again(&mut self, point: &str) -> ExitStatus {
        assert!(self.child.is_none(), "the proxy still runs");
        let address = ([127, 0, 0, 1], 0).into();
        let config = self.config.clone().crashing(point, 1);
        let child = command(&self.directory, &config, &self.upstream, address)
            .spawn()
            .unwrap();
        self.child = Some(Running { child, address });
        self.ended().await
    }

    /// Where the embedded store is.
    pub(crate) fn store_file(&self) -> PathBuf {
        self.directory.path().join("tasks.redb")
    }
}
