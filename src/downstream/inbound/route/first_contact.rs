//! The route of a message of a legacy client while raincheck does not know yet which transport and era the server
//! speaks: it passes, and the answer decides what follows. Pure.

use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderMap};

use super::stream::TransportState;
use crate::mcp::version::Era;

/// The largest body in which raincheck looks for a refusal.
const REFUSAL_BYTES_MAX: u64 = 64 * 1024;

/// The path of a message to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::downstream) enum FirstHop {
    /// The message passes, and the answer shows how the server is spoken to, or that it refuses legacy clients.
    FirstContact,
    OverHttp,
    OverLine,
}

/// `era`: the era that was known before raincheck decided whose session this is. `begins`: the message begins a session.
pub(in crate::downstream) fn route_way(
    server: TransportState,
    era: Option<Era>,
    begins: bool,
) -> FirstHop {
    match server {
        TransportState::Unknown | TransportState::StillUnknown => FirstHop::FirstContact,
        // The server may refuse sessions.
        TransportState::OverHttp if begins && era != Some(Era::Modern) => FirstHop::FirstContact,
        TransportState::OverHttp => FirstHop::OverHttp,
        TransportState::OverLine => FirstHop::OverLine,
    }
}

/// The known facts about the answer to a first message: more with each question that was answered.
#[derive(Debug, Clone)]
pub(in crate::downstream) struct FirstReplyFacts {
    pub(in crate::downstream) status: StatusCode,
    /// In lower case, without parameters.
    kind: Box<str>,
    /// The length of a body that is known to be whole.
    length: Option<u64>,
    /// raincheck began the answer itself: the server may not have answered yet.
    pub(in crate::downstream) is_ours: bool,
    /// The message begins a session.
    pub(in crate::downstream) begins: bool,
    /// `true` if the server was asked, and is spoken to over a line.
    pub(in crate::downstream) is_line: Option<bool>,
    /// `true` if the body is an error.
    pub(in crate::downstream) has_error: Option<bool>,
    /// `true` if the server was asked, and the session is raincheck's own.
    pub(in crate::downstream) is_hosted: Option<bool>,
}

/// The way raincheck handles the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::downstream) enum AnswerRoute {
    /// It must be known first whether the server is spoken to over a line: it does not know the path.
    AskTransport,
    /// The body must be read first.
    ReadBody,
    /// It must be known first whether the server serves modern clients only: it refused the session.
    AskEra,
    /// The message goes over a line instead.
    Line,
    /// raincheck answers the message, on a session of its own.
    Hosted,
    /// The client gets the answer.
    Pass,
}

