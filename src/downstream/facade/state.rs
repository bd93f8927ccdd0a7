//! What only this process knows of the sessions that are raincheck's own.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{broadcast, oneshot};
use tokio_util::sync::CancellationToken;

use super::stays::Stays;
use super::table::Table;
use crate::downstream::legacy::pushes::SessionKey;
use crate::mcp::input::QUESTIONS_MAX;

/// What the client said, as it said it: the whole message.
pub(super) type Answered = Bytes;

/// Calls of one session that run here at once, those among them that wait for its client.
const CALLS_OF_A_SESSION_MAX: usize = 256;

/// And of all sessions together.
const CALLS_MAX: usize = 16 * 1024;

/// Changes of sessions that a stream may be behind.
const CHANGES_MAX: usize = 64;

/// What is known of these sessions in this process only.
#[derive(Debug)]
pub struct Facade {
    /// Calls that run here, by the client's id.
    pub(super) running: Arc<Table<CancellationToken>>,
    /// Questions that were put here, by ours.
    pub(super) waiting: Arc<Table<oneshot::Sender<Answered>>>,
    /// Sessions that were changed here.
    pub(super) changes: broadcast::Sender<SessionKey>,
    pub(super) stays: Stays,
}

impl Default for Facade {
    fn default() -> Self {
        Self {
            running: Arc::new(Table::new(CALLS_OF_A_SESSION_MAX, CALLS_MAX)),
            waiting: Arc::new(Table::new(
                CALLS_OF_A_SESSION_MAX * QUESTIONS_MAX,
                CALLS_MAX * QUESTIONS_MAX,
            )),
            changes: broadcast::Sender::new(CHANGES_MAX),
            stays: Stays::default(),
        }
    }
}
