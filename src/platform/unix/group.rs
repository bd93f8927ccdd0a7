//! The process group of a child: a signal reaches what the child started, too (npx starts node).

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::process::Child;
use tokio::time::Instant;

use crate::base::lock::Mutex;

/// The groups that were not killed yet.
static GROUPS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// The time that the groups have to end after SIGTERM, when raincheck itself ends.
const LEAVE: Duration = Duration::from_millis(250);

const LOOK: Duration = Duration::from_millis(5);

/// Kills the process group when it is dropped, also if the runtime ends before the process. The group's number
/// is free once all of its processes have ended, but not so soon that this could kill another group.
#[derive(Debug)]
pub struct Group(u32);

impl Group {
    /// The group of this child, which was started with [`separate`](super::child::separate).
    pub fn of(pid: u32) -> Self {
        GROUPS.lock().insert(pid);
        Self(pid)
    }

    /// The id of the child, also after its end.
    pub fn pid(&self) -> u32 {
        self.0
    }

    /// Sends SIGTERM. Returns `true`: the processes may end by themselves now.
    pub fn ask_to_end(&self) -> bool {
        signal(self.0, Signal::TERM);
        true
    }

    /// Ends all processes at once.
    pub fn kill(&self, _leader: &mut Child) {
        signal(self.0, Signal::KILL);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        GROUPS.lock().remove(&self.0);
        signal(self.0, Signal::KILL);
    }
}

fn signal(pid: u32, signal: Signal) {
    if let Some(group) = group(pid) {
        // It is no error that the process group is empty.
        let _ = kill_process_group(group, signal);
    }
}

/// Ends all groups that are left, before this process ends without its jobs: SIGTERM, and SIGKILL a moment later.
pub async fn end_all() {
    let groups: Vec<u32> = GROUPS.lock().iter().copied().collect();
    for pid in &groups {
        signal(*pid, Signal::TERM);
    }
    let is_there = |pid: &u32| group(*pid).is_some_and(|it| test_kill_process_group(it).is_ok());
    let until = Instant::now() + LEAVE;
    while groups.iter().any(is_there) && Instant::now() < until {
        tokio::time::sleep(LOOK).await;
    }
    for pid in &groups {
        signal(*pid, Signal::KILL);
    }
}

fn group(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}
