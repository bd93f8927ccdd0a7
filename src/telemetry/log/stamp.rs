//! The time of a line that is written with every request: the date is made once a second.

use crate::base::utc::{digits, rfc3339};

const SECOND_NS: u64 = 1_000_000_000;

/// The last time that was written.
#[derive(Debug)]
pub(super) struct Stamp {
    second: u64,
    text: [u8; Self::BYTES],
}

impl Default for Stamp {
    fn default() -> Self {
        Self {
            second: 0,
            text: *b"1970-01-01T00:00:00.000000Z",
        }
    }
}

impl Stamp {
    pub(super) const BYTES: usize = "2026-07-28T00:00:00.000000Z".len();

    const SECOND_BYTES: usize = "2026-07-28T00:00:00".len();

    /// Unix nanoseconds as RFC 3339 in UTC, with microseconds, as the other lines of the log have it.
    pub(super) fn of(&mut self, now_ns: u64) -> &[u8; Self::BYTES] {
        let (date, fraction) = self.text.split_at_mut(Self::SECOND_BYTES);
        let second = now_ns / SECOND_NS;
        if second != self.second {
            self.second = second;
            let text = rfc3339(second.saturating_mul(1000));
            // `zip` ends with the seconds, where the place for the date ends.
            for (place, byte) in date.iter_mut().zip(text.bytes()) {
                *place = byte;
            }
        }
        if let [b'.', micros @ .., b'Z'] = fraction {
            digits(micros, now_ns % SECOND_NS / 1000);
        }
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_its_own() {
        let mut stamp = Stamp::default();
        for (now_ns, expected) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (999_999, "1970-01-01T00:00:00.000999Z"),
            (1_785_196_800_123_456_789, "2026-07-28T00:00:00.123456Z"),
            (1_785_196_801_000_001_000, "2026-07-28T00:00:01.000001Z"),
            (1_785_196_800_999_999_999, "2026-07-28T00:00:00.999999Z"),
        ] {
            let text = stamp.of(now_ns).to_vec();
            assert_eq!(String::from_utf8(text).unwrap(), expected);
        }
    }
}
