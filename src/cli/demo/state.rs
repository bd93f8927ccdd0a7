//! The state of the demo's server: its sessions, calls and questions.

use std::collections::{HashMap, HashSet};

use serde_json::Value;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::base::lock::Mutex;

/// A session and a JSON-RPC id in it, as JSON.
pub(super) type RequestKey = (String, String);

#[derive(Debug)]
pub(super) struct DemoState {
    pub(super) sessions: Mutex<HashSet<String>>,
    pub(super) calls: Mutex<HashMap<RequestKey, CancellationToken>>,
    pub(super) questions: Mutex<HashMap<RequestKey, oneshot::Sender<Value>>>,
    /// The number of calls that were cancelled by a notification.
    pub(super) cancelled: watch::Sender<usize>,
    pub(super) tracker: TaskTracker,
    pub(super) stop: CancellationToken,
}
