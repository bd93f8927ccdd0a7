//! Which open tasks were made about a task: those whose requests named it, or named one of those. Pure.

use std::collections::{HashMap, HashSet};

use crate::task::id::TaskId;
use crate::task::state::Task;

/// The most tasks that are cancelled with one.
pub(super) const TREE_MAX: usize = 256;

/// There are more than [`TREE_MAX`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooMany;

/// The open tasks that name this one.
pub(super) fn naming(id: TaskId, tasks: &[Task]) -> impl Iterator<Item = &Task> {
    let names = move |task: &&Task| !task.is_ended() && task.related.contains(&id);
    tasks.iter().filter(names)
}

/// The open tasks that name this one, directly or through each other, each once, and after a task that it names.
pub(super) fn below(root: TaskId, tasks: &[Task]) -> Result<Vec<TaskId>, TooMany> {
    let mut naming: HashMap<TaskId, Vec<TaskId>> = HashMap::new();
    for task in tasks.iter().filter(|task| !task.is_ended()) {
        for named in &task.related {
            naming.entry(*named).or_default().push(task.id);
        }
    }
    let mut seen = HashSet::from([root]);
    let mut found = vec![root];
    let mut next = 0;
    while let Some(id) = found.get(next).copied() {
        next += 1;
        let new = naming.remove(&id).unwrap_or_default();
        found.extend(new.into_iter().filter(|id| seen.insert(*id)));
        // The root is among the tasks that were found.
        if found.len() > TREE_MAX + 1 {
            return Err(TooMany);
        }
    }
    found.remove(0);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::machine::tests::task;
    use crate::task::state::{Leg, Outcome};

    fn id(number: u16) -> TaskId {
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&number.to_be_bytes());
        TaskId::from_bytes(bytes)
    }

    fn naming_these(number: u16, named: &[u16]) -> Task {
        Task {
            id: id(number),
            related: named.iter().copied().map(id).collect(),
            ..task(Leg::Sent(1), true)
        }
    }

    fn numbers(found: &[TaskId]) -> Vec<u16> {
        let number = |id: &TaskId| u16::from_be_bytes([id.as_bytes()[0], id.as_bytes()[1]]);
        found.iter().map(number).collect()
    }

    #[test]
    fn what_names_a_task_through_others_is_found_once() {
        let tasks = [
            naming_these(1, &[]),
            naming_these(2, &[1]),
            naming_these(3, &[2, 1]),
            naming_these(4, &[3]),
            naming_these(5, &[9]),
        ];
        assert_eq!(numbers(&below(id(1), &tasks).unwrap()), [2, 3, 4]);
        assert_eq!(numbers(&below(id(9), &tasks).unwrap()), [5], "not open");
        assert_eq!(numbers(&below(id(4), &tasks).unwrap()), [0; 0]);
        let direct: Vec<_> = naming(id(1), &tasks).map(|task| task.id).collect();
        assert_eq!(numbers(&direct), [2, 3]);
    }

    #[test]
    fn a_circle_ends() {
        let tasks = [
            naming_these(1, &[3, 1]),
            naming_these(2, &[1]),
            naming_these(3, &[2]),
        ];
        assert_eq!(numbers(&below(id(1), &tasks).unwrap()), [2, 3]);
        assert_eq!(numbers(&below(id(2), &tasks).unwrap()), [3, 1]);
    }

    #[test]
    fn a_task_that_has_ended_leads_nowhere() {
        let ended = Task {
            outcome: Some(Outcome::Cancelled),
            ..naming_these(2, &[1])
        };
        let tasks = [ended, naming_these(3, &[2])];
        assert_eq!(numbers(&below(id(1), &tasks).unwrap()), [0; 0]);
        assert_eq!(naming(id(1), &tasks).count(), 0);
    }

    #[test]
    fn a_tree_has_a_bound() {
        let count = u16::try_from(TREE_MAX).unwrap();
        let mut tasks: Vec<_> = (1..=count)
            .map(|number| naming_these(number, &[0]))
            .collect();
        assert_eq!(below(id(0), &tasks).unwrap().len(), TREE_MAX);
        tasks.push(naming_these(count + 1, &[count]));
        assert_eq!(below(id(0), &tasks), Err(TooMany));
    }
}
