//! Makes, registers and describes a metric at one place, and so adds it to the list.

use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{
    Counter, CounterVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec,
    IntGauge, IntGaugeVec, Opts, Registry,
};

use super::per_thread::ThreadHistograms;

/// Seconds, from a quick answer to a task of four hours.
pub(super) const CALL_SECONDS: &[f64] = &[
    0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0,
    14400.0,
];

/// Seconds, for one command of a store.
pub(super) const STORE_SECONDS: &[f64] = &[
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0,
];

/// Requests for one task.
pub(super) const POLLS: &[f64] = &[1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 500.0];

/// One metric, as docs/metrics.md describes it.
#[derive(Debug, Clone)]
pub struct Described {
    pub name: &'static str,
    pub kind: &'static str,
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

#[derive(Debug, Default)]
pub(super) struct List {
    registry: Registry,
    described: Vec<Described>,
}

impl List {
    pub(super) fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }

    pub(super) fn described(&self) -> &[Described] {
        &self.described
    }

    pub(super) fn counter(&mut self, name: &'static str, help: &'static str) -> IntCounter {
        // A metric without labels is a vector with one series, so that all metrics go through `enter`.
        let vector = self.counters(name, help, &[]);
        vector.with_label_values::<&str>(&[])
    }

    /// A counter of seconds.
    pub(super) fn seconds(&mut self, name: &'static str, help: &'static str) -> Counter {
        let made = CounterVec::new(Opts::new(name, help), &[]);
        let described = Described {
            name,
            kind: "counter",
            labels: &[],
            help,
        };
        let vector = self.enter(made, described);
        vector.with_label_values::<&str>(&[])
    }

    pub(super) fn gauge(&mut self, name: &'static str, help: &'static str) -> IntGauge {
        let vector = self.gauges(name, help, &[]);
        vector.with_label_values::<&str>(&[])
    }

    pub(super) fn counters(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
    ) -> IntCounterVec {
        let made = IntCounterVec::new(Opts::new(name, help), labels);
        self.enter(
            made,
            Described {
                name,
                kind: "counter",
                labels,
                help,
            },
        )
    }

    pub(super) fn gauges(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
    ) -> IntGaugeVec {
        let made = IntGaugeVec::new(Opts::new(name, help), labels);
        self.enter(
            made,
            Described {
                name,
                kind: "gauge",
                labels,
                help,
            },
        )
    }

    pub(super) fn histogram(
        &mut self,
        name: &'static str,
        help: &'static str,
        buckets: &[f64],
    ) -> Histogram {
        let vector = self.histograms(name, help, &[], buckets);
        vector.with_label_values::<&str>(&[])
    }

    pub(super) fn histograms(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        buckets: &[f64],
    ) -> HistogramVec {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        let made = HistogramVec::new(options, labels);
        self.enter(
            made,
            Described {
                name,
                kind: "histogram",
                labels,
                help,
            },
        )
    }

    /// Histograms that each request counts in.
    pub(super) fn thread_histograms(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        buckets: &[f64],
    ) -> ThreadHistograms {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        let made = ThreadHistograms::new(options, labels);
        self.enter(
            made,
            Described {
                name,
                kind: "histogram",
                labels,
                help,
            },
        )
    }

    #[expect(
        clippy::panic,
        reason = "the list is constant: a test makes it, so that no program starts with a wrong one"
    )]
    fn enter<M: Collector + Clone + 'static>(
        &mut self,
        made: prometheus::Result<M>,
        described: Described,
    ) -> M {
        let entered = made.and_then(|metric| {
            // A clone of a metric counts in the same series.
            self.registry.register(Box::new(metric.clone()))?;
            Ok(metric)
        });
        match entered {
            Ok(metric) => {
                self.described.push(described);
                metric
            }
            Err(error) => panic!("{} is no metric: {error}", described.name),
        }
    }
}
