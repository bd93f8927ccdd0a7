//! Times as people and protocols write them. Pure.

/// Unix milliseconds as RFC 3339 in UTC.
pub fn rfc3339(unix_ms: u64) -> String {
    text(&date(unix_ms)).to_owned()
}

/// Unix milliseconds as the bytes of RFC 3339 in UTC, by the days-from-civil rule run backwards.
pub fn date(unix_ms: u64) -> [u8; 24] {
    let (seconds, millis) = (unix_ms / 1000, unix_ms % 1000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days since 1 March of year 0: February ends each year, so that leap days come last.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let last = |number: u64| b'0' + u8::try_from(number % 10).unwrap_or(0);
    [
        last(year / 1000),
        last(year / 100),
        last(year / 10),
        last(year),
        b'-',
        last(month / 10),
        last(month),
        b'-',
        last(day / 10),
        last(day),
        b'T',
        last(hour / 10),
        last(hour),
        b':',
        last(minute / 10),
        last(minute),
        b':',
        last(second / 10),
        last(second),
        b'.',
        last(millis / 100),
        last(millis / 10),
        last(millis),
        b'Z',
    ]
}

/// The text of a [`date`].
pub fn text(date: &[u8; 24]) -> &str {
    std::str::from_utf8(date).unwrap_or_default()
}

/// Writes the last digits of a number, as many as there are places. `format!` takes eight times as long.
pub fn digits(places: &mut [u8], mut number: u64) {
    for place in places.iter_mut().rev() {
        *place = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_rfc_3339() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(rfc3339(1_795_233_599_999), "2026-11-21T03:59:59.999Z");
        assert_eq!(rfc3339(4_107_542_400_000), "2100-03-01T00:00:00.000Z");
    }
}
