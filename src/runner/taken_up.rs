//! Calls that wait for the next request of their client, whose credentials they need, and that this replica then takes up.

use std::time::Duration;

use tokio::time::Instant;
use tracing::info;

use crate::base::backoff::Backoff;
use crate::base::lock::Mutex;
use crate::base::prehashed::PrehashedMap;
use crate::task::id::TaskId;
use crate::task::state::Task;
use crate::upstream::Credentials;

/// The pauses before this replica takes the same call up again with the same credentials. The server refused them, and an open stream
/// would make it refuse them without end.
const AGAIN: Backoff = Backoff::new(Duration::from_secs(5), Duration::from_mins(5));

/// The credentials with which this replica took calls up lately, or that the server refused.
#[derive(Debug, Default)]
pub(super) struct TakenUp(Mutex<PrehashedMap<TaskId, LastTry>>);

#[derive(Debug)]
struct LastTry {
    credentials: Credentials,
    pauses: Backoff,
    not_before: Instant,
}

impl TakenUp {
    /// Returns `true`, and notes the time, unless these credentials were used for the call a moment ago.
    pub(super) fn may_take(&self, id: TaskId, credentials: &Credentials) -> bool {
        let now = Instant::now();
        let mut tries = self.0.lock();
        // Those of calls that have ended, too.
        tries.retain(|_, last| now < last.not_before + Duration::from_mins(5));
        match tries.get(&id) {
            Some(last) if last.credentials == *credentials && now < last.not_before => {
                return false;
            }
            Some(_) | None => {}
        }
        note(&mut tries, id, credentials);
        true
    }

    /// The server refused these credentials for the call.
    pub(super) fn refused(&self, id: TaskId, credentials: &Credentials) {
        note(&mut self.0.lock(), id, credentials);
    }
}

fn note(tries: &mut PrehashedMap<TaskId, LastTry>, id: TaskId, credentials: &Credentials) {
    let same = tries.remove(&id);
    let same = same.filter(|last| last.credentials == *credentials);
    let mut pauses = same.map_or(AGAIN, |last| last.pauses);
    let not_before = Instant::now() + pauses.pause();
    tries.insert(
        id,
        LastTry {
            credentials: credentials.clone(),
            pauses,
            not_before,
        },
    );
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
    use hyper::header::HeaderValue;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn other_credentials_may_take_a_call_up_at_once_and_the_same_after_a_pause() {
        let taken = TakenUp::default();
        let [old, new] = ["old", "new"].map(|token| HeaderValue::from_static(token).into());
        let (one, another) = (TaskId::random(), TaskId::random());
        taken.refused(one, &old);
        assert!(!taken.may_take(one, &old));
        assert!(taken.may_take(another, &old) && taken.may_take(one, &new));
        assert!(!taken.may_take(one, &new));
        tokio::time::advance(Duration::from_secs(6)).await;
        assert!(taken.may_take(one, &new));
        tokio::time::advance(Duration::from_secs(6)).await;
        assert!(!taken.may_take(one, &new), "each pause is longer");
        tokio::time::advance(Duration::from_mins(20)).await;
        assert!(taken.may_take(one, &new) && taken.0.lock().len() == 1);
    }
}
