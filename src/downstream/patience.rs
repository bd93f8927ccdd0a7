//! How long the head of a response waits for the first word.
//!
//! An answer that comes sooner is one JSON body, with a status of its own; later answers are events on
//! a stream, which some clients limit in size.

use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::USER_AGENT;

/// In 2026-07-28 nobody can come back to a stream, so an early stream helps nobody. Half a minute is
/// what impatient proxies wait for a head; the official server's own stream begins after so long, too.
pub(super) const MODERN: Duration = Duration::from_secs(15);

/// For clients that lose a large answer on a stream: what clients and proxies of a minute bear.
const LONGEST: Duration = Duration::from_secs(50);

/// The HTTP library of the official Python client 2.x and of `FastMCP` 4. It refuses an event of more than
/// 1 MiB, and the call fails. Their `clientInfo` does not tell: 1.x, which has no limit, says the same.
const LIMITS_EVENTS: &[u8] = b"python-httpx2/";

/// An event of any size reaches this client.
pub(super) fn takes_large_events(headers: &HeaderMap) -> bool {
    let agent = headers.get(USER_AGENT);
    !agent.is_some_and(|agent| agent.as_bytes().starts_with(LIMITS_EVENTS))
}

/// For a request of 2026-07-28.
pub(super) fn of_modern(headers: &HeaderMap) -> Duration {
    of_legacy(headers, MODERN)
}

/// For a legacy client, whose call survives its connection once there is a stream.
pub(super) fn of_legacy(headers: &HeaderMap, usual: Duration) -> Duration {
    if takes_large_events(headers) {
        usual
    } else {
        LONGEST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_limit_events_get_their_stream_late() {
        let usual = Duration::from_secs(3);
        let patience = |agent: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(USER_AGENT, agent.parse().unwrap());
            (of_legacy(&headers, usual), of_modern(&headers))
        };
        assert_eq!(patience("python-httpx2/2.16.2"), (LONGEST, LONGEST));
        for other in ["python-httpx/0.28.1", "node"] {
            assert_eq!(patience(other), (usual, MODERN), "{other}");
        }
    }
}
