//! What `raincheck check` says of the receivers of webhooks. None is asked: a message that tells of nothing would be new
//! to it.

use crate::config::{Config, NotifySettings, duration_text};

/// A line for each receiver.
pub(super) fn webhooks(config: &Config) -> impl Iterator<Item = String> {
    config.notify.iter().map(described)
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
