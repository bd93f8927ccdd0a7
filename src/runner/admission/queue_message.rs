//! The message that a client may receive about a call that waits for its turn.

/// Returns the message that a client may receive about a call with so many calls before it.
pub(in crate::runner) fn queue_message(ahead: usize) -> Box<str> {
    match ahead {
        0 => "Waiting for a free place; it is the next".into(),
        1 => "Waiting for a free place; 1 call is before it".into(),
        calls => format!("Waiting for a free place; {calls} calls are before it").into(),
    }
}
