//! The budget for commits of progress on this replica: they are frequent enough to be useful, and never so frequent
//! that they slow other commits down.

use std::time::Duration;

use tokio::time::Instant;

use crate::base::lock::Mutex;

/// Commits of progress a second, over all calls of this replica.
const COMMITS_MAX: u32 = 1_000;

/// After this time the budget is whole again.
const WINDOW: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct CommitBudget(Mutex<Spent>);

#[derive(Debug)]
struct Spent {
    since: Instant,
    commits: u32,
}

impl CommitBudget {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Spent {
            since: Instant::now(),
            commits: 0,
        }))
    }

    /// Takes one commit, or returns the time at which to ask again.
    pub(super) fn take(&self, now: Instant) -> Result<(), Instant> {
        let mut spent = self.0.lock();
        if now.saturating_duration_since(spent.since) >= WINDOW {
            *spent = Spent {
                since: now,
                commits: 0,
            };
        }
        if spent.commits == COMMITS_MAX {
            return Err(spent.since + WINDOW);
        }
        spent.commits += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_a_thousand() {
        let budget = CommitBudget::new();
        let now = Instant::now();
        for _ in 0..COMMITS_MAX {
            budget.take(now).unwrap();
        }
        let again = budget.take(now).unwrap_err();
        assert!(again > now);
        assert!(budget.take(again).is_ok());
    }
}
