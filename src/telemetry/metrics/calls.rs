//! Metrics of calls and of what their clients got.

use prometheus::{HistogramVec, IntCounterVec, IntGauge, IntGaugeVec};

use super::list::{CALL_SECONDS, List};

#[derive(Debug)]
pub struct CallMetrics {
    pub fates: IntCounterVec,
    pub clocks: IntGaugeVec,
    pub duration: HistogramVec,
    pub failed: IntCounterVec,
    pub remote_checks: IntCounterVec,
    pub refusals: IntCounterVec,
    pub limits: IntGaugeVec,
    pub limits_reached: IntGaugeVec,
    pub pauses: IntGauge,
}

impl CallMetrics {
    pub(super) fn new(list: &mut List) -> Self {
        Self {
            fates: list.counters(
                "raincheck_calls_total",
                "Tool calls that raincheck carried, by what their clients got: `plain` (the answer itself), \
                 `task`, `ticket` (a task for a client without Tasks), `question` (asked before there was a \
                 task), `joined` (the record of a call that was made before), `gave_up` (nothing: its clock \
                 ended, and the call runs on for the same call to collect it), `still_running` (an error shortly \
                 before its clock ended; the call runs on, and counts as `gave_up`, too), `refused` (raincheck was \
                 busy; nothing was sent).",
                &["tool", "fate"],
            ),
            clocks: list.gauges(
                "raincheck_client_clock_seconds",
                "The time after which a client gives calls of the tool up (the shortest, if several do), for the tools \
                 of which that was learned lately: a call of that client is answered shortly before.",
                &["tool"],
            ),
            duration: list.histograms(
                "raincheck_call_duration_seconds",
                "Seconds from the beginning of a call to its plain answer, by outcome: `completed`, \
                 `tool_error` (the tool says `isError`), `failed`.",
                &["tool", "outcome"],
                CALL_SECONDS,
            ),
            failed: list.counters(
                "raincheck_calls_failed_total",
                "Calls that raincheck itself answered with a failure, by its reason and effect (errors.md).",
                &["tool", "reason", "effect"],
            ),
            remote_checks: list.counters(
                "raincheck_remote_task_checks_total",
                "Requests for the state of a task or a job that the server runs for a call, by what came of it: `state` (the state), \
                 `failed` (no answer, or an error), `gone` (not known now), `refused` (no such task), `unauthorized` (other \
                 credentials are wanted).",
                &["outcome"],
            ),
            refusals: list.counters(
                "raincheck_refusals_total",
                "Requests that a limit refused, by the setting of the limit. `drain` counts the calls that came \
                 after the drain had begun; `limits.buffer_bytes_max` counts one caller's share of it, too; \
                 `limits.tasks` stands for all four quotas of tasks; `limits.connections` counts the connections \
                 without a whole request that gave way; `upstream.sessions_max` stands for `upstream.children_max`, \
                 too; `paused` counts the calls of tools that an operator has paused.",
                &["limit"],
            ),
            limits: list.gauges(
                "raincheck_limit",
                "The limit, by its setting, as it is now: of `limits.buffer_bytes_max` the three quarters of which \
                 `raincheck_limit_highest` speaks.",
                &["limit"],
            ),
            limits_reached: list.gauges(
                "raincheck_limit_highest",
                "The most that was in use of the limit at one time since the start. Divided by `raincheck_limit`: how near \
                 this replica came to refusals. `limits.buffer_bytes_max`: of the three quarters of it that are for what is \
                 larger than 16 KiB; answers may take twice as much. A limit of one caller: of the caller that had most. \
                 The tasks and their bytes: those that this replica made.",
                &["limit"],
            ),
            pauses: list.gauge(
                "raincheck_pauses",
                "Pauses of tools that are in force (`raincheck tools`).",
            ),
        }
    }
}
