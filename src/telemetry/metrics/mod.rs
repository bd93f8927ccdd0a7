//! Every metric of this process. docs/metrics.md is generated from this list.
//!
//! Labels never hold an argument, a result, a task id or a credential.

use std::sync::LazyLock;

use prometheus::TextEncoder;

use list::List;

use crate::platform::resources::ARE_KNOWN;

mod calls;
mod list;
mod notices;
mod operations;
mod per_thread;
mod process;
mod resources;
mod store;
mod tasks;
mod traces;

pub use calls::CallMetrics;
pub use list::Described;
pub use notices::NoticeMetrics;
pub use operations::OperationMetrics;
pub use per_thread::ThreadHistograms;
pub use process::ProcessMetrics;
pub use resources::ResourceMetrics;
pub use store::StoreMetrics;
pub use tasks::{TaskMetrics, WaitingMetrics};
pub use traces::TraceMetrics;

/// The metrics of this process.
pub static METRICS: LazyLock<Metrics> = LazyLock::new(Metrics::new);

#[derive(Debug)]
pub struct Metrics {
    list: List,
    pub calls: CallMetrics,
    pub tasks: TaskMetrics,
    pub store: StoreMetrics,
    pub process: ProcessMetrics,
    /// `None`: the system has none.
    pub resources: Option<ResourceMetrics>,
    pub operations: OperationMetrics,
    pub notices: NoticeMetrics,
    pub traces: TraceMetrics,
}

impl Metrics {
    fn new() -> Self {
        let mut list = List::default();
        Self {
            process: ProcessMetrics::new(&mut list),
            calls: CallMetrics::new(&mut list),
            tasks: TaskMetrics::new(&mut list),
            store: StoreMetrics::new(&mut list),
            operations: OperationMetrics::new(&mut list),
            notices: NoticeMetrics::new(&mut list),
            traces: TraceMetrics::new(&mut list),
            resources: ARE_KNOWN.then(|| ResourceMetrics::new(&mut list)),
            list,
        }
    }

    /// Returns all metrics in the text format of Prometheus, version 0.0.4.
    pub fn render(&self) -> String {
        let mut text = String::new();
        // The only error is that of a writer, and a string has none.
        let _ = TextEncoder::new().encode_utf8(&self.list.gather(), &mut text);
        text
    }

    /// The metrics in the order in which docs/metrics.md has them.
    pub fn described(&self) -> &[Described] {
        self.list.described()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_rendered() {
        let metrics = Metrics::new();
        let calls = &metrics.calls.fates;
        calls.with_label_values(&["a\"b", "plain"]).inc();
        let text = metrics.render();
        let line = r#"raincheck_calls_total{fate="plain",tool="a\"b"} 1"#;
        assert!(text.contains(line), "{text}");
        assert!(
            text.contains("# TYPE raincheck_calls_running gauge"),
            "{text}"
        );
    }
}
