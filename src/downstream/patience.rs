//! How long the head of a response waits for the first word.
//!
//! An answer that comes sooner is one JSON body, with a status of its own; later answers are events on
//! a stream, which some clients limit in size.

use std::time::Duration;

use super::inbound::requester::Requester;

/// In 2026-07-28 nobody can come back to a stream, so an early stream helps nobody. Half a minute is
/// what impatient proxies wait for a head; the official server's own stream begins after so long, too.
pub(super) const MODERN: Duration = Duration::from_secs(15);

/// For clients that lose a large answer on a stream: what clients and proxies of a minute bear.
const LONGEST: Duration = Duration::from_secs(50);

impl Requester {
    /// How long the head of an answer waits, where the head for a client that takes large events waits as long
    /// as `usual`. A legacy call survives its connection once there is a stream.
    pub(super) fn head_patience(&self, usual: Duration) -> Duration {
        if self.takes_large_events {
            usual
        } else {
            LONGEST
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::downstream::auth::Callers;
    use crate::mcp::version::Era;

    #[test]
    fn clients_that_limit_events_get_their_stream_late() {
        let usual = Duration::from_secs(3);
        let patience = |agent: &'static str| {
            let request = hyper::Request::builder().header("user-agent", agent);
            let (parts, ()) = request.body(()).unwrap().into_parts();
            let by = Requester::of(&Callers::new(&[1; 32]), &parts, Era::Legacy, false);
            (by.head_patience(usual), by.head_patience(MODERN))
        };
        assert_eq!(patience("python-httpx2/2.16.2"), (LONGEST, LONGEST));
        for other in ["python-httpx/0.28.1", "node"] {
            assert_eq!(patience(other), (usual, MODERN), "{other}");
        }
    }
}
