//! Decides when a failure is logged: once with its cause, and not again at each attempt.

use std::time::Duration;

use tokio::time::Instant;

/// A failure that begins anew within this time is not logged again: something that fails now and then
/// would fill the log.
const QUIET: Duration = Duration::from_mins(1);

/// The failures of one kind that were logged. At most three lines a minute are logged, including the line that the
/// store works again.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    told: Option<(Instant, String)>,
    /// When the last line but one was logged: a second cause is logged at once, a third a minute later.
    before: Option<Instant>,
    /// The logged failure goes on.
    is_on: bool,
    last: Option<Instant>,
}

impl Alarm {
    /// Notes a failure. True: the caller must log it.
    pub(super) fn fails(&mut self, cause: &str, now: Instant) -> bool {
        let since = |then: Instant| now.saturating_duration_since(then);
        if self.last.is_none_or(|last| since(last) >= QUIET) {
            // A failure after such a pause begins anew, even if no success was noted in between.
            self.is_on = false;
        }
        self.last = Some(now);
        let is_news = match &self.told {
            None => true,
            Some((told, _)) if !self.is_on => since(*told) >= QUIET,
            Some((_, known)) => {
                known != cause && self.before.is_none_or(|before| since(before) >= QUIET)
            }
        };
        if is_news {
            let told = self.told.replace((now, cause.to_owned()));
            self.before = told.map(|(before, _)| before);
            self.is_on = true;
        }
        is_news
    }

    /// Notes a success. True: a failure was logged before, and the caller must log that it is over.
    pub(super) fn works(&mut self) -> bool {
        std::mem::take(&mut self.is_on)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_once_however_often_it_comes() {
        let mut alarm = Alarm::default();
        let mut now = Instant::now();
        assert!(!alarm.works());
        let mut lines = 0;
        for second in 0..120 {
            now += Duration::from_secs(1);
            lines += u32::from(alarm.fails("gone", now));
            if second % 2 == 0 {
                lines += u32::from(alarm.works());
            }
        }
        assert!(lines <= 6, "{lines} lines in two minutes");
    }

    #[test]
    fn a_lasting_failure_is_told_again_only_with_another_cause() {
        let mut alarm = Alarm::default();
        let from = Instant::now();
        assert!(alarm.fails("gone", from));
        for second in 1..600 {
            assert!(!alarm.fails("gone", from + Duration::from_secs(second)));
        }
        let later = from + Duration::from_mins(10);
        assert!(alarm.fails("it loads", later));
        assert!(alarm.fails("no right", later + Duration::from_secs(1)));
        assert!(!alarm.fails("it loads", later + Duration::from_secs(2)));
        assert!(alarm.works());
    }

    #[test]
    fn what_was_quiet_for_a_minute_is_told_again() {
        let mut alarm = Alarm::default();
        let from = Instant::now();
        assert!(alarm.fails("gone", from));
        assert!(alarm.works());
        assert!(!alarm.fails("gone", from + Duration::from_secs(30)));
        // The failure goes on, and the last logged line said that it was over.
        assert!(alarm.fails("gone", from + Duration::from_secs(61)));
    }
}
