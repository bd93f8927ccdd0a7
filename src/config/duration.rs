//! Durations and sizes as people write them: `"30s"`, `"1h30m"`, `"8MiB"`.

use std::time::Duration;

/// The longest duration. With this bound sums of durations cannot overflow, and every duration fits the
/// integers of JSON.
const LONGEST: Duration = Duration::from_hours(365 * 24);

/// The units, longest suffix first, so that `ms` is not read as `m`.
const UNITS: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];

/// Reads one or more whole numbers, each with its unit.
pub fn duration(text: &str) -> Result<Duration, String> {
    let refused = || format!(r#"{text:?} is not a duration; write "2s", "150ms" or "1h""#);
    let millis = sum(text, &UNITS).ok_or_else(refused)?;
    let duration = Duration::from_millis(millis);
    if duration > LONGEST {
        return Err(format!(r#"{text:?} is too long; the longest is "365d""#));
    }
    Ok(duration)
}

/// A duration as it is written in the file.
pub fn duration_text(ms: u64) -> String {
    // Only a unit that divides without a rest gives back the same duration.
    for (unit, factor) in [("h", 3_600_000), ("m", 60_000), ("s", 1_000)] {
        if ms >= factor && ms.is_multiple_of(factor) {
            return format!("{}{unit}", ms / factor);
        }
    }
    format!("{ms}ms")
}

/// The units, longest suffix first, so that `MiB` is not read as `B`.
const SIZES: [(&str, u64); 4] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("B", 1),
];

/// Reads a whole number of bytes, with or without a unit.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let refused =
        || format!(r#"{text:?} is not a size; write "8MiB", "512KiB" or a number of bytes"#);
    // The sum below takes no number without a unit.
    if let Ok(bytes) = text.trim().parse() {
        return Ok(bytes);
    }
    sum(text, &SIZES).ok_or_else(refused)
}

/// A size as it is written in the file.
pub fn size_text(bytes: u64) -> String {
    for (unit, factor) in [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes >= factor && bytes.is_multiple_of(factor) {
            return format!("{}{unit}", bytes / factor);
        }
    }
    bytes.to_string()
}

/// Adds up `<number><unit>`, repeated. `0` needs no unit. `None` for any other text.
fn sum(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let mut rest = text.trim();
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total = 0_u64;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, tail) = rest.split_at_checked(digits)?;
        let number: u64 = number.parse().ok()?;
        let (tail, factor) = units
            .iter()
            .find_map(|(unit, factor)| Some((tail.strip_prefix(unit)?, *factor)))?;
        total = total.checked_add(number.checked_mul(factor)?)?;
        rest = tail.trim_start();
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_spelled_as_in_the_file() {
        assert_eq!(duration_text(7_200_000), "2h");
        assert_eq!(duration_text(90_000), "90s");
        assert_eq!(duration_text(150), "150ms");
        assert_eq!(duration_text(0), "0ms");
    }

    #[test]
    fn durations_people_write() {
        let ms = |text| duration(text).map(|d| d.as_millis());
        assert_eq!(ms("150ms"), Ok(150));
        assert_eq!(ms("30s"), Ok(30_000));
        assert_eq!(ms("5m"), Ok(300_000));
        assert_eq!(ms("1h"), Ok(3_600_000));
        assert_eq!(ms("1h30m"), Ok(5_400_000));
        assert_eq!(ms(" 1h 30m "), Ok(5_400_000));
        assert_eq!(ms("2d"), Ok(172_800_000));
        assert_eq!(ms("0"), Ok(0));
        assert_eq!(ms("0s"), Ok(0));
    }

    #[test]
    fn durations_that_are_none_say_what_to_write() {
        for text in [
            "",
            "2",
            "s",
            "2 parsecs",
            "-1s",
            "1.5s",
            "1e3s",
            "99999999999999999999s",
        ] {
            let refusal = duration(text).unwrap_err();
            assert!(refusal.ends_with(r#"is not a duration; write "2s", "150ms" or "1h""#));
        }
        assert_eq!(
            duration("366d").unwrap_err(),
            r#""366d" is too long; the longest is "365d""#
        );
    }

    #[test]
    fn sizes_people_write() {
        assert_eq!(size("8MiB"), Ok(8 << 20));
        assert_eq!(size("512KiB"), Ok(512 << 10));
        for text in ["2GiB", "8MiB", "512KiB", "1536KiB", "1000", "0"] {
            assert_eq!(size_text(size(text).unwrap()), text);
        }
        assert_eq!(size("1GiB"), Ok(1 << 30));
        assert_eq!(size("100B"), Ok(100));
        assert_eq!(size("4096"), Ok(4096));
        for text in ["", "8MB", "eight", "8 mib", "-1", "99999999999GiB"] {
            assert!(size(text).unwrap_err().contains("is not a size"));
        }
    }
}
