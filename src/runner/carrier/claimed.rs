//! A call that stands for a claim: its record comes first, and clients follow that, the client that
//! made the call too.

use std::time::Duration;

use tokio::sync::oneshot;

use super::{Audience, CallStage, Carrier, RecordTerms};
use crate::store::ledger::{Loaded, NotCreated};
use crate::task::state::WhenLeft;
use crate::upstream::UpstreamError;

/// A claimed call whose record is made.
#[derive(Debug)]
pub(in crate::runner) struct Begun {
    pub(in crate::runner) loaded: Loaded,
    /// Tells that the server refused the caller's credentials, in the server's words, which no record
    /// keeps.
    pub(in crate::runner) unauthorized: oneshot::Receiver<UpstreamError>,
}

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
            && let WhenLeft::RunsFor(window_ms) = terms.when_left
        {
            // A client that went away meanwhile may come back with the same call, as any later.
            let window = Duration::from_millis(window_ms);
            self.runner.linger(terms.id, window);
        }
        self.run().await;
    }
}
