//! The live set of a store that only one process uses.
//!
//! The live set is in memory, because no other process asks for it, and no lease outlives its process.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use super::{Beat, Dead};
use crate::task::id::Incarnation;

/// The live set of one process.
#[derive(Debug, Default)]
pub(super) struct Leases {
    /// When each lease ends, in Unix milliseconds.
    ends: HashMap<Incarnation, u64>,
    /// Incarnations of processes that ended before this process opened the store.
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
        // When an earlier process ended is unknown, so it counts as dead for the longest time.
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
        // The map has no order, and the port names the longest dead first.
        beat.dead.sort_by_key(|dead| dead.since_ms);
        beat
    }
}
