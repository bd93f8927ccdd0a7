//! The causes of a degraded state: the process serves, and not all of it is in order.

/// One cause of a degraded state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Degraded {
    /// The store does not answer.
    StoreAway,
    /// The store answers and has no room: a full disk, or Redis at its `maxmemory`.
    StoreFull,
    /// The server was reached before, and does not answer now.
    UpstreamAway,
    /// Something other than an MCP server answers at the server's address.
    UpstreamNotMcp,
    /// The store answers and may lose tasks, because its eviction policy was changed.
    StoreMayEvict,
}

impl Degraded {
    /// Every cause, the gravest first.
    pub const ALL: [Self; 5] = [
        Self::StoreAway,
        Self::StoreFull,
        Self::UpstreamAway,
        Self::UpstreamNotMcp,
        Self::StoreMayEvict,
    ];

    /// The word in the answer to a readiness probe.
    pub fn word(self) -> &'static str {
        match self {
            Self::StoreAway => "store_away",
            Self::StoreFull => "store_full",
            Self::UpstreamAway => "upstream_away",
            Self::UpstreamNotMcp => "upstream_not_mcp",
            Self::StoreMayEvict => "store_may_evict",
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The causes that hold now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DegradedCauses(u8);

impl DegradedCauses {
    pub fn set(&mut self, cause: Degraded, holds: bool) {
        if holds {
            self.0 |= cause.bit();
        } else {
            self.0 &= !cause.bit();
        }
    }

    pub fn contains(self, cause: Degraded) -> bool {
        self.0 & cause.bit() != 0
    }

    /// The gravest cause that holds.
    pub fn gravest(self) -> Option<Degraded> {
        Degraded::ALL
            .into_iter()
            .find(|cause| self.contains(*cause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_holds_by_itself_and_the_gravest_comes_first() {
        let mut causes = DegradedCauses::default();
        assert_eq!(causes.gravest(), None);
        for cause in Degraded::ALL.into_iter().rev() {
            causes.set(cause, true);
            assert_eq!(causes.gravest(), Some(cause));
        }
        for cause in Degraded::ALL {
            causes.set(cause, false);
            assert!(!causes.contains(cause));
        }
        assert_eq!(causes, DegradedCauses::default());
    }
}
