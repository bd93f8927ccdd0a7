//! What goes to clients: answers, errors and streams of events.

pub(super) mod send;
pub(super) mod stream;
