//! The rules of tasks: what a task is, what may happen to it, and what clients see of it. The module is pure:
//! nothing in it awaits.

pub mod change;
pub mod clients;
pub mod clocks;
pub mod digest;
pub mod durations;
pub mod events;
pub mod gave_up;
pub mod glob;
pub mod id;
pub mod input_rule;
pub mod large_results;
pub mod last_news;
pub mod log_terms;
pub mod machine;
pub mod messages;
pub mod notices;
pub mod notify_rules;
pub mod on_disconnect;
pub mod plan;
pub mod policy;
pub mod polling;
pub mod progress;
pub mod question;
pub mod ranges;
pub mod recovery;
pub mod state;
pub mod still_running;
pub mod task_end;
pub mod ticket;
pub mod ticket_list;
pub mod ticket_terms;
pub mod trace;
pub mod unanswered;
pub mod view;
pub mod view_2025;
