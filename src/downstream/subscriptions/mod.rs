//! SUBSCRIPTIONS: `subscriptions/listen` of 2026-07-28, and the subscription at the wrapped server that it
//! shares with the GET stream of a legacy session.

pub(super) mod at_server;
pub(super) mod listen;
