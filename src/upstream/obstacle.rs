//! What stood in the way of the server, in facts for its operator. Clients are told a
//! [`Failure`](crate::mcp::error::Failure), which has no address and no text of the server's.

use std::process::ExitStatus;
use std::time::Duration;

use hyper::header::LOCATION;
use hyper::{HeaderMap, Method, StatusCode};

use crate::lock::Mutex;

/// What was last seen of a server that did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// No connection came about, and why.
    NoConnection(String),
    /// None has come about yet; it may take so long.
    Connecting(Duration),
    /// It is there, and does not speak TLS.
    NoTls,
    /// It took a question, and said nothing for so long.
    Silent(Duration),
    /// An HTTP status that is no success.
    Status {
        status: StatusCode,
        /// Where it says that it is. May hold secrets of the server's.
        location: Option<String>,
    },
    /// No process came about, and why.
    NotStarted(String),
    /// Its process ended by itself.
    Ended {
        status: ExitStatus,
        lived: Duration,
        /// What seems to be why, from its standard error.
        words: String,
    },
}

/// The last ones.
#[derive(Debug, Default)]
pub(super) struct Obstacles {
    /// Gone with the next connection.
    connection: Mutex<Option<Obstacle>>,
    answer: Mutex<Option<Obstacle>>,
}

impl Obstacles {
    pub(super) fn note(&self, obstacle: Obstacle) {
        *self.answer.lock() = Some(obstacle);
    }

    /// `None`: there is a connection.
    pub(super) fn note_connection(&self, obstacle: Option<Obstacle>) {
        *self.connection.lock() = obstacle;
    }

    /// Messages are posted: what a server says to a GET is of interest only where it said nothing
    /// to a POST.
    pub(super) fn note_status(&self, method: &Method, status: StatusCode, headers: &HeaderMap) {
        let mut answer = self.answer.lock();
        if method != Method::POST && matches!(*answer, Some(Obstacle::Status { .. })) {
            return;
        }
        let location = headers.get(LOCATION).and_then(|value| value.to_str().ok());
        *answer = Some(Obstacle::Status {
            status,
            location: location.map(str::to_owned),
        });
    }

    pub(super) fn last(&self) -> Option<Obstacle> {
        let connection = self.connection.lock().clone();
        connection.or_else(|| self.answer.lock().clone())
    }
}
