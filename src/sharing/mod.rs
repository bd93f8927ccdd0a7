//! Fair shares of what is limited: room for bytes and calls, turns among callers, limits that change while they are used.

pub mod resizable;
pub mod room;
pub mod shares;
pub mod turns;
