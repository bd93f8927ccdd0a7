//! Turns `[tasks]` and `[[tools]]` into the rules for calls.

use std::sync::Arc;
use std::time::Duration;

use super::problem::Problem;
use super::scalar::OrAuto;
use super::settings::AuthSettings;
use super::{concurrency, file};
use crate::task::glob::Glob;
use crate::task::large_results::ResultInline;
use crate::task::policy::{Mode, Rule, Rules};

pub(super) fn rules(tasks: &file::Terms, tools: Vec<file::ToolRule>) -> Result<Rules, Problem> {
    let base = Rule {
        concurrency: concurrency::of_each_tool(tasks, &tools)?,
        attach_window_ms: attach_window(tasks, tasks),
        scopes: scopes(&Rule::default(), tasks, "tasks")?,
        ..Rule::default()
    };
    // An entry that attaches uses the window of `[tasks]`, which then has an effect.
    let attaches_somewhere = tools.iter().any(file::ToolRule::attaches);
    if !attaches_somewhere && base.attach_window_ms.is_none() {
        no_window(tasks, "tasks")?;
    }
    let defaults = rule(&base, tasks, "tasks")?;
    let mut checked = Vec::with_capacity(tools.len());
    for (place, tool) in tools.into_iter().enumerate() {
        let key = format!("tools.{place}");
        let (names, terms) = tool.split();
        let globs = globs(&names, &key)?;
        let base = Rule {
            concurrency: concurrency::of_entry(&defaults, tasks, &terms, &key)?,
            attach_window_ms: attach_window(&terms, tasks),
            scopes: scopes(&defaults, &terms, &key)?,
            ..defaults.clone()
        };
        if base.attach_window_ms.is_none() {
            no_window(&terms, &key)?;
        }
        checked.push((globs, rule(&base, &terms, &key)?));
    }
    Ok(Rules::new(defaults, checked))
}

/// The attach window of an entry. A missing window is as in `[tasks]`, even if only the entry turns `attach`
/// on.
fn attach_window(terms: &file::Terms, tasks: &file::Terms) -> Option<u64> {
    let window = terms.attach_window.or(tasks.attach_window);
    let attaches = terms.attach.or(tasks.attach).unwrap_or(false);
    attaches.then(|| window.map_or(ATTACH_WINDOW_MS, millis))
}

/// Refuses an attach window where no call attaches.
fn no_window(terms: &file::Terms, key: &str) -> Result<(), Problem> {
    let usual = Duration::from_millis(ATTACH_WINDOW_MS);
    // The example file writes the default, which must not be refused.
    if terms.attach_window.is_none_or(|window| window == usual) {
        return Ok(());
    }
    Err(Problem::new(
        format!("{key}.attach_window"),
        "has no effect unless attach is true; set that, too, or take it out",
    ))
}

fn globs(names: &[String], key: &str) -> Result<Vec<Glob>, Problem> {
    let refused = |text: String| Problem::new(format!("{key}.name"), text);
    if names.is_empty() {
        return Err(refused(
            r#"not set; name the tools, with globs if you like: name = ["build_*", "deploy"]"#
                .into(),
        ));
    }
    let is_padded = |name: &&String| name.is_empty() || name.trim().len() < name.len();
    if let Some(name) = names.iter().find(is_padded) {
        let text = format!("{name:?} names no tool: it is empty, or has a space around it");
        return Err(refused(text));
    }
    let parsed = names.iter().map(|name| {
        Glob::parse(name).map_err(|error| refused(format!("{name:?} is not a glob: {error}")))
    });
    parsed.collect()
}

