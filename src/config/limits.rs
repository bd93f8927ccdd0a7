//! Checks `[limits]`.

use super::common::{PERMITS_MAX, positive};
use super::file;
use super::problem::Problem;
use super::settings::{LimitSettings, Quota};

impl TryFrom<file::Limits> for LimitSettings {
    type Error = Problem;

    fn try_from(file: file::Limits) -> Result<Self, Problem> {
        let body_bytes_max = usize::try_from(file.body_bytes_max.0).unwrap_or(usize::MAX);
        for (key, number) in [
            ("limits.body_bytes_max", body_bytes_max),
            ("limits.calls", file.calls),
            ("limits.connections", file.connections),
            (
                "limits.calls_per_caller",
                file.calls_per_caller.unwrap_or(1),
            ),
            (
                "limits.requests_per_caller",
                file.requests_per_caller.unwrap_or(1),
            ),
            ("limits.listen_task_ids", file.listen_task_ids),
            ("limits.tasks", file.tasks),
            ("limits.tasks_per_caller", file.tasks_per_caller),
        ] {
            if number == 0 {
                let text = "must be more than 0: nothing could be served";
                return Err(Problem::new(key, text));
            }
        }
        if file.calls > PERMITS_MAX || file.connections > PERMITS_MAX {
            let text = "calls and connections are limited to 1000000";
            return Err(Problem::new("limits", text));
        }
        let buffer_bytes_max = usize::try_from(file.buffer_bytes_max.0).unwrap_or(usize::MAX);
        // Where clients are asked who they are, one caller has half of the buffer, and its largest body must fit into
        // that.
        if buffer_bytes_max / 2 < body_bytes_max {
            let text = "must be at least twice limits.body_bytes_max: the largest request would \
                        never have room";
            return Err(Problem::new("limits.buffer_bytes_max", text));
        }
        positive("limits.header_timeout", file.header_timeout)?;
        Ok(Self {
            body_bytes_max,
            buffer_bytes_max,
            calls: file.calls,
            connections: file.connections,
            calls_per_caller: file.calls_per_caller.unwrap_or_else(|| half(file.calls)),
            requests_per_caller: file
                .requests_per_caller
                .unwrap_or_else(|| half(file.connections)),
            header_timeout: file.header_timeout,
            listen_task_ids: file.listen_task_ids,
            held_polls: file
                .held_polls
                .unwrap_or_else(|| half(file.connections))
                .min(PERMITS_MAX),
            tasks: Quota {
                entries: file.tasks,
                bytes: file.task_bytes.0,
            },
            tasks_per_caller: Quota {
                entries: file.tasks_per_caller,
                bytes: file.task_bytes_per_caller.0,
            },
        })
    }
}

/// One caller may have half of what there is, and everything where that is one.
pub fn half(all: usize) -> usize {
    (all / 2).max(1)
}
