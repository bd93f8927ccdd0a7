//! The death of the client, which a process without input can only see at its output.

use std::io::stdout;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// Resolves when no process can read standard output any more. Never resolves for a file or a device.
pub(super) async fn hung_up() {
    // The thread may wait until the process ends: nothing else wakes it.
    let waiting = tokio::task::spawn_blocking(|| {
        // The system reports a hang-up without being asked to.
        let output = stdout();
        let mut output = [PollFd::new(&output, PollFlags::empty())];
        loop {
            match poll(&mut output, None) {
                Err(Errno::INTR) => {}
                Err(_) => return false,
                Ok(_) => return true,
            }
        }
    });
    if !matches!(waiting.await, Ok(true)) {
        std::future::pending::<()>().await;
    }
}
