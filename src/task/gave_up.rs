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

/// Words in the reason of a cancel whose client does not say why: Codex writes them when its clock ends.
const UNCLEAR: [&str; 1] = ["cancelled by caller"];

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
/// looks like a clock in three cases of ten.
const CLOCKS: [ClockValues; 2] = [
    ClockValues {
        shortest: Duration::from_secs(1),
        step: Duration::from_secs(1),
        early: Duration::from_millis(100),
        late: Duration::from_millis(100),
    },
    ClockValues {
        shortest: Duration::from_secs(5),
        step: Duration::from_secs(5),
        early: Duration::from_millis(500),
        late: Duration::from_millis(100),
    },
];

/// The reason that a client gives for its cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelCause {
    /// Its clock ended.
    Clock,
    /// It does not say why.
    Unclear,
    /// It wants the call no more.
    Unwanted,
}

impl CancelCause {
    /// By the reason of the cancel.
    pub fn of(reason: &str) -> Self {
        let reason = reason.to_ascii_lowercase();
        let says = |words: &[&str]| words.iter().any(|word| reason.contains(word));
        if says(&WORDS) {
            Self::Clock
        } else if says(&UNCLEAR) {
            Self::Unclear
        } else {
            Self::Unwanted
        }
    }

    /// Returns `true` if a client that waited so long gives its call up, and may make it again.
    pub fn gives_up(self, waited: Duration) -> bool {
        match self {
            Self::Clock => true,
            Self::Unclear => is_time_of_clock(waited),
            Self::Unwanted => false,
        }
    }
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
        use CancelCause::{Clock, Unclear, Unwanted};
        for (reason, expected) in [
            ("McpError: MCP error -32001: Request timed out", Clock),
            ("Error: Request timed out", Clock),
            ("context deadline exceeded", Clock),
            ("Timeout of 60s", Clock),
            ("MCP request cancelled by caller", Unclear),
            ("the user pressed escape", Unwanted),
            ("User cancelled", Unwanted),
            ("AbortError: This operation was aborted", Unwanted),
            ("The call did not end within its time limit", Unwanted),
            ("", Unwanted),
        ] {
            assert_eq!(CancelCause::of(reason), expected, "{reason}");
        }
        let (clock, other) = (Duration::from_secs(12), Duration::from_millis(12_300));
        assert!(Unclear.gives_up(clock) && !Unclear.gives_up(other));
        assert!(Clock.gives_up(other) && !Unwanted.gives_up(clock));
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
            (5_101, false),
            (4_499, false),
            (4_843, true),
            (6_890, false),
            (6_910, true),
            (9_338, false),
            (9_500, true),
            (11_838, false),
            (14_500, true),
            (15_100, true),
            (15_101, false),
            (12_096, true),
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
