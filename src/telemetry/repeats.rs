//! Leaves out warnings that repeat: an outage must not fill the log.
//!
//! Each place in the code may write three warnings a minute. What it wrote beyond that is counted, and the
//! count is written when the minute is over. Errors and all other levels always pass. Warnings of one name are of one place.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{Event, Level, Metadata, Subscriber, warn};
use tracing_subscriber::layer::{Context, Filter};

use crate::base::lock::Mutex;

/// The name of warnings about the errors of requests and background jobs in an outage of the store.
pub const OF_OUTAGE: &str = "store outage";

/// The name of the warning that lines of the log were dropped. It always passes: without it a count would be lost.
pub(super) const LINES_DROPPED: &str = "lines of the log were dropped";

/// The most warnings of one place in a minute.
const WARNINGS_MAX: u32 = 3;

/// Of what an outage of the store does. That it began, and a second cause of it, are lines of another place: three in all.
const OF_OUTAGE_MAX: u32 = 1;

const WINDOW: Duration = Duration::from_mins(1);

/// The places that warned, by the name of their warnings. Without another name, that is the line of the code.
static PLACES: Mutex<Option<HashMap<&'static str, LogPlace>>> = Mutex::new(None);

/// One place in the code, in its minute.
#[derive(Debug)]
struct LogPlace {
    began: Instant,
    written: u32,
    left_out: u64,
    metadata: &'static Metadata<'static>,
}

impl LogPlace {
    fn has_room(&self, now: Instant) -> bool {
        let is_of_outage = self.metadata.name() == OF_OUTAGE;
        let most = if is_of_outage {
            OF_OUTAGE_MAX
        } else {
            WARNINGS_MAX
        };
        self.written < most || self.is_over(now)
    }

    /// Returns `true` if the minute is over. The count of a minute that is over is written by `tell`, before a new
    /// minute begins.
    fn is_over(&self, now: Instant) -> bool {
        self.left_out == 0 && now >= self.began + WINDOW
    }

    /// Counts one more warning. Returns whether to write it.
    fn writes(&mut self, now: Instant) -> bool {
        if self.is_over(now) {
            (self.began, self.written) = (now, 0);
        }
        if self.has_room(now) {
            self.written += 1;
            return true;
        }
        self.left_out += 1;
        false
    }

    /// Returns the number of warnings that were left out, once the minute is over.
    fn over(&mut self, now: Instant) -> Option<u64> {
        if self.left_out == 0 || now < self.began + WINDOW {
            return None;
        }
        (self.began, self.written) = (now, 0);
        Some(std::mem::take(&mut self.left_out))
    }
}

/// Returns `true` if the log takes a warning of this name now. Code that warns only once calls this first.
pub fn has_room(name: &str) -> bool {
    let places = PLACES.lock();
    let place = places.as_ref().and_then(|places| places.get(name));
    place.is_none_or(|place| place.has_room(Instant::now()))
}

/// The filter of the log's output.
#[derive(Debug)]
pub(super) struct Repeats;

impl<S: Subscriber> Filter<S> for Repeats {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if *metadata.level() != Level::WARN || metadata.name() == LINES_DROPPED {
            return true;
        }
        let now = Instant::now();
        let mut places = PLACES.lock();
        let place = places
            .get_or_insert_default()
            .entry(metadata.name())
            .or_insert_with(|| LogPlace {
                began: now,
                written: 0,
                left_out: 0,
                metadata,
            });
        place.writes(now)
    }
}

/// Writes what was left out, once a minute, for as long as the future is polled.
pub async fn tell_what_was_left_out() {
    loop {
        // More often than once a minute, so that no count comes more than ten seconds late.
        tokio::time::sleep(WINDOW / 6).await;
        for (metadata, left_out) in over() {
            // A name of several places says more than the first place of it.
            let is_named = !metadata.name().starts_with("event ");
            let place = if is_named {
                metadata.name()
            } else {
                metadata.target()
            };
            warn!(left_out, place, "similar warnings were left out");
        }
    }
}

fn over() -> Vec<(&'static Metadata<'static>, u64)> {
    let now = Instant::now();
    // Collected first and logged later: each warning takes this lock in the filter.
    let mut places = PLACES.lock();
    let all = places.iter_mut().flat_map(HashMap::values_mut);
    all.filter_map(|place| Some((place.metadata, place.over(now)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use tracing::info_span;
    use tracing::subscriber::with_default;
    use tracing_subscriber::Registry;

    use super::*;

    fn place(began: Instant) -> LogPlace {
        let span = with_default(Registry::default(), || info_span!("any place"));
        LogPlace {
            began,
            written: 0,
            left_out: 0,
            metadata: span.metadata().unwrap(),
        }
    }

    #[test]
    fn a_minute_later_there_is_room_again_for_those_who_ask_first() {
        let began = Instant::now();
        let mut place = place(began);
        for _ in 0..WARNINGS_MAX {
            assert!(place.has_room(began) && place.writes(began));
        }
        assert!(!place.has_room(began));
        let later = began + WINDOW;
        assert!(place.has_room(later) && place.writes(later));
    }

    #[test]
    fn what_was_left_out_is_counted_before_a_new_minute() {
        let began = Instant::now();
        let mut place = place(began);
        for _ in 0..WARNINGS_MAX {
            assert!(place.writes(began));
        }
        assert!(!place.writes(began));
        let later = began + WINDOW;
        assert!(!place.has_room(later) && !place.writes(later));
        assert_eq!(place.over(later), Some(2));
        assert!(place.has_room(later) && place.writes(later));
    }
}
