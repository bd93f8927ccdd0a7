//! When to ask a busy server again: the server's `Retry-After`, bounded and spread.

use std::time::Duration;

use hyper::header::{DATE, HeaderMap, HeaderName, RETRY_AFTER};

/// The longest pause that a `Retry-After` can cause.
const MAX: Duration = Duration::from_secs(30);

/// Spreads clients that were refused at the same time: each waits up to a quarter longer, and at least up to
/// this.
const SPREAD_MIN: Duration = Duration::from_millis(100);

/// The number of times that a server that responds with "later" is asked again.
pub const TRIES: u32 = 3;

/// Returns the pause before the next try; `None` where the server does not set one.
pub fn pause(headers: &HeaderMap) -> Option<Duration> {
    let mut random = [0; 1];
    // Without randomness all clients come back together.
    let _ = getrandom::fill(&mut random);
    asked(headers).map(|asked| spread(asked.min(MAX), random[0]))
}

/// Returns the pause that the server asks for, if the last try would come sooner.
pub fn long(headers: &HeaderMap) -> Option<Duration> {
    asked(headers).filter(|asked| *asked > MAX * (TRIES - 1))
}

/// Reads seconds, or a date by the server's own clock.
pub fn asked(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: HeaderName| headers.get(name)?.to_str().ok().map(str::trim);
    let said = text(RETRY_AFTER)?;
    if let Ok(seconds) = said.parse() {
        return Some(Duration::from_secs(seconds));
    }
    // Both dates are of the clock of the sender, which may differ from the one of this machine.
    let then = httpdate::parse_http_date(said).ok()?;
    let now = httpdate::parse_http_date(text(DATE)?).ok()?;
    Some(then.duration_since(now).unwrap_or_default())
}

fn spread(asked: Duration, random: u8) -> Duration {
    asked + (asked / 4).max(SPREAD_MIN) * u32::from(random) / u32::from(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked_by(retry_after: &str, date: &str) -> Option<u64> {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, retry_after.parse().unwrap());
        headers.insert(DATE, date.parse().unwrap());
        asked(&headers).map(|asked| asked.as_secs())
    }

    #[test]
    fn seconds_and_dates_are_understood() {
        const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!(asked_by(" 7 ", ""), Some(7));
        assert_eq!(asked_by("Sun, 06 Nov 1994 08:50:37 GMT", DATE), Some(60));
        assert_eq!(asked_by("Sun, 06 Nov 1994 08:00:00 GMT", DATE), Some(0));
        assert_eq!(asked_by("Sun, 06 Nov 1994 08:50:37 GMT", ""), None);
        for junk in ["soon", "-1", "1.5", ""] {
            assert_eq!(asked_by(junk, DATE), None, "{junk}");
        }
        assert_eq!(pause(&HeaderMap::new()), None);
    }

    #[test]
    fn a_wait_is_bounded_and_never_shorter_than_asked() {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, "86400".parse().unwrap());
        let pause = pause(&headers).unwrap();
        assert!(pause >= MAX && pause <= MAX + MAX / 4, "{pause:?}");
        assert_eq!(long(&headers).map(|it| it.as_secs()), Some(86400));
        headers.insert(RETRY_AFTER, "60".parse().unwrap());
        assert_eq!(long(&headers), None);
        let second = Duration::from_secs(1);
        assert_eq!(spread(second, 0), second);
        assert_eq!(spread(second, 255), Duration::from_millis(1250));
        assert_eq!(spread(Duration::ZERO, 255), SPREAD_MIN);
    }
}
