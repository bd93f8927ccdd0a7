//! A call that a claim names: its record comes first, and every client follows the record, including the
//! client that made the call.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::record_terms::{ClaimedRecord, RecordTerms, Unfollowed};
use super::{Audience, CallStage, Carrier};
use crate::store::ledger::CreateError;

impl Carrier {
    /// Makes the record, reports it to `begun`, and carries the call. Without a record nothing is sent.
    pub(in crate::runner) async fn run_claim(
        mut self: Box<Self>,
        terms: RecordTerms,
        begun: oneshot::Sender<Result<ClaimedRecord, CreateError>>,
    ) {
        if let Err(why) = Box::pin(self.record(Vec::new(), terms)).await {
            let _ = begun.send(Err(why));
            return;
        }
        let CallStage::Recorded(recorded) = &self.stage else {
            return;
        };
        let loaded = recorded.loaded.clone();
        let (maker, unauthorized) = oneshot::channel();
        self.audience = Audience::Maker(maker);
        // If the client went away meanwhile, the claimed record is dropped, whether it was received or not.
        let _ = begun.send(Ok(ClaimedRecord {
            loaded,
            unauthorized,
            unfollowed: Unfollowed::new(Arc::clone(&self.runner), &terms),
        }));
        self.run().await;
    }
}
