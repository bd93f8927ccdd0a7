//! Waits for a value that another replica writes for a call that runs here: a cancel, or the answer to a question.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::sleep;

use super::state::Runner;
use super::watch::{RELOAD, Watch};
use crate::store::kv::Name;

/// A watch over the value of one name.
#[derive(Debug)]
pub struct ValueWatch {
    runner: Arc<Runner>,
    name: Name,
    watch: Watch,
}

impl Runner {
    /// Watches the value of this name: a value that a replica announces after this returns is seen.
    pub fn watch_value(self: &Arc<Self>, name: Name) -> ValueWatch {
        ValueWatch {
            runner: Arc::clone(self),
            name,
            watch: self.watches.watch(vec![name.told_as()]),
        }
    }
}

impl ValueWatch {
    /// The value as it is now. Without another replica no value was written, and the store is not asked.
    pub async fn now(&self) -> Option<Bytes> {
        if self.runner.is_alone() {
            return None;
        }
        self.read().await
    }

    /// Returns the value, once a replica has announced it. Not cancel safe: dropped before it resolves, it may lose
    /// the announcement.
    pub async fn told(&self) -> Option<Bytes> {
        self.changed().await;
        self.read().await
    }

    /// Resolves when a replica has announced the value. Cancel safe.
    pub async fn changed(&self) {
        self.watch.changed().await;
    }

    /// Asks until the store answers.
    pub(super) async fn read(&self) -> Option<Bytes> {
        loop {
            match self.runner.kv.find(self.name).await {
                Ok(found) => return found,
                // The value is announced only once, so a store that is away must not make the caller miss it.
                Err(_) => sleep(RELOAD).await,
            }
        }
    }
}
