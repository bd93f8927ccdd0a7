//! Finds settings that have no effect in this configuration. They are reported and not refused, because a
//! file may be shared with other configurations.

use super::companion::PREFIX;
use super::file::{File, History, Terms, ToolRule};
use super::file_store::Store;
use super::file_telemetry::Traces;
use super::scalar::OrAuto;

/// The settings without effect, each with the reason. A setting at its default is not reported.
pub(super) fn settings(file: &File) -> Vec<(&'static str, &'static str)> {
    let all = of_store(&file.store)
        .into_iter()
        .chain(of_tasks(&file.tasks, &file.tools))
        .chain([
            (
                "admin.ready_needs_store",
                // Both listeners report the readiness, so either of them gives the setting an effect.
                file.admin.ready_needs_store
                    && file.admin.probes.is_none()
                    && file.admin.listen.is_none(),
                "has no effect without admin.probes",
            ),
            (
                "admin.token",
                file.admin.token.is_some() && file.admin.listen.is_none(),
                "nobody listens for it without admin.listen",
            ),
            (
                "admin.operators",
                !file.admin.operators.is_empty() && file.admin.listen.is_none(),
                "nobody listens for them without admin.listen",
            ),
            (
                "history",
                file.history != History::default() && file.admin.listen.is_none(),
                "nobody reads it without admin.listen, so nothing is kept",
            ),
        ]);
    all.filter(|(_, is_unused, _)| *is_unused)
        .map(|(setting, _, why)| (setting, why))
        .collect()
}

/// The first setting of traces that is written although spans go nowhere.
pub(super) fn of_traces(written: &Traces) -> Option<(&'static str, &'static str)> {
    let written = [
        ("telemetry.traces.ratio", written.ratio.is_some()),
        (
            "telemetry.traces.service_name",
            written.service_name.is_some(),
        ),
        ("telemetry.traces.roots", written.roots.is_some()),
        ("telemetry.traces.headers", !written.headers.is_empty()),
        (
            "telemetry.traces.header_files",
            !written.header_files.is_empty(),
        ),
    ];
    let (setting, _) = written.into_iter().find(|(_, is_written)| *is_written)?;
    Some((setting, "has no effect without telemetry.traces.endpoint"))
}

type Checked = (&'static str, bool, &'static str);

fn of_store(store: &Store) -> [Checked; 7] {
    let url = store.url.as_ref().map_or("", |url| url.expose());
    let elsewhere = !url.starts_with("redis");
    let in_memory = url == "memory:";
    let seals = store.seal_key.is_some();
    let waits = store.wait_replicas > 0 || store.wait_aof;
    let usual = Store::default();
    [
        (
            "store.namespace",
            elsewhere && store.namespace.is_some(),
            "has an effect only if store.url is a Redis",
        ),
        (
            "store.seal",
            in_memory && store.seal != usual.seal,
            "has no effect in memory: nothing is stored anywhere",
        ),
        (
            "store.seal_key",
            in_memory && seals,
            "has no effect in memory: nothing is stored anywhere",
        ),
        (
            "store.seal_key_previous",
            store.seal_key_previous.is_some() && (in_memory || !seals),
            "has an effect only with store.seal_key",
        ),
        (
            "store.allow_eviction",
            elsewhere && store.allow_eviction,
            "has an effect only if store.url is a Redis",
        ),
        (
            "store.required_at_start",
            elsewhere && !store.required_at_start,
            "has an effect only if store.url is a Redis: a file opens at the start or never",
        ),
        (
            "store.wait_timeout",
            !waits && store.wait_timeout != usual.wait_timeout,
            "has no effect without store.wait_replicas or store.wait_aof",
        ),
    ]
}

fn of_tasks(tasks: &Terms, tools: &[ToolRule]) -> [Checked; 4] {
    let has_companion = tasks.companion_tools != Some(OrAuto::Said(false));
    let fallback = tasks.fallback_after.is_some_and(|it| it != OrAuto::Auto);
    let fallback = fallback || tools.iter().any(ToolRule::follows_patience);
    let prefix = tasks.companion_prefix.as_deref();
    let no_rules = "there is no [[tools]] in it";
    [
        (
            "tasks.rules_file",
            tasks.rules_file.is_some() && tools.is_empty(),
            no_rules,
        ),
        (
            "tasks.rules",
            tasks.rules.is_some() && tools.is_empty(),
            no_rules,
        ),
        (
            "tasks.fallback_after",
            !has_companion && fallback,
            "has no effect if tasks.companion_tools is false",
        ),
        (
            "tasks.companion_prefix",
            !has_companion && prefix.is_some_and(|it| it != PREFIX),
            "has no effect if tasks.companion_tools is false",
        ),
    ]
}
