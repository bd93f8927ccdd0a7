//! Calls that wait for the next request of their client, whose credentials they need, and that this replica then takes up.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;
use tracing::info;

use crate::lock::Mutex;
use crate::task::id::TaskId;
use crate::task::state::Task;

/// The pause before this replica takes the same call up again. The server may have refused the credentials, and a client that asks
/// at once, or over a stream, would make it refuse them without end.
const AGAIN: Duration = Duration::from_secs(5);

/// The calls that this replica took up a moment ago.
#[derive(Debug, Default)]
pub(super) struct TakenUp(Mutex<HashMap<TaskId, Instant>>);

impl TakenUp {
    /// Returns `true`, and notes the time, unless the call was taken up a moment ago.
    pub(super) fn may_take(&self, id: TaskId) -> bool {
        let now = Instant::now();
        let mut taken = self.0.lock();
        taken.retain(|_, at| now - *at < AGAIN);
        let is_new = !taken.contains_key(&id);
        taken.entry(id).or_insert(now);
        is_new
    }
}

/// Notes for operators that no replica carries the call on before its client asks for it.
pub(super) fn note_waiting(task: &Task) {
    info!(
        task = ?task.id,
        tool = &*task.name,
        "a call waits for the next request of its client, whose credentials it needs: they are never stored"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_call_is_taken_up_again_after_a_pause() {
        let taken = TakenUp::default();
        let (one, another) = (TaskId::random(), TaskId::random());
        assert!(taken.may_take(one) && taken.may_take(another));
        assert!(!taken.may_take(one));
        tokio::time::advance(AGAIN).await;
        assert!(taken.may_take(one) && taken.0.lock().len() == 1);
    }
}
