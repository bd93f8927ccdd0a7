//! The route of a GET or a DELETE of a legacy client: decided from its head and from the known facts about the server
//! and the session. Pure.

use hyper::Method;
use hyper::http::request::Parts;

use crate::mcp::headers::{PROTOCOL_VERSION, SESSION_ID};
use crate::mcp::version::LEGACY_NEWEST;

/// The known facts when a request without a body is routed: more with each question that was answered.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::downstream) struct StreamFacts {
    /// `true` if raincheck itself has the session.
    pub(in crate::downstream) is_hosted: Option<bool>,
    pub(in crate::downstream) server: TransportState,
    /// A call that became a task runs on the session.
    pub(in crate::downstream) is_needed: bool,
}

/// The transport by which the server is spoken to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::downstream) enum TransportState {
    #[default]
    Unknown,
    /// The server was asked, and it is still open.
    StillUnknown,
    OverHttp,
    /// Over a line.
    OverLine,
}

/// The way raincheck handles a request that has no body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::downstream) enum StreamRoute {
    /// It must be known first whether raincheck itself has the session.
    AskWhose,
    /// The server is asked first how it is spoken to: its session is older than this process.
    AskServer,
    /// The session is raincheck's own.
    Hosted,
    /// The request passes, and the answer shows how the server is spoken to.
    FirstContact,
    /// The session ends when the calls have ended that became tasks and run on it.
    EndLater,
    /// The session is on a line.
    Line,
    /// The server's stream passes without the events that are for raincheck, and with raincheck's own.
    Read,
    /// The session ends: raincheck's calls on it do, too, and the request passes.
    End,
    /// The server answers.
    Pass,
}

pub(in crate::downstream) fn route_stream(parts: &Parts, known: StreamFacts) -> StreamRoute {
    let is_end = parts.method == Method::DELETE;
    match (known.is_hosted, known.server) {
        // A session of raincheck's own has nothing at the server, so this is found out first.
        (None, _) => StreamRoute::AskWhose,
        (Some(true), _) => StreamRoute::Hosted,
        (Some(false), TransportState::Unknown) if is_read(parts) => StreamRoute::AskServer,
        (Some(false), TransportState::Unknown | TransportState::StillUnknown) => {
            StreamRoute::FirstContact
        }
        // Servers cancel what runs on a session that ends. The end is sent behind the calls that became tasks.
        (Some(false), _) if is_end && known.is_needed => StreamRoute::EndLater,
        (Some(false), TransportState::OverLine) => StreamRoute::Line,
        (Some(false), TransportState::OverHttp) if is_read(parts) => StreamRoute::Read,
        (Some(false), TransportState::OverHttp) if is_end => StreamRoute::End,
        (Some(false), TransportState::OverHttp) => StreamRoute::Pass,
    }
}

/// Returns `true` if a request asks for a stream that raincheck reads. The streams of other revisions pass as bytes.
fn is_read(parts: &Parts) -> bool {
    parts.method == Method::GET
        && parts.headers.contains_key(SESSION_ID)
        && parts
            .headers
            .get(PROTOCOL_VERSION)
            .is_some_and(|version| version == LEGACY_NEWEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(method: &str, version: &str, has_session: bool) -> Parts {
        let mut head = hyper::Request::builder().method(method);
        if has_session {
            head = head.header("mcp-session-id", "s");
        }
        let head = head.header("mcp-protocol-version", version);
        head.body(()).unwrap().into_parts().0
    }

    /// A session of a server over HTTP.
    const KNOWN: StreamFacts = StreamFacts {
        is_hosted: Some(false),
        server: TransportState::OverHttp,
        is_needed: false,
    };

    #[test]
    fn each_request_without_a_body_has_one_route() {
        use StreamRoute as Route;
        let unknown = StreamFacts::default();
        let hosted = StreamFacts {
            is_hosted: Some(true),
            ..unknown
        };
        let spoken = |server| StreamFacts { server, ..KNOWN };
        let undecided = spoken(TransportState::Unknown);
        let asked = spoken(TransportState::StillUnknown);
        let line = spoken(TransportState::OverLine);
        let needed = |known| StreamFacts {
            is_needed: true,
            ..known
        };
        let stream = parts("GET", "2025-11-25", true);
        let older = parts("GET", "2025-06-18", true);
        let nameless = parts("GET", "2025-11-25", false);
        let end = parts("DELETE", "2025-11-25", true);
        let other = parts("PUT", "2025-11-25", true);
        for (name, parts, known, expected) in [
            ("unknown", &stream, unknown, Route::AskWhose),
            ("hosted", &stream, hosted, Route::Hosted),
            ("hosted ends", &end, hosted, Route::Hosted),
            ("open", &stream, undecided, Route::AskServer),
            ("open, asked", &stream, asked, Route::FirstContact),
            ("open, older", &older, undecided, Route::FirstContact),
            ("open, ends", &end, undecided, Route::FirstContact),
            ("open, needed", &end, needed(undecided), Route::FirstContact),
            ("read", &stream, KNOWN, Route::Read),
            ("read, needed", &stream, needed(KNOWN), Route::Read),
            ("older", &older, KNOWN, Route::Pass),
            ("no session", &nameless, KNOWN, Route::Pass),
            ("ends", &end, KNOWN, Route::End),
            ("ends, needed", &end, needed(KNOWN), Route::EndLater),
            ("line", &stream, line, Route::Line),
            ("line ends", &end, line, Route::Line),
            ("line ends, needed", &end, needed(line), Route::EndLater),
            ("other method", &other, KNOWN, Route::Pass),
            ("other method, line", &other, line, Route::Line),
        ] {
            assert_eq!(route_stream(parts, known), expected, "{name}");
        }
    }
}
