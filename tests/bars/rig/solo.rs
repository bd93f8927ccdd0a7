//! A stage without a store of its own: one replica that keeps its tasks in memory, before whatever the bar puts there.

use super::Folder;
use super::memory_limit::MemoryLimit;
use super::replica::Replica;
use crate::client::Client;
use crate::report::Report;

/// A replica alone. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Solo {
    pub(crate) replica: Replica,
    pub(crate) client: Client,
    _folder: Folder,
}

impl Solo {
    /// By these sections of a configuration, to which the store is added.
    pub(crate) async fn start(sections: &str, upstream: Option<&str>) -> Self {
        Self::start_within(sections, upstream, None).await
    }

    /// The same, in as much memory as this.
    pub(crate) async fn start_within(
        sections: &str,
        upstream: Option<&str>,
        limit: Option<&MemoryLimit>,
    ) -> Self {
        let folder = Folder::new();
        let config = format!("{sections}\n[store]\nurl = \"memory:\"\n");
        let place = folder.0.join("solo");
        let replica = Replica::start_within(place, &config, upstream, limit).await;
        Self {
            client: replica.client(),
            replica,
            _folder: folder,
        }
    }

    /// What it may not have done, whatever happened around it.
    pub(crate) fn inspect(&mut self, report: &mut Report) {
        let log = self.replica.log();
        let panics = log.lines().filter(|line| line.contains("panicked"));
        report.zero("panics", panics.map(str::to_owned).collect());
        let died = self.replica.died();
        let last = || log.lines().last().unwrap_or("nothing").to_owned();
        report.zero("replicas_died", died.then(last).into_iter().collect());
    }
}
