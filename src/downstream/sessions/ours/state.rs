//! The state of the sessions of raincheck's own that this process has, and the store does not.

use super::lifetimes::Lifetimes;

/// The state of the sessions of raincheck's own that only this process has.
#[derive(Debug, Default)]
pub struct OurSessions {
    pub(super) lifetimes: Lifetimes,
}
