//! Who is alive, for the stores that only one process uses: kept in memory, because nobody else
//! asks and a lease does not outlive its process.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use super::{Beat, Dead};
use crate::task::id::Incarnation;

/// The live set of one process.
#[derive(Debug, Default)]
pub(super) struct Leases {
    /// Unix milliseconds at which each lease ends.
    ends: HashMap<Incarnation, u64>,
    /// Incarnations of processes that ended before this one opened the store.
    earlier: BTreeSet<Incarnation>,
}

impl Leases {
    pub(super) fn with_earlier(earlier: BTreeSet<Incarnation>) -> Self {
        Self {
            ends: HashMap::new(),
            earlier,
        }
    }

    pub(super) fn renew(&mut self, incarnation: &Incarnation, now_ms: u64, lease: Duration) {
        let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        self.earlier.remove(incarnation);
        self.ends
            .insert(incarnation.clone(), now_ms.saturating_add(lease_ms));
    }

    pub(super) fn retire(&mut self, incarnation: &Incarnation) {
        self.earlier.remove(incarnation);
        self.ends.remove(incarnation);
    }

    pub(super) fn beat(&self, now_ms: u64) -> Beat {
        let mut beat = Beat {
            now_ms,
            ..Beat::default()
        };
        // When a process of before ended is not known; nobody is as long dead as these.
        for incarnation in &self.earlier {
            beat.dead.push(Dead {
                incarnation: incarnation.clone(),
                since_ms: 0,
            });
        }
        for (incarnation, end) in &self.ends {
            if *end > now_ms {
                beat.living.push(incarnation.clone());
            } else {
                beat.dead.push(Dead {
                    incarnation: incarnation.clone(),
                    since_ms: *end,
                });
            }
        }
        beat.dead.sort_by_key(|dead| dead.since_ms);
        beat
    }
}
