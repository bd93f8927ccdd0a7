//! Work whose panics are errors: a library that panics at what a damaged file holds.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// The work has panicked. Nothing that it changed may be used any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Panicked;

/// Returns the result of the work. Its panic is not reported: the caller reports it, in words that contain the action
/// to take.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    let before = IS_CAUGHT.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    // The value before is restored, and not `false`, because caught work may run within other caught work.
    IS_CAUGHT.set(before);
    result.map_err(|_| Panicked)
}

/// Returns `true` if a panic of this thread is an error of a job that awaits it: the hook then reports nothing.
pub fn is_caught() -> bool {
    IS_CAUGHT.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_and_no_later_one_is() {
        assert_eq!(caught(is_caught), Ok(true));
        assert_eq!(caught(|| panic!("as expected")), Err::<(), _>(Panicked));
        assert!(!is_caught());
    }
}