fn rule(base: &Rule, terms: &file::Terms, key: &str) -> Result<Rule, Problem> {
    let ms = |duration: Option<Duration>, base: u64| duration.map_or(base, millis);
    let rule = Rule {
        mode: terms.mode.unwrap_or(base.mode),
        grace_window_ms: ms(terms.grace_window, base.grace_window_ms),
        fallback_after_ms: fallback_after(base, terms),
        require_tasks: terms.require_tasks.unwrap_or(base.require_tasks),
        input: terms.input.unwrap_or(base.input),
        retention_ms: ms(terms.retention, base.retention_ms),
        max_duration_ms: ms(terms.max_duration, base.max_duration_ms),
        poll_interval_ms: ms(terms.poll_interval, base.poll_interval_ms),
        learns_poll_interval: base.learns_poll_interval && terms.poll_interval.is_none(),
        poll_hold_ms: ms(terms.poll_hold, base.poll_hold_ms),
        input_timeout_ms: terms.input_timeout.map(millis).or(base.input_timeout_ms),
        on_input_timeout: (terms.on_input_timeout.clone())
            .unwrap_or_else(|| base.on_input_timeout.clone()),
        input_reminder_ms: terms.input_reminder.map(millis).or(base.input_reminder_ms),
        result_bytes_max: terms
            .result_bytes_max
            .map_or(base.result_bytes_max, |s| s.0),
        result_inline: terms.result_inline.unwrap_or(base.result_inline),
        max_result_size_chars: (terms.max_result_size_chars)
            .map_or(base.max_result_size_chars, |chars| {
                u32::try_from(chars).ok()
            }),
        on_owner_lost: terms.on_owner_lost.unwrap_or(base.on_owner_lost),
        heartbeat: terms.heartbeat.map_or(base.heartbeat, OrAuto::said),
        give_up_window_ms: (terms.give_up_window).map_or(base.give_up_window_ms, |window| {
            Some(millis(window)).filter(|ms| *ms > 0)
        }),
        ..base.clone()
    };
    let refused = |setting: &str, text: &str| Err(Problem::new(format!("{key}.{setting}"), text));
    polls(&rule, key)?;
    if rule.max_duration_ms == 0 {
        return refused(
            "max_duration",
            "every call would fail at once; the default is \"1h\"",
        );
    }
    if rule.mode == Mode::Auto && rule.grace_window_ms > rule.max_duration_ms {
        return refused(
            "grace_window",
            "is longer than max_duration: every call would fail before it became a task",
        );
    }
    if rule.fallback_after_ms == Some(0) {
        return refused(
            "fallback_after",
            "every call would be answered with a ticket; the default is \"auto\"",
        );
    }
    // Only a written value is checked: raincheck's own may be longer than a short max_duration, and does no harm.
    let is_longer = |after: u64| after > rule.max_duration_ms;
    if terms.fallback_after.is_some() && rule.fallback_after_ms.is_some_and(is_longer) {
        return refused(
            "fallback_after",
            "is longer than max_duration: every call would fail before its client gets a ticket",
        );
    }
    check_input(&rule, terms, key)?;
    check_sizes(&rule, terms, key)?;
    if rule.require_tasks && rule.mode == Mode::Never {
        return refused(
            "require_tasks",
            "mode = \"never\" makes no tasks, so requiring them only shuts clients out; drop one \
             of the two",
        );
    }
    Ok(rule)
}

/// Checks the settings of the size of results.
fn check_sizes(rule: &Rule, terms: &file::Terms, key: &str) -> Result<(), Problem> {
    let refused = |setting: &str, text: &str| Err(Problem::new(format!("{key}.{setting}"), text));
    if rule.result_bytes_max == 0 {
        return refused(
            "result_bytes_max",
            r#"no result would fit; the default is "32MiB""#,
        );
    }
    if matches!(rule.result_inline, ResultInline::Bytes(bytes) if bytes < RESULT_INLINE_MIN) {
        return refused(
            "result_inline",
            r#"an excerpt itself has up to 4KiB; the smallest size is "4KiB""#,
        );
    }
    let is_possible = |chars| (1..=RESULT_SIZE_MAX).contains(&chars);
    if !terms.max_result_size_chars.is_none_or(is_possible) {
        return refused(
            "max_result_size_chars",
            "must be from 1 to 500000: Claude Code takes no more",
        );
    }
    Ok(())
}

