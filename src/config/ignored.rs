//! Finds variables of the environment that look like settings and are none: such a variable would be left out without
//! a word.

use super::otel::Variables;
use super::problem::{ENVIRONMENT_PREFIX, distance};

/// The sections, as variables name them.
const SECTIONS: [&str; 12] = [
    "LISTEN",
    "UPSTREAM",
    "STORE",
    "TASKS",
    "TOOLS",
    "EVENTS",
    "REPLICA",
    "DRAIN",
    "ADMIN",
    "AUTH",
    "LIMITS",
    "TELEMETRY",
];

/// Names that people write for a setting, each with the variable that they mean.
const MEANT: [(&str, &str); 8] = [
    ("UPSTREAM", "UPSTREAM__URL"),
    ("LISTEN", "LISTEN__ADDRESS"),
    ("STORE", "STORE__URL"),
    ("NAMESPACE", "STORE__NAMESPACE"),
    ("RULES", "TASKS__RULES"),
    ("RULES_FILE", "TASKS__RULES_FILE"),
    ("LOG", "TELEMETRY__LOG"),
    ("LOG_LEVEL", "TELEMETRY__LOG"),
];

/// The variables that are not read although their names look like settings, each with what to do.
pub(super) fn variables(environment: &[(String, String)]) -> Vec<(String, String)> {
    // Kubernetes puts such variables into every pod for each Service, such as one that is called raincheck-store.
    let hosts = environment.iter();
    let services: Vec<_> = hosts
        .filter_map(|(name, _)| name.strip_suffix("SERVICE_HOST"))
        .collect();
    let is_of_a_service = |name: &str| {
        let mut rests = services.iter().filter_map(|it| name.strip_prefix(it));
        rests.any(|rest| rest.starts_with("SERVICE_") || rest.starts_with("PORT"))
    };
    let mut found: Vec<_> = environment
        .iter()
        .filter(|(name, _)| !is_of_a_service(name))
        .filter_map(|(name, _)| {
            let Some(rest) = name.strip_prefix(ENVIRONMENT_PREFIX) else {
                let capitals = name.to_ascii_uppercase();
                // Only capitals are read, because the names of variables are case-sensitive.
                let meant = if capitals.starts_with(ENVIRONMENT_PREFIX) {
                    Some(capitals)
                } else {
                    with_right_prefix(&capitals)
                };
                return meant.map(|meant| (name.clone(), format!("not read; write {meant}")));
            };
            Some((name.clone(), advice(rest)?))
        })
        .collect();
    found.extend(Variables::new(environment).ignored());
    found.sort_unstable();
    found
}

/// The variable that is meant by one whose prefix is misspelt, such as `RAINCHEK_STORE__URL`. Two underscores behind the name
/// of a section are in no variable of other programs by chance.
fn with_right_prefix(name: &str) -> Option<String> {
    let (sections, _) = name.split_once("__")?;
    let (prefix, section) = sections.rsplit_once('_')?;
    let setting = name.strip_prefix(prefix)?.strip_prefix('_')?;
    let right = ENVIRONMENT_PREFIX.trim_end_matches('_');
    let is_meant = SECTIONS.contains(&section) && distance(prefix, right) <= 2;
    is_meant.then(|| format!("{ENVIRONMENT_PREFIX}{setting}"))
}

