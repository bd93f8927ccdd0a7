//! Waits in tests for what announces itself by no event: a look, a small pause, another look, for a bounded time.
//!
//! Where an event can be awaited, a test awaits the event. A test binary that uses only a part of this file says
//! `#[expect(dead_code, reason = "..")]` at its `mod`.

use std::fmt::Display;
use std::future::Future;
use std::panic::Location;
use std::time::{Duration, Instant};

/// Between two looks. Short beside what tests wait for, and long enough to leave the processor to what they wait for.
const PAUSE: Duration = Duration::from_millis(5);

/// What one look says: what was awaited is found, or this was seen instead.
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

/// Looks until it is found. After `patience` the test fails, with what was awaited and what was seen last.
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

/// Looks until it is found. After `patience`: what was seen last.
///
/// The look is no `AsyncFnMut`: the compiler then does not see that what waits for it can be spawned.
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
            // A look that hangs ends with the patience.
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

/// The same where nothing is async: a child process is started, a test has no runtime. A look must not hang.
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
