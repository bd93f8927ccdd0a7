//! The history: what is kept of each task that has ended, for operators, longer than the task itself. Pure.
//!
//! No arguments, no results and no texts of the server are part of it.

mod acks;
mod chunk;
mod entry;
mod filter;
mod head;
mod period;
mod sums;

pub use acks::{Acknowledged, Acknowledgements, BY_MAX, NOTE_MAX, TooMany, day_of};
pub use chunk::{Chunk, ChunkIndex, EncodedChunk};
pub use entry::{EndGroup, EndTimes, EndedTask};
pub use filter::{EndFilter, Moment, TaskFilter};
pub use head::{ChunkPlace, HistoryHead, HistoryPlace};
pub use period::{Period, PeriodEnds};
pub use sums::{EndSums, ROWS, ToolEnds};
