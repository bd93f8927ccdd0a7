//! The states of tasks that this replica sent to clients last. A poll waits only while it has nothing new to return.

use std::mem;

use crate::base::lock::Mutex;
use crate::base::prehashed::PrehashedMap;
use crate::task::id::TaskId;
use crate::task::state::Task;
use crate::task::view;

/// The maximum number of tasks in one of the two maps. A task whose state was sent long ago, while those of this many
/// others were sent, is forgotten; the next poll of it is answered at once.
const RECENT_MAX: usize = 32 * 1024;

/// The state of each task that was sent last. A task belongs to one caller, so that its id identifies the caller,
/// too.
#[derive(Debug, Default)]
pub struct ToldStates {
    states: Mutex<States>,
}

/// The results of [`view::shown`]. When `recent` is full, it becomes `older`, and the content of `older` is
/// forgotten.
#[derive(Debug, Default)]
struct States {
    recent: PrehashedMap<TaskId, u64>,
    older: PrehashedMap<TaskId, u64>,
}

impl ToldStates {
    /// Notes that the present state of the task is sent to the client.
    pub fn tell(&self, task: &Task) {
        let mut states = self.states.lock();
        if task.is_ended() {
            // A poll of a task that has ended never waits.
            states.recent.remove(&task.id);
            states.older.remove(&task.id);
            return;
        }
        if states.recent.len() >= RECENT_MAX {
            states.older = mem::take(&mut states.recent);
        }
        states.recent.insert(task.id, view::shown(task));
    }

    /// Returns `true` if the client was sent any state of the task.
    pub fn knows(&self, id: TaskId) -> bool {
        self.states.lock().last(id).is_some()
    }

    /// Returns `true` if the present state of the task would be new to its client.
    pub fn is_news(&self, task: &Task) -> bool {
        task.is_ended() || self.states.lock().last(task.id) != Some(view::shown(task))
    }
}

impl States {
    fn last(&self, id: TaskId) -> Option<u64> {
        // Read first, because `older` may have an earlier state of the same task.
        self.recent
            .get(&id)
            .or_else(|| self.older.get(&id))
            .copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::machine::tests::task;
    use crate::task::state::{Leg, Outcome};

    #[test]
    fn only_what_a_client_does_not_see_yet_is_news() {
        let told = ToldStates::default();
        let mut task = task(Leg::Queued, true);
        assert!(!told.knows(task.id) && told.is_news(&task));
        told.tell(&task);
        assert!(told.knows(task.id) && !told.is_news(&task));
        // Clients see neither the leg nor the time of the last commit as a state.
        task.leg = Leg::Sent(1);
        task.updated_ms += 1;
        assert!(!told.is_news(&task));
        task.status_message = Some("half done".into());
        assert!(told.is_news(&task));
        told.tell(&task);
        assert!(!told.is_news(&task));
        task.outcome = Some(Outcome::Cancelled);
        assert!(told.is_news(&task));
        told.tell(&task);
        assert!(
            !told.knows(task.id) && told.is_news(&task),
            "nothing is kept of it"
        );
    }

    #[test]
    fn the_memory_is_bounded() {
        let told = ToldStates::default();
        let open = |_| Task {
            id: TaskId::random(),
            ..task(Leg::Sent(1), true)
        };
        let tasks: Vec<Task> = (0..=RECENT_MAX * 2).map(open).collect();
        for task in &tasks {
            told.tell(task);
        }
        let is_known = |place: usize| told.knows(tasks[place].id);
        assert!(!is_known(0) && is_known(RECENT_MAX) && is_known(RECENT_MAX * 2));
        let states = told.states.lock();
        assert_eq!((states.recent.len(), states.older.len()), (1, RECENT_MAX));
    }
}
