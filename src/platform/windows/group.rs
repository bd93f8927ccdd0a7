//! The processes of a child. They are in its job, which ends when the child does.

use tokio::process::Child;

/// The child and what it started.
#[derive(Debug)]
pub struct Group(u32);

impl Group {
    /// The processes of this child, which joined a job of its own before it started any.
    pub fn of(pid: u32) -> Self {
        Self(pid)
    }

    /// The id of the child, also after its end.
    pub fn pid(&self) -> u32 {
        self.0
    }

    /// Returns `false`: a program without a console cannot be asked.
    #[expect(clippy::unused_self, reason = "other systems have a signal for it")]
    pub fn ask_to_end(&self) -> bool {
        false
    }

    /// Ends all processes at once.
    #[expect(clippy::unused_self, reason = "other systems signal a group")]
    pub fn kill(&self, leader: &mut Child) {
        // It is no error that it has ended.
        let _ = leader.start_kill();
    }
}

/// Returns at once: the job of this process ends what is left.
#[expect(clippy::unused_async, reason = "other systems give the processes time")]
pub async fn end_all() {}
