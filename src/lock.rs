//! A mutex that a panic does not poison: one call that panics ends as failed, and everybody else goes on.

use std::fmt;
use std::sync::{MutexGuard, PoisonError};

/// [`std::sync::Mutex`] without poisoning. What is changed under a lock is complete before anything can panic, so
/// that a panic leaves nothing that others could trip over.
#[derive(Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
