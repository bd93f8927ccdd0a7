//! The tasks that have ended, as operators find them in the history.

use serde_json::{Value, json};

use super::query::TaskQuery;
use super::stats::{Live, StatsQuery};
use super::summary::Acks;
use super::words::place_text;
use super::{OperatorTasks, TaskActionError, summary};
use crate::store::StoreError;
use crate::store::history::{CountedEnds, HistoryPage, HistoryQuery};
use crate::task::history::{EndedTask, Period, PeriodEnds, TaskFilter};

impl OperatorTasks {
    /// A page of the history.
    pub(super) async fn past(&self, query: &TaskQuery) -> Result<Value, TaskActionError> {
        let page = self.ended(HistoryQuery {
            filter: &query.filter,
            checks_end: true,
            unacknowledged: query.unacknowledged,
            after: query.after,
            limit: query.limit(),
            chunks_max: usize::MAX,
        });
        let HistoryPage {
            entries,
            next,
            is_partial,
        } = page.await?;
        let acks = self.acks(entries.iter()).await?;
        let lines = entries.iter();
        let lines = lines.map(|ended| summary::ended_line(ended, acks.get(&ended.id)));
        Ok(json!({
            "now": crate::base::utc::rfc3339(self.now_ms()),
            "next": next.map(place_text),
            "lost": is_partial,
            "history": self.has_history(),
            "tasks": lines.collect::<Vec<_>>(),
        }))
    }

    /// What ended in a period, by tool and over time.
    pub(in crate::admin) async fn stats(&self, query: &str) -> Result<Value, TaskActionError> {
        let query = StatsQuery::read(query).map_err(TaskActionError::Wrong)?;
        // As for a list: the semaphore is never closed, and its permit is held until the end.
        let _place = self.lists.acquire().await;
        let now_ms = self.now_ms();
        let period = Period::until(now_ms, query.length_ms);
        let runner = self.runner();
        let counted = match runner.ledger().history() {
            Some(history) => history.ends(period).await?,
            None => CountedEnds {
                ends: PeriodEnds::new(period),
                since_ms: 0,
                is_partial: false,
            },
        };
        let (open, is_partial) = self.read_open().await?;
        let live = Live {
            open: &open,
            pauses: &runner.pauses(),
            now_ms,
            since_ms: counted.since_ms,
        };
        let about = [
            ("history", self.has_history()),
            ("lost", counted.is_partial),
            ("partial", is_partial),
        ];
        Ok(query.answer(&counted.ends, live, about))
    }

    /// Returns `true` if a history is kept.
    pub(super) fn has_history(&self) -> bool {
        self.runner().ledger().history().is_some()
    }

    /// The acknowledgements of the failures among these.
    pub(super) async fn acks<'e>(
        &self,
        entries: impl Iterator<Item = &'e EndedTask<'e>>,
    ) -> Result<Acks, StoreError> {
        match self.runner().ledger().history() {
            Some(history) => history.acknowledged(entries).await,
            None => Ok(Acks::new()),
        }
    }

    /// Entries of the history. There are none where none is kept.
    pub(super) async fn ended(&self, query: HistoryQuery<'_>) -> Result<HistoryPage, StoreError> {
        match self.runner().ledger().history() {
            Some(history) => history.page(query).await,
            None => Ok(HistoryPage::default()),
        }
    }

    /// Up to two entries of the history whose ids begin like this.
    pub(super) async fn ended_like(
        &self,
        beginning: &str,
    ) -> Result<Vec<EndedTask<'static>>, StoreError> {
        let filter = TaskFilter {
            id: Some(beginning.to_owned()),
            ..TaskFilter::default()
        };
        let page = self.ended(HistoryQuery {
            filter: &filter,
            checks_end: false,
            unacknowledged: false,
            after: None,
            limit: 2,
            chunks_max: usize::MAX,
        });
        Ok(page.await?.entries)
    }
}
