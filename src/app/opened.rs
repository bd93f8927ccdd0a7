//! An open store with its clock, its sealer and the way to close it.

use std::sync::Arc;

use crate::base::clock::{Anchored, Clock};
use crate::store::Store;
use crate::store::embedded::Embedded;
use crate::store::seal::Sealer;

/// The store that the configuration names, with its clock and its sealer.
pub(super) struct Opened {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<dyn Clock>,
    /// The clock that follows the store's own clock, if the store has one.
    pub(super) shared_clock: Option<Arc<Anchored>>,
    /// `true` if only one process can use this store.
    pub(super) exclusive: bool,
    pub(super) embedded: Option<Arc<Embedded>>,
    pub(super) sealer: Option<Sealer>,
}

pub(super) fn embedded(store: Embedded, sealer: Sealer, clock: Arc<dyn Clock>) -> Opened {
    let store = Arc::new(store);
    Opened {
        store: Arc::clone(&store) as Arc<dyn Store>,
        clock,
        shared_clock: None,
        exclusive: true,
        embedded: Some(store),
        sealer: Some(sealer),
    }
}
