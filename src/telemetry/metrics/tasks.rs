//! Metrics of tasks.

use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge};

use super::list::{CALL_SECONDS, List, POLLS};

#[derive(Debug)]
pub struct TaskMetrics {
    pub announced: IntCounterVec,
    pub ended: IntCounterVec,
    pub duration: HistogramVec,
    pub queue: HistogramVec,
    pub input: HistogramVec,
    pub questions: IntCounterVec,
    pub waiting: WaitingMetrics,
    pub takeovers: IntCounter,
    pub releases: IntCounter,
    pub recoveries: IntCounterVec,
    pub lateness: Histogram,
    pub polls: Histogram,
    pub uncollected: IntCounter,
}

impl TaskMetrics {
    pub(super) fn new(list: &mut List) -> Self {
        Self {
            announced: list.counters(
                "raincheck_tasks_total",
                "Tasks that clients heard of.",
                &["tool"],
            ),
            ended: list.counters(
                "raincheck_tasks_ended_total",
                "Tasks that ended, by outcome: `completed`, `tool_error` (the tool says `isError`), `failed`, \
                 `cancelled`. Where raincheck itself failed the task, reason and effect are those of errors.md, \
                 else they are empty.",
                &["tool", "outcome", "reason", "effect"],
            ),
            duration: list.histograms(
                "raincheck_task_duration_seconds",
                "Seconds from the record of a task to its end.",
                &["tool", "outcome"],
                CALL_SECONDS,
            ),
            queue: list.histograms(
                "raincheck_task_queue_seconds",
                "Seconds that a task waited for its turn (`concurrency`) before it was first sent to the server.",
                &["tool"],
                CALL_SECONDS,
            ),
            input: list.histograms(
                "raincheck_task_input_seconds",
                "Seconds in which a task with questions waited for its client's answers.",
                &["tool"],
                CALL_SECONDS,
            ),
            questions: list.counters(
                "raincheck_questions_total",
                "Questions in tasks: `asked` by the server, `answered`; of these, `by_rule` because nobody answered in time; \
                 `reminded`: told of again after `input_reminder`.",
                &["what"],
            ),
            waiting: WaitingMetrics::new(list),
            takeovers: list.counter(
                "raincheck_takeovers_total",
                "Tasks of lost owners that this replica carries on.",
            ),
            releases: list.counter(
                "raincheck_releases_total",
                "Tasks that this replica left to others when it drained, or to the next request of their client.",
            ),
            recoveries: list.counters(
                "raincheck_recoveries_total",
                "Tasks of lost owners that this replica handled, by what it did: `resumed` (it fetches the answer), \
                 `dispatched` (it sends the call), `failed` (the effect may be unknown), `told` (the task had ended, \
                 and the server was told that no client waits), `waits_for_client` (the next request of its client carries it on).",
                &["outcome"],
            ),
            lateness: list.histogram(
                "raincheck_poll_lateness_seconds",
                "Seconds from the end of a task to the first request of its client that saw the end. Only requests \
                 at this replica count.",
                CALL_SECONDS,
            ),
            polls: list.histogram(
                "raincheck_task_polls",
                "Requests for a task, up to the first that saw its end. Only requests at this replica count.",
                POLLS,
            ),
            uncollected: list.counter(
                "raincheck_tasks_uncollected_total",
                "Tasks that this replica ended and that expired before a client saw the end. With several replicas, \
                 a task whose client asks another replica counts, too.",
            ),
        }
    }
}

/// Metrics of the tasks that wait for their clients' answers.
#[derive(Debug)]
pub struct WaitingMetrics {
    pub count: IntGauge,
    pub oldest_seconds: IntGauge,
}

impl WaitingMetrics {
    fn new(list: &mut List) -> Self {
        let count = list.gauge(
                "raincheck_tasks_waiting",
                "Tasks that wait for their client's answers, as far as this replica changed them last: the sum over \
                 all replicas is their number. A task that a process changed last which has ended counts again from \
                 its next change.",
    );
        let oldest = list.gauge(
            "raincheck_tasks_waiting_oldest_seconds",
            "Seconds that the oldest of those tasks has waited. 0: none waits.",
        );
        Self {
            count,
            oldest_seconds: oldest,
        }
    }
}
