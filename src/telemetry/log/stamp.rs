//! The time of a line that is written with every request: the date is made once a second.

use crate::task::view::{digits, rfc3339};

const SECOND_NS: u64 = 1_000_000_000;

/// The date and the time of day of one second, as text.
#[derive(Debug, Default)]
pub(super) struct Stamp {
    second: u64,
    /// Empty: no second was written yet.
    text: String,
}

impl Stamp {
    /// The length of `2026-07-28T00:00:00.000000Z`.
    pub(super) const BYTES: usize = Self::SECOND_BYTES + 8;

    const SECOND_BYTES: usize = 19;

    /// Writes Unix nanoseconds as RFC 3339 in UTC, with microseconds, as the other lines of the log have it.
    pub(super) fn write(&mut self, out: &mut Vec<u8>, now_ns: u64) {
        let second = now_ns / SECOND_NS;
        if second != self.second || self.text.is_empty() {
            self.second = second;
            self.text = rfc3339(second.saturating_mul(1000));
            self.text.truncate(Self::SECOND_BYTES);
        }
        out.extend_from_slice(self.text.as_bytes());
        let mut micros = *b"000000";
        digits(&mut micros, now_ns % SECOND_NS / 1000);
        out.push(b'.');
        out.extend_from_slice(&micros);
        out.push(b'Z');
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
            let mut out = Vec::new();
            stamp.write(&mut out, now_ns);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
            assert_eq!(expected.len(), Stamp::BYTES);
        }
    }
}
