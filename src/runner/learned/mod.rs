//! Learned polling: how long the calls of each tool take, and the time of the next poll that clients receive because
//! of it.
//!
//! Each replica counts the ends that it writes, and shares them through the store now and then. No request of a client waits
//! for that: what a replica does not know yet, it does not use.

pub mod memory;
mod sharing;
mod tools;
