//! The one client of this process on our standard input and output.

use std::sync::Arc;
use std::sync::Once;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::questions::ServerRequests;
use super::session::StdioSession;
use crate::downstream::calls::registry::{CallEntry, CallKind, EnterError};
use crate::downstream::inbound::session_key::SessionKey;
use crate::downstream::proxy::Proxy;
use crate::mcp::error::RpcError;

/// The known state of the client.
pub(super) struct Client {
    pub(super) proxy: Arc<Proxy>,
    pub(super) out: mpsc::Sender<String>,
    /// Names the client's requests in the registry of calls.
    pub(super) key: SessionKey,
    /// The session of a legacy client.
    pub(super) session: StdioSession,
    /// Logs once that the server asks for a sign-in.
    pub(super) sign_in: Once,
    /// The requests of the client that are not answered yet.
    pub(super) requests: TaskTracker,
    /// The stream of the session, which has no end of its own.
    pub(super) streams: TaskTracker,
    /// The requests of the server that the client has not answered yet.
    pub(super) questions: ServerRequests,
    /// Held while the server is sent a message that is no request.
    pub(super) telling: tokio::sync::Mutex<()>,
    /// Cancelled when the client reads no more.
    pub(super) gone: CancellationToken,
}

impl Client {
    /// Adds a request to the registry of running calls. `Err`: the client has too many.
    pub(super) fn register(&self, id: &str) -> Result<CallEntry, RpcError> {
        let entered = self.proxy.calls.enter(CallKind::Piped, self.key, id);
        entered.map_err(|why| match why {
            EnterError::SameId => RpcError::invalid_request("Invalid request: this id is in use"),
            EnterError::Full => {
                RpcError::internal("Too many requests are under way; try again later")
            }
        })
    }

    pub(super) async fn say(&self, message: String) {
        // The writer ends when the client reads no more, and then no line can reach it.
        let _ = self.out.send(line(message)).await;
    }
}

/// A message on one line. Line ends are white space in JSON, except in strings, where they are escaped. White space
/// between the message and its line feed is an error to the official Go SDK.
fn line(mut message: String) -> String {
    message.truncate(message.trim_ascii_end().len());
    if message.contains(['\n', '\r']) {
        message = message.replace(['\n', '\r'], " ");
    }
    message.push('\n');
    message
}

#[test]
fn a_message_is_one_line_and_ends_with_its_last_byte() {
    assert_eq!(line("{\n\"a\": 1\r\n} \r\n".to_owned()), "{ \"a\": 1  }\n");
    assert_eq!(line("{}".to_owned()), "{}\n");
}
