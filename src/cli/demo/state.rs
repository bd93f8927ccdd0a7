//! What the demo's server knows of sessions, calls and questions.

use std::collections::{HashMap, HashSet};

use serde_json::Value;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::lock::Mutex;

/// A session and a JSON-RPC id in it, as JSON.
pub(super) type Key = (String, String);

#[derive(Debug)]
pub(super) struct State {
    pub(super) sessions: Mutex<HashSet<String>>,
    pub(super) calls: Mutex<HashMap<Key, CancellationToken>>,
    pub(super) questions: Mutex<HashMap<Key, oneshot::Sender<Value>>>,
    /// How many calls were cancelled by a notification.
    pub(super) cancelled: watch::Sender<usize>,
    pub(super) tracker: TaskTracker,
    pub(super) stop: CancellationToken,
}
