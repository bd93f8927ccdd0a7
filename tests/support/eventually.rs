//! Polls, with a small pause and for a bounded time, for a condition that no event announces.
//!
//! If an event can be awaited, a test awaits the event. A test binary that uses only a part of this file says
//! `#[expect(dead_code, reason = "..")]` at its `mod`.

use std::fmt::Display;
use std::future::Future;
use std::panic::Location;
use std::time::{Duration, Instant};

/// The pause between two polls: short compared to what tests wait for, and long enough to leave the processor
/// to the program under test.
const PAUSE: Duration = Duration::from_millis(5);

/// The outcome of one poll: the awaited value, or what was seen instead.
pub(crate) trait Look {
    type Found;
    type Seen: Display;

    fn found(self) -> Result<Self::Found, Self::Seen>;
}

impl Look for bool {
    type Found = ();
    type Seen = String;

    fn found(self) -> Result<(), String> {
        self.then_some(()).ok_or_else(|| "it is not so".to_owned())
    }
}

impl<T> Look for Option<T> {
    type Found = T;
    type Seen = String;

    fn found(self) -> Result<T, String> {
        self.ok_or_else(|| "nothing".to_owned())
    }
}

impl<T, S: Display> Look for Result<T, S> {
    type Found = T;
    type Seen = S;

    fn found(self) -> Self {
        self
    }
}

/// Polls until the value is found. After `patience` the test fails, with what was awaited and what was seen
/// last.
#[track_caller]
pub(crate) fn eventually<L: Look, F: Future<Output = L>>(
    patience: Duration,
    what: &str,
    look: impl FnMut() -> F,
) -> impl Future<Output = L::Found> {
    let caller = Location::caller();
    async move {
        let found = try_eventually(patience, look).await;
        found.unwrap_or_else(|seen| fail(patience, what, &seen, caller))
    }
}

/// Polls until the value is found. After `patience`, returns what was seen last.
///
/// The closure is no `AsyncFnMut`, because the compiler then cannot prove that the future is `Send`.
pub(crate) async fn try_eventually<L: Look, F: Future<Output = L>>(
    patience: Duration,
    mut look: impl FnMut() -> F,
) -> Result<L::Found, String> {
    let deadline = tokio::time::Instant::now() + patience;
    let mut last = None;
    loop {
        match tokio::time::timeout_at(deadline, look()).await {
            Ok(look) => match look.found() {
                Ok(found) => return Ok(found),
                Err(seen) => last = Some(seen),
            },
            // A poll that hangs ends when `patience` is over.
            Err(_elapsed) => break,
        }
        if tokio::time::Instant::now() >= deadline {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(last.map_or_else(
        || "no look came to its end".to_owned(),
        |seen| seen.to_string(),
    ))
}

/// Polls without async, for tests without a runtime and while a child process starts. A poll must not hang.
#[track_caller]
pub(crate) fn eventually_blocking<L: Look>(
    patience: Duration,
    what: &str,
    mut look: impl FnMut() -> L,
) -> L::Found {
    let deadline = Instant::now() + patience;
    loop {
        match look().found() {
            Ok(found) => return found,
            Err(seen) if Instant::now() >= deadline => {
                fail(patience, what, &seen, Location::caller())
            }
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

fn fail(patience: Duration, what: &str, seen: &dyn Display, caller: &Location<'_>) -> ! {
    panic!("waited {patience:?} in vain at {caller}: {what}; last seen: {seen}")
}
