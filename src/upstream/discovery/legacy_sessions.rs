//! Whether a modern server takes sessions of legacy clients, by its answer to an `initialize` of raincheck's
//! own, and how long that is believed. The answer to a client's own `initialize` may be about that client only.

use std::time::Duration;

use hyper::StatusCode;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::base::lock::Mutex;
use crate::mcp::error::code;
use crate::mcp::headers::SESSION_ID;
use crate::mcp::result;
use crate::upstream::credentials::Credentials;
use crate::upstream::http::RequestBody;
use crate::upstream::http::cookies::FirstOfName;
use crate::upstream::http::origin::{FIRST_WORDS, Origin};
use crate::upstream::initialize;
use crate::upstream::initialize::InitializeError;
use crate::upstream::single_flight::SingleFlight;

/// A server that answered with a JSON-RPC message is asked again after this time: it may be another server by
/// then.
const REMEMBERED: Duration = Duration::from_mins(10);

/// A refusal without a JSON-RPC message may be a gateway's, and is believed for this time only.
const BELIEVED: Duration = Duration::from_secs(30);

/// The last answer of a server about sessions, and the time for which that is believed.
#[derive(Debug, Default)]
pub(in crate::upstream) struct LegacySessions {
    belief: Mutex<Option<Belief>>,
    pub(in crate::upstream) asking: SingleFlight,
}

#[derive(Debug, Clone, Copy)]
pub(in crate::upstream) struct Belief {
    pub(in crate::upstream) said: SessionsAnswer,
    pub(in crate::upstream) until: Instant,
}

/// The meaning of the answer to an `initialize`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum SessionsAnswer {
    Taken,
    /// There is no such method or protocol version: the server takes no sessions at all.
    Unknown,
    /// A refusal that may be about this client only.
    Refused,
    /// A refusal that may be a gateway's, too.
    Unclear,
}

impl SessionsAnswer {
    pub(in crate::upstream) fn is_taken(self) -> bool {
        self == Self::Taken
    }

    fn believed(self) -> Duration {
        match self {
            Self::Taken | Self::Unknown | Self::Refused => REMEMBERED,
            Self::Unclear => BELIEVED,
        }
    }

    /// Takes in an answer. A server that took sessions is believed to take none any more only if it says that
    /// it cannot.
    fn is_news_after(self, before: Self) -> bool {
        match self {
            Self::Taken | Self::Unknown => true,
            Self::Refused | Self::Unclear => !before.is_taken(),
        }
    }

    /// Takes in the answer of a program, which has no gateway before it.
    pub(in crate::upstream) fn of_a_program(self) -> Self {
        match self {
            Self::Unclear | Self::Refused => Self::Refused,
            Self::Taken => Self::Taken,
            Self::Unknown => Self::Unknown,
        }
    }
}

impl LegacySessions {
    pub(in crate::upstream) fn forget(&self) {
        *self.belief.lock() = None;
    }

    pub(in crate::upstream) fn belief(&self) -> Option<Belief> {
        *self.belief.lock()
    }

    /// Takes in an answer over HTTP. `None`: there was none. Then what the server said before is still
    /// believed.
    pub(in crate::upstream) fn note(&self, said: Option<SessionsAnswer>) {
        let now = Instant::now();
        let mut belief = self.belief.lock();
        let before = belief.map(|before| before.said);
        let news = said.filter(|said| before.is_none_or(|before| said.is_news_after(before)));
        match (news, belief.as_mut()) {
            (Some(said), _) => {
                let until = now + said.believed();
                *belief = Some(Belief { said, until });
            }
            // The old belief lasts a little longer, so that the server is not asked again at every request.
            (None, Some(before)) => before.until = now + BELIEVED,
            (None, None) => {}
        }
        drop(belief);
        if news.is_some_and(|said| !said.is_taken()) && before.is_none_or(SessionsAnswer::is_taken)
        {
            tracing::info!("the server takes no sessions: legacy clients have theirs here");
        }
    }
}

/// Sends `initialize`, and ends the session that it may begin. `None`: there was no answer.
pub(in crate::upstream) async fn ask_in_time(
    origin: &Origin,
    credentials: Option<&Credentials>,
) -> Option<SessionsAnswer> {
    let asked = tokio::time::timeout(FIRST_WORDS, ask(origin, credentials)).await;
    asked.ok().flatten()
}

