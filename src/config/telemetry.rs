//! From `[telemetry]` to what operators see.

use tracing::level_filters::LevelFilter;

use super::file_telemetry::Telemetry;
use super::problem::Problem;
use super::settings::{ReplicaSettings, TelemetrySettings};
use super::traces;

pub(super) fn telemetry(
    file: Telemetry,
    environment: &[(String, String)],
    replica: &ReplicaSettings,
) -> Result<TelemetrySettings, Problem> {
    if !file.log.split(',').all(|part| is_log_filter(part.trim())) {
        let text = format!(
            "{:?} is not a log filter; write \"error\", \"warn\", \"info\", \"debug\", \
             \"trace\", \"off\" or \"info,raincheck=debug\"",
            file.log
        );
        return Err(Problem::new("telemetry.log", text));
    }
    if !file.log.split(',').any(|part| is_of_ours(part.trim())) {
        let text = format!(
            "{:?} would log nothing of raincheck itself; write \"info,{}\"",
            file.log, file.log
        );
        return Err(Problem::new("telemetry.log", text));
    }
    Ok(TelemetrySettings {
        log: file.log,
        format: file.format,
        access_log: file.access_log,
        traces: traces::traces(file.traces, environment, &replica.id)?,
    })
}

/// Returns `true` if this is a level, or a module with a level. A module alone would silence all other modules.
fn is_log_filter(part: &str) -> bool {
    let (module, level) = part.split_once('=').unwrap_or(("any", part));
    let is_path = |c: char| c.is_ascii_alphanumeric() || "_:-".contains(c);
    let names_module = !module.is_empty() && module.chars().all(is_path);
    names_module && !level.is_empty() && level.parse::<LevelFilter>().is_ok()
}

/// Returns `true` if this part of a filter applies to raincheck's own modules.
fn is_of_ours(part: &str) -> bool {
    part.split_once('=')
        .is_none_or(|(module, _)| module.starts_with("raincheck"))
}
