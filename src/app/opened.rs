//! A store that is open, with what belongs to it.

use std::sync::Arc;

use crate::clock::{Anchored, Clock};
use crate::store::Store;
use crate::store::embedded::Embedded;
use crate::store::seal::{MasterKey, Sealer};

/// The store that the configuration names, with what belongs to it.
pub(super) struct Opened {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<dyn Clock>,
    /// The clock that follows the store's own, where the store has one.
    pub(super) shared_clock: Option<Arc<Anchored>>,
    /// Only one process can hold this store.
    pub(super) exclusive: bool,
    pub(super) embedded: Option<Arc<Embedded>>,
    pub(super) sealer: Option<Sealer>,
}

pub(super) fn embedded(store: Embedded, key: &MasterKey, clock: Arc<dyn Clock>) -> Opened {
    let store = Arc::new(store);
    Opened {
        store: Arc::clone(&store) as Arc<dyn Store>,
        clock,
        shared_clock: None,
        exclusive: true,
        embedded: Some(store),
        sealer: Some(Sealer::new("", key, None)),
    }
}
