//! THE TASKS OF A CALLER: one service over the store, and the form of each revision for it on the wire.

pub(super) mod cursor;
mod held;
pub(super) mod refusal;
pub(super) mod service;
pub mod v2025;
pub(super) mod v2026;
