//! What the end of a call says about its session.

use hyper::StatusCode;

use crate::upstream::http::SessionRefusal;
use crate::upstream::port::Event;

/// The use of a session for other calls after this end of a call.
pub(super) enum Fitness {
    Fit,
    /// The server has the session only if it proves so.
    Doubtful,
    /// The call left something behind, or the server speaks of its session.
    Unfit,
}

impl Fitness {
    pub(super) fn after(last: &Event) -> Self {
        let error = match last {
            Event::Error(error) => error,
            Event::Result(_) => return Self::Fit,
            // Without an answer the call may still run, and its messages would reach the next call.
            Event::Sent
            | Event::Progress(_)
            | Event::Log(_)
            | Event::Question(_)
            | Event::Job(_)
            | Event::Resumable(_)
            | Event::CredentialsRefused
            | Event::Later(_)
            | Event::Failed(_) => return Self::Unfit,
        };
        if SessionRefusal::of_error(error.status, &error.error).is_some() {
            Self::Unfit
        } else if error.status == StatusCode::OK {
            // The server itself has answered the call, so it has the session.
            Self::Fit
        } else {
            // The error may be a gateway's, which proves nothing about the session.
            Self::Doubtful
        }
    }
}
