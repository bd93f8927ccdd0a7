//! The time that the head of a response waits for the first event.
//!
//! An answer that comes sooner is one JSON body with a status of its own. A later answer is an event on a
//! stream, and some clients limit the size of events.

use std::time::Duration;

use crate::downstream::inbound::requester::Requester;

/// For a client of 2026-07-28: it cannot resume a stream, so that an early stream has no use. Impatient proxies
/// wait half a minute for a head; the official server begins its stream after 15 s, too.
pub(in crate::downstream) const MODERN: Duration = Duration::from_secs(15);

/// For a legacy client over HTTP: long enough for a challenge to ride its own status, and short enough for the
/// early stream by which a call survives its connection and its client's clock.
pub(in crate::downstream) const LEGACY: Duration = Duration::from_secs(2);

/// For a legacy client in front of a server over a line, which has no HTTP status to wait for.
pub(in crate::downstream) const LINE: Duration = Duration::from_secs(1);

/// For clients that lose a large answer on a stream: clients and proxies with a timeout of a minute bear it.
const LONGEST: Duration = Duration::from_secs(50);

impl Requester {
    /// Returns the time that the head of an answer waits, where the head for a client that takes large events
    /// waits as long as `usual`. A legacy call survives its connection once there is a stream.
    pub(in crate::downstream) fn head_patience(&self, usual: Duration) -> Duration {
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
    use crate::auth::callers::Callers;
    use crate::mcp::version::Era;

    #[test]
    fn clients_that_limit_events_get_their_stream_late() {
        let usual = Duration::from_secs(3);
        let patience = |agent: &'static str| {
            let request = hyper::Request::builder().header("user-agent", agent);
            let (parts, ()) = request.body(()).unwrap().into_parts();
            let by = Requester::of(
                &Callers::new(&[1; 32]),
                &parts,
                Era::Legacy,
                None,
                None,
                std::sync::Arc::default(),
            );
            (by.head_patience(usual), by.head_patience(MODERN))
        };
        assert_eq!(patience("python-httpx2/2.16.2"), (LONGEST, LONGEST));
        for other in ["python-httpx/0.28.1", "node"] {
            assert_eq!(patience(other), (usual, MODERN), "{other}");
        }
    }
}
