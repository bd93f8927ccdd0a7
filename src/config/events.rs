//! Turns `[events]` into what clients have of the MCP Events extension.

use super::file;
use super::problem::Problem;
use super::scalar::words;
use super::settings::{AdminSettings, AuthSettings};
use super::settings_events::{EventSettings, WrittenWebhooks};
use crate::notify::callbacks::CallbackReach;

words!(
    WrittenWebhooks:
    "off" => Self::Off,
    "public" => Self::To(CallbackReach::Public);
    or "anywhere" => Self::To(CallbackReach::Anywhere)
);

/// `None`: clients have no events of raincheck.
pub(super) fn events(
    written: &file::Events,
    auth: &AuthSettings,
    admin: &AdminSettings,
    for_one_client: bool,
) -> Result<Option<EventSettings>, Problem> {
    let webhooks = match written.webhooks {
        WrittenWebhooks::Off => None,
        WrittenWebhooks::To(reach) => Some(reach),
    };
    // The one client of a pipe has no credentials, so it can own no subscription.
    let webhooks = webhooks.filter(|_| !for_one_client);
    if webhooks.is_some() && written.enabled && !auth.asks() {
        let text = "set, but nobody is asked who it is, and only a client that has proved who it is may subscribe: set \
                    auth.tokens_file, auth.client_roots or [[auth.jwt]], or take it out";
        return Err(Problem::new("events.webhooks", text));
    }
    let reaches_operators = admin.listen.is_some() && !admin.asks();
    if webhooks == Some(CallbackReach::Anywhere) && written.enabled && reaches_operators {
        let text = "\"anywhere\", so that clients may have messages sent to this machine, where admin.listen does what \
                    anybody asks: set admin.token or [[admin.operators]], too, or write \"public\"";
        return Err(Problem::new("events.webhooks", text));
    }
    Ok(written.enabled.then_some(EventSettings { webhooks }))
}

/// The settings of events that have no effect, each with the reason.
pub(super) fn unused(
    written: &file::Events,
    for_one_client: bool,
) -> impl Iterator<Item = (&'static str, &'static str)> {
    let has_webhooks = written.webhooks != WrittenWebhooks::Off;
    let all = [
        (
            "events.enabled",
            for_one_client && written.enabled,
            "has no effect: the one client has no credentials",
        ),
        (
            "events.webhooks",
            for_one_client && has_webhooks,
            "has no effect: the one client has no credentials",
        ),
        (
            "events.webhooks",
            !for_one_client && has_webhooks && !written.enabled,
            "has no effect without events.enabled",
        ),
    ];
    let unused = all.into_iter().filter(|(_, is_unused, _)| *is_unused);
    unused.map(|(setting, _, why)| (setting, why))
}
