//! THE RULES: the task machine, its policy, what is seen of it. Nothing here awaits.

pub mod glob;
pub mod id;
pub mod machine;
pub mod policy;
pub mod recovery;
pub mod state;
pub mod ticket;
pub mod view;
pub mod view_2025;