/// Returns the advice for a variable without `__`. `None`: the variable is a setting, or none of ours.
fn advice(rest: &str) -> Option<String> {
    for (list, name) in [("tools", "TOOLS"), ("jobs", "JOBS")] {
        let behind = rest.strip_prefix(name);
        if behind.is_some_and(|behind| behind.is_empty() || behind.starts_with('_')) {
            return Some(format!(
                "[[{list}]] has another form in the environment: RAINCHECK_TASKS__RULES, a text in TOML"
            ));
        }
    }
    if rest == "NOTIFY" || rest.starts_with("NOTIFY_") {
        return Some("[[notify]] has no form in the environment: write it in the file".into());
    }
    if rest == "CONFIG" {
        return Some("name the file with --config".into());
    }
    if rest.contains("__") {
        let is_whole = rest.split("__").all(|part| !part.is_empty());
        let text = "not read: a section or a setting is missing in the name";
        return (!is_whole).then(|| text.into());
    }
    if let Some((_, meant)) = MEANT.iter().find(|(written, _)| *written == rest) {
        return Some(format!("not read; write {ENVIRONMENT_PREFIX}{meant}"));
    }
    let (section, setting) = rest.split_once('_')?;
    if !SECTIONS.contains(&section) || setting.is_empty() {
        return None;
    }
    Some(format!(
        "not read: two underscores join a section and its setting; write \
         {ENVIRONMENT_PREFIX}{section}__{setting}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(names: &[&str]) -> Vec<String> {
        let environment: Vec<_> = names
            .iter()
            .map(|name| ((*name).to_owned(), "x".to_owned()))
            .collect();
        let found = variables(&environment).into_iter();
        found.map(|(name, why)| format!("{name}: {why}")).collect()
    }

    #[test]
    fn what_looks_like_a_setting_and_is_none_is_told() {
        assert_eq!(
            told(&[
                "RAINCHECK_STORE_URL",
                "RAINCHECK_STORE__",
                "RAINCHECK_EVENTS_ENABLED",
                "RAINCHECK_NOTIFY_URL",
                "raincheck_store__url",
                "RAINCHEK_STORE__URL",
                "RAIN_CHECK_UPSTREAM__ENV__A_B",
                "Raincheck_Admin__Token",
                "RAINCHECK_LOG",
                "RAINCHECK_TOOLS",
                "OTEL_EXPORTER_OTLP_TIMEOUT",
            ]),
            [
                "OTEL_EXPORTER_OTLP_TIMEOUT: not read: raincheck has no such setting for its traces",
                "RAINCHECK_EVENTS_ENABLED: not read: two underscores join a section and its setting; write \
                 RAINCHECK_EVENTS__ENABLED",
                "RAINCHECK_LOG: not read; write RAINCHECK_TELEMETRY__LOG",
                "RAINCHECK_NOTIFY_URL: [[notify]] has no form in the environment: write it in the file",
                "RAINCHECK_STORE_URL: not read: two underscores join a section and its setting; write \
                 RAINCHECK_STORE__URL",
                "RAINCHECK_STORE__: not read: a section or a setting is missing in the name",
                "RAINCHECK_TOOLS: [[tools]] has another form in the environment: RAINCHECK_TASKS__RULES, a text in TOML",
                "RAINCHEK_STORE__URL: not read; write RAINCHECK_STORE__URL",
                "RAIN_CHECK_UPSTREAM__ENV__A_B: not read; write RAINCHECK_UPSTREAM__ENV__A_B",
                "Raincheck_Admin__Token: not read; write RAINCHECK_ADMIN__TOKEN",
                "raincheck_store__url: not read; write RAINCHECK_STORE__URL",
            ]
        );
    }

    #[test]
    fn what_kubernetes_and_others_write_is_left_alone() {
        let others = [
            "RAINCHECK_PORT",
            "RAINCHECK_SERVICE_HOST",
            "RAINCHECK_PORT_8440_TCP_ADDR",
            "RAINCHECK_STORE_SERVICE_HOST",
            "RAINCHECK_STORE_PORT_6379_TCP",
            "RAINCHECK_TOOLS_SERVICE_HOST",
            "RAINCHECK_TOOLS_PORT",
            "RAINCHECK_STORE_REDIS_SERVICE_HOST",
            "RAINCHECK_STORE_REDIS_PORT_6379_TCP_ADDR",
            "RAINCHECK_STORE__URL",
            "RAINCHECK_UPSTREAM__ENV__A_B",
            "RANCHER_STORE__URL",
            "RAINCHEK_STORE_URL",
            "AIRFLOW__LOGGING__LEVEL",
            "PATH",
        ];
        assert_eq!(told(&others), [""; 0]);
    }
}
