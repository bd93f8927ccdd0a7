//! The rules of tasks: what a task is, what may happen to it, and what clients see of it. The module is pure:
//! nothing in it awaits.

pub mod change;
pub mod clients;
pub mod glob;
pub mod id;
pub mod machine;
pub mod plan;
pub mod policy;
pub mod recovery;
pub mod state;
pub mod ticket;
pub mod view;
pub mod view_2025;
