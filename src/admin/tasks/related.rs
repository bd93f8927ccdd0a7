//! Tasks that name each other: what one task shows of the others, and their end together.

use serde_json::{Value, json};

use super::tree::{TREE_MAX, TooMany, below, naming};
use super::{Done, OperatorTasks, TaskActionError, summary};
use crate::task::cancelled_by::CancelledBy;
use crate::task::id::TaskId;
use crate::task::state::Task;

/// The most tasks that one task shows as naming it.
const SHOWN_MAX: usize = 100;

impl OperatorTasks {
    /// The tasks that this one names. One that is gone or cannot be read is left out.
    pub(super) async fn related_to(&self, task: &Task) -> Value {
        let mut named = Vec::new();
        for id in &task.related {
            // One record that cannot be read must not hide the others.
            let found = self.runner().ledger().load(*id).await;
            named.extend(
                found
                    .ok()
                    .flatten()
                    .map(|loaded| summary::link(&loaded.task)),
            );
        }
        named.into()
    }

    /// The open tasks that name this one.
    pub(super) async fn naming(&self, id: TaskId) -> Result<Value, TaskActionError> {
        let _place = self.lists.acquire().await;
        let (open, _) = self.read_open().await?;
        let naming = naming(id, &open).take(SHOWN_MAX);
        Ok(naming.map(summary::link).collect())
    }

    /// Cancels a task, and the open tasks that name it, directly or through each other. A task ends after those
    /// that were found through it: if the store goes away meanwhile, the next request finds the rest.
    pub(super) async fn cancel_tree(
        &self,
        id: &str,
        by: &CancelledBy,
    ) -> Result<Done, TaskActionError> {
        let root = self.find(id).await?.task.id;
        let _place = self.lists.acquire().await;
        let (open, mut is_partial) = self.read_open().await?;
        let mut tree = below(root, &open).map_err(|TooMany| {
            TaskActionError::Conflict(format!(
                "more than {TREE_MAX} open tasks name it; nothing was cancelled: cancel some of those first"
            ))
        })?;
        // The root comes first here and the order is reversed below, so the root ends last.
        tree.insert(0, root);
        let (mut cancelled, mut lines) = (Vec::new(), Vec::new());
        for id in tree.into_iter().rev() {
            let loaded = self.runner().ledger().load(id).await;
            let ended = match loaded {
                Ok(Some(loaded)) => self.cancel_loaded(&loaded, by).await,
                Ok(None) => Err(TaskActionError::Unknown),
                Err(error) => Err(error.into()),
            };
            match ended {
                Ok(line) => {
                    cancelled.push(id);
                    lines.push(line);
                }
                // It ended by itself.
                Err(TaskActionError::Conflict(_) | TaskActionError::Unknown)
                    if id != root || !cancelled.is_empty() => {}
                // Nothing has changed yet, so the whole request may fail.
                Err(why) if cancelled.is_empty() => return Err(why),
                // Some tasks are cancelled already, and the operator must see which.
                Err(_) => {
                    is_partial = true;
                    break;
                }
            }
        }
        let answer = json!({ "tasks": lines, "partial": is_partial });
        Ok(Done {
            tasks: cancelled,
            answer,
        })
    }
}
