//! What a modern server's answer to an `initialize` of raincheck's own says of sessions of legacy clients, and
//! how long that is believed. The answer to a client's own `initialize` may be about that client only.

use std::time::Duration;

use hyper::StatusCode;
use hyper::header::HeaderValue;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::http::RequestBody;
use super::initialize::{self, NotInitialized};
use super::origin::{FIRST_WORDS, Origin};
use super::turns::Turns;
use crate::lock::Mutex;
use crate::mcp::error::code;
use crate::mcp::headers::SESSION_ID;
use crate::mcp::result;

/// A server that answered in words of MCP is asked again after this: it may be another one by then.
const REMEMBERED: Duration = Duration::from_mins(10);

/// A refusal without such words may be a gateway's, and who says nothing new may do so soon.
const BELIEVED: Duration = Duration::from_secs(30);

/// What a server last said of sessions, and how long that is believed.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    belief: Mutex<Option<Belief>>,
    pub(super) asking: Turns,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Belief {
    pub(super) said: Said,
    pub(super) until: Instant,
}

/// What the answer to an `initialize` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    Taken,
    /// No method of that name, or no such protocol: of nobody's sessions.
    Unknown,
    /// A refusal that may be about this client only.
    Refused,
    /// A refusal that may be a gateway's, too.
    Unclear,
}

impl Said {
    pub(super) fn is_taken(self) -> bool {
        self == Self::Taken
    }

    fn believed(self) -> Duration {
        match self {
            Self::Taken | Self::Unknown | Self::Refused => REMEMBERED,
            Self::Unclear => BELIEVED,
        }
    }

    /// A server that took sessions takes none any more only if it says that it cannot.
    fn is_news_after(self, before: Self) -> bool {
        match self {
            Self::Taken | Self::Unknown => true,
            Self::Refused | Self::Unclear => !before.is_taken(),
        }
    }

    /// The same where no gateway can have said it.
    pub(super) fn of_a_program(self) -> Self {
        match self {
            Self::Unclear | Self::Refused => Self::Refused,
            Self::Taken => Self::Taken,
            Self::Unknown => Self::Unknown,
        }
    }
}

impl Sessions {
    pub(super) fn forget(&self) {
        *self.belief.lock() = None;
    }

    pub(super) fn belief(&self) -> Option<Belief> {
        *self.belief.lock()
    }

    /// `None`: nothing was said. What was said before is believed on where that is no news.
    pub(super) fn note(&self, said: Option<Said>) {
        let now = Instant::now();
        let mut belief = self.belief.lock();
        let before = belief.map(|before| before.said);
        let news = said.filter(|said| before.is_none_or(|before| said.is_news_after(before)));
        match (news, belief.as_mut()) {
            (Some(said), _) => {
                let until = now + said.believed();
                *belief = Some(Belief { said, until });
            }
            (None, Some(before)) => before.until = now + BELIEVED,
            (None, None) => {}
        }
        drop(belief);
        if news.is_some_and(|said| !said.is_taken()) && before.is_none_or(Said::is_taken) {
            tracing::info!("the upstream takes no sessions: legacy clients have theirs here");
        }
    }
}

/// `None`: it did not say. A session that it begins is ended.
pub(super) async fn ask_in_time(
    origin: &Origin,
    credentials: Option<&HeaderValue>,
) -> Option<Said> {
    let asked = tokio::time::timeout(FIRST_WORDS, ask(origin, credentials)).await;
    asked.ok().flatten()
}

async fn ask(origin: &Origin, credentials: Option<&HeaderValue>) -> Option<Said> {
    match initialize::post(origin, credentials, "{}").await {
        Ok(initialized) => {
            if let Some(session) = initialized.session_id {
                let end = origin.delete(credentials).header(SESSION_ID, session);
                // A server that cannot be told forgets it by itself.
                let _ = origin.send(end, RequestBody::empty()).await;
            }
            Some(Said::Taken)
        }
        Err(NotInitialized::Error(error)) => {
            let is_about_it = StatusCode::from_u16(error.status)
                .is_ok_and(|status| status.is_success() || is_about_it(status));
            is_about_it.then(|| refused(&error.error)).flatten()
        }
        Err(NotInitialized::Refused { status, .. }) => is_about_it(status).then_some(Said::Unclear),
        Err(NotInitialized::Failed(_) | NotInitialized::Later(_)) => None,
    }
}

/// What is about credentials or load says nothing of sessions.
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

/// What an error says: of a server in trouble nothing is known, and a code of its own may mean anything.
pub(super) fn refused(error: &RawValue) -> Option<Said> {
    match result::error_code(error)? {
        code::INTERNAL => None,
        // The last one is a modern server's of a request that lacks what every modern one has.
        code::METHOD_NOT_FOUND | code::UNSUPPORTED_VERSION | code::HEADER_MISMATCH => {
            Some(Said::Unknown)
        }
        code::INVALID_PARAMS | code::INVALID_REQUEST | code::MISSING_CLIENT_CAPABILITY => {
            Some(Said::Refused)
        }
        _ => Some(Said::Unclear),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_took_sessions_takes_none_only_where_it_says_that_it_cannot() {
        let sessions = Sessions::default();
        let believed = |said: Option<Said>| {
            sessions.note(said);
            sessions.belief().map(|belief| belief.said)
        };
        assert_eq!(believed(None), None);
        assert_eq!(believed(Some(Said::Unclear)), Some(Said::Unclear));
        for said in [
            Some(Said::Taken),
            Some(Said::Unclear),
            Some(Said::Refused),
            None,
        ] {
            assert_eq!(believed(said), Some(Said::Taken), "{said:?}");
        }
        assert_eq!(believed(Some(Said::Unknown)), Some(Said::Unknown));
        assert_eq!(believed(Some(Said::Refused)), Some(Said::Refused));
    }

    #[test]
    fn a_belief_lasts_on_where_nothing_new_is_said() {
        let sessions = Sessions::default();
        let over = Instant::now();
        *sessions.belief.lock() = Some(Belief {
            said: Said::Taken,
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
        assert_eq!(said(-32601), Some(Said::Unknown));
        assert_eq!(said(-32022), Some(Said::Unknown));
        assert_eq!(said(-32602), Some(Said::Refused));
        assert_eq!(said(-32000), Some(Said::Unclear));
        assert_eq!(said(-32603), None);
    }
}
