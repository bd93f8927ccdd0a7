//! Store files for `raincheck stdio`: several files, one for each process.
//!
//! Two sessions of one client start the same command twice, and a file belongs to one process. Each process takes a
//! free file and merges the other free files into it, so that a client that resumes a session finds its tasks.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use tracing::{info, warn};

use super::error::{AppError, line};
use super::opened::{Opened, embedded};
use crate::base::clock::Clock;
use crate::store::embedded::{Embedded, callers_key, shared_key};
use crate::store::seal::{MasterKey, Sealer};

/// The most files of one server in one directory. Further processes keep their tasks in memory.
const SLOTS_MAX: usize = 16;

/// Opens a free file, or returns `None` if no file can be opened: raincheck serves without a file, too.
///
/// `sealer` makes the sealer from the key that the files share.
pub(super) fn open(
    path: &Path,
    clock: &Arc<dyn Clock>,
    sealer: impl FnOnce(&MasterKey) -> Sealer,
) -> Option<Opened> {
    let opened = shared_key(path)
        .map_err(line)
        .and_then(|key| open_slot(path, &key, sealer(&key), clock));
    opened
        .map_err(|why| warn!(%why, "tasks live in memory and end with this process"))
        .ok()
}

fn open_slot(
    path: &Path,
    key: &MasterKey,
    sealer: Sealer,
    clock: &Arc<dyn Clock>,
) -> Result<Opened, AppError> {
    let slots = by_use(path);
    let mut last = None;
    for (place, slot) in slots.iter().enumerate() {
        let others = slots.iter().enumerate();
        let others: Vec<PathBuf> = others
            .filter(|(other, _)| *other != place)
            .map(|(_, slot)| slot.clone())
            .collect();
        let callers = callers_key(key);
        match Embedded::open_one_of(slot, &others, &callers, Arc::clone(clock)) {
            Ok(store) => {
                info!(file = %slot.display(), "tasks live in a file");
                return Ok(embedded(store, sealer, Arc::clone(clock)));
            }
            // Another process may have this file, so the next one is tried.
            Err(why) => last = Some(line(why)),
        }
    }
    Err(last.unwrap_or_else(|| AppError("there is no store file".to_owned())))
}

/// The paths of the files: the last used file first, and files that do not exist yet last.
fn by_use(path: &Path) -> Vec<PathBuf> {
    let mut slots: Vec<(Option<SystemTime>, PathBuf)> = (0..SLOTS_MAX)
        .map(|number| slot(path, number))
        .map(|slot| (used(&slot), slot))
        .collect();
    // The sort is stable, so files that do not exist yet keep their order.
    slots.sort_by_key(|(used, _)| Reverse(*used));
    slots.into_iter().map(|(_, slot)| slot).collect()
}

fn used(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).ok()?.modified().ok()
}

fn slot(path: &Path, number: usize) -> PathBuf {
    match number {
        0 => path.into(),
        number => path.with_extension(format!("{number}.redb")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_file_that_was_used_last_comes_first() {
        let directory = std::env::temp_dir().join(format!("raincheck-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&directory).unwrap();
        let path = directory.join("a.redb");
        for (name, age) in [("a.redb", 9), ("a.3.redb", 1), ("a.1.redb", 5)] {
            let file = std::fs::File::create(directory.join(name)).unwrap();
            let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(100 - age);
            file.set_modified(modified).unwrap();
        }
        let order: Vec<_> = by_use(&path)
            .into_iter()
            .map(|slot| slot.file_name().unwrap().to_str().unwrap().to_owned())
            .collect();
        std::fs::remove_dir_all(&directory).unwrap();
        assert_eq!(order[..4], ["a.3.redb", "a.1.redb", "a.redb", "a.2.redb"]);
        assert_eq!(order.len(), SLOTS_MAX);
    }
}
