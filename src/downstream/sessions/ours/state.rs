//! What this process knows of the sessions of raincheck's own, and the store does not.

use super::lifetimes::Lifetimes;

/// What this process knows of the sessions of raincheck's own.
#[derive(Debug, Default)]
pub struct OurSessions {
    pub(super) lifetimes: Lifetimes,
}
