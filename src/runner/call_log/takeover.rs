//! Takes a call with a log over from a replica that is lost, for the client that came back to the call.

use tokio::sync::watch;
use tracing::info;

use super::log::{EventLog, LogRest};
use super::recent::RecentEvents;
use super::record::OwnedRecord;
use super::standing::CallStanding;
use super::writer::LogWriter;
use crate::store::StoreError;
use crate::task::log_terms::SealedPoint;

/// The call of a lost owner, which this replica carries now.
#[derive(Debug)]
pub struct TakenOver {
    pub writer: LogWriter,
    /// The server has the rest of the call behind this event. `None`: the call cannot be resumed, and is to be
    /// ended.
    pub event_id: Option<String>,
}

impl EventLog {
    /// Takes the call over as it stands. `seen`: the last entry that the client has. `None`: the call is over,
    /// another replica carries it, or no replica can.
    pub async fn take_over(
        self,
        stands: CallStanding,
        seen: u64,
        recent: watch::Sender<RecentEvents>,
    ) -> Result<Option<TakenOver>, StoreError> {
        let claimed = OwnedRecord::claimed(self.clone(), stands.loaded).await?;
        let Some(mut record) = claimed else {
            return Ok(None);
        };
        // Read after the claim, so that the last entries of the previous owner count.
        let (event_id, last) = match self.rest(record.terms(), record.fence()).await? {
            LogRest::Answered => {
                // The earlier owner wrote the answer and was lost before it ended the record.
                record.ends();
                record.write().await?;
                return Ok(None);
            }
            LogRest::Resumable { event_id, last } => (Some(event_id), last),
            LogRest::Lost { last } => (None, last),
        };
        if let Some(event_id) = &event_id {
            info!("a resumable call is carried on after its replica was lost");
            // The server may say nothing more before this replica dies: its successor needs the same event id.
            if let Some(sealed) = self.seal().seal(event_id) {
                record.resumes_at(SealedPoint {
                    behind: last,
                    sealed,
                });
            }
        }
        recent.send_modify(|recent| recent.begin_behind(last));
        let writer = LogWriter::of_successor(self, record, recent, last, seen);
        Ok(Some(TakenOver { writer, event_id }))
    }
}
