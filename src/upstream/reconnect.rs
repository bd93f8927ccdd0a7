//! When to come back to an event stream of the server that ended, and when to give it up. Pure.

use std::time::Duration;

use hyper::StatusCode;

use crate::base::backoff::Backoff;

/// The first pause, where the server does not ask for one.
pub const PAUSE: Duration = Duration::from_millis(500);
const BACKOFF: Backoff = Backoff::new(PAUSE, Duration::from_secs(10));

/// For the rest of an answer a server may ask for less, and end its streams at once.
const ANSWER_PAUSE_MIN: Duration = Duration::from_millis(100);

/// The pauses before attempts to open one stream again.
#[derive(Debug)]
pub struct Reconnect {
    backoff: Backoff,
    least: Duration,
}

impl Reconnect {
    /// For a stream on which the server sends messages of its own.
    pub fn to_stream() -> Self {
        Self {
            backoff: BACKOFF,
            least: PAUSE,
        }
    }

    /// For the rest of an answer, for which a client waits. `asked`: the server's `retry`.
    pub fn to_answer(asked: Option<Duration>) -> Self {
        Self {
            backoff: BACKOFF.beginning_with(asked.unwrap_or(PAUSE)),
            least: ANSWER_PAUSE_MIN,
        }
    }

    /// The pause before the next attempt. It is never so long that a client gives up before.
    pub fn pause(&mut self) -> Duration {
        // A server may ask for a pause of zero and end its stream at once, and would then be asked without a break.
        self.backoff.pause().max(self.least)
    }

    /// The server asks for the next pause: by `retry`, or by `Retry-After`.
    pub fn asked(&mut self, pause: Option<Duration>) {
        if let Some(pause) = pause {
            self.backoff = BACKOFF.beginning_with(pause);
        }
    }

    /// The stream has sent something, so the pauses begin anew.
    pub fn heard(&mut self) {
        self.backoff.reset();
    }
}

/// Returns `true` if a refusal means that the rest of an answer cannot be had. With any other status another reader
/// may still hold the stream, or a gateway is away.
pub(super) fn is_gone(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_REQUEST
            | StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::NOT_FOUND
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::GONE
    )
}

/// Returns `true` if a refusal is temporary, for a stream on which the server sends messages of its own. With any
/// other status the server has no such stream.
pub(super) fn is_for_now(status: StatusCode) -> bool {
    (status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED)
        || status == StatusCode::REQUEST_TIMEOUT
        || status == StatusCode::TOO_MANY_REQUESTS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(mut reconnect: Reconnect) -> Vec<u128> {
        (0..7).map(|_| reconnect.pause().as_millis()).collect()
    }

    #[test]
    fn each_pause_is_twice_the_one_before_within_bounds() {
        let asked = |millis| Reconnect::to_answer(Some(Duration::from_millis(millis)));
        for (reconnect, expected) in [
            (
                Reconnect::to_stream(),
                [500, 1000, 2000, 4000, 8000, 10_000, 10_000],
            ),
            (
                Reconnect::to_answer(None),
                [500, 1000, 2000, 4000, 8000, 10_000, 10_000],
            ),
            (asked(0), [100, 500, 1000, 2000, 4000, 8000, 10_000]),
            (asked(250), [250, 500, 1000, 2000, 4000, 8000, 10_000]),
            (
                asked(u64::MAX),
                [10_000, 10_000, 10_000, 10_000, 10_000, 10_000, 10_000],
            ),
        ] {
            assert_eq!(pauses(reconnect), expected);
        }
    }

    #[test]
    fn a_server_asks_for_one_pause_and_its_words_begin_them_anew() {
        let mut stream = Reconnect::to_stream();
        stream.asked(Some(Duration::ZERO));
        assert_eq!(stream.pause(), PAUSE, "no stream is asked for without one");
        stream.asked(Some(Duration::from_secs(3)));
        stream.asked(None);
        assert_eq!(stream.pause().as_secs(), 3);
        assert_eq!(stream.pause().as_secs(), 6);
        stream.heard();
        assert_eq!(stream.pause(), PAUSE);
    }

    #[test]
    fn refusals_are_told_apart() {
        let which = |rule: fn(StatusCode) -> bool| -> Vec<u16> {
            let statuses = (400..=504).filter_map(|status| StatusCode::from_u16(status).ok());
            let known = statuses.filter(|it| it.canonical_reason().is_some() && rule(*it));
            known.map(|it| it.as_u16()).collect()
        };
        assert_eq!(which(is_gone), [400, 401, 403, 404, 405, 410]);
        assert_eq!(which(is_for_now), [408, 429, 500, 502, 503, 504]);
    }
}
