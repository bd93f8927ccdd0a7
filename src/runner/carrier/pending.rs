//! News of a running call that its record does not have yet. Pure.

use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::mcp::json::Object;
use crate::task::messages::TaskMessage;
use crate::task::progress::Progress;

/// The newest progress, committed at most once a poll interval.
#[derive(Default)]
pub(super) struct PendingProgress {
    /// Boxed, because thousands of calls may run, and most have none.
    pub(super) newest: Option<Box<ProgressNews>>,
    /// The messages that the server sent since the last commit.
    pub(super) messages: Vec<TaskMessage>,
    /// The earliest time of the next commit.
    pub(super) not_before: Option<Instant>,
}

pub(super) struct ProgressNews {
    pub(super) message: Box<str>,
    pub(super) progress: Option<Progress>,
    /// The message is the server's own, and not made of its numbers.
    pub(super) is_said: bool,
}

/// The longest number of progress, in digits; raincheck ignores a longer one.
const DIGITS_MAX: usize = 64;

impl ProgressNews {
    /// Reads the part of a progress notification that a poller may see. A number that no record can hold (1e999, or
    /// four hundred digits) counts as none.
    pub(super) fn read(params: &RawValue) -> Option<Self> {
        let object = Object::parse(params.get()).ok()?;
        let number = |key| {
            let text = object.get(key)?.get();
            let number: f64 = text.parse().ok()?;
            (text.len() <= DIGITS_MAX && number.is_finite()).then_some(number)
        };
        let progress = Progress {
            progress: number("progress")?,
            total: number("total"),
        };
        let said = object.get_str("message");
        let is_said = said.is_some();
        let message = said.map_or_else(
            || match progress.total {
                Some(total) => format!("{} of {total}", progress.progress).into(),
                None => format!("progress {}", progress.progress).into(),
            },
            |text| Box::from(&*text),
        );
        Some(Self {
            message,
            progress: Some(progress),
            is_said,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(params: &str) -> Option<Progress> {
        let params = RawValue::from_string(params.to_owned()).unwrap();
        ProgressNews::read(&params)?.progress
    }

    #[test]
    fn only_numbers_that_a_record_can_hold_are_progress() {
        let known = progress(r#"{"progress":1.5,"total":3}"#).unwrap();
        assert_eq!((known.progress, known.total), (1.5, Some(3.0)));
        let long = "9".repeat(400);
        for none in ["1e999", "-1e999", "\"1\"", "null", &long] {
            assert_eq!(
                progress(&format!(r#"{{"progress":{none}}}"#)),
                None,
                "{none}"
            );
            let known = progress(&format!(r#"{{"progress":1,"total":{none}}}"#)).unwrap();
            assert_eq!(known.total, None, "{none}");
        }
    }
}
