//! A histogram that each request counts in. Each connection thread counts in its own, because threads that count in
//! one wait for each other; they are summed when the metrics are read.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use prometheus::core::{Collector, Desc};
use prometheus::proto::{self, Metric, MetricFamily};
use prometheus::{Histogram, HistogramOpts, HistogramVec};

use crate::net::connection_threads::PerThread;

/// The series of all threads.
#[derive(Debug, Clone)]
pub struct ThreadHistograms(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: HistogramOpts,
    labels: &'static [&'static str],
    /// Describes the metric. It counts nothing.
    described: HistogramVec,
    threads: PerThread<OnceLock<HistogramVec>>,
}

impl ThreadHistograms {
    pub(super) fn new(
        options: HistogramOpts,
        labels: &'static [&'static str],
    ) -> prometheus::Result<Self> {
        Ok(Self(Arc::new(Inner {
            described: HistogramVec::new(options.clone(), labels)?,
            options,
            labels,
            threads: PerThread::default(),
        })))
    }

    /// The series of this thread.
    #[expect(
        clippy::panic,
        reason = "the first metric of these options was made when the list was"
    )]
    pub fn with_label_values(&self, values: &[&str]) -> Histogram {
        let Inner {
            options, labels, ..
        } = &*self.0;
        let made = || match HistogramVec::new(options.clone(), labels) {
            Ok(made) => made,
            Err(error) => panic!("a metric cannot be made again: {error}"),
        };
        let here = self.0.threads.here().get_or_init(made);
        here.with_label_values(values)
    }
}

impl Collector for ThreadHistograms {
    fn desc(&self) -> Vec<&Desc> {
        self.0.described.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut sums: BTreeMap<Vec<String>, Metric> = BTreeMap::new();
        let threads = self.0.threads.all().filter_map(|thread| thread.get());
        for mut family in threads.flat_map(Collector::collect) {
            for metric in family.take_metric() {
                let values = metric.get_label().iter();
                let values = values.map(|label| label.value().to_owned()).collect();
                match sums.get_mut(&values) {
                    Some(sum) => {
                        let both = added(sum.get_histogram(), metric.get_histogram());
                        sum.set_histogram(both);
                    }
                    None => drop(sums.insert(values, metric)),
                }
            }
        }
        // The described metric gives the name and the help, and has no series of its own.
        let mut families = self.0.described.collect();
        if let Some(family) = families.first_mut() {
            family.set_metric(sums.into_values().collect());
        }
        families
    }
}

fn added(one: &proto::Histogram, other: &proto::Histogram) -> proto::Histogram {
    // All threads have the same buckets, so they fit one to one.
    let buckets = one.get_bucket().iter().zip(other.get_bucket());
    let buckets = buckets.map(|(one, other)| {
        let mut both = one.clone();
        both.set_cumulative_count(one.cumulative_count() + other.cumulative_count());
        both
    });
    let mut both = proto::Histogram::default();
    both.set_sample_count(one.get_sample_count() + other.get_sample_count());
    both.set_sample_sum(one.get_sample_sum() + other.get_sample_sum());
    both.set_bucket(buckets.collect());
    both
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::net::connection_threads::ConnectionThreads;

    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn what_the_threads_count_is_summed() {
        let options = HistogramOpts::new("a", "b").buckets(vec![1.0, 2.0]);
        let counted = ThreadHistograms::new(options, &["tool"]).unwrap();
        assert!(counted.collect()[0].get_metric().is_empty());
        let (threads, tracker) = (ConnectionThreads::start().unwrap(), TaskTracker::new());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        for seconds in [0.5, 1.5, 2.5] {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await;
            let counted = counted.clone();
            threads.spawn(&tracker, stream.unwrap(), move |_| async move {
                counted.with_label_values(&["x"]).observe(seconds);
            });
        }
        tracker.close();
        tracker.wait().await;
        counted.with_label_values(&["y"]).observe(0.5);
        counted.with_label_values(&["x"]).observe(0.5);
        let threads = counted.0.threads.all();
        let threads = threads.filter(|it| it.get().is_some()).count();
        assert!(threads > 1, "one thread counted all");
        let families = counted.collect();
        let sums: Vec<_> = families[0]
            .get_metric()
            .iter()
            .map(|metric| {
                let sum = metric.get_histogram();
                let buckets = sum.get_bucket().iter();
                let buckets: Vec<_> = buckets.map(proto::Bucket::cumulative_count).collect();
                let tool = metric.get_label()[0].value();
                (tool, sum.get_sample_count(), sum.get_sample_sum(), buckets)
            })
            .collect();
        assert_eq!(sums, [("x", 4, 5.0, vec![2, 3]), ("y", 1, 0.5, vec![1, 1])]);
    }
}
