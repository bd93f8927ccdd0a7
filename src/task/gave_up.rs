//! The signs that a client's clock ended, and that nobody cancelled its call. Pure.

use std::time::Duration;

/// Words in the reason of a cancel that a client's clock causes. The official TypeScript client writes `McpError: MCP
/// error -32001: Request timed out`, Go programs write `context deadline exceeded`.
const WORDS: [&str; 5] = [
    "timed out",
    "timeout",
    "time out",
    "deadline exceeded",
    "-32001",
];

/// Clients set their clocks to whole seconds. A clock begins before the call arrives here: by the time that the client needs
/// to connect. It rings a little late.
const EARLY: Duration = Duration::from_millis(100);
const LATE: Duration = Duration::from_millis(60);

/// Returns `true` if a cancel with this reason was sent because the client's clock ended.
pub fn says_clock_ended(reason: &str) -> bool {
    let reason = reason.to_ascii_lowercase();
    WORDS.iter().any(|word| reason.contains(word))
}

/// Returns `true` if a connection that closed after `waited` was probably closed by a clock: the time is a whole number of
/// seconds. A connection that closes at a random time looks like that in one case of six.
pub fn is_time_of_clock(waited: Duration) -> bool {
    let since_second = Duration::from_nanos(u64::from((waited + EARLY).subsec_nanos()));
    waited + EARLY >= Duration::from_secs(1) && since_second <= EARLY + LATE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_says_that_a_clock_ended() {
        for (reason, expected) in [
            ("McpError: MCP error -32001: Request timed out", true),
            ("Error: Request timed out", true),
            ("context deadline exceeded", true),
            ("Timeout of 60s", true),
            ("the user pressed escape", false),
            ("User cancelled", false),
            ("AbortError: This operation was aborted", false),
            ("The call did not end within its time limit", false),
            ("", false),
        ] {
            assert_eq!(says_clock_ended(reason), expected, "{reason}");
        }
    }

    #[test]
    fn a_clock_ends_after_whole_seconds() {
        for (ms, expected) in [
            (0, false),
            (10, false),
            (899, false),
            (900, true),
            (1_000, true),
            (3_004, true),
            (5_005, true),
            (5_061, false),
            (4_890, false),
            (4_910, true),
            (60_060, true),
            (60_500, false),
        ] {
            assert_eq!(
                is_time_of_clock(Duration::from_millis(ms)),
                expected,
                "{ms}"
            );
        }
    }
}
