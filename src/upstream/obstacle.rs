//! The obstacles that kept raincheck from reaching the server, as facts for the operator. Clients get a
//! [`Failure`](crate::mcp::error::Failure), which has no address, and only the safe part of the server's text.

use std::process::ExitStatus;
use std::time::Duration;

use hyper::header::LOCATION;
use hyper::{HeaderMap, Method, StatusCode};

use crate::base::lock::Mutex;

/// The last observation of a server that did not answer as it should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// No connection came about, and why.
    NoConnection(String),
    /// There is no connection yet, and the attempt may still take this long.
    Connecting(Duration),
    /// The server is there, and does not speak TLS.
    NoTls,
    /// The server is there, and did not answer in HTTP/2, which it speaks according to `upstream.http2`.
    NoHttp2,
    /// The server took a request, and sent nothing for this long.
    Silent(Duration),
    /// An HTTP status that is no success.
    Status {
        status: StatusCode,
        /// The address to which the server redirects. It may hold secrets of the server's.
        location: Option<String>,
    },
    /// No process came about, and why.
    NotStarted(String),
    /// The process ended by itself.
    Ended {
        status: ExitStatus,
        lived: Duration,
        /// The likely reason, from the process's standard error.
        words: String,
    },
}

/// The last obstacles at the server.
#[derive(Debug, Default)]
pub(super) struct Obstacles {
    /// The obstacle that kept a connection from being made. Cleared by the next connection.
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

    /// Notes a status that is no success. A status for a GET counts only if no POST had one, because messages
    /// are posted.
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
        // Without a connection the last answer is out of date, so the connection comes first.
        let connection = self.connection.lock().clone();
        connection.or_else(|| self.answer.lock().clone())
    }
}
