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

/// The values to which clients set their clocks: all multiples of `step`, from `shortest` on.
///
/// A clock begins before the call arrives here, by the time that the client needs to connect and to write the call. It rings
/// a little late.
struct ClockValues {
    shortest: Duration,
    step: Duration,
    early: Duration,
    late: Duration,
}

/// A client is given more time to send its call where fewer values are clocks': a connection that closes at a random time
/// looks like a clock in one case of four.
const CLOCKS: [ClockValues; 2] = [
    ClockValues {
        shortest: Duration::from_secs(1),
        step: Duration::from_secs(1),
        early: Duration::from_millis(100),
        late: Duration::from_millis(60),
    },
    ClockValues {
        shortest: Duration::from_secs(10),
        step: Duration::from_secs(5),
        early: Duration::from_millis(500),
        late: Duration::from_millis(100),
    },
];

/// Returns `true` if a cancel with this reason was sent because the client's clock ended.
pub fn says_clock_ended(reason: &str) -> bool {
    let reason = reason.to_ascii_lowercase();
    WORDS.iter().any(|word| reason.contains(word))
}

/// Returns `true` if a connection that closed after `waited` was probably closed by a clock.
pub fn is_time_of_clock(waited: Duration) -> bool {
    CLOCKS.iter().any(|values| {
        let rung = waited + values.early;
        let since_value = rung.as_nanos() % values.step.as_nanos();
        rung >= values.shortest && since_value <= (values.early + values.late).as_nanos()
    })
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
            (9_338, false),
            (9_500, true),
            (11_838, false),
            (14_500, true),
            (15_100, true),
            (15_101, false),
            (60_060, true),
            (60_500, false),
            (300_090, true),
        ] {
            assert_eq!(
                is_time_of_clock(Duration::from_millis(ms)),
                expected,
                "{ms}"
            );
        }
    }
}
