//! The history of the tasks that have ended, over any store.
//!
//! The commit that ends a task also adds an entry to the last entries ([`Store::ended`](crate::store::Store::ended)), so that an announced end has one. From
//! there any replica puts them together in chunks of [`ROWS`](crate::task::history::ROWS): a value with the entries, one with an index by which a
//! search leaves the chunk out, and one with sums for a view of a period. The head names the chunks, and the entries that are in them. It is replaced only as it was
//! read, so that of two replicas one counts, and nothing is lost if one dies half-way.

mod acks;
mod keep;
mod period;
mod search;

pub use acks::AcknowledgeError;
pub use keep::{History, HistoryTerms};
pub use period::CountedEnds;
pub use search::{HistoryPage, HistoryQuery};