/// Checks the settings of questions.
fn check_input(rule: &Rule, terms: &file::Terms, key: &str) -> Result<(), Problem> {
    let refused = |setting: &str, text: &str| Err(Problem::new(format!("{key}.{setting}"), text));
    if rule.input_timeout_ms == Some(0) {
        return refused(
            "input_timeout",
            "every question would fail at once; leave it out to wait until max_duration",
        );
    }
    if terms.on_input_timeout.is_some()
        && !rule.on_input_timeout.is_fail()
        && rule.input_timeout_ms.is_none()
    {
        return refused(
            "on_input_timeout",
            "never comes: set input_timeout, too, such as \"10m\"",
        );
    }
    if rule.input_reminder_ms == Some(0) {
        return refused(
            "input_reminder",
            "every question would be told of again at once; leave it out for no reminder",
        );
    }
    if terms.input_reminder.is_some()
        && rule.input_timeout_ms <= rule.input_reminder_ms
        && rule.input_timeout_ms.is_some()
    {
        return refused(
            "input_reminder",
            "comes after input_timeout, when no question is open any more",
        );
    }
    Ok(())
}

fn polls(rule: &Rule, key: &str) -> Result<(), Problem> {
    let refused = |setting: &str, text: &str| Err(Problem::new(format!("{key}.{setting}"), text));
    if rule.poll_interval_ms < POLL_INTERVAL_MIN_MS {
        return refused(
            "poll_interval",
            r#"clients would poll without a pause; the shortest is "10ms""#,
        );
    }
    if rule.poll_hold_ms > POLL_HOLD_MAX_MS {
        return refused(
            "poll_hold",
            r#"clients and the proxies before them give up after 60s; the longest is "50s""#,
        );
    }
    Ok(())
}

fn fallback_after(base: &Rule, terms: &file::Terms) -> Option<u64> {
    let said = terms.fallback_after;
    said.map_or(base.fallback_after_ms, |it| it.said().map(millis))
}

fn scopes(base: &Rule, terms: &file::Terms, key: &str) -> Result<Arc<[Box<str>]>, Problem> {
    let Some(scopes) = &terms.scopes else {
        return Ok(Arc::clone(&base.scopes));
    };
    if let Some(wrong) = scopes.iter().find(|scope| !is_scope(scope)) {
        let text = format!("{wrong:?} is not a scope; write words such as \"tools:run\"");
        return Err(Problem::new(format!("{key}.scopes"), text));
    }
    Ok(scopes.iter().map(|scope| scope.as_str().into()).collect())
}

/// RFC 6749, section 3.3.
fn is_scope(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
    !text.is_empty() && text.bytes().all(plain)
}

/// Scopes that no client can have refuse every call.
pub(super) fn scopes_can_be_had(rules: &Rules, auth: &AuthSettings) -> Result<(), Problem> {
    if auth.takes_tokens() || rules.scopes().next().is_none() {
        return Ok(());
    }
    let entries = std::iter::once(rules.defaults())
        .chain(rules.entries())
        .enumerate();
    let mut keys = entries
        .filter(|(_, rule)| !rule.scopes.is_empty())
        .map(|(place, _)| {
            // The first rule is the one of `[tasks]`, which has no place in the list.
            let place = place.checked_sub(1);
            place.map_or_else(
                || "tasks.scopes".to_owned(),
                |place| format!("tools.{place}.scopes"),
            )
        });
    let key = keys.next().unwrap_or_default();
    let text =
        "set, but nobody is asked who it is: set auth.tokens_file or [[auth.jwt]], or take it out";
    Err(Problem::new(key, text))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

const RESULT_INLINE_MIN: u64 = 4 << 10;

/// The largest size that Claude Code takes, whatever a tool declares.
const RESULT_SIZE_MAX: usize = 500_000;

const POLL_INTERVAL_MIN_MS: u64 = 10;

const POLL_HOLD_MAX_MS: u64 = 50_000;

const ATTACH_WINDOW_MS: u64 = 60_000;
