//! The commands that ask a running raincheck, over its admin listener: `tasks`, `tools` and `health`.

mod ask;
mod cancel;
mod failures;
mod filters;
mod health;
mod reach;
mod several;
mod shown;
mod stats;
mod tasks;
mod tools;

pub(super) use health::{HealthArgs, health};
pub(super) use reach::reachable;
pub(super) use tasks::{TasksArgs, tasks};
pub(super) use tools::{ToolsArgs, tools};
