//! The error in an answer of the server, beside the reason of a failure: an HTTP status, and a short text.

use std::fmt;

use super::flaw::Flaw;

/// The error in an answer of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FailureDetail {
    /// A sentence.
    Text(&'static str),
    /// The part that could not be read, and its place.
    Flaw(Flaw),
    /// The id of a job at the server.
    Job(Box<str>),
    /// The time at which what caused the failure ends, and its reason, which may be empty.
    Until { at: String, why: Box<str> },
    /// An HTTP refusal, or an answer that was none of MCP.
    Http {
        status: u16,
        /// A short text that clients may read: without markup, addresses and secrets.
        text: String,
    },
}

impl FailureDetail {
    /// The HTTP status, where the answer was a refusal of HTTP.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Http { status, .. } => Some(*status),
            Self::Text(_) | Self::Flaw(_) | Self::Job(_) | Self::Until { .. } => None,
        }
    }

    /// Returns `true` if the server would refuse the same request in the same way. 408, 409, 421, 423, 425, 429 and 499 are about
    /// the moment, as most statuses of a failing server are.
    pub fn is_lasting(&self) -> bool {
        self.status().is_some_and(|status| match status {
            408 | 409 | 421 | 423 | 424 | 425 | 429 | 499 => false,
            300..=499 | 501 | 505 => true,
            _ => false,
        })
    }
}

impl fmt::Display for FailureDetail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Flaw(flaw) => flaw.fmt(f),
            Self::Job(id) => write!(f, "job {id}"),
            Self::Until { at, why } if why.is_empty() => write!(f, "until {at}"),
            Self::Until { at, why } => write!(f, "until {at} ({why})"),
            Self::Http { status, text } if text.is_empty() => write!(f, "HTTP {status}"),
            Self::Http { status, text } => write!(f, "HTTP {status} {text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(status: u16, text: &str) -> FailureDetail {
        let text = text.to_owned();
        FailureDetail::Http { status, text }
    }

    #[test]
    fn what_the_server_would_refuse_again_is_lasting() {
        let lasting = |status| http(status, "").is_lasting();
        for status in [
            301, 400, 401, 403, 404, 405, 410, 413, 414, 415, 422, 431, 501,
        ] {
            assert!(lasting(status), "{status}");
        }
        for status in [200, 408, 409, 425, 429, 499, 500, 502, 503, 504, 524] {
            assert!(!lasting(status), "{status}");
        }
        assert!(!FailureDetail::Text("it is not JSON").is_lasting());
    }

    #[test]
    fn it_is_written_as_people_say_it() {
        let written = http(413, "Payload Too Large: no").to_string();
        assert_eq!(written, "HTTP 413 Payload Too Large: no");
        assert_eq!(http(599, "").to_string(), "HTTP 599");
        assert_eq!(FailureDetail::Text("no JSON").to_string(), "no JSON");
    }
}
