//! What was wrong with an answer of the server, beside the reason of a failure: an HTTP status, and a short text.

use std::borrow::Cow;
use std::fmt;

/// What was wrong with an answer of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureDetail {
    /// The HTTP status, where the answer was a refusal of HTTP.
    status: Option<u16>,
    /// A short text that clients may read: without markup, addresses and secrets.
    text: Cow<'static, str>,
}

impl FailureDetail {
    /// A sentence without an HTTP status.
    pub const fn text(text: &'static str) -> Self {
        Self {
            status: None,
            text: Cow::Borrowed(text),
        }
    }

    /// An answer that was no answer of MCP.
    pub fn http(status: u16, text: impl Into<Cow<'static, str>>) -> Self {
        Self {
            status: Some(status),
            text: text.into(),
        }
    }

    pub fn status(&self) -> Option<u16> {
        self.status
    }

    /// True if the server would refuse the same request in the same way. 408, 409, 421, 423, 425, 429 and 499 are about
    /// the moment, as most statuses of a failing server are.
    pub fn is_lasting(&self) -> bool {
        self.status.is_some_and(|status| match status {
            408 | 409 | 421 | 423 | 424 | 425 | 429 | 499 => false,
            300..=499 | 501 | 505 => true,
            _ => false,
        })
    }
}

impl fmt::Display for FailureDetail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Some(status) if self.text.is_empty() => write!(f, "HTTP {status}"),
            Some(status) => write!(f, "HTTP {status} {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_would_refuse_again_is_lasting() {
        let lasting = |status| FailureDetail::http(status, "").is_lasting();
        for status in [
            301, 400, 401, 403, 404, 405, 410, 413, 414, 415, 422, 431, 501,
        ] {
            assert!(lasting(status), "{status}");
        }
        for status in [200, 408, 409, 425, 429, 499, 500, 502, 503, 504, 524] {
            assert!(!lasting(status), "{status}");
        }
        assert!(!FailureDetail::text("it is not JSON").is_lasting());
    }

    #[test]
    fn it_is_written_as_people_say_it() {
        let written = FailureDetail::http(413, "Payload Too Large: no").to_string();
        assert_eq!(written, "HTTP 413 Payload Too Large: no");
        assert_eq!(FailureDetail::http(599, "").to_string(), "HTTP 599");
        assert_eq!(FailureDetail::text("no JSON").to_string(), "no JSON");
    }
}
