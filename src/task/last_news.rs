//! The last progress and messages of a call that its record does not have yet: the end of the task brings them. Pure.

use super::messages::TaskMessage;
use super::progress::Progress;

/// The largest number of messages that the end of a task brings. A full store takes an end, so that it must be small.
const MESSAGES_MAX: usize = 5;

/// The last progress and the last messages.
#[derive(Debug, Clone, Default)]
pub struct LastNews {
    pub progress: Option<Progress>,
    pub messages: Vec<TaskMessage>,
}

impl LastNews {
    pub fn new(progress: Option<Progress>, mut messages: Vec<TaskMessage>) -> Self {
        let first = messages.len().saturating_sub(MESSAGES_MAX);
        messages.drain(..first);
        Self { progress, messages }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_brings_few_messages() {
        let said = (0..20).map(|at_ms| TaskMessage::new(at_ms, "said"));
        let last = LastNews::new(None, said.collect()).messages;
        let at: Vec<_> = last.iter().map(|message| message.at_ms).collect();
        assert_eq!(at, [15, 16, 17, 18, 19]);
    }
}
