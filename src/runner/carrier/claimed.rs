//! A call that stands for a claim: its record comes first, and clients follow that, the client that
//! made the call too.

use std::time::Duration;

use tokio::sync::oneshot;

use super::record_terms::{Begun, RecordTerms};
use super::{Audience, CallStage, Carrier};
use crate::store::ledger::NotCreated;
use crate::task::state::OnDisconnect;

impl Carrier {
    /// Makes the record, says so to `begun`, and carries the call. Without a record nothing is sent.
    pub(in crate::runner) async fn run_claim(
        mut self,
        terms: RecordTerms,
        begun: oneshot::Sender<Result<Begun, NotCreated>>,
    ) {
        if let Err(why) = self.record(Vec::new(), terms).await {
            let _ = begun.send(Err(why));
            return;
        }
        let CallStage::Recorded(recorded) = &self.stage else {
            return;
        };
        let loaded = recorded.loaded.clone();
        let (maker, unauthorized) = oneshot::channel();
        self.audience = Audience::Maker(maker);
        let answer = Begun {
            loaded,
            unauthorized,
        };
        if begun.send(Ok(answer)).is_err()
            && let OnDisconnect::KeepFor(window_ms) = terms.on_disconnect
        {
            // A client that went away meanwhile may come back with the same call, as any later.
            let window = Duration::from_millis(window_ms);
            self.runner.cancel_if_abandoned(terms.id, window);
        }
        self.run().await;
    }
}
