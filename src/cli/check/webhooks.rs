//! The lines of `raincheck check` for the receivers of webhooks, and for events for clients. No receiver is asked: a
//! message without an event would be new to it.

use crate::config::{Config, NotifySettings, duration_text};
use crate::notify::callbacks::CallbackReach;

/// A line for each receiver, and one for events, each with its subject.
pub(super) fn told(config: &Config) -> impl Iterator<Item = (&'static str, String)> {
    let receivers = config.notify.iter().map(described);
    let events = events(config).map(|text| ("events", text));
    receivers.map(|text| ("webhooks", text)).chain(events)
}

/// A line if clients have raincheck's event.
fn events(config: &Config) -> Option<String> {
    let text = "clients with credentials have raincheck.task.updated, by poll and by stream";
    let webhooks = match config.events?.webhooks {
        None => "",
        Some(CallbackReach::Public) => {
            ", and may subscribe webhooks on the public internet (events.webhooks)"
        }
        Some(CallbackReach::Anywhere) => {
            ", and may subscribe webhooks anywhere, your own network included (events.webhooks)"
        }
    };
    Some(format!("{text}{webhooks}"))
}

/// Only the host is shown: a path may be secret.
fn described(receiver: &NotifySettings) -> String {
    let states: Vec<_> = receiver.states.iter().map(|it| it.word()).collect();
    let retry_ms = u64::try_from(receiver.retry_for.as_millis()).unwrap_or(u64::MAX);
    let scheme = receiver.url.scheme_str().unwrap_or_default();
    let host = receiver.url.host().unwrap_or_default();
    let signed = match receiver.secrets.len() {
        1 => "one secret",
        _ => "two secrets",
    };
    format!(
        "{scheme}://{host} hears of {}, signed with {signed}, tried again for {}",
        states.join(", "),
        duration_text(retry_ms)
    )
}