async fn ask(origin: &Origin, credentials: Option<&Credentials>) -> Option<SessionsAnswer> {
    match initialize::post(origin, credentials, "{}").await {
        Ok(initialized) => {
            if let Some(session) = initialized.session_id {
                let mut end = origin.delete(credentials).header(SESSION_ID, session);
                if let Some(headers) = end.headers_mut() {
                    let first = FirstOfName::Sessions;
                    initialized.cookies.put(headers, first, || origin.url());
                }
                // If the server cannot be told, it forgets the session by itself.
                let _ = origin.send(end, RequestBody::empty()).await;
            }
            Some(SessionsAnswer::Taken)
        }
        Err(InitializeError::Error(error)) => {
            let is_about_it = StatusCode::from_u16(error.status)
                .is_ok_and(|status| status.is_success() || is_about_it(status));
            is_about_it.then(|| refused(&error.error)).flatten()
        }
        Err(InitializeError::Refused { status, .. }) => {
            is_about_it(status).then_some(SessionsAnswer::Unclear)
        }
        Err(InitializeError::Failed(_) | InitializeError::Later(_)) => None,
    }
}

/// A refusal that is about credentials or load says nothing about sessions.
fn is_about_it(status: StatusCode) -> bool {
    let is_about_else = matches!(
        status,
        StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::REQUEST_TIMEOUT
            | StatusCode::TOO_MANY_REQUESTS
    );
    status.is_client_error() && !is_about_else
}

/// Returns the meaning of an error for sessions. A server that is failing says nothing, and a code of the server's own may
/// mean anything.
pub(in crate::upstream) fn refused(error: &RawValue) -> Option<SessionsAnswer> {
    match result::error_code(error)? {
        code::INTERNAL => None,
        // The last code is a modern server's, for a request without the metadata that every modern request has.
        code::METHOD_NOT_FOUND | code::UNSUPPORTED_VERSION | code::HEADER_MISMATCH => {
            Some(SessionsAnswer::Unknown)
        }
        code::INVALID_PARAMS | code::INVALID_REQUEST | code::MISSING_CLIENT_CAPABILITY => {
            Some(SessionsAnswer::Refused)
        }
        _ => Some(SessionsAnswer::Unclear),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_took_sessions_takes_none_only_where_it_says_that_it_cannot() {
        let sessions = LegacySessions::default();
        let believed = |said: Option<SessionsAnswer>| {
            sessions.note(said);
            sessions.belief().map(|belief| belief.said)
        };
        assert_eq!(believed(None), None);
        assert_eq!(
            believed(Some(SessionsAnswer::Unclear)),
            Some(SessionsAnswer::Unclear)
        );
        for said in [
            Some(SessionsAnswer::Taken),
            Some(SessionsAnswer::Unclear),
            Some(SessionsAnswer::Refused),
            None,
        ] {
            assert_eq!(believed(said), Some(SessionsAnswer::Taken), "{said:?}");
        }
        assert_eq!(
            believed(Some(SessionsAnswer::Unknown)),
            Some(SessionsAnswer::Unknown)
        );
        assert_eq!(
            believed(Some(SessionsAnswer::Refused)),
            Some(SessionsAnswer::Refused)
        );
    }

    #[test]
    fn a_belief_lasts_on_where_nothing_new_is_said() {
        let sessions = LegacySessions::default();
        let over = Instant::now();
        *sessions.belief.lock() = Some(Belief {
            said: SessionsAnswer::Taken,
            until: over,
        });
        sessions.note(None);
        assert!(sessions.belief().is_some_and(|belief| belief.until > over));
    }

    #[test]
    fn errors_say_what_their_codes_mean() {
        let said = |code: i32| {
            let error = format!(r#"{{"code":{code},"message":"m"}}"#);
            refused(&RawValue::from_string(error).unwrap())
        };
        assert_eq!(said(-32601), Some(SessionsAnswer::Unknown));
        assert_eq!(said(-32022), Some(SessionsAnswer::Unknown));
        assert_eq!(said(-32602), Some(SessionsAnswer::Refused));
        assert_eq!(said(-32000), Some(SessionsAnswer::Unclear));
        assert_eq!(said(-32603), None);
    }
}