impl FirstReplyFacts {
    pub(in crate::downstream) fn of(
        status: StatusCode,
        headers: &HeaderMap,
        length: Option<u64>,
        begins: bool,
    ) -> Self {
        let kind = headers.get(CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        Self {
            status,
            kind: kind.to_ascii_lowercase().into(),
            length,
            is_ours: false,
            begins,
            is_line: None,
            has_error: None,
            is_hosted: None,
        }
    }

    /// Returns `true` if the answer is one of Streamable HTTP. A web page, or a gateway that accepts every request,
    /// proves nothing about the server.
    pub(in crate::downstream) fn proves_http(&self) -> bool {
        let is_known = matches!(&*self.kind, "application/json" | "text/event-stream");
        !self.is_ours && self.status == StatusCode::OK && is_known
    }

    /// Servers over HTTP+SSE answer so on a path of Streamable HTTP.
    fn may_be_old(&self) -> bool {
        matches!(
            self.status,
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED
        )
    }

    /// Returns `true` if the server refuses legacy clients, by its status or by an error in a small body. `None`: the
    /// body must be read.
    fn is_refused(&self) -> Option<bool> {
        if !self.status.is_success() {
            // These are about the client or the moment: they prove nothing about legacy sessions.
            let is_about_else = matches!(
                self.status,
                StatusCode::UNAUTHORIZED
                    | StatusCode::FORBIDDEN
                    | StatusCode::REQUEST_TIMEOUT
                    | StatusCode::TOO_MANY_REQUESTS
            );
            return Some(self.status.is_client_error() && !is_about_else);
        }
        let is_small = self
            .length
            .is_some_and(|length| length <= REFUSAL_BYTES_MAX);
        if is_small && self.kind.starts_with("application/json") {
            self.has_error
        } else {
            Some(false)
        }
    }
}

pub(in crate::downstream) fn route_answer(known: &FirstReplyFacts) -> AnswerRoute {
    if known.is_ours {
        return AnswerRoute::Pass;
    }
    if known.may_be_old() {
        match known.is_line {
            None => return AnswerRoute::AskTransport,
            Some(true) => return AnswerRoute::Line,
            Some(false) => {}
        }
    }
    // Only a message that begins a session can get a session of raincheck's own instead.
    if !known.begins {
        return AnswerRoute::Pass;
    }
    match (known.is_refused(), known.is_hosted) {
        (None, _) => AnswerRoute::ReadBody,
        (Some(true), None) => AnswerRoute::AskEra,
        (Some(true), Some(true)) => AnswerRoute::Hosted,
        (Some(true), Some(false)) | (Some(false), _) => AnswerRoute::Pass,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, kind: &str) -> FirstReplyFacts {
        let mut headers = HeaderMap::new();
        if !kind.is_empty() {
            headers.insert(CONTENT_TYPE, kind.parse().unwrap());
        }
        let status = StatusCode::from_u16(status).unwrap();
        FirstReplyFacts::of(status, &headers, Some(100), true)
    }

    #[test]
    fn only_an_answer_of_the_transport_decides_on_it() {
        assert!(answer(200, "application/json").proves_http());
        assert!(answer(200, "text/event-stream; charset=utf-8").proves_http());
        assert!(answer(200, "Application/JSON;charset=utf-8").proves_http());
        for (status, kind) in [
            (200, "text/html"),
            (200, "application/jsonl"),
            (202, "application/json"),
            (204, "text/event-stream"),
            (404, "application/json"),
            (200, ""),
        ] {
            assert!(!answer(status, kind).proves_http(), "{status} {kind}");
        }
        let ours = FirstReplyFacts {
            is_ours: true,
            ..answer(200, "text/event-stream")
        };
        assert!(!ours.proves_http());
    }

    #[test]
    fn a_message_goes_one_way() {
        use FirstHop::{FirstContact, OverHttp, OverLine};
        for (server, era, begins, expected) in [
            (TransportState::Unknown, None, false, FirstContact),
            (
                TransportState::Unknown,
                Some(Era::Modern),
                true,
                FirstContact,
            ),
            (TransportState::StillUnknown, None, false, FirstContact),
            (TransportState::OverHttp, None, true, FirstContact),
            (
                TransportState::OverHttp,
                Some(Era::Legacy),
                true,
                FirstContact,
            ),
            (TransportState::OverHttp, Some(Era::Modern), true, OverHttp),
            (TransportState::OverHttp, None, false, OverHttp),
            (TransportState::OverHttp, Some(Era::Legacy), false, OverHttp),
            (TransportState::OverLine, None, true, OverLine),
            (TransportState::OverLine, Some(Era::Legacy), false, OverLine),
        ] {
            let way = route_way(server, era, begins);
            assert_eq!(way, expected, "{server:?} {era:?} {begins}");
        }
    }

    #[test]
    fn each_answer_to_a_first_message_has_one_route() {
        use AnswerRoute as Route;
        let json = |status| answer(status, "application/json");
        let asked = |is_line, known| FirstReplyFacts {
            is_line: Some(is_line),
            ..known
        };
        let read = |has_error, known| FirstReplyFacts {
            has_error: Some(has_error),
            ..known
        };
        let owned = |is_hosted, known| FirstReplyFacts {
            is_hosted: Some(is_hosted),
            ..known
        };
        let later = |known| FirstReplyFacts {
            begins: false,
            ..known
        };
        let ours = |known| FirstReplyFacts {
            is_ours: true,
            ..known
        };
        let of_length = |length, known| FirstReplyFacts { length, ..known };
        for (name, known, expected) in [
            ("our own stream", ours(answer(404, "")), Route::Pass),
            // It may speak HTTP+SSE only.
            ("not found", answer(404, ""), Route::AskTransport),
            ("bad request", later(json(400)), Route::AskTransport),
            ("no POST", later(answer(405, "")), Route::AskTransport),
            ("a line", asked(true, answer(404, "")), Route::Line),
            ("a line, later", asked(true, later(json(400))), Route::Line),
            (
                "no line, later",
                asked(false, later(json(400))),
                Route::Pass,
            ),
            // It may serve modern clients only.
            ("no line", asked(false, json(400)), Route::AskEra),
            ("refused", json(410), Route::AskEra),
            ("refused, ours", owned(true, json(410)), Route::Hosted),
            ("refused, not ours", owned(false, json(410)), Route::Pass),
            ("refused, later", later(json(410)), Route::Pass),
            ("small", json(200), Route::ReadBody),
            ("small, later", later(json(200)), Route::Pass),
            ("an error", read(true, json(200)), Route::AskEra),
            (
                "an error, ours",
                owned(true, read(true, json(200))),
                Route::Hosted,
            ),
            (
                "an error, not ours",
                owned(false, read(true, json(200))),
                Route::Pass,
            ),
            ("a result", read(false, json(200)), Route::Pass),
            (
                "large",
                of_length(Some(REFUSAL_BYTES_MAX + 1), json(200)),
                Route::Pass,
            ),
            ("endless", of_length(None, json(200)), Route::Pass),
            ("a stream", answer(200, "text/event-stream"), Route::Pass),
            // About something else than the session.
            ("unauthorized", json(401), Route::Pass),
            ("forbidden", json(403), Route::Pass),
            ("late", json(408), Route::Pass),
            ("too many", json(429), Route::Pass),
            ("broken", json(500), Route::Pass),
        ] {
            assert_eq!(route_answer(&known), expected, "{name}");
        }
    }
}
