//! The differences between the settings that a process runs on and the settings as they are written now.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::fingerprints::{RULES, flat};
use super::settings::Config;

/// One setting that differs, by its name in the file. Secrets are not shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedSetting {
    pub setting: String,
    /// `Null`: it was not set.
    pub before: Value,
    pub after: Value,
}

impl ChangedSetting {
    /// Returns `true` if the change applies while the process runs. All other changes need a restart.
    pub fn is_live(&self) -> bool {
        is_live(&self.setting)
    }
}

fn is_live(setting: &str) -> bool {
    match setting {
        // The names of tools that clients have seen.
        "tasks.companion_tools" | "tasks.companion_prefix" => false,
        "telemetry.log"
        | "telemetry.access_log"
        | "jobs"
        | "tools"
        | "upstream.concurrency"
        | "upstream.queue" => true,
        setting => ["tasks.", RULES, "limits."]
            .iter()
            .any(|section| setting.starts_with(section)),
    }
}

impl Config {
    /// The settings that differ in `next`, in the order of their names.
    pub fn changes(&self, next: &Self) -> Vec<ChangedSetting> {
        let (shown_before, shown_after) = (flat(&self.shown), flat(&next.shown));
        let (before, after) = (&self.fingerprints, &next.fingerprints);
        let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
        names.sort_unstable();
        names.dedup();
        let shown = |of: &BTreeMap<String, Value>, name| of.get(name).cloned().unwrap_or_default();
        let mut changes: Vec<ChangedSetting> = names
            .into_iter()
            .filter(|name| before.get(*name) != after.get(*name))
            .map(|name| ChangedSetting {
                setting: name.clone(),
                before: shown(&shown_before, name),
                after: shown(&shown_after, name),
            })
            .collect();
        let contents = self.changed_contents(next).into_iter();
        for (section, setting) in contents {
            // A changed setting of the section is the cause that is reported.
            if !changes.iter().any(|it| it.setting.starts_with(section)) {
                changes.push(ChangedSetting {
                    setting: setting.to_owned(),
                    before: json!("[secret]"),
                    after: json!("[secret]"),
                });
            }
        }
        changes
    }

    /// Sections whose settings are written as before, and that mean something else because a file with a secret has changed.
    fn changed_contents(&self, next: &Self) -> Vec<(&'static str, &'static str)> {
        let mut upstream = next.upstream.clone();
        // This setting is live and has an entry of its own, so it is not compared here.
        upstream.concurrency = self.upstream.concurrency;
        let sections = [
            (
                self.store != next.store,
                "store.",
                "store (the content of a file)",
            ),
            (
                self.upstream != upstream,
                "upstream.",
                "upstream (the content of a file)",
            ),
            (
                self.admin != next.admin,
                "admin.",
                "admin (the content of a file)",
            ),
            (
                self.telemetry.traces != next.telemetry.traces,
                "telemetry.traces",
                "telemetry.traces (the content of a file)",
            ),
            (
                self.notify != next.notify,
                "notify",
                "notify (the content of a file)",
            ),
            (
                self.drain != next.drain,
                "drain.",
                "drain.token_file (its content)",
            ),
        ];
        let changed = sections.into_iter().filter(|(is_changed, ..)| *is_changed);
        changed
            .map(|(_, section, setting)| (section, setting))
            .collect()
    }

    /// These settings, with those of `next` that apply while the process runs.
    #[must_use]
    pub fn with_live(&self, next: Self) -> Self {
        // The fingerprints of settings that need a restart stay, so that a later reload reports them again.
        let mut fingerprints = self.fingerprints.as_ref().clone();
        fingerprints.retain(|name, _| !is_live(name));
        let live = next.fingerprints.iter().filter(|(name, _)| is_live(name));
        fingerprints.extend(live.map(|(name, hash)| (name.clone(), *hash)));
        let mut config = self.clone();
        let shown = live_shown("", Some(&self.shown), Some(&next.shown));
        config.shown = shown.unwrap_or_default().into();
        config.fingerprints = fingerprints.into();
        config.upstream.concurrency = next.upstream.concurrency;
        config.telemetry.log = next.telemetry.log;
        config.telemetry.access_log = next.telemetry.access_log;
        config.limits = next.limits;
        config.rules = next.rules;
        config
    }
}

