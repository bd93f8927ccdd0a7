//! What the programs of the measurements share.

mod arguments;
mod clock;
mod process;

pub use arguments::Arguments;
pub use clock::{monotonic_ns, unix_ms};
pub use process::{finish, listen, runtime};