/// Returns the settings that count after a reload, to be shown: those of `next` that are live, and the others of `before`.
fn live_shown(setting: &str, before: Option<&Value>, next: Option<&Value>) -> Option<Value> {
    if is_live(setting) {
        return next.cloned();
    }
    let members = |of: Option<&Value>| of.and_then(Value::as_object).cloned();
    let (own, others) = (members(before), members(next));
    if own.is_none() && others.is_none() {
        return before.cloned();
    }
    // A section may be in one of them only.
    let is_new = own.is_none();
    let (before, next) = (own.unwrap_or_default(), others.unwrap_or_default());
    let names: BTreeSet<_> = before.keys().chain(next.keys()).collect();
    let shown: Map<_, _> = names
        .into_iter()
        .filter_map(|name| {
            let inner = if setting.is_empty() {
                name.clone()
            } else {
                format!("{setting}.{name}")
            };
            let value = live_shown(&inner, before.get(name), next.get(name))?;
            Some((name.clone(), value))
        })
        .collect();
    (!is_new || !shown.is_empty()).then_some(Value::Object(shown))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::load::{Flags, load};

    fn config(text: &str) -> Config {
        let file = tempfile(text);
        let flags = Flags {
            config: Some(file.clone()),
            upstream: Some("http://127.0.0.1:1/mcp".into()),
            store: Some("memory:".into()),
            ..Flags::default()
        };
        let config = load(&flags, &[]).unwrap();
        std::fs::remove_file(file).unwrap();
        config
    }

    fn tempfile(text: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("raincheck-{}.toml", uuid::Uuid::new_v4()));
        std::fs::write(&path, text).unwrap();
        path
    }

    fn names(changes: &[ChangedSetting]) -> Vec<(&str, bool)> {
        let names = changes.iter();
        names.map(|it| (&*it.setting, it.is_live())).collect()
    }

    #[test]
    fn what_is_shown_after_a_reload_is_live_or_as_before() {
        let before = json!({"store": {"url": "a"}, "tasks": {"mode": "auto", "companion_tools": true}, "tools": [1]});
        let next = json!({
            "store": {"url": "b"}, "tasks": {"companion_prefix": "x"}, "tools": [2], "limits": {"calls": 1}, "drain": {"grace": "1s"},
            "telemetry": {"log": "debug", "metrics": true},
        });
        assert_eq!(
            live_shown("", Some(&before), Some(&next)).unwrap(),
            json!({
                "store": {"url": "a"}, "tasks": {"companion_tools": true}, "tools": [2], "limits": {"calls": 1},
                "telemetry": {"log": "debug"},
            })
        );
    }

    #[test]
    fn changes_are_named_as_in_the_file_and_say_whether_they_need_a_restart() {
        let before = config("[tasks]\nmode = \"auto\"\n");
        let after = config(
            "[replica]\nid = \"x\"\n[tasks]\nmode = \"never\"\n[limits]\ncalls = 7\n\
             [[tools]]\nname = [\"a\", \"b*\"]\nmode = \"always\"\n",
        );
        let changes = before.changes(&after);
        assert_eq!(
            names(&changes),
            [
                ("[[tools]]", true),
                ("[[tools]] a, b*: mode", true),
                ("limits.calls", true),
                ("replica.id", false),
                ("tasks.mode", true),
            ]
        );
        assert_eq!(changes[4].before, "auto");
        assert_eq!(changes[4].after, "never");
        assert!(after.changes(&after).is_empty());

        let now = before.with_live(after.clone());
        assert_eq!(names(&now.changes(&after)), [("replica.id", false)]);
        assert_eq!(now.shown["tasks"]["mode"], "never");
        assert_eq!(now.shown["replica"].get("id"), None);
        assert_eq!(now.limits.calls, 7);
    }

    #[test]
    fn a_changed_secret_is_seen_and_not_shown() {
        let with = |token: &str| {
            config(&format!(
                "[admin]\nlisten = \"127.0.0.1:0\"\ntoken = {token:?}\n"
            ))
        };
        let (one, other) = (with("0123456789abcdef"), with("fedcba9876543210"));
        let changes = one.changes(&other);
        assert_eq!(names(&changes), [("admin.token", false)]);
        assert_eq!(changes[0].after, "[secret]");
        let named = |token: &str| {
            let operator = format!("[[admin.operators]]\nname = \"ada\"\ntoken = {token:?}\n");
            config(&format!("[admin]\nlisten = \"127.0.0.1:0\"\n{operator}"))
        };
        let (ada, renewed) = (named("0123456789abcdef"), named("fedcba9876543210"));
        let changes = ada.changes(&renewed);
        assert_eq!(names(&changes), [("admin.operators", false)]);
        assert_eq!(changes[0].after[0]["token"], "[secret]");
        let kept = format!("{:?}", Arc::as_ref(&one.fingerprints));
        assert!(!kept.contains("0123456789abcdef"));
    }

    #[test]
    fn the_order_of_rules_counts_and_a_rule_keeps_its_name() {
        let rule = |name: &str| format!("[[tools]]\nname = {name:?}\nmode = \"always\"\n");
        let before = config(&(rule("a") + &rule("b")));
        let after = config(&(rule("b") + &rule("a")));
        assert_eq!(names(&before.changes(&after)), [("[[tools]]", true)]);
    }
}
